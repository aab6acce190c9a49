"""The systems over word vectors beside their slow twins, and word vectors themselves."""

from pathlib import Path

import numpy as np
import pytest
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
    random_examples,
    random_vectors,
    words_of,
)
from oracles import slow_systems

from dupq.errors import DupqError
from dupq.evaluation.protocol import Ranker
from dupq.evaluation.systems.collection import Collection
from dupq.evaluation.systems.mappsent import MappSent, paper_reading
from dupq.evaluation.systems.mnet import MNet, tagged_vectors, with_tags
from dupq.evaluation.systems.sif import Sif
from dupq.evaluation.systems.simbow import SimBow
from dupq.evaluation.systems.vectors import AS_STORED, WordVectors, bags, read, trained
from dupq.evaluation.systems.wekos import Wekos, clusters_of
from dupq.settings.text import TextSettings
from dupq.settings.training import WordVectorSettings

SEEDS = st.integers(0, 1000)
FEW = settings(max_examples=10)
SMALL = WordVectorSettings(dimensions=8, window=2, epochs=3, minimum_count=2)


def check(system: Ranker, collection: Collection, scores: np.ndarray, is_there: np.ndarray, k: int = 7) -> None:
    """Scores (n, n) of all pairs, and lists that a sort of them gives."""
    number = len(collection.keys)
    assert system.score(*all_pairs(collection)) == pytest.approx(scores.ravel(), abs=1e-9)
    found = system.rank(collection.keys, k)
    own = system.score(*all_pairs(collection)).reshape(number, number)  # its last digits decide between copies
    there = np.flatnonzero(is_there).tolist()
    for query in range(number):
        expected = slow_systems.ranked(own[query], collection.keys.tolist(), query, k, there)
        assert found[query] == (expected if is_there[query] else [])


def cosines(rows: np.ndarray) -> np.ndarray:
    return np.array([[slow_systems.cosine(left, right) for right in rows] for left in rows])


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


@pytest.mark.parametrize("components", [0, 1, 2])
@pytest.mark.parametrize("fitted_on", ["training", "archive"])
def test_sif_is_algorithm_1(components: int, fitted_on: str) -> None:
    collection, vectors = random_collection(5), random_vectors(5)
    examples = random_examples(collection, 5)
    system = Sif(collection, vectors, examples, removed_components=components, fitted_on=fitted_on)
    fitted = rows_of(collection, examples.training, fitted_on)
    rows = slow_systems.sif(words_of(collection), as_dict(vectors), fitted, 1e-3, components)
    others = rows.any(axis=1).sum() - 1
    found = system.score(*all_pairs(collection))
    assert found == pytest.approx(cosines(rows).ravel(), abs=1e-6)  # its weights are of single precision
    assert [len(lists) for lists in system.rank(collection.keys, 99)] == [others if row.any() else 0 for row in rows]


def rows_of(collection: Collection, training, fitted_on: str) -> list[int]:
    keys = np.concatenate([training.left, training.right]) if fitted_on == "training" else collection.keys
    return np.unique(collection.rows(keys)).tolist()


@pytest.mark.parametrize("components", [0, 1, 3])
@pytest.mark.parametrize("fitted_on", ["training", "archive"])
@pytest.mark.parametrize("rotated", [True, False])
def test_mappsent_has_the_cosines_of_section_3_with_r_and_without(
    components: int, fitted_on: str, rotated: bool
) -> None:
    collection, vectors = random_collection(6), random_vectors(6)
    examples = random_examples(collection, 6)
    known = examples.training.labels > 0
    sides = (collection.rows(keys[known]).tolist() for keys in (examples.training.left, examples.training.right))
    duplicates = list(zip(*sides, strict=True))
    settings_of = {"removed_components": components, "fitted_on": fitted_on, "reading": AS_STORED}
    system = MappSent(collection, vectors, examples, **settings_of)
    fitted = rows_of(collection, examples.training, fitted_on)
    rows = slow_systems.mappsent(words_of(collection), as_dict(vectors), fitted, duplicates, components, rotated)
    assert system.score(*all_pairs(collection)) == pytest.approx(cosines(rows).ravel(), abs=1e-11)


