"""Lists of neighbours as tables (NEAREST)."""

from collections.abc import Iterable

import numpy as np
import pyarrow as pa

from dupq.neighbours.nearest import Nearest, empty_nearest, merge_rows
from dupq.tables import NEAREST


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
