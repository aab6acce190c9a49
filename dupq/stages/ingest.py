"""A site's dump → its tables, in the folder of a run that nobody but ingest reads.

    batches   what was counted of each batch of rows, its partitions, and the file of its rejects
    repeated  rejects of the rows of a table from elsewhere whose id a later row has
    sorted    new partitions of a table whose rows are not in the order of their keys
    shards-N  questions, links, answers and ids: N rows each, the last of a table fewer
    accepted  the ids of the accepted answers, sorted

A partition is an Arrow file of one table's rows of a batch, sorted by key. If the partitions are not in the order of
their keys, as those of links and of hashed ids, DuckDB sorts all rows into new ones. A shard is the next so many rows,
partition after partition.
"""

import itertools
import logging
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from typing_extensions import TypedDict

from dupq import storage
from dupq.dump.files import DumpSite
from dupq.dump.parsing import UNIQUE, Account, is_last, order_of
from dupq.dump.posts import SCHEMAS as READ_SCHEMAS
from dupq.dump.reading import Batch, FileRange, Ingest, batches, file_ranges
from dupq.dump.table_files import database, repeated_ids
from dupq.job.run import Run
from dupq.job.step import call_step, step
from dupq.job.table import Streamed, Table, zipped
from dupq.job.tasks import stream_tasks
from dupq.kinds import ANY, JSON, columns, streamed
from dupq.system import prefetch, thread_map
from dupq.tables import ANSWERS, IDS, LINKS, QUESTIONS, REJECTS, conform
from dupq.text.keys import are_among

VERSIONS = {"ingest": 6}  # raise it when the tables change, as that of a stage
SCHEMAS: dict[str, pa.Schema] = {"questions": QUESTIONS, "links": LINKS, "answers": ANSWERS, "ids": IDS}

_PARSERS = 2  # threads that parse and write what one thread unpacks
_ARROW_ROWS = 2_048  # per Arrow batch
_SORTED_BYTES = 16 << 20  # per partition that was sorted
_ROW_GROUP_BYTES = 64 << 20  # at least, without the last Arrow batch
_log = logging.getLogger(__name__)


SiteTable: TypeAlias = Table[Any]  # questions, links, answers or ids


class MadeFrom(TypedDict):
    """What a site's tables depend on: partitions on `parts` alone, so that other shards do not read the dump again."""

    parts: dict[str, object]
    shard_rows: int


class Partition(NamedTuple):
    """The rows of one table in one file, and their lowest and highest key."""

    uri: str
    rows: int
    first: int
    last: int


class WrittenBatch(NamedTuple):
    """The result of a batch: what was counted, and a partition of each table."""

    file: int  # the index among the site's files
    packed_bytes: int  # of the dump's file that it took up
    counts: dict[str, int]
    partitions: dict[str, Partition]
    rejects: str | None  # the file of its rejects


class RowRange(NamedTuple):
    """Rows of a partition from `start` on."""

    uri: str
    start: int
    rows: int


class SiteRows:
    """The rows of a site that were read: in partitions, by table, or rejected, and an account of all."""

    def __init__(self, site: DumpSite, job: Ingest) -> None:
        """Begin with none."""
        self.account = Account([member.source for member in (*site.posts, *site.links)], len(site.links))
        self.partitions: dict[str, list[Partition]] = {table: [] for table in job.tables(site)}
        self.rejects: dict[str, str] = {}  # URIs of files, by name
        self.repeated = 0  # rows of a table from elsewhere whose id a later row has
        self.packed_bytes = 0

    def add(self, batch: WrittenBatch) -> None:
        """Add a batch, in the order of the files."""
        self.account.add(batch.file, batch.counts)
        self.packed_bytes += batch.packed_bytes
        if batch.rejects is not None:
            self.rejects[storage.name(batch.rejects)] = batch.rejects
        for table, partition in batch.partitions.items():
            self.partitions[table].append(partition)


