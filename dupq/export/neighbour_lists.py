"""The neighbours of each row of an export, from a table of pairs in any order, by way of files on the local disk."""

import os
from collections.abc import Iterable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dupq.export.by_key import found
from dupq.text.keys import Sites

COLUMNS = [
    *(f"{name}_{side}" for name in ("site", "question_id", "rank") for side in ("left", "right")),
    "similarity",
]
KIND = pa.struct([("ids", pa.list_(pa.int64())), ("distances", pa.list_(pa.float32()))])
_ENTRY = np.dtype([("row", np.int64), ("neighbour", np.int64), ("rank", np.int32), ("distance", np.float32)])


class Rows:
    """Which row of the export a question is, and which rows come from which file of the archive."""

    def __init__(self, files: list[np.ndarray]) -> None:
        """`files` are the keys (int64) of each file's rows, in the order of the export."""
        keys = np.concatenate([np.zeros(0, np.int64), *files])
        self._order = np.argsort(keys, kind="stable")
        self._keys = keys[self._order]
        self.starts = np.cumsum([0, *map(len, files)])  # the first row of each file, and how many rows there are

    def of(self, keys: np.ndarray) -> np.ndarray:
        """The rows of questions; -1 for one that has none."""
        places, is_there = found(self._keys, keys)
        return np.where(is_there, self._order[places] if len(self._order) else -1, -1)


def spill(pairs: Iterable[pa.Table], rows: Rows, sites: Sites, highest: float, folder: str) -> None:
    """Sort the entries of all lists by the file of their rows: 24 bytes an entry in `folder`, for `lists`.

    A pair is an entry of the left question's list if `rank_left` says so, and of the right one's if `rank_right` does.
    The distance is 1 - similarity / highest, where `highest` is the highest score that there can be. Memory: one table.
    """
    for table in pairs:
        table = table.filter(pc.is_valid(table["similarity"]))
        ends = [
            rows.of(sites.pack_columns(table[f"site_{side}"], table[f"question_id_{side}"], "pairs"))
            for side in ("left", "right")
        ]
        distances = 1 - table["similarity"].to_numpy() / highest
        for own, other, side in ((0, 1, "left"), (1, 0, "right")):
            ranks = pc.fill_null(table[f"rank_{side}"], 0).to_numpy()
            listed = np.flatnonzero((ranks > 0) & (ends[own] >= 0) & (ends[other] >= 0))
            entries = np.empty(len(listed), _ENTRY)
            for name, values in zip(_ENTRY.names or (), (ends[own], ends[other], ranks, distances), strict=True):
                entries[name] = values[listed]
            files = np.searchsorted(rows.starts, entries["row"], "right") - 1
            for number in np.unique(files).tolist():
                with open(os.path.join(folder, str(number)), "ab") as file:
                    file.write(entries[files == number].tobytes())


def lists(rows: Rows, number: int, folder: str) -> pa.StructArray:
    """The lists of the rows of a file of the archive, the nearest first: ids (zero-based rows) and distances."""
    path = os.path.join(folder, str(number))
    entries = np.fromfile(path, _ENTRY) if os.path.exists(path) else np.empty(0, _ENTRY)
    entries = entries[np.lexsort((entries["neighbour"], entries["rank"], entries["row"]))]
    start, end = rows.starts[number], rows.starts[number + 1]
    offsets = pa.array(np.searchsorted(entries["row"], np.arange(start, end + 1)).astype(np.int32))
    ids, distances = (
        pa.ListArray.from_arrays(offsets, pa.array(np.ascontiguousarray(entries[name])))
        for name in ("neighbour", "distance")
    )
    return pa.StructArray.from_arrays([ids, distances], fields=list(KIND))
