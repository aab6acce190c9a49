"""BM25 and shingle-Jaccard beside a score for every text and a sort of all of them."""

import itertools

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracles.slow_rankings import slow_best, slow_bm25, slow_jaccard, stemmed

from dupq.evaluation.rankers import BM25, ShingleJaccard

WORDS = ["bread", "breads", "rises", "flat", "the", "of", "sail", "sails", "blue"]
TEXTS = st.lists(st.lists(st.sampled_from(WORDS), max_size=8).map(" ".join), min_size=1, max_size=12)
CUTS = st.lists(st.integers(0, 12), max_size=3)


def keys_of(texts: list[str]) -> np.ndarray:
    return 10 * np.arange(1, len(texts) + 1)


def parts(texts: list[str], cuts: list[int]) -> list[pa.Table]:
    """The texts, the last first, in parts that end at `cuts`."""
    keys, bounds = keys_of(texts), [0, *sorted(min(cut, len(texts)) for cut in cuts), len(texts)]
    slices = [slice(*ends) for ends in itertools.pairwise(bounds)]
    return [pa.table({"key": keys[::-1][part], "text": pa.array(texts[::-1][part], pa.string())}) for part in slices]


def every_pair(texts: list[str]) -> list[np.ndarray]:
    return [keys_of(texts)[axis.ravel()] for axis in np.indices((len(texts), len(texts)))]


@given(TEXTS, CUTS, st.integers(1, 5))
def test_bm25_ranks_as_a_sort_of_all_scores_does(texts: list[str], cuts: list[int], k: int) -> None:
    terms, keys = [stemmed(text, "english") for text in texts], keys_of(texts).tolist()
    for query, found in enumerate(BM25(parts(texts, cuts), "english").rank(np.array(keys), k)):
        expected = slow_bm25(terms, query)
        best = slow_best(keys, [round(score, 5) for score in expected], query, k)  # scores are of float32
        assert [expected[key // 10 - 1] for key in found] == pytest.approx([expected[key // 10 - 1] for key in best])
        tied = [key for key in found if texts[key // 10 - 1] == texts[found[0] // 10 - 1]]
        assert tied == sorted(tied)


@given(TEXTS, CUTS)
def test_a_pair_scores_as_a_share_of_the_questions_score_for_itself(texts: list[str], cuts: list[int]) -> None:
    scores = BM25(parts(texts, cuts), "english").score(*every_pair(texts)).reshape(len(texts), len(texts))
    for query in range(len(texts)):
        expected = slow_bm25([stemmed(text, "english") for text in texts], query)
        assert scores[query] == pytest.approx([score / (expected[query] or 1.0) for score in expected], rel=1e-5)


def test_bm25_reads_the_language_of_the_archive() -> None:
    texts = ["die häuser mit garten", "das haus am see", "die segel mit rissen"]
    archive = parts(texts, [])
    assert BM25(archive, "german").rank(np.array([10]), 5) == [[20]]  # one stem in common; "die" and "mit" are no terms
    assert BM25(archive, "english").rank(np.array([10]), 5) == [[30]]


def test_what_has_nothing_in_common_with_a_question_is_not_ranked_for_it() -> None:
    texts = ["flat bread rises", "", "blue sails tear", "flat earth"]
    assert BM25(parts(texts, []), "english").rank(keys_of(texts), 4) == [[40], [], [], [10]]
    assert BM25(parts(["", ""], []), "english").rank(np.array([10]), 4) == [[]]


@given(TEXTS, CUTS, st.integers(1, 3))
def test_shingles_score_as_the_coefficient_of_two_sets(texts: list[str], cuts: list[int], size: int) -> None:
    scores = ShingleJaccard(parts(texts, cuts), size).score(*every_pair(texts)).reshape(len(texts), len(texts))
    for query in range(len(texts)):
        assert scores[query].tolist() == slow_jaccard(texts, query, size)
