"""The Jaccard coefficient of shingle sets (Bogdanova et al. 2015, section 5.2), over a collection in memory."""

import numpy as np
import pyarrow as pa
from scipy import sparse

from dupq.evaluation import rankers
from dupq.near_duplicates.shingles import Shingles, shingle_sets
from dupq.text.keys import distinct
from dupq_papers.systems.collection import Collection
from dupq_papers.systems.sparse_search import as_lists, best, columns_of, matrix

GRID = tuple({"size": size} for size in rankers.SIZES)  # the default first


class ShingleJaccard(rankers.ShingleJaccard):
    """A Ranker by the coefficient of the sets of shingles of `size` words."""

    def __init__(self, collection: Collection, *, size: int = 1) -> None:
        """`size` is that of a shingle, in words."""
        super().__init__([pa.table({"key": collection.keys, "text": collection.texts})], size)
        self._collection = collection

    def rank(self, queries: np.ndarray, k: int) -> list[list[int]]:
        """See Ranker; a question that shares no shingle is not ranked."""
        keys, texts = self._collection.keys, self._collection.texts
        sets = shingle_sets(texts, self.size)
        wanted = shingle_sets(texts.take(self._collection.rows(queries)), self.size)
        terms, sizes, own_sizes = distinct(wanted.hashes), np.diff(sets.offsets), np.diff(wanted.offsets)

        def coefficients(shared: np.ndarray, row: int) -> np.ndarray:
            either = own_sizes[row] + sizes - shared
            return np.divide(shared, either, out=np.zeros(len(shared)), where=either > 0)

        others, _ = best((queries, _incidence(wanted, terms)), (keys, _incidence(sets, terms)), k, coefficients)
        return as_lists(others)


def _incidence(sets: Shingles, terms: np.ndarray) -> sparse.csr_array:
    columns = columns_of(sets.hashes, terms)
    return matrix(columns, np.ones(len(columns)), sets.offsets, len(terms))