@pytest.mark.parametrize("components", [0, 2])
def test_r_changes_no_cosine(components: int, monkeypatch: pytest.MonkeyPatch) -> None:
    collection, vectors = random_collection(7), random_vectors(7)
    examples = random_examples(collection, 7)

    def system() -> MappSent:
        return MappSent(collection, vectors, examples, reading=AS_STORED, removed_components=components)

    mapped = system()
    monkeypatch.setattr("dupq.encoders.networks.mappsent.orthogonal_map", lambda _, dimensions: np.eye(dimensions))
    unmapped = system()
    assert np.abs(mapped.vectors - unmapped.vectors).max() > 0.1
    pairs = all_pairs(collection)
    assert np.abs(mapped.vectors @ mapped.vectors.T - unmapped.vectors @ unmapped.vectors.T).max() < 1e-12
    assert np.abs(mapped.score(*pairs) - unmapped.score(*pairs)).max() < 2e-12  # rounded to 12 decimals
    assert mapped.rank(collection.keys, 5) == unmapped.rank(collection.keys, 5)


def test_mappsent_without_mapping_is_the_plain_sum() -> None:
    collection, vectors = random_collection(8), random_vectors(8)
    examples = random_examples(collection, 8)
    system = MappSent(collection, vectors, examples, reading=AS_STORED, mapped=False)
    rows = np.array(slow_systems.mean(words_of(collection), as_dict(vectors), DIMENSIONS))
    check(system, collection, cosines(rows), rows.any(axis=1))


def test_mappsent_reads_lemmas_of_content_words() -> None:
    reading = paper_reading("english")
    collection = collection_of(["the ovens of bakers", "oven", "baker", "of the"])
    words, counts = bags(collection.texts, reading)
    assert [words[place] for place in counts[[0]].indices] == ["baker", "oven"]
    assert {"of", "the"} < set(words)  # of the text that has nothing else
    assert paper_reading("french").parts_of_speech == "all"


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


def test_bags_count_words_and_may_filter_them() -> None:
    collection = collection_of(["the sail of the boat", "", "of the"])
    words, counts = bags(collection.texts, AS_STORED)
    assert words == ("boat", "of", "sail", "the")
    assert counts.toarray().tolist() == [[1, 1, 1, 2], [0, 0, 0, 0], [0, 1, 0, 1]]
    _, counts = bags(collection.texts, TextSettings(stop_words="removed"), ["sail", "the"])
    assert counts.toarray().tolist() == [[1, 0], [0, 0], [0, 1]]  # a text of stop words keeps them
    assert bags(collection_of(["", ""]).texts, AS_STORED)[1].shape == (2, 0)


def test_vectors_are_trained_on_the_words_as_they_are_read_and_again_the_same() -> None:
    collection = collection_of(["sails of boats", "a sail of a boat", "boats sail"] * 5)
    lemmas = TextSettings(word_form="lemmas")
    once, again = (trained(collection, SMALL, 1, lemmas) for _ in range(2))
    assert sorted(once.words) == ["a", "boat", "of", "sail"]
    assert once.words == again.words
    assert once.table.dtype == np.float32
    assert once.table.shape == (4, 8)
    assert (once.table == again.table).all()
    assert (once.table != trained(collection, SMALL, 2, lemmas).table).any()


def test_vectors_are_read_for_the_words_that_the_file_has(tmp_path: Path) -> None:
    path = tmp_path / "glove.txt"
    path.write_text("boat 1 2\nrope 3 4\nsail 5 6\n")
    found = read(str(path), collection_of(["a sail", "no boat"]), 2)
    assert found.words == ("boat", "sail")
    assert found.table.tolist() == [[1, 2], [5, 6]]
    with pytest.raises(DupqError, match="none of the 1 words"):
        read(str(path), collection_of(["bread"]), 2)


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
