"""Cutting a dump's files into units of work, each with a name and a size that depend on the file alone.

A unit is what one task reads: a stretch of a plain XML file, or any other file as a whole. A piece is what is parsed at
a time and becomes one part.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, cast

from dupq import storage
from dupq.dump.files import BY_NAME, Columns, DumpSite, Member, Table
from dupq.dump.parsing import Contents, Format, read_rows, read_segment
from dupq.dump.streams import local_copy, open_member
from dupq.dump.table_files import check_table, read_numbered, read_table
from dupq.dump.xml_files import SIZE, BrokenRow, Row, Segment, Stream, cut
from dupq.settings.sections import IngestSettings
from dupq.system import side_by_side

_SEGMENTS_PER_UNIT = 4
_PIECE_ROWS = 20_000  # of tables that are no XML
_PIECE_BYTES = 16 << 20  # of their text


@dataclass(frozen=True)
class Ingest:
    """One call of the stage: where it writes, and how it reads a dump."""

    output: str
    settings: IngestSettings
    answers: bool = False
    columns: Columns = BY_NAME  # of tables from elsewhere

    def tables(self, site: DumpSite) -> tuple[str, ...]:
        """The tables of a site that are written, besides the rejects."""
        return ("questions", "links", *["answers"] * self.answers, *["ids"] * site.is_table)


class Unit(NamedTuple):
    """What one task reads of a site. `file` is the index of the member among the site's files."""

    file: int
    number: int
    member: Member
    table: Table
    counts: bool = True  # whether the packed bytes of its file do: of the members of an archive, the first one's
    has_several: bool = False  # whether a table has more files

    def tables(self, answers: bool) -> tuple[str, ...]:
        """What its rows are put into."""
        return ("questions", "links", "ids") if self.table == "table" else format_of(self, answers).tables


class Piece(NamedTuple):
    """`read` may be called from any thread, once. `packed` is how many bytes of the file it took up."""

    name: str
    packed: int
    read: Callable[[], Contents]


def units(site: DumpSite) -> list[Unit]:
    """All units of a site in the order of its files, posts first."""
    posts: list[tuple[Table, Member]] = [("table" if site.is_table else "posts", member) for member in site.posts]
    links: list[tuple[Table, Member]] = [("links", member) for member in site.links]
    uris = [member.uri for _, member in posts + links]
    return [
        Unit(file, number, member, table, member.uri not in uris[:file], len(posts) > 1)
        for file, (table, member) in enumerate(posts + links)
        for number in range(_unit_count(member))
    ]


def check_columns(site: DumpSite, columns: Columns) -> None:
    """Raise DupqError for a table from elsewhere that cannot be opened, or of which it is not clear how to read it."""
    if site.is_table:

        def check(member: Member) -> None:
            with local_copy(member) as path:
                check_table(path, member.source, member.form, columns)

        side_by_side(check, site.posts)


def format_of(unit: Unit, answers: bool) -> Format:
    """What is read of a unit's rows."""
    if unit.table == "links":
        return Format("postlinks")
    return Format("posts", keeps_fabricated=True) if unit.table == "table" else Format("posts", answers)


def pieces(unit: Unit, job: Ingest) -> Iterator[Piece]:
    """The pieces of a unit in their order.

    Memory: a piece for each that is being read, at most 16 MiB and the longest row. Raises DupqError for a file
    that is missing, damaged, of another format, or a bomb.
    """
    file_format = format_of(unit, job.answers)
    if unit.member.form == "xml":
        return _of_xml(unit, file_format)
    return _of_table(unit, job.columns, file_format)


def _unit_count(member: Member) -> int:
    if member.form == "xml" and not member.is_packed:
        return max(1, -(-storage.size(member.uri) // (_SEGMENTS_PER_UNIT * SIZE)))
    return 1


def _of_xml(unit: Unit, file_format: Format) -> Iterator[Piece]:
    for segment, packed in _packed(unit) if unit.member.is_packed else _stretch(unit):
        read = partial(read_segment, segment, file_format, unit.member.source)
        yield Piece(_name(unit, segment.number), packed, read)


def _packed(unit: Unit) -> Iterator[tuple[Segment, int]]:
    taken = 0
    with open_member(unit.member) as stream:
        for segment in cut(cast(Stream, stream)):
            reached = round(stream.share * stream.packed_bytes) * unit.counts
            yield segment, reached - taken
            taken = reached


def _stretch(unit: Unit) -> Iterator[tuple[Segment, int]]:
    first = unit.number * _SEGMENTS_PER_UNIT
    stop = first + _SEGMENTS_PER_UNIT
    with storage.open_mapped(unit.member.uri) as file:
        file.seek(first * SIZE)
        for segment in cut(file, first, stop):
            yield segment, len(segment.data)


def _of_table(unit: Unit, columns: Columns, file_format: Format) -> Iterator[Piece]:
    size, member = storage.size(unit.member.uri) * unit.counts, unit.member
    numbered = partial(read_numbered, file=unit.file, has_several=unit.has_several)
    read: Callable[..., Contents] = numbered if unit.table == "table" else read_rows
    with local_copy(member) as path:
        rows = read_table(path, member.source, member.form, unit.table, columns)
        for number, batch in enumerate(_batches(rows)):
            packed = 0 if number else size
            yield Piece(_name(unit, number), packed, partial(read, batch, file_format, member.source))


def _batches(rows: Iterable[Row | BrokenRow]) -> Iterator[list[Row | BrokenRow]]:
    batch: list[Row | BrokenRow] = []
    size = 0
    for row in rows:
        batch.append(row)
        size += len(row.excerpt) if isinstance(row, BrokenRow) else sum(map(len, row.attributes.values()))
        if len(batch) == _PIECE_ROWS or size >= _PIECE_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _name(unit: Unit, number: int) -> str:
    return f"{unit.file:04d}-{unit.number:06d}-{number:06d}"
