"""The tasks of ingest: read a unit of a dump into parts, sort parts, write a shard; and the folder in which the next
attempt goes on.

A part is what one piece of a dump became: an Arrow file for each of its tables, sorted by key. That of the first table
is written last and has what was counted. A shard is the next so many rows, part after part. Where the parts are not in
the order of their keys, as those of links and of ids that are hashes, DuckDB sorts all rows into new ones first.
"""

import functools
import hashlib
import itertools
import json
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dupq import archive, storage
from dupq.dump.files import DumpSite
from dupq.dump.parsing import KINDS, Contents
from dupq.dump.table_files import database, doubled
from dupq.dump.units import Ingest, Piece, Unit, pieces
from dupq.job.tasks import give_back, peak_mb, reset_peak
from dupq.runs.records import INGEST_VERSIONS
from dupq.storage import read_or_none
from dupq.tables import ANSWERS, IDS, LINKS, QUESTIONS, REJECTS, conform
from dupq.text.keys import are_among

SCHEMAS = {"questions": QUESTIONS, "links": LINKS, "answers": ANSWERS, "ids": IDS}

_PARSERS = 2  # threads that parse and write what one unpacker gives
_KNOWN = b"dupq"  # in the metadata of a part's schema
_BATCH = 2_048  # rows
_SORTED_BYTES = 16 << 20  # of a part that was sorted
_GROUP_BYTES = 64 << 20  # of a row group, but for its last slice
_ACCEPTED = pa.schema([pa.field("answer_id", pa.int64(), nullable=False)])


def begin(folder: str, parts_from: object) -> str:
    """Clear `folder` of parts of anything else; returns where those from `parts_from` are, or go."""
    work = hashlib.sha256(storage.json_bytes(parts_from)).hexdigest()[:16]
    if read_or_none(_mark(folder), dict[str, str]) != {"work": work}:
        storage.delete_folder(folder)
        storage.write_json(_mark(folder), {"work": work})
    return storage.join(folder, work)


def is_there(folder: str) -> bool:
    """Whether an attempt was cut off while it worked in `folder`."""
    return storage.exists(_mark(folder))


def _mark(folder: str) -> str:
    return storage.join(folder, archive.BEGUN)


def made_from(site: DumpSite, job: Ingest) -> dict[str, object]:
    """What the tables of a site depend on: the content of its files, settings, and the version of ingest.

    `parts` is what its parts depend on; how they are cut into shards can change without reading the dump again.
    """
    files = [*site.posts, *site.links]
    parts = {
        "files": [[storage.checksum(member.uri), member.name, member.form] for member in files],
        "links": len(site.links),
        "is_table": site.is_table,
        "columns": repr(job.columns),
        "answers": job.answers,
        "algorithms": INGEST_VERSIONS,
    }
    return {"parts": parts, "shard_rows": job.settings.shard_rows}


class Part(NamedTuple):
    """The rows of one table in one file; `first` and `last` are their lowest and highest key."""

    uri: str
    rows: int
    first: int
    last: int


class ReadPiece(NamedTuple):
    """What a piece of a dump became: `counts`, and a part of each table."""

    packed: int  # bytes of the dump's file that it took up
    counts: Mapping[str, int]
    parts: dict[str, Part]
    rejects: str | None  # the file of its rejects


def read_unit(unit: Unit, job: Ingest, work: str) -> Iterator[tuple[ReadPiece, float]]:
    """Write the parts of a unit; gives them in their order as they come, and the peak memory (MB) so far.

    Unpacking goes on while threads parse: at most one piece more than there are threads is held.
    """
    give_back()
    reset_peak()
    tables = unit.tables(job.answers)
    begun: deque[Future[ReadPiece]] = deque()
    parsers = _PARSERS if unit.member.is_packed else 1
    with ThreadPoolExecutor(parsers) as pool:
        for piece in pieces(unit, job):
            begun.append(pool.submit(_read_piece, piece, tables, work))
            if len(begun) > parsers:
                yield begun.popleft().result(), peak_mb()
        while begun:
            yield begun.popleft().result(), peak_mb()


def _read_piece(piece: Piece, tables: tuple[str, ...], work: str) -> ReadPiece:
    counts, parts = find_parts(piece.name, work, tables) or write_parts(piece.read(), piece.name, work)
    return ReadPiece(piece.packed, counts, parts, rejects_uri(work, piece.name) if counts["rejects"] else None)


def write_parts(contents: Contents, name: str, work: str) -> tuple[dict[str, int], dict[str, Part]]:
    """Write what a piece contains below the folder `work`; returns what was counted, and its parts."""
    if len(contents.rejects):
        storage.write_table(rejects_uri(work, name), contents.rejects, REJECTS)
    parts = {
        table: _write(_file(work, table, name), table, contents.tables[table], contents.counts)
        for table in reversed(contents.tables)
    }
    return contents.counts, {table: parts[table] for table in contents.tables}


