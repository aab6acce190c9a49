"""Compiled code that scans a block of quick scores for those that reach a bound, keeps the best candidates of each
question so far, and merges lists of neighbours.
"""

import mmap
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dupq.kernel_cache import numba as nb
from dupq.neighbours.exact import Scoring, score_row
from dupq.tables import NEAREST

# Compiled scan of a block of quick scores for those that reach a bound.
#
# A block is read once, while it is in the cache, in groups: the whole group is compared with its bounds at once, and
# single scores only where one of them reaches its bound. A row at a time is widened to float32, and the share of words
# that are too rare for a matrix product (see products.py) is added there.

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
        complete(scores, rest, row, buffer)
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
def complete(scores: np.ndarray, rest: Rest, row: int, buffer: np.ndarray) -> None:
    """Put the scores of a row as `scan` compares them into `buffer` (float32, (n,))."""
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


# Lists of the nearest questions, as a search leaves them, and how they are merged.
#
# They are apart from the search so that a process that only reads lists does not import torch, which takes seconds.


class Nearest(NamedTuple):
    """The k best of each question of a block, the best first, ties by key.

    `others` (n, k) int64 keys, -1 after the last; `scores` (n, k) float64, by which they are ordered;
    `above` (n,) int64: how many questions score above the threshold.
    """

    others: np.ndarray
    scores: np.ndarray
    above: np.ndarray

    @property
    def worst(self) -> np.ndarray | None:
        """The score of the k-th best of each question, -inf if there are not so many; None without k."""
        return self.scores[:, -1] if self.scores.shape[1] else None


def empty_nearest(questions: int, k: int) -> Nearest:
    """Lists without neighbours."""
    return Nearest(np.full((questions, k), -1), np.full((questions, k), -np.inf), np.zeros(questions, np.int64))


def merge(nearest: Nearest, more: Nearest) -> None:
    """Merge lists of the same questions, found among other questions, into `nearest`."""
    merge_nearest(nearest.others, nearest.scores, more.others, more.scores)
    nearest.above[:] += more.above


def merge_rows(nearest: Nearest, rows: np.ndarray, more: Nearest) -> None:
    """Merge lists of the questions in `rows` (int64, distinct) into `nearest`."""
    mine = Nearest(*(column[rows] for column in nearest))
    merge(mine, more)
    for column, values in zip(nearest, mine, strict=True):
        column[rows] = values


def nearest_table(keys: np.ndarray, nearest: Nearest) -> pa.Table:
    """Return the lists of the questions `keys` as rows."""
    count, k = nearest.others.shape
    inside = nearest.others >= 0
    if inside.all():  # as a rule, and ten times as fast
        offsets, columns = np.arange(count + 1) * k, [column.ravel() for column in nearest[:2]]
    else:
        offsets = np.concatenate([[0], np.cumsum(inside.sum(axis=1))])
        columns = [column[inside] for column in nearest[:2]]
    lists = [pa.ListArray.from_arrays(pa.array(offsets.astype(np.int32)), pa.array(column)) for column in columns]
    return pa.table([pa.array(keys), *lists], schema=NEAREST)


def found_table(keys: np.ndarray, nearest: Nearest) -> pa.Table:
    """Return the same without questions that have found none; k is 1 at least."""
    rows = nearest.others[:, 0] >= 0
    return nearest_table(keys[rows], Nearest(*(column[rows] for column in nearest)))


def nearest_in(table: pa.Table, k: int) -> tuple[np.ndarray, Nearest]:
    """Return the keys and lists in rows of NEAREST."""
    table = table.combine_chunks()
    nearest = empty_nearest(len(table), k)
    lists = table["neighbours"].combine_chunks() if len(table) else None
    if lists is not None:
        inside = np.arange(k) < lists.value_lengths().to_numpy()[:, None]
        nearest.others[inside] = lists.flatten().to_numpy()
        nearest.scores[inside] = table["scores"].combine_chunks().flatten().to_numpy()
    return table["key"].to_numpy(), nearest


def merged(lists: pa.Table, found: Iterable[pa.Table], k: int) -> tuple[np.ndarray, Nearest]:
    """Return the keys of `lists`, ascending, and their lists with those in `found` of the same questions merged in."""
    keys, nearest = nearest_in(lists, k)
    for table in found:
        some, more = nearest_in(table, k)
        merge_rows(nearest, np.searchsorted(keys, some), more)
    return keys, nearest
