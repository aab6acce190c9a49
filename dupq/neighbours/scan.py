"""Compiled scan of a block of quick scores for those that reach a bound.

A block is read once, while it is in the cache, in groups: the whole group is compared with its bounds at once, and
single scores only where one of them reaches its bound. A row at a time is widened to float32, and the share of words
that are too rare for a matrix product (see lexical.py) is added there.
"""

from typing import NamedTuple

import numpy as np

from dupq.kernel_cache import numba as nb

GROUP = 64  # scores that are compared at once


class Rest(NamedTuple):
    """The part of the scores that is added from lists of words (float32); `starts` has one entry if there is none.

    Row i of the left side has `words` and `weights` from `starts[i]` to `starts[i + 1]`; word w of the right block is
    in its `columns` with `values` from `postings[w]` to `postings[w + 1]`. Columns are unsigned, so that numba needs no
    look for negative ones in the inner loop.
    """

    starts: np.ndarray
    words: np.ndarray
    weights: np.ndarray
    postings: np.ndarray
    columns: np.ndarray
    values: np.ndarray


NO_REST = Rest(
    np.zeros(1, np.int64), *(np.zeros(0, kind) for kind in (np.int32, np.float32, np.int32, np.uint32, np.float32))
)


class Places(NamedTuple):
    """Buffers for what a scan finds: rows and columns (int32) and scores (float32)."""

    rows: np.ndarray
    columns: np.ndarray
    values: np.ndarray


@nb.njit(nogil=True, cache=True)
def scan(
    scores: np.ndarray,
    rest: Rest,
    row_bounds: np.ndarray,
    column_bounds: np.ndarray,
    diagonal: int,
    start: int,
    places: Places,
) -> tuple[int, int]:
    """The positions of scores that reach the bound of their row or of their column, as far as `places` has room.

    `scores` (m, n): uint16, the bits of bfloat16 numbers, or float32; n is a multiple of GROUP. Bounds are float32.
    Only columns > row + `diagonal` count. Continues at row `start`; returns how many were found and the row to continue
    at, m at the end. `places` needs room for n at least.
    """
    m, n = scores.shape
    buffer = np.empty(n, np.float32)
    found = 0
    for row in range(start, m):
        if found + n > len(places.rows):
            return found, row
        bound = row_bounds[row]
        first = max(0, row + diagonal + 1)
        _complete(scores, rest, row, buffer)
        for group in range(first // GROUP * GROUP, n, GROUP):
            group_scores = buffer[group : group + GROUP]
            group_bounds = column_bounds[group : group + GROUP]
            some = np.uint32(0)
            for lane in range(GROUP):
                some |= np.uint32(group_scores[lane] >= min(bound, group_bounds[lane]))
            if some != 0:
                for lane in range(max(0, first - group), GROUP):
                    if group_scores[lane] >= min(bound, group_bounds[lane]):
                        places.rows[found] = row
                        places.columns[found] = group + lane
                        places.values[found] = group_scores[lane]
                        found += 1
    return found, m


@nb.njit(nogil=True, cache=True)
def complete(scores: np.ndarray, rest: Rest) -> np.ndarray:
    """The scores of a block as `scan` compares them (float32, (m, n))."""
    result = np.empty(scores.shape, np.float32)
    for row in range(len(scores)):
        _complete(scores, rest, row, result[row])
    return result


@nb.njit(nogil=True, cache=True)
def _complete(scores: np.ndarray, rest: Rest, row: int, buffer: np.ndarray) -> None:
    n = scores.shape[1]
    if scores.itemsize == 2:
        bits = buffer.view(np.uint32)
        for column in range(n):
            bits[column] = np.uint32(scores[row, column]) << np.uint32(16)
    else:
        for column in range(n):
            buffer[column] = scores[row, column]
    if len(rest.starts) > 1:
        for place in range(rest.starts[row], rest.starts[row + 1]):
            word, weight = rest.words[place], rest.weights[place]
            columns = rest.columns[rest.postings[word] : rest.postings[word + 1]]
            values = rest.values[rest.postings[word] : rest.postings[word + 1]]
            for entry in range(len(columns)):
                buffer[columns[entry]] += weight * values[entry]


@nb.njit(nogil=True, cache=True)
def bounds_of_rows(scores: np.ndarray, rank: int) -> np.ndarray:
    """A lower bound on the `rank`-th best score of each row (float32): the `rank`-th largest maximum of a group.

    The maxima are scores of different columns, so at least `rank` columns reach it.
    -inf where there are too few groups.
    """
    m, n = scores.shape
    groups = n // GROUP
    bounds = np.full(m, -np.inf, np.float32)
    if groups < rank:
        return bounds
    maxima = np.empty(groups, np.float32)
    for row in range(m):
        for group in range(groups):
            best = np.float32(-np.inf)
            for score in scores[row, group * GROUP : (group + 1) * GROUP]:
                best = max(best, score)
            maxima[group] = best
        bounds[row] = np.sort(maxima)[groups - rank]
    return bounds


@nb.njit(nogil=True, cache=True)
def bounds_of_columns(scores: np.ndarray, rank: int) -> np.ndarray:
    """The same for each column."""
    m, n = scores.shape
    height = max(1, m // GROUP)
    groups = m // height
    bounds = np.full(n, -np.inf, np.float32)
    if groups < rank:
        return bounds
    maxima = np.full((groups, n), -np.inf, np.float32)
    for row in range(groups * height):
        best = maxima[row // height]
        for column in range(n):
            best[column] = max(best[column], scores[row, column])
    for column in range(n):
        bounds[column] = np.sort(maxima[:, column])[groups - rank]
    return bounds