def inputs_of(site: DumpSite, job: Ingest) -> MadeFrom:
    """Return what a site's tables depend on: the content of its files, settings, and the version of ingest."""
    files = [*site.posts, *site.links]
    uris = list(dict.fromkeys(member.uri for member in files))  # an archive has several members, and is read once
    checksums = dict(zip(uris, thread_map(storage.checksum, uris), strict=True))
    parts = {
        "files": [[checksums[member.uri], member.name, member.form] for member in files],
        "links": len(site.links),
        "is_table": site.is_table,
        "columns": repr(job.columns.with_id(site.id)),
        "answers": job.answers,
        "algorithms": VERSIONS,
    }
    return MadeFrom(parts=parts, shard_rows=job.settings.shard_rows)


def read_site(run: Run, site: DumpSite, job: Ingest, is_aborted: Callable[[], bool]) -> Generator[WrittenBatch]:
    """Return the batches of a site's files in their order. Tasks read some ranges of the files ahead."""
    ranges = file_ranges(site)
    names = [f"ingest: {file_range.member.source}" for file_range in ranges]
    calls = [(file_range, job, run.folder) for file_range in ranges]
    return stream_tasks(names, run.report, read_range, calls, is_aborted)


def read_range(file_range: FileRange, job: Ingest, folder: str) -> Iterator[WrittenBatch]:
    """Write the partitions of a range, and yield its batches in their order.

    Unpacking goes on while threads parse. At most one batch more than there are threads is in memory.
    """
    parsers = _PARSERS if file_range.member.is_packed else 1
    return prefetch(lambda batch: read_batch(batch, folder), batches(file_range, job), parsers)


def read_batch(batch: Batch, folder: str) -> WrittenBatch:
    """Write a batch below `folder`, unless an earlier attempt did."""
    uri = storage.join(folder, "batches", f"{batch.name}.json")
    call_step(0, write_batch, (batch, folder), None, uri)
    counts, partitions, rejects = storage.read_json(uri)
    by_table = {table: Partition(*partition) for table, partition in partitions.items()}
    return WrittenBatch(_file_of(uri), batch.packed_bytes, counts, by_table, rejects)


@step(makes=JSON)
def write_batch(batch: Batch, folder: str) -> tuple[dict[str, int], dict[str, Partition], str | None]:
    """Write the rows of a batch, and return what was counted, its partitions, and the file of its rejects."""
    parsed, rejects = batch.read(), None
    if len(parsed.rejects):
        rejects = storage.join(folder, "rejects", f"part-{batch.name}.parquet")
        storage.write_table(rejects, parsed.rejects, REJECTS)
    partitions = {table: _write(_partition(folder, table, batch.name), rows) for table, rows in parsed.tables.items()}
    return parsed.counts, partitions, rejects


def _partition(folder: str, table: str, name: str) -> str:
    return storage.join(folder, table, f"{name}.arrow")


def _file_of(uri: str) -> int:
    """Return the index of the file whose batch was written to `uri`."""
    return int(storage.name(uri).split("-")[0])


def _write(uri: str, rows: pa.Table) -> Partition:
    keys = rows.column(0)
    partition = Partition(uri, len(rows), *((keys[0].as_py(), keys[-1].as_py()) if len(rows) else (0, 0)))
    # files on a local disk stay in the page cache; over a network they are better small
    options = pa.ipc.IpcWriteOptions(compression="lz4" if storage.is_remote(uri) else None)
    with storage.open_output(uri) as sink, pa.ipc.new_file(sink, rows.schema, options=options) as writer:
        writer.write_table(rows.combine_chunks(), max_chunksize=_ARROW_ROWS)
    return partition


def all_rows(uri: str) -> pa.Table:
    """Return all rows of a partition's file. On a local disk only what is used is read."""
    with storage.open_mapped(uri) as stream:
        return pa.ipc.open_file(stream).read_all()


def keys_of(uri: str) -> np.ndarray:
    """Return the keys of a partition's file. Nothing else is read, over a network too."""
    with storage.open_mapped(uri) as stream:
        only = pa.ipc.IpcReadOptions(included_fields=[0])
        return pa.ipc.open_file(stream, options=only).read_all().column(0).to_numpy()


