"""Tables in partitions, and how much of one a task reads: a partition, all of it, or partition after partition.

Nothing else builds a path of a table that a stage hands to another. A partition of a `Table` is a Parquet file. A
`Spread` was written by tasks for tasks: an Arrow file per writer, in it a record batch per reader.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from typing_extensions import TypedDict

from dupq import storage
from dupq.archive import Shard, read_shard_pieces
from dupq.runs.question_tables import read_around
from dupq.storage import read_whole
from dupq.system import Written, forget, note, recording, side_by_side
from dupq.tables import QUESTIONS
from dupq.text.keys import Sites

# Units of work: a rerun skips what an earlier attempt finished, if its files are still the ones that were written.
#
# A unit leaves a mark beside its main output: what it counted, and each file that it wrote with size and checksum. The
# mark is written last. Without it, or if a file was deleted, cut or replaced since, the unit is done again; the same
# inputs give the same bytes. Names of marks begin with an underscore, which readers of tables pass over.

Counts = dict[str, int]


class _Mark(TypedDict):
    """What a finished unit leaves."""

    counts: Counts
    files: dict[str, tuple[int, str, int | None]]  # by URI: `Written`


def finished(output: str) -> tuple[Counts, dict[str, Written]] | None:
    """What an earlier attempt at this run counted in making `output`, and what it wrote; None if it is to be made."""
    mark = read_whole(mark_of(output), _Mark)
    if mark is None:
        return None
    files = {uri: Written(*written) for uri, written in mark["files"].items()}
    is_whole = output in files and all(storage.is_unchanged(uri, written) for uri, written in files.items())
    return (mark["counts"], files) if is_whole else None


def skip_or(output: str, work: Callable[[], Counts]) -> Counts:
    """The counts of `output` if an earlier attempt at this run finished it, else those of making it by `work`."""
    there = finished(output)
    if there is not None:
        note(there[1])
        return there[0]
    place = mark_of(output)
    storage.delete(place)
    with recording() as written:
        counts = work()
    storage.write_json(place, {"counts": counts, "files": written})
    forget(place)  # it is no output
    return counts


def mark_of(output: str) -> str:
    """The mark of the unit whose main output is `output`."""
    return storage.join(storage.parent(output), f"_{storage.name(output)}.json")


# Exchange of rows between tasks: Arrow files with one record batch for each task that reads them.
#
# A writer spreads its rows over parts; the reader of a part takes that batch of every writer's file and nothing else
# (on S3 by range requests), so that no row is read twice.


def write_parts(uri: str, batches: Iterator[pa.RecordBatch], schema: pa.Schema) -> None:
    """Write `batches`, the first for the reader of part 0 and so on. Memory: a batch; on S3 the file."""
    with storage.open_output(uri) as sink, pa.ipc.new_file(sink, schema) as writer:
        for batch in batches:
            writer.write_batch(batch)


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


_FILES_AT_ONCE = 16  # of writers that are read side by side


class Readable(ABC):
    """What a task reads before it calls its step, other than its partition of a table."""

    @abstractmethod
    def read(self) -> object:
        """Return what the step gets."""


@dataclass(frozen=True)
class Table:
    """Rows of one schema, a Parquet file per partition."""

    folder: str
    schema: pa.Schema | None  # None: that of its files
    parts: int
    columns: tuple[str, ...] | None = None  # None: all
    rows: int = field(default=0, compare=False)  # of all partitions, where a step of this attempt made or found them

    def file(self, part: int) -> str:
        """Return the URI of a partition."""
        return storage.join(self.folder, f"part-{part:05d}.parquet")

    def read(self, part: int) -> pa.Table:
        """Return the rows of a partition."""
        return storage.read_table(self.file(part), self.schema, [*self.columns] if self.columns else None)

    def counts(self, part: int) -> dict[str, int]:
        """Return what the step counted that made a partition."""
        return storage.read_counts(self.file(part))

    def only(self, *columns: str) -> "Table":
        """Return the same table, of which these columns are read."""
        return Table(self.folder, self.schema, self.parts, columns)

    @property
    def read_schema(self) -> pa.Schema:
        """The schema of the rows that `read` returns."""
        found = pa.schema([]) if self.schema is None else self.schema
        return pa.schema([found.field(name) for name in self.columns]) if self.columns else found


@dataclass(frozen=True)
class Spread:
    """Rows that each of the `files` holds in a record batch per partition.

    A row is in the partition of its key in the column `by`, or in the one that the column `to` numbers, or in that of
    each file of `wanted` that has its `key`.
    """

    files: tuple[str, ...]
    schema: pa.Schema | None
    parts: int
    rows: int = field(default=0, compare=False)
    by: str | None = field(default=None, compare=False)
    to: str | None = field(default=None, compare=False)
    wanted: "Spread | None" = field(default=None, compare=False)

    def file(self, writer: int) -> str:
        """Return the URI of what a task wrote."""
        return self.files[writer]

    def read(self, part: int) -> pa.Table:
        """Return the rows of a partition, in the order of the files."""
        batches = self.batches(part)
        return table_of(batches, self.schema) if self.schema else pa.Table.from_batches(batches)

    def batches(self, part: int) -> list[pa.RecordBatch]:
        """Return the rows of a partition, a batch per file."""
        return read_part([*self.files], part)

    @property
    def read_schema(self) -> pa.Schema:
        """The schema of the rows that `read` returns."""
        return pa.schema([]) if self.schema is None else self.schema


@dataclass(frozen=True)
class Shards:
    """Columns of the questions that a run is given, a shard per partition: batches of at most `at_once` rows.

    Each has the columns `key` and `site` besides. Raises DupqError, when the last one is read, for a shard that has
    changed since the run was opened.
    """

    shards: tuple[Shard, ...]
    sites: tuple[str, ...]  # of the run, in the order of keys
    columns: tuple[str, ...]  # `question_id`, or what `id` names, is among them
    at_once: int = 65_536
    schema: pa.Schema = QUESTIONS
    id: str = "question_id"

    @property
    def parts(self) -> int:
        """The number of shards."""
        return len(self.shards)

    def read(self, part: int) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a shard."""
        shard, sites = self.shards[part], Sites([*self.sites])
        for batch in read_shard_pieces(shard, self.schema, [*self.columns], self.at_once):
            keys = sites.pack(shard.site, batch[self.id].to_numpy(), shard.uri)
            site = pa.DictionaryArray.from_arrays(pa.array(np.zeros(len(batch), np.int32)), pa.array([shard.site]))
            yield batch.append_column("key", pa.array(keys)).append_column("site", site)


