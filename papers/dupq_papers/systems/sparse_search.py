"""Search by sparse vectors: the best texts for some queries, scored by the terms that both have."""

from collections.abc import Callable

import numpy as np
from scipy import sparse

from dupq.kernel_cache import Integer
from dupq.kernel_cache import numba as nb
from dupq.text.keys import indices_among

_FIRST_BITS = 22  # 4 MB of flags

# From the products of a query, given by its row, with all texts ((n,) float64, not to be changed) to scores ((n,))
Finish = Callable[[np.ndarray, int], np.ndarray]


def columns_of(hashes: np.ndarray, terms: np.ndarray) -> np.ndarray:
    """Where each of `hashes` (uint64) is among `terms` (uint64, ascending); -1 where it is not (int64).

    Most shingles of a text are in no query: their first bits tell, before any is looked up by a search.
    """
    are_first = np.zeros(1 << _FIRST_BITS, bool)
    are_first[_first_bits(terms)] = True
    candidates = np.flatnonzero(are_first[_first_bits(hashes)])
    places, are_there = indices_among(terms, hashes[candidates])
    columns = np.full(len(hashes), -1)
    columns[candidates[are_there]] = places[are_there]
    return columns


def _first_bits(hashes: np.ndarray) -> np.ndarray:
    return (hashes >> np.uint64(64 - _FIRST_BITS)).astype(np.int64)


def matrix(columns: np.ndarray, values: np.ndarray, offsets: np.ndarray, width: int) -> sparse.csr_array:
    """Row i has `values[j]` in `columns[j]`, for j from `offsets[i]` to `offsets[i + 1]`; column -1 is left out.

    The columns of a row ascend. float64, shape (n, width).
    """
    kept = columns >= 0
    ends = np.concatenate([[0], np.cumsum(kept)])[offsets]
    data = values[kept].astype(np.float64)
    return sparse.csr_array((data, columns[kept], ends), shape=(len(offsets) - 1, width))


def best(
    queries: tuple[np.ndarray, sparse.csr_array],
    texts: tuple[np.ndarray, sparse.csr_array],
    k: int,
    finish: Finish | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """The k best texts of each query: keys ((q, k) int64, -1 where there are no more) and scores ((q, k), -inf there).

    Queries and texts are keys (int64) and rows over the same terms. A score is the product of two rows, or what
    `finish` makes of it. The best come first, ties by the smaller key; a text that scores 0 is not among them, and a
    question not among its own. Products are float64 sums in the order of the terms, so they do not depend on which
    texts are searched together.
    """
    query_keys, wanted = queries
    keys, rows = texts
    others = np.full((len(query_keys), k), -1)
    best_scores = np.full((len(query_keys), k), -np.inf)
    by_term = rows.tocsc()
    scores = np.empty(len(keys))
    for row in range(len(query_keys)):
        inside = slice(wanted.indptr[row], wanted.indptr[row + 1])
        _products(wanted.indices[inside], wanted.data[inside], by_term.indptr, by_term.indices, by_term.data, scores)
        finished = scores if finish is None else finish(scores, row)
        _insert_best(keys, finished, query_keys[row], others[row], best_scores[row])
    return others, best_scores


def as_lists(keys: np.ndarray) -> list[list[int]]:
    """The keys that `best` gives, a list a query, as long as there are any."""
    return [[key for key in row if key >= 0] for row in keys.tolist()]


@nb.njit(nogil=True, cache=True)
def _products(
    terms: np.ndarray, weights: np.ndarray, starts: np.ndarray, rows: np.ndarray, values: np.ndarray, scores: np.ndarray
) -> None:
    """The products of one row, given by its `terms` and their `weights`, with all others, term by term.

    Of term t row `rows[j]` has `values[j]`, for j from `starts[t]` to `starts[t + 1]`; `scores` (float64, (n,)) is
    filled. It is dense: most texts share some word with a query.
    """
    scores[:] = 0.0
    for place in range(len(terms)):
        for entry in range(starts[terms[place]], starts[terms[place] + 1]):
            scores[rows[entry]] += weights[place] * values[entry]


@nb.njit(nogil=True, cache=True)
def _insert_best(
    keys: np.ndarray, scores: np.ndarray, own: Integer, others: np.ndarray, best_scores: np.ndarray
) -> None:
    """Fill `others` and `best_scores` ((k,), still empty) with the best of `keys` by their `scores`, `own` left out."""
    for row in range(len(keys)):
        score, key, place = scores[row], keys[row], len(others)
        if score <= 0 or key == own:
            continue
        while place and _is_before(score, key, best_scores[place - 1], others[place - 1]):
            if place < len(others):
                best_scores[place], others[place] = best_scores[place - 1], others[place - 1]
            place -= 1
        if place < len(others):
            best_scores[place], others[place] = score, key


@nb.njit(nogil=True, cache=True)
def _is_before(score: float, key: Integer, other_score: float, other_key: Integer) -> bool:
    return bool(score > other_score or (score == other_score and key < other_key))


def first(keys: np.ndarray, scores: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """The k highest scores in order, ties by key: what is tied at the end is told apart after the partition."""
    if len(keys) > k:
        least = np.partition(scores, len(scores) - k)[len(scores) - k]
        kept = scores >= least
        keys, scores = keys[kept], scores[kept]
    order = np.lexsort((keys, -scores))[:k]
    return keys[order], scores[order]