def reject_repeated(run: Run, rows: SiteRows, site: str) -> None:
    """Reject the rows of a table from elsewhere whose id a later row has."""
    rejects = run.map("repeated", repeated)(rows.partitions["ids"])
    rows.repeated = rejects.rows
    if rows.repeated:
        rows.rejects["part-doubled.parquet"] = rejects.file(0)
        [first] = next(storage.read_batches(rejects.file(0), REJECTS, REJECTS.names, 1)).to_pylist()
        where = f"{first['position']:,}: {first['excerpt']}"
        _log.warning(f"{site}: {rows.repeated:,} rows rejected, as a later row has their id; first at {where}")


@step(makes=REJECTS)
def repeated(ids: Sequence[Partition]) -> pa.Table:
    """Return REJECTS of the rows whose id a later row has."""
    return repeated_ids(all_rows(partition.uri) for partition in ids)


def make_shards(run: Run, rows: SiteRows, shard_rows: int) -> dict[str, SiteTable]:
    """Return the tables of a site, in shards."""
    ordered = {table: _ordered(run, table, rows) for table in rows.partitions}
    if "ids" in ordered:
        links = run.record("links_of_rows", write_links)(ordered["ids"], run.folder)
        ordered["links"] = [Partition(*partition) for partition in links]

    def shards_of(table: str, accepted: str | None = None) -> SiteTable:
        ranges, schema = zipped(plan_shards(ordered[table], shard_rows)), SCHEMAS[table]
        return run.map(f"shards-{shard_rows}/{table}", row_groups, schema)(ranges, schema.names, accepted)

    shards = {table: shards_of(table) for table in ordered if table != "answers"}
    if "answers" in ordered:  # the questions say which are accepted
        shards["answers"] = shards_of("answers", run.write("accepted", accepted_ids)(Streamed(shards["questions"])))
    return shards


def _ordered(run: Run, table: str, rows: SiteRows) -> list[Partition]:
    """Return the partitions of a table in the order of their keys, without the rows whose id a later row has."""
    partitions = rows.partitions[table]
    if are_ordered(partitions) and not (table == "ids" and rows.repeated):
        return partitions
    ordered, left_out = run.record(f"sorted_{table}", sort_partitions)(partitions, table, run.folder)
    for file, count in left_out if table != "ids" else ():
        rows.account.leave_out(file, table, count)
    return [Partition(*partition) for partition in ordered]


@step(makes=JSON)
def write_links(ids: Sequence[Partition], folder: str) -> list[Partition]:
    """Write the links that the rows of a table from elsewhere name, as partitions; those of `ids` are ordered."""
    links = []
    for number, partition in enumerate(ids):
        rows = all_rows(partition.uri).combine_chunks()
        related = rows["duplicate_of"].combine_chunks()
        of_rows = rows["question_id"].take(pc.list_parent_indices(related))
        columns = [of_rows, pc.list_flatten(related), ["duplicate"] * len(of_rows), [None] * len(of_rows)]
        table = pa.table(columns, schema=LINKS)
        links.append(_write(_partition(storage.join(folder, "sorted"), "links", f"{number:06d}"), table))
    return links


def are_ordered(partitions: Sequence[Partition]) -> bool:
    """Return whether the keys of each partition are above those of the partitions before it."""
    filled = [partition for partition in partitions if partition.rows]
    return all(before.last < after.first for before, after in itertools.pairwise(filled))


