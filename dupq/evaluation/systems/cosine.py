"""Questions as dense vectors, ranked and scored by the cosine: what the systems of word vectors have in common."""

import numpy as np

from dupq.evaluation.sparse_search import first

_QUERIES = 256  # at once
_DECIMALS = 12  # of scores: copies tie, wherever a matrix product sums them


class CosineRanker:
    """A Ranker (dupq/evaluation/protocol.py) over vectors.

    Questions without a vector (a zero one) are not ranked, and score 0; all others are, those of a negative cosine
    last.
    """

    def __init__(self, keys: np.ndarray, vectors: np.ndarray, groups: np.ndarray | None = None) -> None:
        """`keys` (int64, (n,)) ascend; `vectors` (n, d). A query is answered from its own group, where there are any.

        `groups` (any integers, (n,)) limit `rank` only.
        """
        norms = np.linalg.norm(vectors.astype(np.float64), axis=1, keepdims=True)
        self.vectors: np.ndarray = vectors / np.where(norms > 0, norms, 1.0)  # of length 1, or zero
        self._is_there = norms[:, 0] > 0
        self._keys = keys
        self._groups = np.zeros(len(keys), np.int64) if groups is None else groups

    def rank(self, queries: np.ndarray, k: int) -> list[list[int]]:
        """See Ranker."""
        rows = np.searchsorted(self._keys, queries)
        found: list[list[int]] = []
        for start in range(0, len(rows), _QUERIES):
            some = rows[start : start + _QUERIES]
            cosines = np.round(self.vectors[some] @ self.vectors.T, _DECIMALS)
            found += [self._best(row, scores, k) for row, scores in zip(some.tolist(), cosines, strict=True)]
        return found

    def score(self, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        """See Ranker; the cosine."""
        sides = [self.vectors[np.searchsorted(self._keys, keys)] for keys in (left, right)]
        return np.round(np.einsum("md,md->m", *sides), _DECIMALS)

    def _best(self, row: int, scores: np.ndarray, k: int) -> list[int]:
        if not self._is_there[row]:
            return []
        is_other = self._is_there & (self._groups == self._groups[row])
        is_other[row] = False
        return first(self._keys[is_other], scores[is_other], k)[0].tolist()
