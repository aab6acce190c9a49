"""Splits a dump's files into ranges, which tasks read, and reads a range in batches of rows.

A range is a stretch of a plain XML file, or any other file as a whole. Ranges, batches and their names depend on the
file alone, so that a job that was interrupted finds what it has already read.
"""

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

import numpy as np

from dupq import storage
from dupq.dump.files import BY_NAME, Columns, DumpSite, Member, Table, quoted
from dupq.dump.parsing import Format, ParsedRows, read_rows
from dupq.dump.streams import UnpackedStream, open_member
from dupq.dump.table_files import check_table, read_numbered, read_table
from dupq.dump.xml_files import SEGMENT_SIZE, BrokenRow, Row, segment_rows, segments
from dupq.errors import DupqError
from dupq.settings.sections import IngestSettings
from dupq.system import thread_map

_SEGMENTS_PER_RANGE = 4
_BATCH_ROWS = 20_000  # of tables that are not XML
_BATCH_CHARACTERS = 16 << 20  # of their text


@dataclass(frozen=True)
class Ingest:
    """What the sites of one ingest job have in common: where their tables go, and how a dump is read."""

    output: str
    settings: IngestSettings
    answers: bool = False
    columns: Columns = BY_NAME  # of tables from elsewhere

    def tables(self, site: DumpSite) -> tuple[str, ...]:
        """Return the tables of a site that are written, besides the rejects."""
        return ("questions", "links", *["answers"] * self.answers, *["ids"] * site.is_table)


class FileRange(NamedTuple):
    """What one task reads of a site. `file` is the index of the member among the site's files."""

    file: int
    number: int
    member: Member
    table: Table
    counts_size: bool = True  # False for further members of an archive, whose size counts once
    above: str | None = None  # what the names of the table's files begin with; None: it has one file
    id: str | None = None  # as of the site


class Batch(NamedTuple):
    """Rows that are parsed together. `read` may be called once, from any thread."""

    name: str
    packed_bytes: int  # of the dump's file that it took up
    read: Callable[[], ParsedRows]


def file_ranges(site: DumpSite) -> list[FileRange]:
    """Return the ranges of a site's files in their order, posts first."""
    posts: list[tuple[Table, Member]] = [("table" if site.is_table else "posts", member) for member in site.posts]
    links: list[tuple[Table, Member]] = [("links", member) for member in site.links]
    uris = [member.uri for _, member in posts + links]
    common = os.path.commonprefix([member.source for member in site.posts])  # noqa: RUF071 (commonpath spoils s3://)
    above = common[: common.rfind("/") + 1] if len(posts) > 1 else None
    ranges = []
    for file, (table, member) in enumerate(posts + links):
        size = storage.size(member.uri) if member.form == "xml" and not member.is_packed else 0
        for number in range(max(1, -(-size // (_SEGMENTS_PER_RANGE * SEGMENT_SIZE)))):
            ranges.append(FileRange(file, number, member, table, member.uri not in uris[:file], above, site.id))
    return ranges


def check_columns(site: DumpSite, columns: Columns) -> DumpSite:
    """Return the site with its column of ids, if that is the only one whose name ends in "id" and none of them repeats.

    Raises DupqError if a table from elsewhere cannot be opened, or if its columns cannot be told.
    """
    found = thread_map(partial(check_table, columns=columns), site.posts) if site.is_table else []
    without = [values for values in found if values is not None]
    if not without:
        return site
    if len(without) < len(found):
        source = site.posts[found.index(without[0])].source
        raise DupqError(f"{source}: no column of ids, but other tables here have one; name it with --id COLUMN")
    names = [name for name in without[0] if all(name in values for values in without)]
    together = {name: np.concatenate([values[name] for values in without]) for name in names}
    unique = [name for name, values in together.items() if len(np.unique(values)) == len(values) > 0]
    if len(unique) > 1:
        source, shown = site.posts[0].source, quoted(unique)
        raise DupqError(f"{source}: {shown} may each be the id; say which with --id COLUMN")
    return replace(site, id=unique[0]) if unique else site


def batches(file_range: FileRange, job: Ingest) -> Iterator[Batch]:
    """Yield the batches of a range in their order.

    Memory: 16 MiB and the longest row for each batch that is being read. Raises DupqError for a file that is missing,
    damaged, of another format, or a decompression bomb.
    """
    file_format = Format(file_range.table, job.answers)
    if file_range.member.form == "xml":
        return _xml_batches(file_range, file_format)
    return _table_batches(file_range, job.columns.with_id(file_range.id), file_format)


def _xml_batches(file_range: FileRange, file_format: Format) -> Iterator[Batch]:
    member, reported = file_range.member, 0
    first = file_range.number * _SEGMENTS_PER_RANGE
    stop = None if member.is_packed else first + _SEGMENTS_PER_RANGE
    with open_member(member) if member.is_packed else storage.open_mapped(member.uri) as stream:
        if not isinstance(stream, UnpackedStream):
            stream.seek(first * SEGMENT_SIZE)
        for segment in segments(stream, first, stop):
            packed_bytes = len(segment.data)
            if isinstance(stream, UnpackedStream):
                position = round(stream.share * stream.packed_bytes) * file_range.counts_size
                packed_bytes, reported = position - reported, position
            rows = segment_rows(segment, file_format.root, member.source)
            read = partial(read_rows, rows, file_format, member.source)
            yield Batch(_name(file_range, segment.number), packed_bytes, read)


def _table_batches(file_range: FileRange, columns: Columns, file_format: Format) -> Iterator[Batch]:
    member = file_range.member
    read: Callable[..., ParsedRows] = read_rows
    if file_range.table == "table":
        read = partial(read_numbered, file=file_range.file, above=file_range.above)
    packed_bytes = storage.size(member.uri) * file_range.counts_size
    for number, batch in enumerate(_batched(read_table(member, file_range.table, columns))):
        yield Batch(_name(file_range, number), packed_bytes, partial(read, batch, file_format, member.source))
        packed_bytes = 0


def _batched(rows: Iterable[Row | BrokenRow]) -> Iterator[list[Row | BrokenRow]]:
    batch: list[Row | BrokenRow] = []
    size = 0
    for row in rows:
        batch.append(row)
        size += len(row.excerpt) if isinstance(row, BrokenRow) else sum(map(len, row.attributes.values()))
        if len(batch) == _BATCH_ROWS or size >= _BATCH_CHARACTERS:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _name(file_range: FileRange, number: int) -> str:
    return f"{file_range.file:04d}-{file_range.number:06d}-{number:06d}"
