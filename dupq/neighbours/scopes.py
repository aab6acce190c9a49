"""Which questions may be compared: those that share a value of their scope, and were asked within a window of time.

A question has an entry for each value of its scope: the value and the time. One that represents others has their
entries too. Two questions may be compared if both have an entry of one value, at times that differ by at most the
window. Without a window all times are 0, and without a scope all values are.
"""

from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dupq.kernel_cache import numba
from dupq.text.keys import are_among, distinct

_ODD, _OTHER = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xD6E8FEB86659FD93)


class Entries(NamedTuple):
    """The entries of n questions, ascending by value, time and owner. Row i's are from `starts[i]` to `starts[i + 1]`.

    Of a question that represents others, `owners` has the key of the question that each entry comes from.
    """

    keys: np.ndarray  # int64, (n,), ascending
    starts: np.ndarray  # int64, (n + 1,)
    values: np.ndarray  # int64
    times: np.ndarray  # int64, milliseconds
    owners: np.ndarray  # int64


def entries_of(scopes: pa.Table, grouped: pa.Table | None = None) -> Entries:
    """Return the entries in rows of SCOPES. Keys that represent others in `grouped` (GROUPED) have those of its rows.

    All rows of a group are in `grouped`; groups without a row in `scopes` are left out.
    """
    keys = np.sort(scopes["key"].to_numpy())
    rows = [_flat(scopes, "key")]
    if grouped is not None:
        representatives = grouped["representative"].to_numpy()
        alone = scopes.filter(pa.array(~are_among(distinct(representatives), scopes["key"].to_numpy())))
        rows = [
            _flat(alone, "key"),
            _flat(grouped.filter(pa.array(are_among(keys, representatives))), "representative"),
        ]
    questions, values, times, owners = (np.concatenate(column) for column in zip(*rows, strict=True))
    order = np.lexsort((owners, times, values, questions))
    starts = np.searchsorted(questions[order], np.append(keys, np.iinfo(np.int64).max))
    return Entries(keys, starts, values[order], times[order], owners[order])


def _flat(table: pa.Table, name: str) -> tuple[np.ndarray, ...]:
    """Return a row per entry: the question in the column `name`, value, time, and the owner."""
    parents = pc.list_parent_indices(table["values"])
    columns = table[name].take(parents), pc.list_flatten(table["values"]), pc.list_flatten(table["times"])
    return *(column.to_numpy() for column in columns), table["key"].take(parents).to_numpy()


def distinct_entries(entries: Entries) -> Entries:
    """Return the entries without those that a question has from several others."""
    rows = np.repeat(np.arange(len(entries.keys)), np.diff(entries.starts))
    columns = rows, entries.values, entries.times
    is_new = np.any([np.diff(column, prepend=-1) != 0 for column in columns], axis=0)
    is_new[:1] = True
    starts = np.append(0, np.cumsum(is_new))[entries.starts]
    return Entries(entries.keys, starts, *(column[is_new] for column in entries[2:]))


def hashes_of(entries: Entries) -> np.ndarray:
    """Return a hash (int64, (n,)) of each question's values and times; 0 without any."""
    mixed = (entries.values.view(np.uint64) * _ODD + entries.times.view(np.uint64)) * _OTHER
    sums = np.append(np.uint64(0), np.cumsum(mixed ^ (mixed >> np.uint64(29))))
    return np.asarray((sums[entries.starts[1:]] - sums[entries.starts[:-1]]).view(np.int64))


@numba.njit(nogil=True, cache=True)
def are_comparable(left: Entries, right: Entries, rows: np.ndarray, columns: np.ndarray, window: int) -> np.ndarray:
    """Return whether row `rows[i]` of the left side may be compared with row `columns[i]` of the right (bool)."""
    result = np.empty(len(rows), np.bool_)
    for index in range(len(rows)):
        result[index] = common(left, right, rows[index], columns[index], window, False)[0] >= 0
    return result


@numba.njit(nogil=True, cache=True)
def common(left: Entries, right: Entries, row: int, column: int, window: int, only_own: bool) -> tuple[int, int]:
    """Return the first entries of two rows with one value and times within the window; -1 and -1 if there are none.

    With `only_own`, entries of questions that the two represent do not count.
    """
    a, b = left.starts[row], right.starts[column]
    while a < left.starts[row + 1] and b < right.starts[column + 1]:
        if only_own and left.owners[a] != left.keys[row]:
            a += 1
        elif only_own and right.owners[b] != right.keys[column]:
            b += 1
        elif left.values[a] == right.values[b] and abs(left.times[a] - right.times[b]) <= window:
            return a, b
        elif (left.values[a], left.times[a]) < (right.values[b], right.times[b]):
            a += 1
        else:
            b += 1
    return -1, -1


@numba.njit(nogil=True, cache=True)
def comparable_owners(entries: Entries, rows: np.ndarray, columns: np.ndarray, window: int) -> np.ndarray:
    """Return for each pair of rows two questions (int64 keys, (m, 2)) that they represent and that may be compared.

    They are the pair itself if it may be compared. Every pair has such questions.
    """
    result = np.empty((len(rows), 2), np.int64)
    for index in range(len(rows)):
        a, b = common(entries, entries, rows[index], columns[index], window, True)
        if a < 0:
            a, b = common(entries, entries, rows[index], columns[index], window, False)
        result[index] = entries.owners[a], entries.owners[b]
    return result
