"""Questions as dense vectors, ranked and scored by the cosine: what the systems of word vectors have in common."""

import numpy as np

from dupq_papers.systems.sparse_search import first

_QUERIES = 256  # at once
_DECIMALS = 12


def unit_rows(vectors: np.ndarray) -> np.ndarray:
    """The vectors (n, d), of length 1, or zero (float64)."""
    norms = np.linalg.norm(vectors.astype(np.float64), axis=1, keepdims=True)
    return vectors / np.where(norms > 0, norms, 1.0)


def rounded(scores: np.ndarray) -> np.ndarray:
    """Scores as they are compared: copies tie, wherever a matrix product sums them."""
    return np.round(scores, _DECIMALS)


class CosineRanker:
    """A Ranker (dupq/evaluation/measures.py) over vectors.

    Questions without a vector (a zero one) are not ranked, and score 0; all others are, those of a negative cosine
    last. `vectors` (n, d) are of length 1, or zero. `groups` (any integers, (n,)) limit `rank` only: a query is
    answered from its own group. At first all questions are of one.
    """

    def __init__(self, keys: np.ndarray, vectors: np.ndarray) -> None:
        """`keys` (int64, (n,)) ascend; `vectors` (n, d) are of any length."""
        self.vectors = unit_rows(vectors)
        self.groups: np.ndarray = np.zeros(len(keys), np.int64)
        self._is_there: np.ndarray = np.any(self.vectors != 0, axis=1)
        self._keys = keys

    def rank(self, queries: np.ndarray, k: int) -> list[list[int]]:
        """See Ranker."""
        rows = np.searchsorted(self._keys, queries)
        found: list[list[int]] = []
        for start in range(0, len(rows), _QUERIES):
            some = rows[start : start + _QUERIES]
            cosines = rounded(self.vectors[some] @ self.vectors.T)
            found += [self._best(row, scores, k) for row, scores in zip(some.tolist(), cosines, strict=True)]
        return found

    def score(self, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        """See Ranker; the cosine."""
        sides = [self.vectors[np.searchsorted(self._keys, keys)] for keys in (left, right)]
        return rounded(np.einsum("md,md->m", *sides))

    def _best(self, row: int, scores: np.ndarray, k: int) -> list[int]:
        if not self._is_there[row]:
            return []
        is_other = self._is_there & (self.groups == self.groups[row])
        is_other[row] = False
        return first(self._keys[is_other], scores[is_other], k)[0].tolist()
