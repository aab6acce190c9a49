"""The tasks of ingest: read a range of a dump into partitions, sort partitions, write a shard; and the work folder in
which an interrupted attempt is continued.

A partition is an Arrow file of one table's rows of a batch, sorted by key. If the partitions are not in the order of
their keys, as those of links and of hashed ids, DuckDB sorts all rows into new ones. A shard is the next so many rows,
partition after partition.
"""

import functools
import hashlib
import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from typing_extensions import TypedDict

from dupq import archive, storage
from dupq.dump.files import DumpSite
from dupq.dump.parsing import UNIQUE, is_last, order_of
from dupq.dump.posts import SCHEMAS as READ_SCHEMAS
from dupq.dump.reading import Batch, FileRange, Ingest, batches
from dupq.dump.table_files import database, repeated_ids
from dupq.job.records import INGEST_VERSIONS
from dupq.job.tasks import peak_mb, reset_peak
from dupq.storage import read_or_none
from dupq.system import ahead, side_by_side
from dupq.tables import ANSWERS, IDS, LINKS, QUESTIONS, REJECTS, conform
from dupq.text.keys import are_among

SCHEMAS = {"questions": QUESTIONS, "links": LINKS, "answers": ANSWERS, "ids": IDS}

_PARSERS = 2  # threads that parse and write what one thread unpacks
_ARROW_ROWS = 2_048  # per Arrow batch
_SORTED_BYTES = 16 << 20  # per partition that was sorted
_ROW_GROUP_BYTES = 64 << 20  # at least, without the last Arrow batch


def begin(folder: str, inputs: object) -> str:
    """Return the work folder for `inputs` in `folder`, where partitions may be. Clears it of those of other inputs."""
    work, marker = hashlib.sha256(storage.json_bytes(inputs)).hexdigest()[:16], storage.join(folder, archive.BEGUN)
    if read_or_none(marker, dict[str, str]) != {"work": work}:
        storage.delete_folder(folder)
        storage.write_json(marker, {"work": work})
    return storage.join(folder, work)


def inputs_of(site: DumpSite, job: Ingest) -> dict[str, object]:
    """Return what a site's tables depend on: the content of its files, settings, and the version of ingest.

    Partitions depend on `parts` alone. So shards of another size can be made without reading the dump again.
    """
    files = [*site.posts, *site.links]
    uris = list(dict.fromkeys(member.uri for member in files))  # an archive has several members, and is read once
    checksums = dict(zip(uris, side_by_side(storage.checksum, uris), strict=True))
    parts = {
        "files": [[checksums[member.uri], member.name, member.form] for member in files],
        "links": len(site.links),
        "is_table": site.is_table,
        "columns": repr(job.columns),
        "answers": job.answers,
        "algorithms": INGEST_VERSIONS,
    }
    return {"parts": parts, "shard_rows": job.settings.shard_rows}


class Partition(NamedTuple):
    """The rows of one table in one file, and their lowest and highest key."""

    uri: str
    rows: int
    first: int
    last: int


class WrittenBatch(NamedTuple):
    """The result of a batch: what was counted, and a partition of each table."""

    packed_bytes: int  # of the dump's file that it took up
    counts: Mapping[str, int]
    partitions: dict[str, Partition]
    rejects: str | None  # the file of its rejects


class _Mark(TypedDict):
    """What a batch gave: its counts, and by table the rows of its partition with their lowest and highest key."""

    counts: dict[str, int]
    partitions: dict[str, tuple[int, int, int]]


def read_range(file_range: FileRange, job: Ingest, work: str) -> Iterator[tuple[WrittenBatch, float]]:
    """Write the partitions of a range. Yield its batches in their order, each with the peak memory (MB) so far.

    Unpacking goes on while threads parse. At most one batch more than there are threads is in memory.
    """
    reset_peak()
    parsers = _PARSERS if file_range.member.is_packed else 1
    for written in ahead(lambda batch: read_batch(batch, work), batches(file_range, job), parsers):
        yield written, peak_mb()


def read_batch(batch: Batch, work: str) -> WrittenBatch:
    """Write a batch below the folder `work`, unless an earlier attempt did. Its mark is written last."""
    mark_uri = storage.join(work, "batches", f"{batch.name}.json")
    mark = read_or_none(mark_uri, _Mark)
    if mark is None:
        parsed = batch.read()
        if len(parsed.rejects):
            storage.write_table(rejects_uri(work, batch.name), parsed.rejects, REJECTS)
        written = {table: _write(_file(work, table, batch.name), rows)[1:] for table, rows in parsed.tables.items()}
        mark = {"counts": parsed.counts, "partitions": written}
        storage.write_json(mark_uri, mark)
    partitions = {
        table: Partition(_file(work, table, batch.name), *numbers) for table, numbers in mark["partitions"].items()
    }
    rejects = rejects_uri(work, batch.name) if mark["counts"]["rejects"] else None
    return WrittenBatch(batch.packed_bytes, mark["counts"], partitions, rejects)


