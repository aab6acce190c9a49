"""The Jaccard coefficient of shingle sets (Bogdanova et al. 2015, section 5.2), over a collection in memory."""

import numpy as np

from dupq.evaluation import shingle_jaccard
from dupq.evaluation.sparse_search import as_lists
from dupq.evaluation.systems.collection import Collection

GRID = tuple({"size": size} for size in shingle_jaccard.SIZES)  # the default first


class ShingleJaccard:
    """A Ranker by the coefficient of the sets of shingles of `size` words."""

    def __init__(self, collection: Collection, *, size: int = 1) -> None:
        """`size` is that of a shingle, in words."""
        self._collection = collection
        self._size = size

    def rank(self, queries: np.ndarray, k: int) -> list[list[int]]:
        """See Ranker; a question that shares no shingle is not ranked."""
        keys, texts = self._collection.keys, self._collection.texts
        wanted = texts.take(self._collection.rows(queries))
        others, _ = shingle_jaccard.rank((queries, wanted), (keys, texts), self._size, k)
        return as_lists(others)

    def score(self, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        """See Ranker: the coefficient."""
        rows = self._collection.rows(left), self._collection.rows(right)
        return shingle_jaccard.pair_scores(self._collection.texts, *rows, self._size)
