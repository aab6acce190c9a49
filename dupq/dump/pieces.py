"""A dump's files cut into pieces, each with a name and a size that depend on the file alone.

A unit is what one task reads: a stretch of a plain file, a row group, or a packed file as a whole, since that can
only be read from its beginning. A piece is what is parsed at a time and becomes one part.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from dupq import storage
from dupq.dump.columns import Columns, Table
from dupq.dump.contents import Contents, Format, links_format, posts_format, read_rows, read_segment
from dupq.dump.delimited import read_delimited
from dupq.dump.members import DumpSite, Member, without_compression
from dupq.dump.parquet import read_row_group, row_groups
from dupq.dump.posts import PostChoice
from dupq.dump.rows import BrokenRow, Row
from dupq.dump.segments import SIZE, Segment, cut, cut_mapped
from dupq.dump.streams import UnpackLimits, open_member

_SEGMENTS_PER_UNIT = 4
_PIECE_ROWS = 20_000  # of tables that are no XML
_PIECE_BYTES = 16 << 20


@dataclass(frozen=True)
class Reading:
    """How a dump is read."""

    choice: PostChoice
    limits: UnpackLimits
    columns: Columns | None = None  # of tables from elsewhere; None: the dump's own


class Unit(NamedTuple):
    """What one task reads of a site. `file` is the place of the member among the site's files."""

    file: int
    number: int
    member: Member
    table: Table


class Piece(NamedTuple):
    """`read` may be called from any thread, once. `packed` is how many bytes of the file it took up."""

    name: str
    packed: int
    read: Callable[[], Contents]


def units(site: DumpSite) -> list[Unit]:
    """All units of a site in the order of its files, posts first."""
    posts: list[tuple[Table, Member]] = [("posts", member) for member in site.posts]
    links: list[tuple[Table, Member]] = [("links", member) for member in site.links]
    return [
        Unit(file, number, member, table)
        for file, (table, member) in enumerate(posts + links)
        for number in range(_unit_count(member))
    ]


def format_of(unit: Unit, choice: PostChoice) -> Format:
    """What is read of a unit's rows."""
    return posts_format(choice) if unit.table == "posts" else links_format()


def pieces(unit: Unit, reading: Reading) -> Iterator[Piece]:
    """The pieces of a unit in their order.

    Memory: a piece for each that is being read, at most 16 MiB and the longest row. Raises DupqError for a file
    that is missing, damaged, of another format, or a bomb.
    """
    file_format = format_of(unit, reading.choice)
    if unit.member.form == "xml":
        return _of_xml(unit, reading, file_format)
    return _of_table(unit, reading, file_format)


def _unit_count(member: Member) -> int:
    if member.form == "parquet":
        return row_groups(member.uri)
    if member.form == "xml" and not member.is_packed:
        return max(1, -(-storage.size(member.uri) // (_SEGMENTS_PER_UNIT * SIZE)))
    return 1


def _of_xml(unit: Unit, reading: Reading, file_format: Format) -> Iterator[Piece]:
    for segment, packed in _packed(unit, reading) if unit.member.is_packed else _stretch(unit):

        def read(segment: Segment = segment) -> Contents:
            return read_segment(segment, file_format, unit.member.source)

        yield Piece(_name(unit, segment.number), packed, read)


def _packed(unit: Unit, reading: Reading) -> Iterator[tuple[Segment, int]]:
    taken = 0.0
    with open_member(unit.member, reading.limits) as stream:
        for segment in cut(stream):
            share = stream.share
            yield segment, round((share - taken) * stream.packed_bytes)
            taken = share


def _stretch(unit: Unit) -> Iterator[tuple[Segment, int]]:
    first = unit.number * _SEGMENTS_PER_UNIT
    stop = first + _SEGMENTS_PER_UNIT
    with storage.open_mapped(unit.member.uri) as file:
        if storage.is_s3(unit.member.uri):
            file.seek(first * SIZE)
            segments = cut(file, first, stop)
        else:
            segments = cut_mapped(np.frombuffer(file.read_buffer(), np.uint8), first, stop)
        for segment in segments:
            yield segment, len(segment.data)


def _of_table(unit: Unit, reading: Reading, file_format: Format) -> Iterator[Piece]:
    size = storage.size(unit.member.uri) // _unit_count(unit.member)
    for number, rows in enumerate(_batches(_table_rows(unit, reading))):

        def read(rows: list[Row | BrokenRow] = rows) -> Contents:
            return read_rows(rows, file_format, unit.member.source)

        yield Piece(_name(unit, number), 0 if number else size, read)


def _table_rows(unit: Unit, reading: Reading) -> Iterator[Row | BrokenRow]:
    if unit.member.form == "parquet":
        yield from read_row_group(unit.member.uri, unit.number, reading.columns, unit.table)
        return
    separator = "\t" if without_compression(unit.member.uri).lower().endswith(".tsv") else ","
    with open_member(unit.member, reading.limits) as stream:
        yield from read_delimited(stream, unit.member.source, reading.columns, separator, unit.table)


def _batches(rows: Iterable[Row | BrokenRow]) -> Iterator[list[Row | BrokenRow]]:
    batch: list[Row | BrokenRow] = []
    size = 0
    for row in rows:
        batch.append(row)
        size += len(row.content) if isinstance(row, Row) else len(row.excerpt)
        if len(batch) == _PIECE_ROWS or size >= _PIECE_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _name(unit: Unit, number: int) -> str:
    return f"{unit.file:04d}-{unit.number:06d}-{number:06d}"
