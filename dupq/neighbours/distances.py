"""Compiled Manhattan and Euclidean distances of whole blocks: differences, summed for a whole row at a time."""

import numpy as np

from dupq.kernel_cache import numba as nb

STEP = 4  # dimensions that are added at a time: a row of sums is then read and written once for all of them


def columns_of(vectors: np.ndarray) -> np.ndarray:
    """Vectors (n, d) as columns (float32, (d', n)); d' is a multiple of STEP, filled with zeros."""
    count, dimensions = vectors.shape
    result = np.zeros((-(-dimensions // STEP) * STEP, count), np.float32)
    result[:dimensions] = vectors.T
    return result


@nb.njit(nogil=True, cache=True, fastmath={"contract"})
def distances(left: np.ndarray, right: np.ndarray, is_manhattan: bool, result: np.ndarray) -> None:
    """The distances (float32) of columns of `left` (d', m) and of `right` (d', n), into `result` (m, n)."""
    dimensions, count = right.shape
    for row in range(left.shape[1]):
        sums = result[row, :count]
        sums[:] = np.float32(0)
        for start in range(0, dimensions, STEP):
            a, b, c, d = left[start, row], left[start + 1, row], left[start + 2, row], left[start + 3, row]
            p, q, r, s = right[start], right[start + 1], right[start + 2], right[start + 3]
            if is_manhattan:
                for column in range(count):
                    sums[column] += (abs(a - p[column]) + abs(b - q[column])) + (
                        abs(c - r[column]) + abs(d - s[column])
                    )
            else:
                for column in range(count):
                    w, x, y, z = a - p[column], b - q[column], c - r[column], d - s[column]
                    sums[column] += (w * w + x * x) + (y * y + z * z)
        if not is_manhattan:
            for column in range(count):
                sums[column] = np.sqrt(sums[column])


def longest_distance(left: np.ndarray, right: np.ndarray) -> float:
    """At least the distance of any two rows, Manhattan or Euclidean."""
    return sum(float(np.abs(side).sum(axis=1).max(initial=0.0)) for side in (left, right))


def distance_margin(dimensions: int, longest: float) -> float:
    """The largest difference of a distance from the exact one, if differences are summed in float32 in any order."""
    return 2.0 * (dimensions + 8) * 2.0**-24 * longest + 1e-30
