"""Tables in partitions, and how much of one a task reads: a partition, all of it, or partition after partition.

No other module builds the path of a table that one stage hands to another. A partition of a `Table` is a Parquet file.
A `Shuffled` table is written by tasks for tasks: an Arrow file per writer, with a record batch per reader. A reader
takes its batch of each file and nothing else (on S3 by range requests), so that no row is read twice.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa

from dupq import storage
from dupq.archive import Shard, read_shard_batches
from dupq.system import ahead, side_by_side
from dupq.tables import QUESTIONS
from dupq.text.keys import Sites

_FILES_AT_ONCE = 16  # of a shuffled table, that one reader opens together


def write_batches(uri: str, batches: Iterator[pa.RecordBatch], schema: pa.Schema) -> None:
    """Write an Arrow file with a batch for each reader. Memory: a batch; on S3 the file."""
    with storage.open_output(uri) as sink, pa.ipc.new_file(sink, schema) as writer:
        for batch in batches:
            writer.write_batch(batch)


def read_all(uri: str) -> list[pa.RecordBatch]:
    """Return all batches of a file. Raises DupqError for a missing or damaged one."""
    with storage.open_input(uri) as stream, storage.reading(uri, "Arrow"):
        return pa.ipc.open_file(stream).read_all().to_batches()


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


@dataclass(frozen=True)
class Table:
    """Rows of one schema, in a Parquet file per partition."""

    folder: str
    schema: pa.Schema | None  # None: that of its files
    partitions: int
    columns: tuple[str, ...] | None = None  # None: all
    rows: int = field(default=0, compare=False)  # of all partitions, if a stage of this attempt made or found them

    def file(self, partition: int) -> str:
        """Return the URI of a partition."""
        return storage.join(self.folder, f"part-{partition:05d}.parquet")

    def read(self, partition: int) -> pa.Table:
        """Return the rows of a partition."""
        return storage.read_table(self.file(partition), self.schema, [*self.columns] if self.columns else None)

    def counts(self, partition: int) -> dict[str, int]:
        """Return the counts of the step that made a partition."""
        return storage.read_counts(self.file(partition))

    def only(self, *columns: str) -> "Table":
        """Return the same table, of which only these columns are read."""
        return replace(self, columns=columns)

    @property
    def read_schema(self) -> pa.Schema:
        """The schema of the rows that `read` returns."""
        schema = pa.schema([]) if self.schema is None else self.schema
        return pa.schema([schema.field(name) for name in self.columns]) if self.columns else schema


@dataclass(frozen=True)
class Shuffled:
    """Rows in an Arrow file per writer, with a record batch per partition.

    The partition of a row is that of its key in the column `by`, or the number in its column `to`, or each file of
    `keys` that holds its `key`.
    """

    files: tuple[str, ...]
    schema: pa.Schema | None  # None: that of its files
    partitions: int
    rows: int = field(default=0, compare=False)
    by: str | None = field(default=None, compare=False)
    to: str | None = field(default=None, compare=False)
    keys: "Shuffled | None" = field(default=None, compare=False)

    def file(self, writer: int) -> str:
        """Return the URI of the file of a writer."""
        return self.files[writer]

    def read(self, partition: int) -> pa.Table:
        """Return the rows of a partition, in the order of the files."""
        batches = [batch.replace_schema_metadata(None) for batch in self.batches(partition)]
        return pa.Table.from_batches(batches, self.schema)

    def batches(self, partition: int) -> list[pa.RecordBatch]:
        """Return the rows of a partition, a batch per file. Raises DupqError for a missing or damaged file."""
        return side_by_side(lambda uri: _read_batch(uri, partition), self.files)

    @property
    def read_schema(self) -> pa.Schema:
        """The schema of the rows that `read` returns."""
        return pa.schema([]) if self.schema is None else self.schema


@dataclass(frozen=True)
class Shards:
    """Columns of a run's questions, a shard per partition, read in batches of at most `batch_rows` rows.

    The columns `key` and `site` are added. Raises DupqError at the end of a shard that has changed since the run was
    opened.
    """

    shards: tuple[Shard, ...]
    sites: tuple[str, ...]  # of the run, in the order of keys
    columns: tuple[str, ...]  # with the column named by `id`
    batch_rows: int = 65_536
    schema: pa.Schema = QUESTIONS
    id: str = "question_id"

    @property
    def partitions(self) -> int:
        """The number of shards."""
        return len(self.shards)

    def read(self, partition: int) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a shard."""
        shard, sites = self.shards[partition], Sites([*self.sites])
        for batch in read_shard_batches(shard, self.schema, [*self.columns], self.batch_rows):
            keys = sites.pack(shard.site, batch[self.id].to_numpy(), shard.uri)
            site = pa.DictionaryArray.from_arrays(pa.array(np.zeros(len(batch), np.int32)), pa.array([shard.site]))
            yield batch.append_column("key", pa.array(keys)).append_column("site", site)


