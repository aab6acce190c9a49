"""BM25 and shingle-Jaccard beside a score for every text and a sort of all of them."""

import itertools

import bm25s
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.strategies import DataObject
from oracles.slow_rankings import slow_best, slow_bm25, slow_jaccard, stemmed
from scipy import sparse

from dupq.evaluation import bm25, shingle_jaccard
from dupq.evaluation.sparse_search import best, columns_of

WORDS = ["bread", "breads", "rises", "flat", "the", "of", "sail", "sails", "blue"]
TEXTS = st.lists(st.lists(st.sampled_from(WORDS), max_size=8).map(" ".join), min_size=1, max_size=12)
CUTS = st.lists(st.integers(0, 12), max_size=3)


def keys_of(texts: list[str]) -> np.ndarray:
    return 10 * np.arange(1, len(texts) + 1)


def strings(texts: list[str]) -> pa.StringArray:
    return pa.array(texts, pa.string())


def bm25_lists(texts: list[str], cuts: list[int], k: int, language: str = "english") -> list[tuple[list, list]]:
    """The k best of every text, ranked part by part and put together."""
    keys, whole = keys_of(texts), bm25.bags_of(strings(texts), language)
    bounds = [0, *sorted(min(cut, len(texts)) for cut in cuts), len(texts)]
    parts = [slice(*ends) for ends in itertools.pairwise(bounds)]
    bags = [bm25.bags_of(strings(texts[part]), language) for part in parts]
    archive = bm25.statistics(map(bm25.counted, bags), whole.terms)
    found = [bm25.rank((keys, whole), (keys[part], bag), archive, k) for part, bag in zip(parts, bags, strict=True)]
    others, scores = (np.concatenate(columns, axis=1) for columns in zip(*found, strict=True))
    lists = []
    for row in range(len(texts)):
        order = [place for place in np.lexsort((others[row], -scores[row])) if others[row, place] >= 0][:k]
        lists.append((others[row, order].tolist(), scores[row, order].tolist()))
    return lists


@given(TEXTS, CUTS, st.integers(1, 5))
def test_bm25_ranks_as_a_sort_of_all_scores_does(texts: list[str], cuts: list[int], k: int) -> None:
    terms, keys = [stemmed(text, "english") for text in texts], keys_of(texts)
    for query, (found, scores) in enumerate(bm25_lists(texts, cuts, k)):
        expected = slow_bm25(terms, query)
        rounded = [round(score, 9) for score in expected]  # where sums in another order differ
        assert list(zip([-score for score in scores], found, strict=True)) == sorted(
            zip([-score for score in scores], found, strict=True)
        )
        assert scores == pytest.approx([expected[key // 10 - 1] for key in found])
        assert scores == pytest.approx([expected[key // 10 - 1] for key in slow_best(keys, rounded, query, k)])


@given(TEXTS, CUTS)
def test_bm25_is_the_same_to_the_bit_however_the_archive_is_cut(texts: list[str], cuts: list[int]) -> None:
    assert bm25_lists(texts, cuts, 4) == bm25_lists(texts, [], 4)


@given(TEXTS)
def test_a_pair_scores_as_a_share_of_the_questions_score_for_itself(texts: list[str]) -> None:
    bags = bm25.bags_of(strings(texts), "english")
    archive = bm25.statistics([bm25.counted(bags)], bags.terms)
    left, right = (axis.ravel() for axis in np.indices((len(texts), len(texts))))
    scores = bm25.pair_scores(bags, left, right, archive).reshape(len(texts), len(texts))
    for query in range(len(texts)):
        expected = slow_bm25([stemmed(text, "english") for text in texts], query)
        assert scores[query] == pytest.approx([score / (expected[query] or 1.0) for score in expected])


def test_bm25_scores_as_bm25s_does() -> None:
    texts = ["flat bread rises", "bread that rises flat and flat", "blue sails tear", "sails of blue", "", "flat"]
    terms = [stemmed(text, "english") for text in texts]
    index = bm25s.BM25()
    index.index(terms, show_progress=False)
    for query, (found, scores) in enumerate(bm25_lists(texts, [2, 4], 6)):
        expected = index.get_scores(terms[query]) if terms[query] else np.zeros(len(texts))
        assert scores == pytest.approx([expected[key // 10 - 1] for key in found], rel=1e-5)
        assert len(found) == (np.delete(expected, query) > 0).sum()


def test_bm25_reads_the_language_of_the_archive() -> None:
    texts = ["die häuser mit garten", "das haus am see", "die segel mit rissen"]
    assert bm25_lists(texts, [], 5, "german")[0][0] == [20]  # one stem in common; "die" and "mit" are no terms
    assert bm25_lists(texts, [], 5, "english")[0][0] == [30]


def test_what_has_nothing_in_common_with_a_question_is_not_ranked_for_it() -> None:
    texts = ["flat bread rises", "", "blue sails tear", "flat earth"]
    assert [found for found, _ in bm25_lists(texts, [], 4)] == [[40], [], [], [10]]


@given(TEXTS, st.integers(1, 3), st.integers(1, 5))
def test_shingle_jaccard_ranks_as_a_sort_of_all_coefficients_does(texts: list[str], size: int, k: int) -> None:
    keys, rows = keys_of(texts), np.arange(len(texts))
    others, scores = shingle_jaccard.rank((keys, strings(texts)), (keys, strings(texts)), size, k)
    for query in range(len(texts)):
        expected = slow_jaccard(texts, query, size)
        found = [key for key in others[query].tolist() if key >= 0]
        assert found == slow_best(keys, expected, query, k)
        assert scores[query, : len(found)].tolist() == [expected[key // 10 - 1] for key in found]
        pairs = shingle_jaccard.pair_scores(strings(texts), np.full(len(texts), query), rows, size)
        assert pairs.tolist() == expected


@given(st.integers(0, 1000), st.integers(1, 60), st.integers(1, 12))
def test_the_best_by_partition_are_those_of_a_full_sort_also_among_ties(seed: int, texts: int, k: int) -> None:
    random = np.random.default_rng(seed)
    keys = random.permutation(1000)[:texts]
    matrices = [sparse.csr_array(random.integers(0, 3, (rows, 4)).astype(float)) for rows in (5, texts)]
    queries = np.concatenate([keys[:2], 2000 + np.arange(3)])[:5]
    matrices[0] = matrices[0][: len(queries)]
    others, scores = best((queries, matrices[0]), (keys, matrices[1]), k)
    products = matrices[0].toarray() @ matrices[1].toarray().T
    for row, query in enumerate(queries.tolist()):
        own = int(np.flatnonzero(keys == query)[0]) if query in keys else -1
        expected = slow_best(keys.tolist(), products[row].tolist(), own, k)
        assert [key for key in others[row].tolist() if key >= 0] == expected
        assert np.isneginf(scores[row, len(expected) :]).all()


@given(st.sets(st.integers(0, 2**64 - 1), max_size=20), st.lists(st.integers(0, 2**64 - 1), max_size=20), st.data())
def test_columns_are_where_a_search_finds_them_also_of_hashes_that_begin_alike(
    terms: set[int], others: list[int], data: DataObject
) -> None:
    chosen = data.draw(st.lists(st.sampled_from(sorted(terms)), max_size=20)) if terms else []
    wanted = [*others, *chosen, *(term ^ 1 for term in chosen)]
    found = columns_of(np.array(wanted, np.uint64), np.array(sorted(terms), np.uint64))
    assert found.tolist() == [sorted(terms).index(term) if term in terms else -1 for term in wanted]