@dataclass(frozen=True)
class Read:
    """Rows of a partition as a function returns them: `function(*arguments, part)`. For what no step has made."""

    function: Callable[..., pa.Table]
    arguments: tuple[object, ...]
    parts: int = 1

    def read(self, part: int) -> pa.Table:
        """Return what the function reads of a partition."""
        return self.function(*self.arguments, part)


@dataclass(frozen=True)
class Around:
    """Of a table in one partition, sorted by its first column, the row groups that may have a partition's `key`s.

    So many tasks that need a few rows each do not each read all.
    """

    table: Table
    keys: Table

    @property
    def parts(self) -> int:
        """The number of partitions of `keys`."""
        return self.keys.parts

    def read(self, part: int) -> pa.Table:
        """Return rows of `table`: at least those from the smallest to the largest key of a partition of `keys`."""
        return read_around(self.table.file(0), self.table.schema, self.keys.only("key").read(part)["key"].to_numpy())


@dataclass(frozen=True)
class Grouped:
    """A table of which a task reads a group of partitions, one after the other."""

    table: "Table | Spread | Batches"
    groups: tuple[range, ...]

    @property
    def parts(self) -> int:
        """The number of groups."""
        return len(self.groups)

    def read(self, part: int) -> "Iterator[pa.Table | BatchesOf]":
        """Yield the rows of each partition of a group."""
        return (self.table.read(number) for number in self.groups[part])