def find_parts(name: str, work: str, tables: Sequence[str]) -> tuple[dict[str, int], dict[str, Part]] | None:
    """Return what an earlier attempt wrote of a piece, as `write_parts` does; None if it did not finish it."""
    uris = {table: _file(work, table, name) for table in tables}
    if not storage.exists(uris[tables[0]]):
        return None
    known = {}
    for table, uri in uris.items():
        with storage.open_mapped(uri) as stream:
            known[table] = json.loads(pa.ipc.open_file(stream).schema.metadata[_KNOWN])
    return known[tables[0]]["counts"], {table: Part(uri, *known[table]["part"]) for table, uri in uris.items()}


def rejects_uri(work: str, name: str) -> str:
    """The file of a piece's rejects."""
    return storage.join(work, "rejects", f"part-{name}.parquet")


def _file(work: str, table: str, name: str) -> str:
    return storage.join(work, table, f"{name}.arrow")


def _write(uri: str, table: str, rows: pa.Table, counts: dict[str, int]) -> Part:
    keys = rows.column(KINDS[table].key)
    part = Part(uri, len(rows), *((keys[0].as_py(), keys[-1].as_py()) if len(rows) else (0, 0)))
    known = {_KNOWN: json.dumps({"part": part[1:], "counts": counts}, sort_keys=True)}
    # on a local disk parts stay in the page cache; over a network they are better small
    options = pa.ipc.IpcWriteOptions(compression="lz4" if storage.is_remote(uri) else None)
    schema = rows.schema.with_metadata(known)
    with storage.open_output(uri) as sink, pa.ipc.new_file(sink, schema, options=options) as writer:
        writer.write_table(rows.combine_chunks().cast(schema), max_chunksize=_BATCH)
    return part


def all_rows(uri: str) -> pa.Table:
    """All rows of a part's file; on a local disk only what is looked at is read."""
    with storage.open_mapped(uri) as stream:
        return pa.ipc.open_file(stream).read_all().replace_schema_metadata()


def sort_parts(parts: Sequence[Part], table: str, work: str) -> tuple[list[Part], dict[int, int]]:
    """Write the rows of `parts` as parts in order, and return these.

    Of rows with the same key the last stays, if KINDS says so; how many are left out of each of the site's files is
    returned too.
    """
    kind, folder = KINDS[table], storage.join(work, "sorted")
    left_out: dict[int, int] = {}
    found: list[Part] = []
    with database(f"{table} in {work}") as connection:
        rows = connection.from_arrow(_numbered(parts, kind.schema))
        order = ", ".join([*(f"{name} NULLS LAST" for name in kind.order), "row_number"])
        batches = rows.order(order).to_arrow_reader(_BATCH)
        kept = _last_ones(batches, kind.key, left_out) if kind.is_unique else batches
        for group in _grouped((pa.Table.from_batches([batch]) for batch in kept), _SORTED_BYTES):
            sorted_rows = conform(group.select(kind.schema.names), kind.schema, folder)
            found.append(_write(_file(folder, table, f"{len(found):06d}"), table, sorted_rows, {}))
    return found, left_out


def _numbered(parts: Sequence[Part], schema: pa.Schema) -> pa.RecordBatchReader:
    """All rows, with the site's file that each is from, and their numbers."""

    def batches() -> Iterator[pa.RecordBatch]:
        number = 0
        for part in parts:
            file = int(storage.name(part.uri).split("-")[0])
            for batch in all_rows(part.uri).to_batches(_BATCH):
                numbers = pa.array(np.arange(number, number + len(batch)))
                columns = [*batch.columns, pa.array(np.full(len(batch), file)), numbers]
                yield pa.record_batch(columns, schema=numbered)
                number += len(batch)

    numbered = schema.append(pa.field("file", pa.int64())).append(pa.field("row_number", pa.int64()))
    return pa.RecordBatchReader.from_batches(numbered, batches())


def _last_ones(batches: Iterable[pa.RecordBatch], key: str, left_out: dict[int, int]) -> Iterator[pa.RecordBatch]:
    """Of sorted rows the last with each key; counts the others, by their file."""
    before: pa.RecordBatch | None = None
    for batch in itertools.chain(filter(len, batches), [None]):
        if before is not None:
            following = pa.array([None], pa.int64()) if batch is None else batch.column(key).slice(0, 1)
            keys = pa.concat_arrays([before.column(key), following])
            is_last = pc.fill_null(pc.not_equal(keys.slice(0, len(before)), keys.slice(1)), True)
            for file in before.filter(pc.invert(is_last)).column("file").to_pylist():
                left_out[file] = left_out.get(file, 0) + 1
            yield before.filter(is_last)
        before = batch


