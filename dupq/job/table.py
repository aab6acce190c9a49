"""Tables in partitions, and the inputs of steps: how much of a table a task reads.

No other module builds the path of a table that one stage hands to another. A partition of a `Table` is a Parquet file.
A `Shuffled` table is written by tasks for tasks: an Arrow file per writer, with a record batch per reader. A reader
takes its batch of each file and nothing else (on S3 by range requests), so that no row is read twice.

The input of a step is a table, of which each task reads a partition; `Broadcast`, which each task reads whole;
`Streamed`, whose partitions each task iterates over; or `zipped`: each task has a value of its own. All other values
are passed on as they are.
"""

import base64
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Generic, Self, TypeVar, cast

import numpy as np
import pyarrow as pa

from dupq import storage, tables
from dupq.archive import Shard, read_shard_batches
from dupq.kinds import Schema, Stream
from dupq.system import prefetch, thread_map
from dupq.text.keys import Sites

Row = TypeVar("Row")
Kind = TypeVar("Kind", covariant=True)
Value = TypeVar("Value")
_FILES_AT_ONCE = 16  # of a shuffled table, that one reader opens together
_PATHS = {"folder", "files", "uri"}  # attributes of what a stage made
_NAMED = {name: schema for name, schema in vars(tables).items() if isinstance(schema, pa.Schema)}


def write_batches(uri: str, batches: Iterator[pa.RecordBatch], schema: pa.Schema) -> None:
    """Write an Arrow file with a batch for each reader. Memory: a batch; on S3 the file."""
    with storage.open_output(uri) as sink, pa.ipc.new_file(sink, schema) as writer:
        for batch in batches:
            writer.write_batch(batch)


def _read_batch(uri: str, number: int) -> pa.RecordBatch:
    with storage.open_input(uri) as stream, storage.reading(uri, "Arrow"):
        return pa.ipc.open_file(stream).get_batch(number)


def one_batch(table: pa.Table) -> pa.RecordBatch:
    """Return the rows of a table as one batch, even if there are none."""
    plain = table.replace_schema_metadata(None).combine_chunks()
    if not len(plain):
        return pa.RecordBatch.from_pylist([], schema=plain.schema)
    [batch] = plain.to_batches()  # several if a column has 2 GiB of text, which `archive.check_files` refuses
    return batch


class Input(Generic[Kind]):
    """Rows of one kind that a step reads."""

    partitions: int  # the number of tasks, if each reads a partition
    is_partitioned = True  # else all tasks read the same
    is_streamed = False  # whether the step iterates over them

    @property
    def rows_schema(self) -> pa.Schema | None:
        """The schema of the rows that a task reads; None if it is only known when they are read."""
        return None

    def only(self, *columns: str) -> Self:
        """Return the same input, of which only these columns are read."""
        return self

    def read(self, partition: int = 0) -> object:
        """Return what the task of a partition reads."""
        return self


class Stored(Input[Kind]):
    """Rows or a file that a stage made. The stage's record describes it, with paths below the run."""

    def described(self, run: str) -> dict[str, object]:
        """Return all attributes as JSON, schemas of dupq/tables.py by name, others in letters.

        Raises ValueError for a path that is not below the run.
        """
        below, values = f"{run}/", dict(vars(self))
        for name, value in vars(self).items():
            if name in _PATHS:
                values[name] = _moved(value, lambda path: path[path.index(below) + len(below) :])
            elif isinstance(value, pa.Schema):
                named = (known for known, own in _NAMED.items() if own.equals(value, check_metadata=True))
                values[name] = next(named, None) or base64.b64encode(zlib.compress(value.serialize(), 9)).decode()
        return values

    @classmethod
    def of_description(cls, values: dict[str, Any], run: str) -> Self:
        """Return what `described` describes, below the folder of the run."""
        values = {name: tuple(value) if isinstance(value, list) else value for name, value in values.items()}
        values.pop("keeps_counts", None)  # in records before 2026-11-30
        values |= {name: _moved(values[name], lambda path: storage.join(run, path)) for name in _PATHS & values.keys()}
        if (schema := values.get("schema")) in _NAMED:
            values["schema"] = _NAMED[schema]
        elif schema is not None:
            values["schema"] = pa.ipc.read_schema(pa.py_buffer(zlib.decompress(base64.b64decode(schema))))
        return cls(**values)


def _moved(paths: str | tuple[str, ...], move: Callable[[str], str]) -> str | tuple[str, ...]:
    return move(paths) if isinstance(paths, str) else tuple(map(move, paths))