@dataclass(frozen=True)
class Files:
    """Parquet files that no stage of this run made, one per partition."""

    uris: tuple[str, ...]
    schema: pa.Schema | None  # None: that of the files
    columns: tuple[str, ...] | None = None  # None: all

    @property
    def partitions(self) -> int:
        """The number of files."""
        return len(self.uris)

    def read(self, partition: int) -> pa.Table:
        """Return the rows of a file."""
        return storage.read_table(self.uris[partition], self.schema, [*self.columns] if self.columns else None)


@dataclass(frozen=True)
class ReadWith:
    """Rows that a function reads from elsewhere: `function(*arguments, partition)`."""

    function: Callable[..., pa.Table]
    arguments: tuple[object, ...]
    partitions: int = 1

    def read(self, partition: int) -> pa.Table:
        """Return what the function reads for a partition."""
        return self.function(*self.arguments, partition)


def subdivided(table: Table, count: int) -> ReadWith:
    """Return a table with each partition divided into `count` smaller ones, for steps that take long per row."""
    return ReadWith(_read_subdivision, (table, count), table.partitions * count)


def _read_subdivision(table: Table, count: int, partition: int) -> pa.Table:
    rows, number = table.read(partition // count), partition % count
    begin, end = (len(rows) * bound // count for bound in (number, number + 1))
    return rows.slice(begin, end - begin)


def in_batches(table: Shuffled) -> ReadWith:
    """Return a table over whose partitions a step can iterate repeatedly (`BatchesOf`), with few batches in memory."""
    return ReadWith(BatchesOf, (table,), table.partitions)


@dataclass(frozen=True)
class BatchesOf:
    """The batches of a partition, in the order of their writers."""

    table: Shuffled
    partition: int

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        """Yield a batch per writer."""
        return ahead(lambda uri: _read_batch(uri, self.partition), self.table.files, _FILES_AT_ONCE)


Partitioned = Table | Shuffled | Shards | Files | ReadWith


@dataclass(frozen=True)
class PerTask:
    """A different input for each task: `inputs[n]` for partition n."""

    inputs: tuple[object, ...]

    @property
    def partitions(self) -> int:
        """The number of tasks."""
        return len(self.inputs)


class Readable:
    """An input that is the same for every task, and that the task reads before it calls its step."""

    def read(self) -> object:
        """Return the argument of the step."""
        raise NotImplementedError


@dataclass(frozen=True)
class Partition(Readable):
    """One partition of a table."""

    table: Partitioned
    number: int

    def read(self) -> pa.Table | Iterator[pa.RecordBatch]:
        """Return its rows."""
        return self.table.read(self.number)


@dataclass(frozen=True)
class Partitions:
    """Several partitions, also of different tables, that a step iterates over, with a few of them in memory."""

    partitions: tuple[Partition, ...]

    def __iter__(self) -> Iterator[pa.Table]:
        """Yield the rows of each."""
        return ahead(Partition.read, self.partitions)


@dataclass(frozen=True)
class Whole(Readable):
    """A table that each task reads whole."""

    table: Table | Shuffled | ReadWith

    def read(self) -> pa.Table:
        """Return all rows, in the order of the partitions."""
        none = [] if isinstance(self.table, ReadWith) else [self.table.read_schema.empty_table()]
        return pa.concat_tables([*none, *Each(self.table)])


@dataclass(frozen=True)
class Each:
    """A table that a step can iterate over repeatedly, with a few partitions in memory."""

    table: Partitioned

    def __iter__(self) -> Iterator[pa.Table]:
        """Yield the rows of each partition; some tables yield an iterator of batches for each."""
        return ahead(self.table.read, range(self.table.partitions))