@dataclass(frozen=True)
class Slices:
    """Each partition of a table in `count` slices, which are partitions here: for steps that take long for a row."""

    table: Table
    count: int

    @property
    def parts(self) -> int:
        """The number of slices of all partitions."""
        return self.table.parts * self.count

    def read(self, part: int) -> pa.Table:
        """Return the rows of a slice."""
        rows, number = self.table.read(part // self.count), part % self.count
        begin, end = (len(rows) * bound // self.count for bound in (number, number + 1))
        return rows.slice(begin, end - begin)


@dataclass(frozen=True)
class Batches:
    """Rows that tasks wrote, read a batch per writer, some writers at a time, as often as a step goes through them."""

    table: Spread

    @property
    def parts(self) -> int:
        """The number of partitions."""
        return self.table.parts

    def read(self, part: int) -> "BatchesOf":
        """Return the rows of a partition; nothing is read before one goes through them."""
        return BatchesOf(self.table, part)


@dataclass(frozen=True)
class BatchesOf:
    """The batches of a partition, in the order of their writers."""

    table: Spread
    part: int

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        """Yield a batch per writer."""
        files = self.table.files
        for start in range(0, len(files), _FILES_AT_ONCE):
            yield from read_part([*files[start : start + _FILES_AT_ONCE]], self.part)


@dataclass(frozen=True)
class Files:
    """A table of files that no step of this run made, one per partition."""

    uris: tuple[str, ...]
    schema: pa.Schema | None  # None: that of its files
    columns: tuple[str, ...] | None = None  # None: all

    @property
    def parts(self) -> int:
        """The number of files."""
        return len(self.uris)

    def read(self, part: int) -> pa.Table:
        """Return the rows of a file."""
        return storage.read_table(self.uris[part], self.schema, [*self.columns] if self.columns else None)


@dataclass(frozen=True)
class One(Readable):
    """A partition of a table."""

    table: "Partitioned"
    part: int

    def read(self) -> pa.Table | Iterator[pa.RecordBatch]:
        """Return its rows."""
        return self.table.read(self.part)


@dataclass(frozen=True)
class Several(Readable):
    """Partitions of tables, all of which a task holds."""

    ones: tuple[One, ...]

    def read(self) -> list[pa.Table]:
        """Return the rows of each."""
        return side_by_side(lambda one: one.read(), self.ones)


@dataclass(frozen=True)
class PerTask:
    """An input of its own for each task, whose partitions are not those of any table: `inputs[n]` for partition n."""

    inputs: tuple[object, ...]

    @property
    def parts(self) -> int:
        """The number of tasks."""
        return len(self.inputs)


Partitioned = Table | Spread | Shards | Read | Around | Grouped | Batches | Slices | Files


@dataclass(frozen=True)
class Whole(Readable):
    """A table that each task reads from end to end."""

    table: Table | Spread | Read

    def read(self) -> pa.Table:
        """Return all rows, in the order of the partitions."""
        none = [] if isinstance(self.table, Read) else [self.table.read_schema.empty_table()]
        return pa.concat_tables([*none, *Each(self.table)])


@dataclass(frozen=True)
class Each(Readable):
    """A table that a step goes through, as often as it likes, so that one partition is in memory at a time."""

    table: Partitioned

    def read(self) -> "Each":
        """Return what can be gone through: nothing is read before."""
        return self

    def __iter__(self) -> Iterator[pa.Table]:
        """Yield the rows of each partition; those of some tables come in batches."""
        return (self.table.read(part) for part in range(self.table.parts))


@dataclass(frozen=True)
class Total(Readable):
    """What the steps that made a table counted by this name, in all partitions."""

    table: Table
    name: str

    def read(self) -> int:
        """Return the sum."""
        return sum(self.table.counts(part)[self.name] for part in range(self.table.parts))
