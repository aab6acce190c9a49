"""Exchange of rows between tasks: Arrow files with one record batch for each task that reads them.

A writer spreads its rows over parts; the reader of a part takes that batch of every writer's file and nothing else
(on S3 by range requests), so that no row is read twice. The files have deterministic names and hold their writer's
counts: one that exists is whole and is not made again, as with every shard of a run.
"""

import json
from collections.abc import Callable, Iterator

import numpy as np
import pyarrow as pa

from dupq import storage
from dupq.errors import DupqError
from dupq.execution.tasks import Counts

_COUNTS = b"dupq.counts"


def write_parts(uri: str, batches: Iterator[pa.RecordBatch], schema: pa.Schema, counts: Counts) -> None:
    """Write `batches`, the first for the reader of part 0 and so on, and `counts`. Memory: a batch; on S3 the file."""
    described = schema.with_metadata({_COUNTS: json.dumps(counts, sort_keys=True).encode()})
    with storage.open_output(uri) as sink, pa.ipc.new_file(sink, described) as writer:
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
    return [_read_batch(uri, part) for uri in uris]


def _read_batch(uri: str, part: int) -> pa.RecordBatch:
    with storage.open_input(uri) as stream:
        try:
            return pa.ipc.open_file(stream).get_batch(part)
        except (pa.ArrowInvalid, OSError) as error:
            raise DupqError(f"{uri}: not a readable Arrow file ({error})") from error


def one_batch(table: pa.Table) -> pa.RecordBatch:
    """The rows of a table as one batch, also where there are none."""
    plain = table.replace_schema_metadata(None).combine_chunks()
    return plain.to_batches()[0] if len(plain) else pa.RecordBatch.from_pylist([], schema=plain.schema)


def columns_of(batches: list[pa.RecordBatch], schema: pa.Schema) -> list[np.ndarray]:
    """The rows of all batches together: one array a column of `schema`."""
    table = pa.Table.from_batches([batch.replace_schema_metadata(None) for batch in batches], schema)
    return [column.to_numpy() for column in table.columns]


def skip_or(output: str, work: Callable[[], Counts]) -> Counts:
    """The counts of the Arrow file `output` if an earlier attempt at this run finished it, else those of making it."""
    if not storage.exists(output):
        return work()
    with storage.open_input(output) as stream:
        try:
            kept = pa.ipc.open_file(stream).schema.metadata[_COUNTS]
        except (pa.ArrowInvalid, OSError) as error:
            raise DupqError(f"{output}: not a readable Arrow file ({error})") from error
    return json.loads(kept)
