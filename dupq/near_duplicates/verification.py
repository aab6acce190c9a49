"""The exact Jaccard coefficient |A ∩ B| / |A ∪ B| of the shingle sets of candidate pairs."""

import numpy as np
import scipy.sparse as sparse

from dupq.near_duplicates.shingles import Shingles

_CHUNK_PAIRS = 20_000  # pairs compared at once, which bounds memory


def jaccard(sets: Shingles, left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """The coefficient of each pair (float64, shape (m,)); `left` and `right` are rows of `sets`.

    `sets` comes from `shingle_sets`. Two empty sets have coefficient 0: an empty text is nobody's duplicate.
    """
    incidence = incidence_matrix(sets)
    sizes = np.diff(sets.offsets)
    result = np.zeros(len(left))
    for start in range(0, len(left), _CHUNK_PAIRS):
        rows_left, rows_right = left[start : start + _CHUNK_PAIRS], right[start : start + _CHUNK_PAIRS]
        shared = np.asarray(incidence[rows_left].multiply(incidence[rows_right]).sum(axis=1)).ravel()
        union = sizes[rows_left] + sizes[rows_right] - shared
        result[start : start + _CHUNK_PAIRS] = np.divide(shared, union, out=np.zeros(len(union)), where=union > 0)
    return result


def incidence_matrix(sets: Shingles) -> sparse.csr_matrix:
    """Sets as rows of zeros and ones: shape (n, number of distinct shingles), float32."""
    distinct, columns = np.unique(sets.hashes, return_inverse=True)
    ones = np.ones(len(sets.hashes), np.float32)
    return sparse.csr_matrix((ones, columns, sets.offsets), shape=(len(sets.offsets) - 1, len(distinct)))