@dataclass(frozen=True)
class File(Stored[Any]):
    """A file or folder that a stage wrote."""

    uri: str


class _Rows(Stored[Kind]):
    """Rows of one schema."""

    schema: pa.Schema | None  # None: that of the files
    columns: tuple[str, ...] | None  # that are read; None: all

    @property
    def rows_schema(self) -> pa.Schema | None:
        """The schema of the rows that `read` returns."""
        schema, columns = self.schema, self.columns
        return schema if schema is None or columns is None else pa.schema([schema.field(name) for name in columns])


@dataclass(frozen=True)
class Table(_Rows[Kind]):
    """Rows of one schema, in a Parquet file per partition."""

    folder: str
    schema: pa.Schema | None
    partitions: int
    columns: tuple[str, ...] | None = None
    rows: int = field(default=0, compare=False)  # of all partitions

    @property
    def files(self) -> list[str]:
        """The URIs of all partitions."""
        return [self.file(partition) for partition in range(self.partitions)]

    def file(self, partition: int) -> str:
        """Return the URI of a partition."""
        return storage.join(self.folder, f"part-{partition:05d}.parquet")

    def rows_of(self, partition: int) -> int:
        """Return the number of rows of a partition."""
        return storage.read_footer(self.file(partition)).num_rows

    def only(self, *columns: str) -> Self:
        """Return the same table, of which only these columns are read."""
        return replace(self, columns=columns)

    def read(self, partition: int = 0) -> pa.Table:
        """Return the rows of a partition."""
        return storage.read_table(self.file(partition), self.schema, [*self.columns] if self.columns else None)


@dataclass(frozen=True)
class Shuffled(_Rows[Kind]):
    """Rows in an Arrow file per writer, with a record batch per partition."""

    files: tuple[str, ...]
    schema: pa.Schema | None
    partitions: int
    columns: tuple[str, ...] | None = None
    rows: int = field(default=0, compare=False)

    def file(self, writer: int) -> str:
        """Return the URI of the file of a writer."""
        return self.files[writer]

    def only(self, *columns: str) -> Self:
        """Return the same table, of whose rows only these columns are kept."""
        return replace(self, columns=columns)

    def batches(self, partition: int) -> list[pa.RecordBatch]:
        """Return the rows of a partition, a batch per file. Raises DupqError for a missing or damaged file."""
        return thread_map(lambda uri: _read_batch(uri, partition), self.files)

    def read(self, partition: int = 0) -> pa.Table:
        """Return the rows of a partition, in the order of the files."""
        batches = [batch.replace_schema_metadata(None) for batch in self.batches(partition)]
        table = pa.Table.from_batches(batches, self.schema)
        return table.select([*self.columns]) if self.columns else table


@dataclass(frozen=True)
class Shards(Input[Stream[Kind]]):
    """Columns of a run's questions, a shard per partition, read in batches of at most `batch_rows` rows.

    The columns `key` and `site` are added. Raises DupqError at the end of a shard that has changed since the run was
    opened.
    """

    shards: tuple[Shard, ...]
    sites: tuple[str, ...]  # of the run, in the order of keys
    schema: Schema[Kind]
    columns: tuple[str, ...] = ()  # that are read
    batch_rows: int = 65_536
    id: str = "question_id"
    is_streamed = True

    @property
    def partitions(self) -> int:  # type: ignore[override]
        """The number of shards."""
        return len(self.shards)

    @property
    def rows_schema(self) -> pa.Schema:
        """The schema of the rows, with `key` and `site`."""
        return pa.schema([pa.field("key", pa.int64(), False), pa.field("site", pa.string(), False), *self.schema])

    def only(self, *columns: str) -> Self:
        """Return the same questions, of which only these columns are read."""
        return replace(self, columns=tuple(name for name in columns if name not in ("key", "site")))

    def read(self, partition: int = 0) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a shard."""
        shard, sites = self.shards[partition], Sites([*self.sites])
        columns = list(dict.fromkeys([self.id, *self.columns]))
        for batch in read_shard_batches(shard, self.schema, columns, self.batch_rows):
            keys = sites.pack(shard.site, batch[self.id].to_numpy(), shard.uri)
            site = pa.DictionaryArray.from_arrays(pa.array(np.zeros(len(batch), np.int32)), pa.array([shard.site]))
            yield batch.append_column("key", pa.array(keys)).append_column("site", site)


@dataclass(frozen=True)
class Computed(Input[Kind]):
    """Rows that each task computes or reads from elsewhere: `function(*arguments, partition)`."""

    function: Callable[..., Any]
    arguments: tuple[object, ...]
    partitions: int = 1

    def read(self, partition: int = 0) -> object:
        """Return what the function gives for a partition."""
        return self.function(*self.arguments, partition)


def subdivided(table: Table[Row], count: int) -> Computed[Row]:
    """Return a table with each partition divided into `count` smaller ones, for steps that take long per row."""
    return Computed(_read_subdivision, (table, count), table.partitions * count)


def _read_subdivision(table: Table[Row], count: int, partition: int) -> pa.Table:
    rows, number = table.read(partition // count), partition % count
    begin, end = (len(rows) * bound // count for bound in (number, number + 1))
    return rows.slice(begin, end - begin)


@dataclass(frozen=True)
class _Of(Input[Kind]):
    """An input that reads a table in a way of its own."""

    table: Input[object]
    is_partitioned = False

    @property
    def rows_schema(self) -> pa.Schema | None:
        """The schema of the table's rows."""
        return self.table.rows_schema

    def only(self, *columns: str) -> Self:
        """Return the same input, of which only these columns are read."""
        return replace(self, table=self.table.only(*columns))


