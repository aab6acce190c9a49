"""How often each text has each term: stems without stop words."""

from typing import NamedTuple

import numpy as np
import pyarrow as pa
import xxhash
from scipy import sparse

from dupq.text.languages import is_stop_word, stems
from dupq.text.token_arrays import distinct_words
from dupq_papers.systems.sparse_search import columns_of, matrix


class Bags(NamedTuple):
    """How often each of n texts has each of t terms; terms are the 64-bit hashes of stems."""

    terms: np.ndarray  # uint64, ascending, (t,)
    counts: sparse.csr_array  # int32, (n, t)

    @property
    def lengths(self) -> np.ndarray:
        """The terms of each text, with repeats (int64, (n,))."""
        return np.asarray(self.counts.sum(axis=1, dtype=np.int64))

    def over(self, terms: np.ndarray) -> sparse.csr_array:
        """The counts of `terms` (uint64, ascending) alone: float64, (n, len(terms))."""
        columns = columns_of(self.terms, terms)[self.counts.indices]
        return matrix(columns, self.counts.data, self.counts.indptr, len(terms))


def bags_of(texts: pa.StringArray, language: str) -> Bags:
    """The bags of tokenised texts (tokens joined by single spaces)."""
    numbers, begins, distinct = distinct_words(texts)
    words, stem = distinct.to_pylist(), stems(language)
    hashes = np.array([xxhash.xxh3_64_intdigest(stem(word).encode()) for word in words], np.uint64)
    is_kept = np.array([not is_stop_word(word, language) for word in words], bool)
    terms = np.unique(hashes[is_kept])
    tokens = np.where(is_kept, columns_of(hashes, terms), -1)[numbers]
    rows = np.repeat(np.arange(len(texts)), np.diff(begins))
    inside = tokens >= 0
    ones = np.ones(int(inside.sum()), np.int32)
    counts = sparse.csr_array((ones, (rows[inside], tokens[inside])), shape=(len(texts), len(terms)))
    counts.sum_duplicates()
    return Bags(terms, counts)
