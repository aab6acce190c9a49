"""The texts that score best for some queries, where a score is made from what both have in common.

One product of two sparse matrices scores a query with the texts that share a term with it, and no others.
"""

from collections.abc import Callable

import numpy as np
from scipy import sparse

_SCORES_AT_ONCE = 4_000_000  # at most, 12 bytes each; one query's at least

# From sums of products, with the rows of queries and of texts that each is of (all of shape (m,)), to scores
Finish = Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]


def columns_of(hashes: np.ndarray, terms: np.ndarray) -> np.ndarray:
    """Where each of `hashes` (uint64) is among `terms` (uint64, ascending); -1 where it is not (int64)."""
    if not len(terms):
        return np.full(len(hashes), -1)
    places = np.minimum(np.searchsorted(terms, hashes), len(terms) - 1)
    return np.where(terms[places] == hashes, places, -1)


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

    Queries and texts are keys (int64) and rows over the same terms. The best come first, ties by the smaller key; a
    text that scores 0 is not among them, and a question not among its own. Scores are float64 sums in the order of the
    terms, so they do not depend on which texts are searched together.
    """
    query_keys, wanted = queries
    keys, rows = texts
    others = np.full((len(query_keys), k), -1)
    scores = np.full((len(query_keys), k), -np.inf)
    inverted = rows.T.tocsr()
    step = max(1, _SCORES_AT_ONCE // max(1, len(keys)))
    for start in range(0, len(query_keys), step):
        products = (wanted[start : start + step] @ inverted).tocsr()
        values = products.data
        if finish is not None:
            owners = np.repeat(np.arange(products.shape[0]), np.diff(products.indptr)) + start
            values = finish(values, owners, products.indices)
        for place in range(products.shape[0]):
            row, inside = start + place, slice(products.indptr[place], products.indptr[place + 1])
            found, found_scores = keys[products.indices[inside]], values[inside]
            counts = (found_scores > 0) & (found != query_keys[row])
            found, found_scores = _first(found[counts], found_scores[counts], k)
            others[row, : len(found)], scores[row, : len(found)] = found, found_scores
    return others, scores


def _first(keys: np.ndarray, scores: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """The k highest scores in order, ties by key: what is tied at the end is told apart after the partition."""
    if len(keys) > k:
        least = np.partition(scores, len(scores) - k)[len(scores) - k]
        kept = scores >= least
        keys, scores = keys[kept], scores[kept]
    order = np.lexsort((keys, -scores))[:k]
    return keys[order], scores[order]
