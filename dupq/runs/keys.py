"""The keys of an archive's questions: of all, and tables of those of some, or of pairs of them."""

from collections.abc import Iterable

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from dupq import storage
from dupq.tables import KEYS, TEXTS, conform
from dupq.text.keys import distinct


def write_keys(uri: str, keys: np.ndarray) -> None:
    """Write each of `keys` once, sorted."""
    storage.write_table(uri, pa.table([pa.array(distinct(keys))], schema=KEYS), KEYS)


def read_keys(uri: str) -> np.ndarray:
    """The keys that `write_keys` wrote."""
    return storage.read_table(uri, KEYS)["key"].to_numpy()


def sorted_keys(tables: Iterable[pa.Table]) -> np.ndarray:
    """Return the keys of tables, sorted. Memory: 8 bytes each, and as many more meanwhile."""
    keys = np.concatenate([np.zeros(0, np.int64), *(table["key"].to_numpy() for table in tables)])
    keys.sort()
    return keys


def key_span(uri: str) -> tuple[int, int] | None:
    """The smallest and the largest key of a table, whose first column they are; None if it has no rows.

    Only the footer is read.
    """
    with storage.open_input(uri) as stream, storage.readable(uri, "Parquet"):
        footer = pq.read_metadata(stream)
    spans = _spans(footer).values()
    return (min(low for low, _ in spans), max(high for _, high in spans)) if spans else None


def _spans(footer: pq.FileMetaData) -> dict[int, tuple[int, int]]:
    """The smallest and the largest value of the first column in each row group that has rows."""
    groups = [(number, footer.row_group(number)) for number in range(footer.num_row_groups)]
    found = {number: group.column(0).statistics for number, group in groups if group.num_rows}
    return {number: (values.min, values.max) for number, values in found.items()}


def read_around(uri: str, schema: pa.Schema, keys: np.ndarray) -> pa.Table:
    """Rows of a table that is sorted by its first column: at least those from the smallest to the largest of `keys`.

    Row groups beyond are not read, so that many readers with a shard's keys each do not each read all.
    """
    with storage.open_input(uri) as stream, storage.readable(uri, "Parquet"):
        file = pq.ParquetFile(stream)
        spans = _spans(file.metadata) if len(keys) else {}
        first, last = (keys.min(), keys.max()) if len(keys) else (0, 0)
        wanted = [number for number, (low, high) in spans.items() if low <= last and first <= high]
        return conform(file.read_row_groups(wanted), schema, uri)


def pairs_in(table: pa.Table) -> np.ndarray:
    """The columns `left` and `right` of a table of pairs (int64, shape (m, 2))."""
    return np.stack([table[side].to_numpy() for side in ("left", "right")], axis=1)


def all_keys(folder: str) -> np.ndarray:
    """The keys of all questions, sorted: 8 bytes each, and as many more while they are read."""
    return sorted_keys(storage.read_table(file.uri, TEXTS, ["key"]) for file in storage.list_files(folder, ".parquet"))
