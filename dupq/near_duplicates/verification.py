"""The exact Jaccard coefficient |A ∩ B| / |A ∪ B| of the shingle sets of candidate pairs."""

import numpy as np

from dupq.kernel_cache import numba
from dupq.near_duplicates.shingles import Shingles


def jaccard(sets: Shingles, left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """The coefficient of each pair (float64, shape (m,)); `left` and `right` are rows of `sets`.

    `sets` comes from `shingle_sets`: sorted, so that two are compared in one pass over both. Two empty sets have
    coefficient 0: an empty text has no duplicates.
    """
    result = np.empty(len(left))
    _compare(sets.hashes, sets.offsets, left, right, result)
    return result


@numba.njit(nogil=True, cache=True)
def _compare(hashes: np.ndarray, offsets: np.ndarray, left: np.ndarray, right: np.ndarray, result: np.ndarray) -> None:
    for pair in range(len(left)):
        i, i_end = offsets[left[pair]], offsets[left[pair] + 1]
        j, j_end = offsets[right[pair]], offsets[right[pair] + 1]
        both = (i_end - i) + (j_end - j)
        common = 0
        while i < i_end and j < j_end:
            a, b = hashes[i], hashes[j]
            common += a == b
            i += a <= b
            j += b <= a
        result[pair] = common / (both - common) if both else 0.0
