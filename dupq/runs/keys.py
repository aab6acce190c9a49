"""The keys of an archive's questions: of all, and tables of those of some, or of pairs of them."""

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


def key_span(uri: str) -> tuple[int, int] | None:
    """The smallest and the largest key of a table, whose first column they are; None if it has no rows.

    Only the footer is read.
    """
    with storage.open_input(uri) as stream, storage.readable(uri, "Parquet"):
        footer = pq.read_metadata(stream)
    columns = [footer.row_group(number).column(0).statistics for number in range(footer.num_row_groups)]
    if not footer.num_rows:
        return None
    return min(column.min for column in columns), max(column.max for column in columns)


def read_around(uri: str, schema: pa.Schema, keys: np.ndarray) -> pa.Table:
    """Rows of a table that is sorted by its first column, `key`: at least those with keys from the first to the last
    of `keys`. Row groups beyond are not read, so that of many files with few keys each all is not read once a file.
    """
    with storage.open_input(uri) as stream, storage.readable(uri, "Parquet"):
        file = pq.ParquetFile(stream)
        groups = range(file.num_row_groups if file.metadata.num_rows else 0)  # one without rows has no statistics
        spans = [file.metadata.row_group(number).column(0).statistics for number in groups]
        wanted = [
            number
            for number, span in enumerate(spans)
            if len(keys) and span.min <= int(keys.max()) and int(keys.min()) <= span.max
        ]
        return conform(file.read_row_groups(wanted), schema, uri)


def pairs_in(table: pa.Table) -> np.ndarray:
    """The columns `left` and `right` of a table of pairs (int64, shape (m, 2))."""
    return np.stack([table[side].to_numpy() for side in ("left", "right")], axis=1)


def all_keys(folder: str) -> np.ndarray:
    """The keys of all questions, sorted: 8 bytes each, and as many more while they are read."""
    files = storage.list_files(folder, ".parquet")
    keys = np.concatenate([storage.read_table(file.uri, TEXTS, ["key"])["key"].to_numpy() for file in files])
    keys.sort()
    return keys
