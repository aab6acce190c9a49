"""Exchange of rows between tasks: Arrow files with one record batch for each task that reads them.

A writer spreads its rows over parts; the reader of a part takes that batch of every writer's file and nothing else
(on S3 by range requests), so that no row is read twice.
"""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from dupq import storage
from dupq.side_by_side import side_by_side


def write_parts(uri: str, batches: Iterator[pa.RecordBatch], schema: pa.Schema) -> None:
    """Write `batches`, the first for the reader of part 0 and so on. Memory: a batch; on S3 the file."""
    with storage.open_output(uri) as sink, pa.ipc.new_file(sink, schema) as writer:
        for batch in batches:
            writer.write_batch(batch)


def split(columns: list[np.ndarray], schema: pa.Schema, parts: np.ndarray, count: int) -> Iterator[pa.RecordBatch]:
    """The rows of `columns` as one batch for each of `count` parts; `parts` (int64) says where each row goes."""
    if count == 1:
        yield pa.record_batch([pa.array(column) for column in columns], schema=schema)
        return
    order = np.argsort(parts, kind="stable")
    bounds = np.searchsorted(parts[order], np.arange(count + 1))
    for part in range(count):
        rows = order[bounds[part] : bounds[part + 1]]
        yield pa.record_batch([pa.array(column[rows]) for column in columns], schema=schema)


def read_part(uris: list[str], part: int) -> list[pa.RecordBatch]:
    """Batch `part` of each file, in the order of `uris`. Raises DupqError for a missing or damaged file."""
    if not uris or not storage.is_remote(uris[0]):
        return [_read_batch(uri, part) for uri in uris]
    return side_by_side(lambda uri: _read_batch(uri, part), uris)  # each waits for the network twice


def read_all(uri: str) -> list[pa.RecordBatch]:
    """All batches of one file; errors as of `read_part`."""
    with storage.open_input(uri) as stream, storage.readable(uri, "Arrow"):
        return pa.ipc.open_file(stream).read_all().to_batches()


def _read_batch(uri: str, part: int) -> pa.RecordBatch:
    with storage.open_input(uri) as stream, storage.readable(uri, "Arrow"):
        return pa.ipc.open_file(stream).get_batch(part)


def one_batch(table: pa.Table) -> pa.RecordBatch:
    """The rows of a table as one batch, also where there are none."""
    plain = table.replace_schema_metadata(None).combine_chunks()
    return plain.to_batches()[0] if len(plain) else pa.RecordBatch.from_pylist([], schema=plain.schema)


def table_of(batches: list[pa.RecordBatch], schema: pa.Schema) -> pa.Table:
    """The rows of all batches together; whatever metadata these have is left out."""
    return pa.Table.from_batches([batch.replace_schema_metadata(None) for batch in batches], schema)


def columns_of(batches: list[pa.RecordBatch], schema: pa.Schema) -> list[np.ndarray]:
    """The same: one array a column of `schema`."""
    return [column.to_numpy() for column in table_of(batches, schema).columns]
