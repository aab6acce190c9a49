"""WEKOS, M-NET and SimBow beside their slow twins."""

import numpy as np
import pytest
import slow_systems
from gensim.corpora import Dictionary
from gensim.models import KeyedVectors, TfidfModel
from gensim.similarities import SparseTermSimilarityMatrix, WordEmbeddingSimilarityIndex
from hypothesis import given, settings
from hypothesis import strategies as st
from made_collections import (
    DIMENSIONS,
    all_pairs,
    as_dict,
    collection_of,
    random_collection,
    random_vectors,
    words_of,
)
from ranked_systems import check, cosines

from dupq_papers.settings import PaperWordVectors
from dupq_papers.systems.mnet import MNet, tagged_vectors, with_tags
from dupq_papers.systems.simbow import SimBow
from dupq_papers.systems.vectors import WordVectors
from dupq_papers.systems.wekos import Wekos, clusters_of

SEEDS = st.integers(0, 1000)
FEW = settings(max_examples=10)
SMALL = PaperWordVectors(algorithm="skip-gram", dimensions=8, window=2, epochs=3, minimum_count=2)


@FEW
@given(SEEDS)
def test_wekos_with_one_cluster_is_the_cosine_of_tf_idf_weighted_sums(seed: int) -> None:
    collection, vectors = random_collection(seed), random_vectors(seed)
    rows = np.array(slow_systems.wekos(words_of(collection), as_dict(vectors), DIMENSIONS))
    check(Wekos(collection, vectors, clusters=1, seed=1), collection, cosines(rows), rows.any(axis=1))


def test_wekos_ranks_the_questions_of_the_querys_cluster() -> None:
    collection, vectors = random_collection(1), random_vectors(1)
    whole, cut = (Wekos(collection, vectors, clusters=clusters, seed=1) for clusters in (1, 4))
    groups = clusters_of(whole.vectors, 4, seed=1)
    number = len(collection.keys)
    assert ((groups == -1) == ~whole.vectors.any(axis=1)).all()  # empty, or of unknown words
    assert set(groups.tolist()) == {-1, 0, 1, 2, 3}
    for key, group, found in zip(collection.keys, groups, cut.rank(collection.keys, number), strict=True):
        everything = whole.rank(np.array([key]), number)[0]
        assert found == [other for other in everything if groups[other // 10 - 1] == group]
    assert (cut.score(*all_pairs(collection)) == whole.score(*all_pairs(collection))).all()


def test_the_clusters_are_those_of_lloyd_at_rest_and_of_the_seed() -> None:
    vectors = np.random.default_rng(1).normal(size=(60, 3))
    groups = clusters_of(vectors, 5, seed=1)
    centres = np.array([vectors[groups == group].mean(axis=0) for group in range(5)])
    assert (np.argmin(((vectors[:, None] - centres) ** 2).sum(axis=2), axis=1) == groups).all()
    assert (clusters_of(vectors, 5, seed=1) == groups).all()
    assert clusters_of(np.zeros((3, 2)), 5, seed=1).tolist() == [-1, -1, -1]


@FEW
@given(SEEDS)
def test_mnet_is_the_cosine_of_means(seed: int) -> None:
    collection, vectors = random_collection(seed), random_vectors(seed)
    rows = np.array(slow_systems.mean(words_of(collection), as_dict(vectors), DIMENSIONS))
    check(MNet(collection, vectors), collection, cosines(rows), rows.any(axis=1))


def test_tags_appear_in_turn_among_the_words() -> None:
    assert with_tags(list("abcde"), ["x", "y"], 2) == ["tag x", "a", "b", "tag y", "c", "d", "tag x", "e"]
    assert with_tags(["a"], ["x", "y"], 2) == ["tag x", "a", "tag y"]
    assert with_tags(["a"], [], 2) == ["a"]


def test_words_under_one_tag_are_drawn_together() -> None:
    random = np.random.default_rng(1)
    sides = [["oven", "flour"], ["mast", "keel"]]
    texts = [str(random.choice(sides[row % 2])) for row in range(400)]  # one word: nothing but the tag relates them
    tagged = collection_of(texts, [(("baking", "sailing")[row % 2],) for row in range(400)])
    setting = SMALL.changed(epochs=40, sample=0.0)
    vectors = as_dict(tagged_vectors(tagged, setting, seed=1))
    assert sorted(vectors) == ["flour", "keel", "mast", "oven"]
    within = slow_systems.cosine(vectors["oven"], vectors["flour"])
    assert within > slow_systems.cosine(vectors["oven"], vectors["keel"]) + 0.3


@settings(max_examples=4)
@given(SEEDS)
def test_simbow_is_the_quadratic_form(seed: int) -> None:
    collection, vectors = random_collection(seed, questions=20), random_vectors(seed)
    texts, number = words_of(collection), len(collection.keys)
    known = as_dict(vectors)
    scores = np.array([[slow_systems.soft_cosine(texts, known, i, j) for j in range(number)] for i in range(number)])
    system = SimBow(collection, vectors)
    assert system.score(*all_pairs(collection)) == pytest.approx(scores.ravel(), abs=1e-9)
    own = system.score(*all_pairs(collection)).reshape(number, number)
    for query, found in enumerate(system.rank(collection.keys, 5)):
        related = [row for row in range(number) if own[query, row] > 0]
        assert found == slow_systems.ranked(own[query], collection.keys.tolist(), query, 5, related)


def test_simbow_is_the_normalised_inner_product_of_gensim() -> None:
    collection, vectors = random_collection(2, questions=20), random_vectors(2)
    texts = words_of(collection)
    keyed = KeyedVectors(DIMENSIONS)
    keyed.add_vectors(list(vectors.words), vectors.table)
    dictionary = Dictionary(texts)
    index = WordEmbeddingSimilarityIndex(keyed, threshold=0.0, exponent=2.0)
    matrix = SparseTermSimilarityMatrix(index, dictionary, nonzero_limit=None)
    weights = TfidfModel(dictionary=dictionary)
    weighted = [weights[dictionary.doc2bow(text)] for text in texts]
    expected = [[matrix.inner_product(x, y, normalized=(True, True)) for y in weighted] for x in weighted]
    found = SimBow(collection, vectors).score(*all_pairs(collection))
    assert found == pytest.approx(np.array(expected).ravel(), abs=1e-5)


def test_a_copy_ties_with_its_original_in_every_system() -> None:
    vectors = random_vectors(9)
    base = words_of(random_collection(9, questions=600))
    base[300] = base[599] = base[20]
    collection = collection_of([" ".join(words) for words in base])
    for system in (
        MNet(collection, vectors),
        SimBow(collection, vectors),
        Wekos(collection, vectors, clusters=2, seed=1),
    ):
        assert system.rank(np.array([210]), 2) == [[3010, 6000]]


def test_an_archive_without_a_known_word_ranks_nothing() -> None:
    collection = collection_of(["bread", "flour"])
    vectors = WordVectors(("sail",), np.ones((1, 3), np.float32))
    for system in (
        MNet(collection, vectors),
        Wekos(collection, vectors, clusters=2, seed=1),
        SimBow(collection, vectors),
    ):
        assert system.rank(collection.keys, 5) == [[], []]
        assert system.score(np.array([10]), np.array([20])).tolist() == [0.0]