def _grouped(rows: Iterable[pa.Table], size: int) -> Iterator[pa.Table]:
    """Yield the rows in tables of `size` bytes and more, but for the last."""
    group: list[pa.Table] = []
    for table in rows:
        group.append(table)
        if sum(some.nbytes for some in group) >= size:
            yield pa.concat_tables(group)
            group = []
    if group:
        yield pa.concat_tables(group)


class Slice(NamedTuple):
    """Rows of a part from `start` on."""

    uri: str
    start: int
    rows: int


class Shard(NamedTuple):
    """A shard, and where its rows are, in their order."""

    number: int
    slices: tuple[Slice, ...]


class Cutter:
    """Cuts the parts of a table, which come in their order, into shards of `rows` rows."""

    def __init__(self, rows: int, is_sorted: bool = False) -> None:
        """`rows` is at least 1; with `is_sorted` the parts are in order, though they may have a key in common."""
        self._rows, self._is_sorted = rows, is_sorted
        self._slices: list[Slice] = []
        self._cut = self._filled = 0
        self._last = -1
        self.is_ordered = True  # False once a part had a key that should have come before

    def add(self, part: Part) -> list[Shard]:
        """Return the shards that are now whole; none once the parts are out of order."""
        if not part.rows or not self.is_ordered:
            return []
        if part.first <= self._last and not self._is_sorted:
            self.is_ordered = False
            return []
        self._last = part.last
        shards, start = [], 0
        while start < part.rows:
            taken = min(part.rows - start, self._rows - self._filled)
            self._slices.append(Slice(part.uri, start, taken))
            self._filled += taken
            start += taken
            if self._filled == self._rows:
                shards.append(self._end())
        return shards

    def finish(self) -> list[Shard]:
        """Return the last shard; one without rows if there is no other."""
        return [self._end()] if self._slices or not self._cut else []

    def _end(self) -> Shard:
        shard = Shard(self._cut, tuple(self._slices))
        self._slices, self._filled = [], 0
        self._cut += 1
        return shard


def shard_uri(folder: str, number: int, made: str = "") -> str:
    """The file of a shard; `made` tells those of one dump and settings from those of another."""
    return storage.join(folder, f"part-{number:05d}{made}.parquet")


def write_shard(shard: Shard, table: str, folder: str, accepted: str | None) -> None:
    """Write a shard, unless an earlier attempt did. Memory: a row group and the finished file."""
    uri = shard_uri(folder, shard.number)
    if not storage.exists(uri):
        rows = (all_rows(some.uri).slice(some.start, some.rows) for some in shard.slices)
        groups = _grouped(rows, _GROUP_BYTES)
        storage.write_row_groups(uri, groups if accepted is None else _judged(groups, accepted), SCHEMAS[table])


def _judged(groups: Iterable[pa.Table], accepted: str) -> Iterator[pa.Table]:
    """Answers with whether they are accepted."""
    for rows in groups:
        marks = are_among(read_accepted_ids(accepted), rows.column("answer_id").to_numpy())
        yield rows.append_column(ANSWERS.field("is_accepted"), pa.array(marks))


# The ids of accepted answers, sorted in one file, 8 bytes each: a local file is mapped, so that all tasks of a machine
# have it in memory once.


def write_accepted_ids(questions: Sequence[str], uri: str) -> None:
    """Write the ids of all answers that the Parquet files `questions` name as accepted to the file `uri`.

    Memory: 16 bytes for each of them.
    """
    columns = [storage.read_table(uri, columns=["accepted_answer_id"]).column(0).drop_null() for uri in questions]
    ids = np.sort(np.concatenate([np.empty(0, np.int64), *(column.to_numpy() for column in columns)]))
    with storage.open_output(uri) as sink, pa.ipc.new_file(sink, _ACCEPTED) as writer:
        writer.write_batch(pa.record_batch([pa.array(ids)], schema=_ACCEPTED))


@functools.lru_cache(maxsize=1)
def read_accepted_ids(uri: str) -> np.ndarray:
    """The ids in a file of `write_accepted_ids`, ascending; those of a local file are memory-mapped."""
    with storage.open_mapped(uri) as stream:
        return pa.ipc.open_file(stream).get_batch(0).column(0).to_numpy()


def reject_doubled(parts: Sequence[Part], uri: str) -> tuple[int, str]:
    """Write the rejects of a table from elsewhere whose id a later row has; how many these are, and the first's row."""
    rejects = doubled(all_rows(part.uri) for part in parts)
    if not len(rejects):
        return 0, ""
    storage.write_table(uri, rejects, REJECTS)
    first = rejects.slice(0, 1).to_pylist()[0]
    return len(rejects), f"{first['position']:,}: {first['excerpt']}"