def rejects_uri(work: str, name: str) -> str:
    """Return the file of a batch's rejects."""
    return storage.join(work, "rejects", f"part-{name}.parquet")


def _file(work: str, table: str, name: str) -> str:
    return storage.join(work, table, f"{name}.arrow")


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


def sort_partitions(partitions: Sequence[Partition], table: str, work: str) -> tuple[list[Partition], dict[int, int]]:
    """Write the rows of `partitions` as new, ordered ones. Return these, and how many rows were dropped per file.

    Of UNIQUE tables only the last row of each key stays. Files are numbered as those of the site.
    """
    schema, folder = READ_SCHEMAS[table], storage.join(work, "sorted")
    rows = [partition.rows for partition in partitions]
    is_kept = np.ones(sum(rows), np.bool_)
    if table in (*UNIQUE, "ids"):
        is_kept = is_last(np.concatenate([keys_of(partition.uri) for partition in partitions]))
    files = np.repeat([int(storage.name(partition.uri).split("-")[0]) for partition in partitions], rows)
    ordered: list[Partition] = []
    with database(f"{table} in {work}") as connection:
        order = ", ".join([*(f"{name} NULLS LAST" for name in order_of(table)), "row_number"])
        numbered = connection.from_arrow(_numbered(partitions, schema, is_kept)).order(order)
        tables = map(pa.table, numbered.to_arrow_reader(_ARROW_ROWS))
        for joined in _joined(tables, _SORTED_BYTES):
            sorted_rows = conform(joined.select(schema.names), schema, folder)
            ordered.append(_write(_file(folder, table, f"{len(ordered):06d}"), sorted_rows))
    return ordered, Counter(files[~is_kept].tolist())


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


class RowRange(NamedTuple):
    """Rows of a partition from `start` on."""

    uri: str
    start: int
    rows: int


def are_ordered(partitions: Sequence[Partition]) -> bool:
    """Return whether the keys of each partition are above those of the partitions before it."""
    filled = [partition for partition in partitions if partition.rows]
    return all(before.last < after.first for before, after in itertools.pairwise(filled))


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


def shard_uri(folder: str, number: int, suffix: str = "") -> str:
    """Return the file of a shard. The suffix distinguishes shards of other inputs."""
    return storage.join(folder, f"part-{number:05d}{suffix}.parquet")


def write_shard(uri: str, ranges: Sequence[RowRange], table: str, accepted: str | None) -> None:
    """Write a shard, unless an earlier attempt did. Memory: a row group and the finished file.

    `accepted` is the file of accepted ids for shards of answers.
    """
    if not storage.exists(uri):
        tables = (all_rows(source).slice(start, rows) for source, start, rows in ranges)
        row_groups = _joined(tables, _ROW_GROUP_BYTES)
        if accepted is not None:
            row_groups = _with_accepted(row_groups, accepted)
        storage.write_row_groups(uri, row_groups, SCHEMAS[table])


def _with_accepted(row_groups: Iterable[pa.Table], accepted: str) -> Iterator[pa.Table]:
    """Yield the answers with the column `is_accepted`."""
    for rows in row_groups:
        is_accepted = are_among(read_accepted_ids(accepted), rows.column("answer_id").to_numpy())
        yield rows.append_column(ANSWERS.field("is_accepted"), pa.array(is_accepted))


def write_accepted_ids(questions: Sequence[str], uri: str) -> None:
    """Write the ids of the accepted answers of all `questions` (Parquet files), sorted, to one file.

    Memory: 24 bytes per id.
    """
    columns = [storage.read_table(file, columns=["accepted_answer_id"]).column(0).drop_null() for file in questions]
    ids = np.sort(np.concatenate([np.empty(0, np.int64), *(column.to_numpy() for column in columns)]))
    storage.write_bytes(uri, ids.tobytes())


@functools.lru_cache(maxsize=1)
def read_accepted_ids(uri: str) -> np.ndarray:
    """Return the ids of `write_accepted_ids`. A local file is mapped, so that a machine's tasks share its memory."""
    with storage.open_mapped(uri) as stream:
        return np.frombuffer(stream.read_buffer(), np.int64)


def reject_repeated(partitions: Sequence[Partition], uri: str) -> tuple[int, str]:
    """Write the rejects of a table from elsewhere whose id a later row has. Return their number, and the first one."""
    rejects = repeated_ids(all_rows(partition.uri) for partition in partitions)
    if not len(rejects):
        return 0, ""
    storage.write_table(uri, rejects, REJECTS)
    first = rejects.slice(0, 1).to_pylist()[0]
    return len(rejects), f"{first['position']:,}: {first['excerpt']}"
