"""One call of a step: read its inputs, call it, write the rows that it returns, and mark them as finished.

A step is a plain function: tables in, a table out, or `Counted`. A mark lies beside the main output and holds what was
counted and each file that was written, with size and checksum. It is written last. A rerun skips an output whose mark
is there and whose files are unchanged; otherwise it makes the output again, to the same bytes. Names of marks begin
with an underscore, which readers of tables pass over.
"""

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from typing_extensions import TypedDict

from dupq import storage
from dupq.archive import Input, Shard, partition_of
from dupq.job.table import Partitioned, Readable, Shuffled, Table, one_batch, write_batches
from dupq.storage import read_or_none
from dupq.system import Written, forget, note, recording
from dupq.text.keys import indices_among

Counts = dict[str, int]
Step = Callable[..., "pa.Table | dict[str, object] | bytes | Counted"]


class Counted(NamedTuple):
    """The result of a step that counts something besides its rows, or makes a second table."""

    table: pa.Table  # a dict if `Run.record` calls the step; a dict or bytes if `Run.write` does
    counts: Mapping[str, int] = MappingProxyType({})
    second: pa.Table | None = None


def as_is(table: pa.Table) -> pa.Table:
    """Return the table: a step for `shuffle` and `gather`, which move rows without changing them."""
    return table


class Mark(TypedDict):
    """The mark of an output: what was counted and written when it was made."""

    counts: Counts
    files: dict[str, Written]  # by URI


def mark_of(output: str) -> str:
    """Return the URI of the mark of a main output."""
    return storage.join(storage.parent(output), f"_{storage.name(output)}.json")


def finished(output: str) -> Mark | None:
    """Return the mark of `output`; None if it has to be made."""
    mark = read_or_none(mark_of(output), Mark)
    if mark is None or output not in mark["files"]:
        return None
    return mark if all(storage.is_unchanged(uri, written) for uri, written in mark["files"].items()) else None


def unless_finished(output: str, make: Callable[[], Counts]) -> Counts:
    """Return the counts of `output`: from its mark if it is finished, else from `make`, which writes it."""
    before = finished(output)
    if before is not None:
        note(before["files"])
        return before["counts"]
    uri = mark_of(output)
    storage.delete(uri)
    with recording() as written:
        counts = make()
    storage.write_json(uri, Mark(counts=counts, files=written))
    forget(uri)  # marks are not outputs of the stage
    return counts


def copy_input(file: Input, copy: str) -> Counts:
    """Copy a file to the URI `copy`. Raises DupqError if it has changed since the run was opened. Memory: the file."""

    def make() -> Counts:
        with storage.unchanged(file.uri, lambda: storage.checksum(file.uri) == file.checksum):
            content = storage.read_bytes(file.uri)
        storage.write_bytes(copy, content)
        return {"rows_in": 1, "rows_out": 1}

    return unless_finished(copy, make)


def call_step(
    partition: int,
    step: Step,
    inputs: tuple[object, ...],
    second: Table | Shuffled | None,
    output: Table | Shuffled | str,
    _shard: Shard | None = None,
) -> Counts:
    """Write what `step` makes of a partition of its inputs, unless an earlier attempt did; return what it counted.

    `output` is the table that the rows go to, or the URI of a file for a dict (as JSON) or bytes; `second` is the table
    for `Counted.second`. The shard names the task in errors.
    """

    def make() -> Counts:
        result = step(*(_read(value, partition) for value in inputs))
        made = result if isinstance(result, Counted) else Counted(result)
        if second is not None:
            _write(second, partition, made.second)
        if isinstance(output, str):
            content = made.table
            storage.write_bytes(output, content if isinstance(content, bytes) else storage.json_bytes(content))
            return dict(made.counts)
        _write(output, partition, made.table, made.counts)
        return {"rows_out": len(made.table), **made.counts}

    return unless_finished(output if isinstance(output, str) else output.file(partition), make)


def _read(value: object, partition: int) -> object:
    if isinstance(value, Partitioned):
        return value.read(partition)
    return value.read() if isinstance(value, Readable) else value


def _write(output: Table | Shuffled, writer: int, table: pa.Table, counts: Mapping[str, int] | None = None) -> None:
    """Write the file of one writer: of a shuffled table a record batch per partition, in its schema's columns."""
    if isinstance(output, Table):
        storage.write_table(output.file(writer), table, output.schema or table.schema, dict(counts or {}))
        return
    rows = table if output.schema is None else table.select(output.schema.names).cast(output.schema)
    rows = rows.replace_schema_metadata(None).combine_chunks()
    batches = (one_batch(rows.take(pa.array(indices))) for indices in _rows_by_partition(output, writer, table))
    write_batches(output.file(writer), batches, rows.schema)


def _rows_by_partition(output: Shuffled, writer: int, table: pa.Table) -> Iterator[np.ndarray]:
    """Yield the indices of the rows of each partition."""
    if output.keys is None:
        by = output.by
        partitions = partition_of(table[by].to_numpy(), output.partitions) if by else table[output.to].to_numpy()
        order = np.argsort(partitions, kind="stable")
        bounds = np.searchsorted(partitions[order], np.arange(output.partitions + 1))
        yield from (order[bounds[number] : bounds[number + 1]] for number in range(output.partitions))
        return
    keys = table["key"].to_numpy()
    order = np.argsort(keys, kind="stable")
    for batch in output.keys.batches(writer):
        indices, is_found = indices_among(keys[order], batch["key"].to_numpy())
        yield order[indices[is_found]]
