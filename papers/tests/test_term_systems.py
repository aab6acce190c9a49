"""The term-based systems beside Lucene's formulas in loops, and a score for every text and a sort of all of them."""

import inspect
from functools import partial

import bm25s
import numpy as np
import pyarrow as pa
import pytest
import slow_lucene
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles.slow_rankings import slow_best, slow_jaccard, stemmed

from dupq.evaluation.rankers import BM25
from dupq_papers.systems import bm25, dfr, ib, lm_dirichlet, lm_jelinek_mercer, shingles, tfidf
from dupq_papers.systems.collection import Collection
from dupq_papers.systems.term_counts import term_counts
from dupq_papers.systems.term_ranker import TermRanker

WORDS = ["bread", "breads", "rises", "flat", "the", "of", "sail", "sails", "blue"]
TEXTS = st.lists(st.lists(st.sampled_from(WORDS), max_size=8).map(" ".join), min_size=1, max_size=10)
SYSTEMS = {
    tfidf.TFIDF: (tfidf.GRID, slow_lucene.classic),
    bm25.BM25: (bm25.GRID, slow_lucene.bm25),
    dfr.DFR: (dfr.GRID, slow_lucene.dfr),
    ib.IB: (ib.GRID, slow_lucene.ib),
    lm_dirichlet.LMDirichlet: (lm_dirichlet.GRID, slow_lucene.lm_dirichlet),
    lm_jelinek_mercer.LMJelinekMercer: (lm_jelinek_mercer.GRID, slow_lucene.lm_jelinek_mercer),
}
FILLER = ["warm soup", "cold water", "fast cars", "slow trains", "thick walls"]  # or a shared term is not rare
each_system = pytest.mark.parametrize("system", SYSTEMS, ids=lambda system: system.__name__)


def collection_of(texts: list[str]) -> Collection:
    column = pa.array(texts, pa.string())
    keys = 10 * np.arange(1, len(texts) + 1)
    return Collection(keys, column, column, column, ((),) * len(texts), "english")


@each_system
@settings(max_examples=60)
@given(TEXTS, st.data())
def test_a_system_scores_and_ranks_as_lucenes_formula_in_loops_does(
    system: type[TermRanker], texts: list[str], data: st.DataObject
) -> None:
    grid, weight = SYSTEMS[system]
    parameters = data.draw(st.sampled_from(grid))
    ranker, terms = (
        system(term_counts(collection_of(texts)), **parameters),
        [stemmed(text, "english") for text in texts],
    )
    keys = 10 * np.arange(1, len(texts) + 1)
    expected = [slow_lucene.slow_scores(terms, query, partial(weight, **parameters)) for query in range(len(texts))]
    for query, found in enumerate(ranker.rank(keys, 3)):
        scores = [expected[query][key // 10 - 1] for key in found]
        rounded = [round(score, 9) for score in expected[query]]  # where sums in another order differ
        assert scores == pytest.approx(sorted(scores, reverse=True), rel=1e-9)
        assert scores == pytest.approx(
            [expected[query][key // 10 - 1] for key in slow_best(keys.tolist(), rounded, query, 3)], rel=1e-6
        )
    shares = [
        [score / (scores[row] if scores[row] > 1e-12 else np.inf) for score in scores]
        for row, scores in enumerate(expected)
    ]
    left, right = (axis.ravel() for axis in np.indices((len(texts), len(texts))))
    means = (np.array(shares) + np.array(shares).T) / 2
    np.testing.assert_allclose(ranker.score(keys[left], keys[right]), means.ravel(), rtol=1e-6, atol=1e-9)


@each_system
def test_a_grid_begins_with_the_default(system: type[TermRanker]) -> None:
    arguments = inspect.signature(system).parameters
    grid, _ = SYSTEMS[system]
    assert grid[0] == {name: one.default for name, one in arguments.items() if name != "counts"}
    assert len({tuple(parameters.items()) for parameters in grid}) == len(grid)


@each_system
def test_texts_that_share_nothing_with_a_question_are_not_ranked_and_score_nothing(system: type[TermRanker]) -> None:
    texts = ["flat bread rises", "", "blue sails tear the", "flat earth", "the of", *FILLER]
    ranker = system(term_counts(collection_of(texts)))
    assert ranker.rank(np.array([40, 20, 30, 10]), 4) == [[10], [], [], [40]]
    assert ranker.score(np.array([10, 20, 50, 20]), np.array([30, 10, 10, 20])).tolist() == [0, 0, 0, 0]


@each_system
def test_a_repeated_term_and_a_shorter_text_score_higher(system: type[TermRanker]) -> None:
    texts = ["flat bread", "flat bread bread rises", "flat bread blue rises", "flat bread blue rises sail tear"]
    ranked = system(term_counts(collection_of(texts + 4 * FILLER))).rank(np.array([10]), 3)
    assert ranked == [[20, 30, 40]]


@given(TEXTS, st.sampled_from(bm25.GRID))
def test_bm25_is_that_of_bm25s_and_with_the_default_that_of_an_archive(
    texts: list[str], chosen: dict[str, float]
) -> None:
    collection, terms = collection_of(texts), [stemmed(text, "english") for text in texts]
    if not any(terms):
        return  # bm25s has no index of nothing
    counts = term_counts(collection)
    weights = bm25.weights(counts.occurrences(), **chosen)
    index = bm25s.BM25(method="lucene", **chosen)
    index.index(terms, show_progress=False)
    for query in range(len(texts)):
        expected = index.get_scores(terms[query]) if terms[query] else np.zeros(len(texts))
        entries = counts.counts[[query]].toarray()[0][counts.counts.indices] * weights
        rows = np.repeat(np.arange(len(texts)), np.diff(counts.counts.indptr))
        scores = np.bincount(rows, weights=entries, minlength=len(texts))
        np.testing.assert_allclose(scores, expected, rtol=1e-5, atol=1e-6)
    of_archive = BM25([pa.table({"key": collection.keys, "text": collection.texts})], "english")
    ours, theirs = (system.rank(collection.keys, 4) for system in (bm25.BM25(counts), of_archive))
    assert [*map(len, ours)] == [*map(len, theirs)]  # which of two that are tied comes first, rounding tells


@given(TEXTS, st.sampled_from(shingles.GRID))
def test_shingles_rank_as_a_sort_of_all_coefficients_does(texts: list[str], parameters: dict[str, int]) -> None:
    collection = collection_of(texts)
    ranker, keys = shingles.ShingleJaccard(collection, **parameters), collection.keys
    for query, found in enumerate(ranker.rank(keys, 3)):
        expected = slow_jaccard(texts, query, parameters["size"])
        assert found == slow_best(keys.tolist(), expected, query, 3)
        assert ranker.score(np.full(len(keys), keys[query]), keys).tolist() == expected
