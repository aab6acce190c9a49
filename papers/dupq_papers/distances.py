"""The search by the distances of Othman et al. 2021: exp(-|a - b|_1), their equation 7, and exp(-|a - b|_2).

They compare with the Euclidean norm and give no equation; this one is between 0 and 1 too. dupq itself knows cosines,
and calls this module for an encoder with a measure of another kind. All scores of a tile are computed in float64, in
which sums of absolute differences of float16 numbers are exact.
"""

import numpy as np
from scipy.spatial.distance import cdist

from dupq.neighbours.candidates import Nearest, empty_nearest, merge
from dupq.neighbours.tiles import NO_PAIRS, Block, Found, Pairs, Search

ORDERS = {"manhattan": 1.0, "euclidean": 2.0}
_METRICS = {"manhattan": "cityblock", "euclidean": "euclidean"}
_ROWS = 256  # of a tile that are scored at a time


def pair_scores(kind: str, left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Return the similarities (float64, (m,)) of the rows of two matrices (m, d)."""
    differences = left.astype(np.float64) - right.astype(np.float64)
    return np.asarray(np.exp(-np.linalg.norm(differences, ORDERS[kind], axis=1)))


def search_tile(left: Block, right: Block, search: Search) -> Found:
    """Return what `dupq.neighbours.tiles.search_tile` does."""
    of_left, of_right = (empty_nearest(len(side.keys), search.k) for side in (left, right))
    above, pairs = np.zeros(len(left.keys), np.int64), [NO_PAIRS]
    theirs = right.side.vectors.astype(np.float64)
    for start in range(0, len(left.keys), _ROWS):
        rows = slice(start, start + _ROWS)
        keys, vectors = left.keys[rows], left.side.vectors[rows].astype(np.float64)
        scores = np.exp(-cdist(vectors, theirs, _METRICS[search.measure.kind]))
        scores[keys[:, None] == right.keys] = -np.inf  # a question and itself
        merge(of_left, _best(scores, right.keys, search.k), np.arange(start, start + len(keys)))
        merge(of_right, _best(scores.T, keys, search.k))
        i, j = np.nonzero(scores.astype(np.float32) >= np.float32(search.threshold))
        above[rows] = np.bincount(i, minlength=len(keys))
        if search.keeps_pairs:
            ends, similarities = (keys[i], right.keys[j]), scores[i, j].astype(np.float32)
            once = ends[0] < ends[1] if left is right else slice(None)
            pairs.append(Pairs(np.minimum(*ends)[once], np.maximum(*ends)[once], similarities[once]))
    return of_left, of_right, Pairs(*map(np.concatenate, zip(*pairs, strict=True))), above


def _best(scores: np.ndarray, keys: np.ndarray, k: int) -> Nearest:
    """Return the k best of each row of `scores` (-inf: no pair), ties by the ascending keys of its columns."""
    best, k = empty_nearest(len(scores), k), min(k, len(keys))
    if k:
        kth = np.partition(scores, len(keys) - k, axis=1)[:, len(keys) - k]
        rows, columns = np.nonzero((scores >= kth[:, None]) & (scores > -np.inf))
        order = np.lexsort((columns, -scores[rows, columns], rows))
        rows, columns = rows[order], columns[order]
        ranks = np.arange(len(rows)) - np.searchsorted(rows, rows)
        rows, columns, ranks = rows[ranks < k], columns[ranks < k], ranks[ranks < k]
        best.others[rows, ranks], best.scores[rows, ranks] = keys[columns], scores[rows, columns]
    return best
