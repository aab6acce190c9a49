"""Compiled code that keeps the best candidates of each question so far, and merges lists of neighbours."""

import mmap
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dupq.kernel_cache import numba as nb
from dupq.neighbours.exact import Scoring, score_row

_SPARE = 3  # room for candidates of a question beyond its k best, in units of k
_LEAST_SPARE = 24


class Candidates(NamedTuple):
    """The candidates of each of n questions: room for some more than k, of which the first `sizes` are in use.

    `values` (float64) are within the margin of the exact scores; `others` (int32) are row numbers; a candidate with a
    value below `bounds` is not among the k best.
    """

    values: np.ndarray
    others: np.ndarray
    sizes: np.ndarray
    bounds: np.ndarray


def no_candidates(questions: int, k: int) -> Candidates:
    """Nothing yet. Memory: 12 (4 k + 24) bytes a question; with k = 0 none, and no value reaches the bounds."""
    room = (1 + _SPARE) * k + _LEAST_SPARE if k else 0
    bounds = np.full(questions, -np.inf if k else np.inf)
    values, others = _pages((questions, room), np.float64), _pages((questions, room), np.int32)
    return Candidates(values, others, np.zeros(questions, np.int32), bounds)


def _pages(shape: tuple[int, int], kind: npt.DTypeLike) -> np.ndarray:
    """An array whose memory returns to the system when it is freed; malloc would keep it, once for each thread."""
    count = shape[0] * shape[1]
    return np.frombuffer(mmap.mmap(-1, max(1, count * np.dtype(kind).itemsize)), kind, count).reshape(shape)


@nb.njit(nogil=True, cache=True)
def push(
    best: Candidates, rows: np.ndarray, others: np.ndarray, values: np.ndarray, k: int, margin: float, pairs: Scoring
) -> None:
    """Add candidates to those of their rows; where there is no room, keep those that may be among the k best.

    A value is within `margin` of the exact score, so none of the k best is more than 2 `margin` below the k-th value.
    Where too many are that close to each other, their exact scores decide.
    """
    room = best.values.shape[1]
    for index in range(len(rows)):
        row = rows[index]
        if values[index] < best.bounds[row]:
            continue
        if best.sizes[row] == room:
            _shrink(best, row, k, margin)
            if best.sizes[row] > room - room // 4:
                _keep_exact(best, row, k, pairs)
                best.bounds[row] = max(best.bounds[row], best.values[row, k - 1] - margin)
            if values[index] < best.bounds[row]:
                continue
        size = best.sizes[row]
        best.values[row, size] = values[index]
        best.others[row, size] = others[index]
        best.sizes[row] = size + 1


@nb.njit(nogil=True, cache=True)
def finish(best: Candidates, k: int, margin: float, pairs: Scoring) -> None:
    """Keep the k best of each row with their exact scores, the best first, ties by `others`."""
    for row in range(len(best.sizes)):
        _shrink(best, row, k, margin)
        _keep_exact(best, row, k, pairs)


@nb.njit(nogil=True, cache=True)
def _shrink(best: Candidates, row: int, k: int, margin: float) -> None:
    """Raise the bound of a row as far as its candidates allow, and drop those below it."""
    size = best.sizes[row]
    if size < k:
        return
    kth = np.partition(best.values[row, :size].copy(), size - k)[size - k]
    bound = max(best.bounds[row], kth - 2.0 * margin)
    best.bounds[row] = bound
    kept = 0
    for index in range(size):
        if best.values[row, index] >= bound:
            best.values[row, kept] = best.values[row, index]
            best.others[row, kept] = best.others[row, index]
            kept += 1
    best.sizes[row] = kept


@nb.njit(nogil=True, cache=True)
def _keep_exact(best: Candidates, row: int, k: int, pairs: Scoring) -> None:
    """Score the candidates of a row exactly; keep the k best in order."""
    size = best.sizes[row]
    values, others = best.values[row], best.others[row]
    score_row(pairs, row, others[:size], values[:size])
    kept = 0
    for candidate in range(size):
        value, other = values[candidate], others[candidate]
        if kept == k and not _is_before(value, other, values[k - 1], others[k - 1]):
            continue
        index = min(kept, k - 1)
        kept = min(kept + 1, k)
        while index > 0 and _is_before(value, other, values[index - 1], others[index - 1]):
            values[index], others[index] = values[index - 1], others[index - 1]
            index -= 1
        values[index], others[index] = value, other
    best.sizes[row] = kept


@nb.njit(inline="always")
def _is_before(value: float, other: int, than_value: float, than_other: int) -> bool:
    return value > than_value or (value == than_value and other < than_other)


@nb.njit(nogil=True, cache=True)
def merge_nearest(others: np.ndarray, scores: np.ndarray, new_others: np.ndarray, new_scores: np.ndarray) -> None:
    """Merge lists of neighbours, row by row, into `others` and `scores`: the best first, ties by the smaller key.

    Shapes (n, k); -1 means no neighbour, and comes last. A neighbour in both lists counts once.
    """
    n, k = others.shape
    merged_others, merged_scores = np.empty(k, others.dtype), np.empty(k, scores.dtype)
    for row in range(n):
        if k == 0 or new_others[row, 0] < 0:
            continue
        old = new = 0
        for index in range(k):
            a = others[row, old] if old < k else -1
            b = new_others[row, new] if new < k else -1
            x = scores[row, old] if old < k else -np.inf
            y = new_scores[row, new] if new < k else -np.inf
            if a == b and a >= 0:
                merged_others[index], merged_scores[index] = a, x
                old += 1
                new += 1
            elif b < 0 or (a >= 0 and (x > y or (x == y and a < b))):
                merged_others[index], merged_scores[index] = a, x
                old += 1
            else:
                merged_others[index], merged_scores[index] = b, y
                new += 1
        others[row], scores[row] = merged_others, merged_scores
