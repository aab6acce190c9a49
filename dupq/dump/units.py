"""Cutting a dump's files into units of work, each with a name and a size that depend on the file alone.

A unit is what one task reads: a stretch of a plain file, a row group, or a packed file as a whole, since that can
only be read from its beginning. A piece is what is parsed at a time and becomes one part.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from dupq import storage
from dupq.dump.archives import seven_zip
from dupq.dump.archives.streams import UnpackLimits, open_member
from dupq.dump.files import DumpSite, Member
from dupq.dump.parsing import Contents, Format, links_format, posts_format, read_rows, read_segment
from dupq.dump.tabular.columns import Columns, Table
from dupq.dump.tabular.delimited import read_delimited, separator_of
from dupq.dump.tabular.parquet import read_row_group, row_groups
from dupq.dump.xml.posts import PostChoice
from dupq.dump.xml.rows import BrokenRow, Row
from dupq.dump.xml.segments import SIZE, Segment, cut, cut_mapped

_SEGMENTS_PER_UNIT = 4
_PIECE_ROWS = 20_000  # of tables that are no XML
_PIECE_BYTES = 16 << 20  # of their text


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
    share: float = 1.0  # of the packed bytes of its file; the members of an archive have one file together


class Piece(NamedTuple):
    """`read` may be called from any thread, once. `packed` is how many bytes of the file it took up."""

    name: str
    packed: int
    read: Callable[[], Contents]


def units(site: DumpSite) -> list[Unit]:
    """All units of a site in the order of its files, posts first."""
    posts: list[tuple[Table, Member]] = [("posts", member) for member in site.posts]
    links: list[tuple[Table, Member]] = [("links", member) for member in site.links]
    shares = _shares([*site.posts, *site.links])
    return [
        Unit(file, number, member, table, shares[member])
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
    file_format = format_of(unit, replace(reading.choice, keeps_fabricated=reading.columns is not None))
    if unit.member.form == "xml":
        return _of_xml(unit, reading, file_format)
    return _of_table(unit, reading, file_format)


def _shares(members: Sequence[Member]) -> dict[Member, float]:
    """How much of its file's packed bytes each member counts for; all members of an archive for the whole of it."""
    shares = dict.fromkeys(members, 1.0)
    for uri in {member.uri for member in members if member.name is not None}:
        sizes = {Member(uri, file.name): file.size for file in seven_zip.read_header(uri)}
        wanted = {member: sizes.get(member, 0) for member in members if member.uri == uri}
        total = sum(wanted.values())
        shares |= {member: size / total if total else 1 / len(wanted) for member, size in wanted.items()}
    return shares


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
    taken = 0
    with open_member(unit.member, reading.limits) as stream:
        for segment in cut(stream):
            reached = round(stream.share * stream.packed_bytes * unit.share)
            yield segment, reached - taken
            taken = reached


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
        yield from read_row_group(unit.member.uri, unit.number, reading.columns, unit.table, reading.limits)
        return
    separator = separator_of(unit.member.uri)
    with open_member(unit.member, reading.limits) as stream:
        yield from read_delimited(stream, unit.member.source, reading.columns, separator, unit.table)


def _batches(rows: Iterable[Row | BrokenRow]) -> Iterator[list[Row | BrokenRow]]:
    batch: list[Row | BrokenRow] = []
    size = 0
    for row in rows:
        batch.append(row)
        size += _text_size(row)
        if len(batch) == _PIECE_ROWS or size >= _PIECE_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _text_size(row: Row | BrokenRow) -> int:
    """How much text a row holds; its content may be only the beginning of it, or more than its attributes."""
    if isinstance(row, BrokenRow):
        return len(row.excerpt)
    return len(row.content) + sum(map(len, row.attributes.values()))


def _name(unit: Unit, number: int) -> str:
    return f"{unit.file:04d}-{unit.number:06d}-{number:06d}"