@step(makes=JSON)
def sort_partitions(
    partitions: Sequence[Partition], table: str, folder: str
) -> tuple[list[Partition], list[tuple[int, int]]]:
    """Write the rows of `partitions` as new, ordered ones. Return these, and how many rows were dropped of each file.

    Of UNIQUE tables only the last row of each key stays. Files are numbered as those of the site.
    """
    schema, sorted_folder = READ_SCHEMAS[table], storage.join(folder, "sorted")
    rows = [partition.rows for partition in partitions]
    is_kept = np.ones(sum(rows), np.bool_)
    if table in (*UNIQUE, "ids"):
        is_kept = is_last(np.concatenate([keys_of(partition.uri) for partition in partitions]))
    files = np.repeat([_file_of(partition.uri) for partition in partitions], rows)
    ordered: list[Partition] = []
    with database(f"{table} in {folder}") as connection:
        order = ", ".join([*(f"{name} NULLS LAST" for name in order_of(table)), "row_number"])
        numbered = connection.from_arrow(_numbered(partitions, schema, is_kept)).order(order)
        tables = map(pa.table, numbered.to_arrow_reader(_ARROW_ROWS))
        for joined in _joined(tables, _SORTED_BYTES):
            sorted_rows = conform(joined.select(schema.names), schema, sorted_folder)
            ordered.append(_write(_partition(sorted_folder, table, f"{len(ordered):06d}"), sorted_rows))
    return ordered, [*Counter(files[~is_kept].tolist()).items()]


def _numbered(partitions: Sequence[Partition], schema: pa.Schema, is_kept: np.ndarray) -> pa.RecordBatchReader:
    """Read the rows that are kept, with their numbers among all rows."""
    number_field = pa.field("row_number", pa.int64())

    def record_batches() -> Iterator[pa.RecordBatch]:
        stop = 0
        for batch in itertools.chain.from_iterable(all_rows(part.uri).to_batches(_ARROW_ROWS) for part in partitions):
            start, stop = stop, stop + len(batch)
            numbered = batch.append_column(number_field, pa.array(np.arange(start, stop)))
            yield numbered.filter(pa.array(is_kept[start:stop]))

    return pa.RecordBatchReader.from_batches(schema.append(number_field), record_batches())


def _joined(tables: Iterable[pa.Table], size: int) -> Iterator[pa.Table]:
    """Yield the rows in tables of at least `size` bytes; the last may be smaller."""
    waiting: list[pa.Table] = []
    for table in tables:
        waiting.append(table)
        if sum(table.nbytes for table in waiting) >= size:
            yield pa.concat_tables(waiting)
            waiting = []
    if waiting:
        yield pa.concat_tables(waiting)


def plan_shards(partitions: Sequence[Partition], rows: int) -> list[list[RowRange]]:
    """Return the rows of each shard, in their order: `rows` (at least 1) of the ordered partitions.

    The last shard may be smaller, and empty if it is alone.
    """
    shards: list[list[RowRange]] = [[]]
    room = rows
    for partition in partitions:
        start = 0
        while start < partition.rows:
            if not room:
                shards.append([])
                room = rows
            taken = min(partition.rows - start, room)
            shards[-1].append(RowRange(partition.uri, start, taken))
            start, room = start + taken, room - taken
    return shards


@step(makes=ANY)
def row_groups(ranges: Sequence[RowRange], names: Sequence[str], accepted: str | None) -> Iterator[pa.Table]:
    """Yield the columns `names` of a shard, in row groups; `accepted` is the file of accepted ids for answers."""
    ids = None if accepted is None else read_accepted_ids(accepted)
    for rows in _joined((all_rows(uri).slice(start, rows) for uri, start, rows in ranges), _ROW_GROUP_BYTES):
        if ids is not None:
            is_accepted = pa.array(are_among(ids, rows.column("answer_id").to_numpy()))
            rows = rows.append_column(ANSWERS.field("is_accepted"), is_accepted)
        yield rows.select(names)


@step(streamed(columns(QUESTIONS, "accepted_answer_id")), makes=JSON)
def accepted_ids(questions: Iterable[pa.Table]) -> bytes:
    """Return the ids of the accepted answers of all questions, sorted. Memory: 24 bytes per id."""
    ids = [rows.column(0).drop_null().to_numpy() for rows in questions]
    return np.sort(np.concatenate([np.empty(0, np.int64), *ids])).tobytes()


def read_accepted_ids(uri: str) -> np.ndarray:
    """Return the ids of `accepted_ids`. A local file is mapped, so that a machine's tasks share its memory."""
    with storage.open_mapped(uri) as stream:
        return np.frombuffer(stream.read_buffer(), np.int64)
