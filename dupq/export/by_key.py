"""Rows of a table by the keys of their questions, in little memory: the values are on the local disk.

It serves to put titles beside tables that are read in another order than the archive's.
"""

import contextlib
import os
import tempfile
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dupq import storage
from dupq.errors import DupqError
from dupq.runs.reader import Run
from dupq.runs.table_view import TableView
from dupq.text.keys import Sites


class ByKey:
    """Columns of text and of whole numbers. See `by_key`."""

    def __init__(self, keys: np.ndarray, columns: dict[str, pa.Array]) -> None:
        """`keys` (int64) in the order of the columns' rows."""
        self._order = np.argsort(keys, kind="stable")
        self._keys = keys[self._order]
        self._columns = columns

    def take(self, keys: np.ndarray) -> dict[str, pa.Array]:
        """The columns for `keys` (int64), null where there is no such row."""
        places, is_there = found(self._keys, keys)
        rows = pa.array(self._order[places] if len(self._order) else places, pa.int64(), mask=~is_there)
        return {name: column.take(rows) for name, column in self._columns.items()}


def found(sorted_keys: np.ndarray, keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The place of each of `keys` among sorted ones, and whether it is there; 0 where it is not."""
    places = np.searchsorted(sorted_keys, keys)
    places[places == len(sorted_keys)] = 0
    is_there = sorted_keys[places] == keys if len(sorted_keys) else np.zeros(len(keys), bool)
    return np.where(is_there, places, 0), is_there


@contextlib.contextmanager
def by_key(view: TableView, columns: Sequence[str], sites: Sites) -> Iterator[ByKey]:
    """Some columns of a table that has `site` and `question_id`, to be looked up while the context lasts.

    Memory: 16 bytes a row (32 while they are sorted), and one file of the table. The local disk holds the values, with
    8 bytes each for a text's place.
    """
    with tempfile.TemporaryDirectory(prefix="dupq-export-") as folder:
        stores = {name: _Store(os.path.join(folder, str(number))) for number, name in enumerate(columns)}
        keys = _stored(view, sites, stores)
        table = ByKey(keys, {name: store.read(view.schema.field(name).type) for name, store in stores.items()})
        del keys  # the table has them sorted
        yield table


def _stored(view: TableView, sites: Sites, stores: "dict[str, _Store]") -> np.ndarray:
    """Put the columns into `stores`; the keys (int64) in the order of their rows."""
    keys = [np.zeros(0, np.int64)]
    for table in view.files(["site", "question_id", *stores]):
        known = of_sites(table, sites)
        keys.append(sites.pack_columns(known["site"], known["question_id"], view.place))
        for name, store in stores.items():
            store.append(known[name])
    return np.concatenate(keys)


def of_sites(table: pa.Table, sites: Sites) -> pa.Table:
    """The rows whose `site` is one of the run's."""
    return table.filter(pc.is_in(table["site"], pa.array(sites.names, pa.string())))


def sites_of(run: Run) -> Sites:
    """The sites of a run. Raises DupqError if its metrics.json does not name them."""
    if "sites" not in run.metrics:
        raise DupqError(f"{storage.join(run.uri, 'metrics.json')}: 'sites' is missing; the run is damaged")
    return Sites(sorted(run.metrics["sites"]))


class _Store:
    """A column that has no nulls, on the local disk: its values one after the other, and where texts end."""

    def __init__(self, path: str) -> None:
        self._path, self._rows, self._end = path, 0, 0
        self._write("values", b"")
        self._write("ends", np.zeros(1, np.int64).tobytes())

    def append(self, column: pa.ChunkedArray) -> None:
        for values in _texts(column) if _is_text(column.type) else column.chunks:
            self._rows += len(values)
            if not _is_text(column.type):
                self._write("values", values.to_numpy().astype(np.int64).tobytes())
                continue
            offsets = np.frombuffer(values.buffers()[1], np.int64)[values.offset :][: len(values) + 1]
            self._write("values", memoryview(values.buffers()[2] or b"")[offsets[0] : offsets[-1]])
            self._write("ends", (self._end + offsets[1:] - offsets[0]).tobytes())
            self._end += int(offsets[-1] - offsets[0])

    def read(self, kind: pa.DataType) -> pa.Array:
        if _is_text(kind):  # one array, as Arrow would copy several whole to take rows of them
            return pa.Array.from_buffers(
                pa.large_string(), self._rows, [None, self._mapped("ends"), self._mapped("values")]
            )
        return pa.Array.from_buffers(pa.int64(), self._rows, [None, self._mapped("values")])

    def _write(self, name: str, content: bytes | memoryview) -> None:
        with open(f"{self._path}.{name}", "ab") as file:
            file.write(content)

    def _mapped(self, name: str) -> pa.Buffer:
        path = f"{self._path}.{name}"
        return pa.memory_map(path).read_buffer() if os.path.getsize(path) else pa.py_buffer(b"")


def _is_text(kind: pa.DataType) -> bool:
    return pa.types.is_string(kind)


def _texts(column: pa.ChunkedArray) -> Iterable[pa.Array]:
    return [chunk for chunk in column.cast(pa.large_string()).chunks if len(chunk)]
