"""The candidates of a search, and the lists of neighbours that they become.

Compiled code scans a block of quick scores for those that reach a bound and keeps the best candidates of each question.
"""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from dupq.kernel_cache import Integer, numba
from dupq.neighbours.embeddings import Neighbours
from dupq.neighbours.exact import Scoring, score_row
from dupq.tables import NEAREST

# The scan reads a block once, while it is in the cache. It compares GROUP scores with their bounds at once, and single
# scores only if one of these reaches its bound. Each row is widened to float32 first, and the share of the words that
# are too rare for a matrix product (products.py) is added to it.

GROUP = 64
_SPARE = 3  # room for candidates of a question beyond its k best, in units of k
_LEAST_SPARE = 24


class Rest(NamedTuple):
    """The words whose share of the scores is added from lists (float32). Without any, `starts` has one entry.

    Row i of the left side has `words` and `weights` from `starts[i]` to `starts[i + 1]`; word w of the right block is
    in its `columns` with `values` from `postings[w]` to `postings[w + 1]`. Columns are unsigned so that numba does not
    check for negative ones in the inner loop.
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


class Hits(NamedTuple):
    """The scores that a scan found: their rows and columns (int32), and the scores (float32)."""

    rows: np.ndarray
    columns: np.ndarray
    values: np.ndarray


@numba.njit(nogil=True, cache=True)
def scan(
    scores: np.ndarray,
    rest: Rest,
    row_bounds: np.ndarray,
    column_bounds: np.ndarray,
    diagonal: int,
    start: int,
    hits: Hits,
) -> tuple[int, int]:
    """Write the scores that reach the bound of their row or column to `hits`, until that is full.

    `scores` (m, n) are float32, or bfloat16 numbers as uint16; n is a multiple of GROUP. Bounds are float32. Only
    columns > row + `diagonal` count. Starts at row `start`. Returns the number of hits and the row to continue at,
    m at the end. `hits` has room for n at least.
    """
    m, n = scores.shape
    buffer = np.empty(n, np.float32)
    count = 0
    for row in range(start, m):
        if count + n > len(hits.rows):
            return count, row
        bound = row_bounds[row]
        first = max(0, row + diagonal + 1)
        complete(scores, rest, row, buffer)
        for group in range(first // GROUP * GROUP, n, GROUP):
            group_scores = buffer[group : group + GROUP]
            group_bounds = column_bounds[group : group + GROUP]
            reached = np.uint32(0)
            for lane in range(GROUP):
                reached |= np.uint32(group_scores[lane] >= min(bound, group_bounds[lane]))
            if reached != 0:
                for lane in range(max(0, first - group), GROUP):
                    if group_scores[lane] >= min(bound, group_bounds[lane]):
                        hits.rows[count] = row
                        hits.columns[count] = group + lane
                        hits.values[count] = group_scores[lane]
                        count += 1
    return count, m


@numba.njit(nogil=True, cache=True)
def complete(scores: np.ndarray, rest: Rest, row: int, buffer: np.ndarray) -> None:
    """Write a row of `scores`, widened and with the share of `rest`, to `buffer` (float32, (n,))."""
    n = scores.shape[1]
    if scores.itemsize == 2:
        bits = buffer.view(np.uint32)
        for column in range(n):
            bits[column] = np.uint32(scores[row, column]) << np.uint32(16)
    else:
        for column in range(n):
            buffer[column] = scores[row, column]
    if len(rest.starts) > 1:
        for index in range(rest.starts[row], rest.starts[row + 1]):
            word, weight = rest.words[index], rest.weights[index]
            columns = rest.columns[rest.postings[word] : rest.postings[word + 1]]
            values = rest.values[rest.postings[word] : rest.postings[word + 1]]
            for entry in range(len(columns)):
                buffer[columns[entry]] += weight * values[entry]


class Candidates(NamedTuple):
    """The candidates of n questions: the first `sizes` of each row's values and others.

    `values` (float64) are within the margin of the exact scores; `others` (int32) are row numbers. A pair with a value
    below `bounds` is not among the k best.
    """

    values: np.ndarray
    others: np.ndarray
    sizes: np.ndarray
    bounds: np.ndarray


def empty_candidates(questions: int, k: int) -> Candidates:
    """Return room for candidates. Memory: 12 (4 k + 24) bytes per question, none if k is 0: then nothing is added."""
    room = (1 + _SPARE) * k + _LEAST_SPARE if k else 0
    bounds = np.full(questions, -np.inf if k else np.inf)
    values, others = np.empty((questions, room)), np.empty((questions, room), np.int32)
    return Candidates(values, others, np.zeros(questions, np.int32), bounds)


@numba.njit(nogil=True, cache=True)
def push(
    best: Candidates, rows: np.ndarray, others: np.ndarray, values: np.ndarray, k: int, margin: float, sides: Scoring
) -> None:
    """Add candidates to their rows of `best`, the questions of the left side; if a row is full, drop its worst first.

    A value is within `margin` of the exact score, so none of the k best is more than 2 `margin` below the k-th value.
    If too many are that close to each other, their exact scores decide.
    """
    room = best.values.shape[1]
    for index in range(len(rows)):
        row = np.int64(rows[index])  # the type that `finish` has, so that the calls below are compiled once
        if values[index] < best.bounds[row]:
            continue
        if best.sizes[row] == room:
            _drop_worst(best, row, k, margin)
            if best.sizes[row] > room - room // 4:
                _keep_best(best, row, k, sides)
                best.bounds[row] = max(best.bounds[row], best.values[row, k - 1] - margin)
            if values[index] < best.bounds[row]:
                continue
        size = best.sizes[row]
        best.values[row, size] = values[index]
        best.others[row, size] = others[index]
        best.sizes[row] = size + 1


@numba.njit(nogil=True, cache=True)
def finish(best: Candidates, k: int, margin: float, sides: Scoring) -> None:
    """Keep the k best of each row with their exact scores, the best first, ties by `others`."""
    for row in range(len(best.sizes)):
        _drop_worst(best, row, k, margin)
        _keep_best(best, row, k, sides)


@numba.njit(nogil=True, cache=True)
def _drop_worst(best: Candidates, row: Integer, k: int, margin: float) -> None:
    """Raise the bound of a row as far as its values allow, and drop candidates below it."""
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


@numba.njit(nogil=True, cache=True)
def _keep_best(best: Candidates, row: Integer, k: int, sides: Scoring) -> None:
    """Score the candidates of a row exactly, and keep the k best in order."""
    size = best.sizes[row]
    values, others = best.values[row], best.others[row]
    score_row(sides, row, others[:size], values[:size])
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


@numba.njit(inline="always")
def _is_before(value: float, other: int, than_value: float, than_other: int) -> bool:
    return value > than_value or (value == than_value and other < than_other)


class Nearest(NamedTuple):
    """The k best of each question of a block, the best first, ties by key.

    `others` (n, k) int64 keys, -1 after the last; `scores` (n, k) float64, by which they are ordered, -inf after the
    last.
    """

    others: np.ndarray
    scores: np.ndarray


def empty_nearest(questions: int, k: int) -> Nearest:
    """Return lists without neighbours."""
    return Nearest(np.full((questions, k), -1), np.full((questions, k), -np.inf))


def merge(nearest: Nearest, more: Nearest, rows: np.ndarray | None = None) -> None:
    """Merge lists `more` into those of the same questions: all of `nearest`, or its `rows` (int64, distinct).

    A neighbour in both lists counts once.
    """
    own, k = (slice(None) if rows is None else rows), nearest.others.shape[1]
    others, scores = (np.concatenate([mine[own], new], axis=1) for mine, new in zip(nearest, more, strict=True))
    order = np.lexsort((others, -scores))
    others, scores = (np.take_along_axis(side, order, axis=1) for side in (others, scores))
    is_repeated = (np.diff(others, axis=1, prepend=-1) == 0) & (others >= 0)
    kept = np.argsort(is_repeated, axis=1, kind="stable")[:, :k]
    nearest.others[own], nearest.scores[own] = (np.take_along_axis(side, kept, axis=1) for side in (others, scores))


def as_neighbours(keys: np.ndarray, nearest: Nearest) -> Neighbours:
    """Return the lists of the questions `keys` as rows, sorted by query and rank."""
    rows, ranks = np.nonzero(nearest.others >= 0)
    similarities = nearest.scores[rows, ranks].astype(np.float32)
    return Neighbours(keys[rows], nearest.others[rows, ranks], similarities, (ranks + 1).astype(np.int32))


def nearest_table(keys: np.ndarray, nearest: Nearest) -> pa.Table:
    """Return the lists of the questions `keys` as rows of NEAREST."""
    inside = nearest.others >= 0
    offsets = pa.array(np.append(0, np.cumsum(inside.sum(axis=1))), pa.int32())
    lists = [pa.ListArray.from_arrays(offsets, pa.array(column[inside])) for column in nearest]
    return pa.table([pa.array(keys), *lists], schema=NEAREST)


def nonempty_table(keys: np.ndarray, nearest: Nearest) -> pa.Table:
    """Return the lists that have neighbours as rows of NEAREST; k is at least 1."""
    rows = nearest.others[:, 0] >= 0
    return nearest_table(keys[rows], Nearest(*(column[rows] for column in nearest)))


def nearest_in(table: pa.Table, k: int) -> tuple[np.ndarray, Nearest]:
    """Return the keys and the lists in rows of NEAREST."""
    table = table.combine_chunks()
    nearest = empty_nearest(len(table), k)
    if len(table):
        lists = table["neighbours"].combine_chunks()
        inside = np.arange(k) < lists.value_lengths().to_numpy()[:, None]
        nearest.others[inside] = lists.flatten().to_numpy()
        nearest.scores[inside] = table["scores"].combine_chunks().flatten().to_numpy()
    return table["key"].to_numpy(), nearest


def merged(tables: Iterable[pa.Table], k: int) -> tuple[np.ndarray, Nearest]:
    """Return the keys in the first of `tables` (NEAREST, by key) that has rows, and their lists in all of them."""
    keys, nearest = np.zeros(0, np.int64), empty_nearest(0, k)
    for table in tables:
        own_keys, more = nearest_in(table, k)
        if len(keys):
            merge(nearest, more, np.searchsorted(keys, own_keys))
        else:
            keys, nearest = own_keys, more
    return keys, nearest
