"""The translation-based language model beside nltk's IBM model 1 and word-by-word twins."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from nltk.translate import AlignedSent, IBMModel1
from oracles.slow_rankings import slow_best, stemmed
from scipy import sparse
from slow_translation import Table, slow_ibm_model_1, slow_tlm

from dupq.training.pairs import Pairs
from dupq_papers.systems.collection import Collection
from dupq_papers.systems.ibm_model_1 import translation_probabilities
from dupq_papers.systems.term_counts import TermCounts, term_counts
from dupq_papers.systems.tlm import GRID, TLM, parallel_texts, translated, translations

WORDS = ["bread", "rises", "flat", "sail", "blue"]
SIDE = st.lists(st.sampled_from(WORDS), max_size=5)
CORPUS = st.lists(st.tuples(SIDE, SIDE), min_size=1, max_size=6)


def counted(sides: list[list[str]]) -> sparse.csr_array:
    return sparse.csr_array(np.array([[side.count(word) for word in WORDS] for side in sides], np.float64))


def learned(corpus: list[tuple[list[str], list[str]]], iterations: int) -> np.ndarray:
    sources, targets = (counted([pair[side] for pair in corpus]) for side in (0, 1))
    return translation_probabilities(sources, targets, iterations).toarray()


def assert_same(found: np.ndarray, table: Table) -> None:
    for row, given_word in enumerate([*WORDS, None]):
        for column, word in enumerate(WORDS):
            assert found[row, column] == pytest.approx(table.get((word, given_word), 0.0), abs=1e-9)


@given(CORPUS, st.integers(1, 5))
def test_probabilities_are_those_of_the_steps_word_by_word(
    corpus: list[tuple[list[str], list[str]]], iterations: int
) -> None:
    found = learned(corpus, iterations)
    assert_same(found, slow_ibm_model_1(corpus, iterations))
    sums = found.sum(axis=1)
    assert np.all((sums == 0) | np.isclose(sums, 1))


@given(CORPUS, st.integers(1, 5))
def test_probabilities_are_those_of_nltk(corpus: list[tuple[list[str], list[str]]], iterations: int) -> None:
    # nltk sums the probabilities of a word's alignments once more where the target repeats it, so none does here
    corpus = [(source, sorted(set(target))) for source, target in corpus]
    pairs = [AlignedSent(target, source) for source, target in corpus if target]
    if pairs:
        table = IBMModel1(pairs, iterations).translation_table
        assert_same(
            learned(corpus, iterations),
            {(word, source): value for word, row in table.items() for source, value in row.items()},
        )


def test_each_iteration_raises_the_likelihood() -> None:
    corpus = [(["bread", "flat"], ["rises", "blue"]), (["bread"], ["rises"]), (["sail", "flat"], ["blue", "blue"])]

    def likelihood(table: np.ndarray) -> float:
        rows = [[*(WORDS.index(word) for word in source), len(WORDS)] for source, _ in corpus]
        words = [(row, WORDS.index(word)) for row, (_, target) in zip(rows, corpus, strict=True) for word in target]
        return sum(float(np.log(table[row, word].mean())) for row, word in words)

    values = [likelihood(learned(corpus, iterations)) for iterations in range(1, 8)]
    assert values == sorted(values)
    assert values[-1] > values[0]


TEXTS = st.lists(st.lists(st.sampled_from(WORDS), max_size=5).map(" ".join), min_size=2, max_size=7)


def collection_of(titles: list[str], bodies: list[str]) -> Collection:
    texts = [f"{title} {body}".strip() for title, body in zip(titles, bodies, strict=True)]
    columns = [pa.array(column, pa.string()) for column in (texts, titles, bodies)]
    return Collection(10 * np.arange(1, len(texts) + 1), *columns, ((),) * len(texts), "english")


def learned_from(collection: Collection, counts: TermCounts, known: Pairs) -> sparse.csr_array:
    return translated(counts, translations(parallel_texts(collection, counts, known), iterations=3, least=0.0))


@settings(max_examples=60)
@given(TEXTS, st.sampled_from(GRID), st.data())
def test_the_model_scores_and_ranks_as_its_formula_word_by_word_does(
    texts: list[str], parameters: dict[str, float], data: st.DataObject
) -> None:
    half = len(texts) // 2
    collection = collection_of(texts[:half], texts[half : 2 * half])
    keys, counts = collection.keys, term_counts(collection)
    rows = data.draw(st.lists(st.tuples(st.sampled_from(range(half)), st.sampled_from(range(half))), max_size=3))
    left, right = (keys[[pair[side] for pair in rows]] for side in (0, 1))
    model = TLM(counts, learned_from(collection, counts, Pairs(left, right, np.ones(len(rows)))), **parameters)

    titles, bodies, terms = (
        [stemmed(text.as_py(), "english") for text in column]
        for column in (collection.titles, collection.bodies, collection.texts)
    )
    pairs = [(terms[i], terms[j]) for i, j in rows] + list(zip(titles, bodies, strict=True))
    pairs = [(source, target) for source, target in pairs if source and target]
    table = slow_ibm_model_1(pairs + [(target, source) for source, target in pairs], 3)
    expected = np.array(
        [slow_tlm(terms, query, table, **parameters) if terms[query] else [0.0] * half for query in range(half)]
    )
    for query, found in enumerate(model.rank(keys, 3)):
        rounded = [round(score, 9) for score in expected[query].tolist()]
        best = slow_best(keys.tolist(), rounded, query, 3)
        np.testing.assert_allclose(*(expected[query][np.array(one, int) // 10 - 1] for one in (found, best)), rtol=1e-6)
    left_rows, right_rows = (axis.ravel() for axis in np.indices((half, half)))
    scores = model.score(keys[left_rows], keys[right_rows])
    np.testing.assert_allclose(scores, np.sqrt(expected * expected.T).ravel(), rtol=1e-6)


def test_a_question_is_found_by_a_word_that_others_translate() -> None:
    texts = ["sail", "canvas", "bread"]
    counts = term_counts(collection_of(texts, [""] * 3))
    assert TLM(counts, translated(counts, sparse.csr_array((3, 3)))).rank(np.array([10]), 9) == [[]]
    places = dict(zip(texts, counts.counts.indices.tolist(), strict=True))
    table = sparse.csr_array(([0.5], ([places["canvas"]], [places["sail"]])), shape=(3, 3))
    assert TLM(counts, translated(counts, table)).rank(np.array([10, 20]), 9) == [[20], []]


def test_only_known_duplicates_are_learned_from_and_rare_translations_left_out() -> None:
    collection = collection_of(["sail", "canvas", "bread"], [""] * 3)
    counts = term_counts(collection)
    known = Pairs(np.array([10, 10]), np.array([20, 30]), np.array([1, 0], np.float32))
    parallel = parallel_texts(collection, counts, known)
    assert parallel.sources.sum() == parallel.targets.sum() == 2
    both = translations(parallel, least=0.0).toarray()
    assert (both > 0).sum() == 2
    assert both.sum() == pytest.approx(2)
    assert translations(parallel, least=1.1).nnz == 0