@dataclass(frozen=True)
class Partition(_Of[Kind]):
    """One partition of a table, the same for every task."""

    table: Input[Kind]
    number: int

    def read(self, partition: int = 0) -> object:
        """Return its rows."""
        return self.table.read(self.number)


@dataclass(frozen=True)
class Broadcast(_Of[Kind]):
    """A table that each task reads whole."""

    table: Input[Kind]

    def read(self, partition: int = 0) -> pa.Table:
        """Return all rows, in the order of the partitions."""
        none = [] if self.rows_schema is None else [self.rows_schema.empty_table()]
        return pa.concat_tables([*none, *Streamed(self.table)])


@dataclass(frozen=True)
class Streamed(_Of[Stream[Kind]]):
    """A table that a step can iterate over repeatedly, with a few partitions in memory."""

    table: Input[Kind]
    is_streamed = True

    def __iter__(self) -> Iterator[pa.Table]:
        """Yield the rows of each partition."""
        return prefetch(self.table.read, range(self.table.partitions))


@dataclass(frozen=True)
class InBatches(_Of[Stream[Kind]]):
    """A table over whose partitions a step can iterate repeatedly, with few batches in memory."""

    table: Shuffled[Kind]
    partition: int = 0
    is_partitioned = is_streamed = True

    @property
    def partitions(self) -> int:  # type: ignore[override]
        """The number of partitions of the table."""
        return self.table.partitions

    def read(self, partition: int = 0) -> "InBatches[Kind]":
        """Return the batches of a partition."""
        return replace(self, partition=partition)

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        """Yield a batch per writer, in their order."""
        return prefetch(lambda uri: _read_batch(uri, self.partition), self.table.files, _FILES_AT_ONCE)


@dataclass(frozen=True)
class Zipped(Input[object]):
    """A value of its own for each task; see `zipped`."""

    values: tuple[Any, ...]

    @property
    def partitions(self) -> int:  # type: ignore[override]
        """The number of tasks."""
        return len(self.values)

    @property
    def _first(self) -> Input[object]:
        return self.values[0] if self.values and isinstance(self.values[0], Input) else Input()

    @property
    def rows_schema(self) -> pa.Schema | None:
        """The schema of the first value, if it is a table."""
        return self._first.rows_schema

    @property
    def is_streamed(self) -> bool:  # type: ignore[override]
        """Whether the step iterates over its value."""
        return self._first.is_streamed

    def only(self, *columns: str) -> Self:
        """Return the same values, of which only these columns are read."""
        return replace(self, values=tuple(v.only(*columns) if isinstance(v, Input) else v for v in self.values))

    def read(self, partition: int = 0) -> object:
        """Return the value of a task; of an input, what it reads."""
        value = self.values[partition]
        return value.read() if isinstance(value, Input) else value


def zipped(values: Sequence[Value]) -> Value:
    """Return an input of which task n gets `values[n]`; where these are inputs, what they read.

    To mypy it is one of the values, as it is to the step.
    """
    return cast(Value, Zipped(tuple(values)))


def number_of_calls(inputs: Sequence[object]) -> int:
    """Return the number of calls for these inputs of a step."""
    return next((value.partitions for value in inputs if isinstance(value, Input) and value.is_partitioned), 1)
