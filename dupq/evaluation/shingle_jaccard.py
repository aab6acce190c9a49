"""The Jaccard coefficient of shingle sets as one of the compared systems (Bogdanova et al. 2015, section 5.2)."""

import numpy as np
import pyarrow as pa
from scipy import sparse

from dupq.evaluation.sparse_search import best, columns_of, matrix
from dupq.near_duplicates.shingles import Shingles, shingle_sets
from dupq.near_duplicates.verification import jaccard
from dupq.text.keys import distinct

SIZES = (1, 2, 3, 4)  # words of a shingle


def rank(
    queries: tuple[np.ndarray, pa.StringArray], texts: tuple[np.ndarray, pa.StringArray], size: int, k: int
) -> tuple[np.ndarray, np.ndarray]:
    """The k best of `texts` for each of `queries` (both keys and texts) by shingles of `size` words, as from `best`."""
    query_sets, sets = shingle_sets(queries[1], size), shingle_sets(texts[1], size)
    terms = distinct(query_sets.hashes)
    sizes, query_sizes = np.diff(sets.offsets), np.diff(query_sets.offsets)

    def coefficients(shared: np.ndarray, row: int) -> np.ndarray:
        either = query_sizes[row] + sizes - shared
        return np.divide(shared, either, out=np.zeros(len(shared)), where=either > 0)

    return best((queries[0], _incidence(query_sets, terms)), (texts[0], _incidence(sets, terms)), k, coefficients)


def pair_scores(texts: pa.StringArray, left: np.ndarray, right: np.ndarray, size: int) -> np.ndarray:
    """The coefficient of each pair of rows of `texts` (float64, (m,))."""
    return jaccard(shingle_sets(texts, size), left, right)


def _incidence(sets: Shingles, terms: np.ndarray) -> sparse.csr_array:
    columns = columns_of(sets.hashes, terms)
    return matrix(columns, np.ones(len(columns)), sets.offsets, len(terms))
