"""Parsing the rows of a CSV or TSV table, each on its own, so that a broken one costs no other.

RFC 4180: a field between quotes may hold separators, line breaks and doubled quotes. Tables in the wild also
hold quotes that quote nothing: `"All lives" or not?`, or one that is never closed and would swallow what
follows. So a field is quoted only if it begins with a quote and the one that ends it is followed by a separator
or a line break. Any other quote is text, provided that a row follows after it: where none does, it probably
opened a field of several lines whose end cannot be known, and its line is rejected.
"""

import io
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO, NamedTuple

from dupq.dump.files import without_compression
from dupq.dump.tabular.columns import (
    NOT_UTF8,
    Columns,
    Layout,
    Table,
    columns_of,
    locate,
    read_row,
)
from dupq.dump.xml.document import WIDE_ENCODINGS
from dupq.dump.xml.rows import EXCERPT, BrokenRow, Row, excerpt
from dupq.dump.xml.segments import MAXIMUM_ROW
from dupq.errors import DupqError

_PIECE = 1 << 20  # bytes
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_CR_ENDS = re.compile(rb"""(?:[^"\r\n]|"[^"]*")*+\r++(?!\n)""")  # how a table begins whose lines end as on old Macs
_BLANK_LINES = re.compile(rb"(?: *+\r?\n)*+")
_KEY = re.compile(rb"[0-9]{1,19}(?:\.0+)?")
_BAD_QUOTES = "quotes that do not match"


def read_delimited(
    stream: IO[bytes] | io.RawIOBase,
    source: str,
    columns: Columns | None,
    separator: str,
    table: Table = "posts",
    maximum_row: int = MAXIMUM_ROW,
) -> Iterator[Row | BrokenRow]:
    """Every row of the table in `stream`, in its order; its position is the number of the line it begins on, from 1.

    The first line that is not blank is the header; `columns` of None are the dump's own for `table`. Blank lines
    are no rows. Memory is bounded by some ten times `maximum_row` bytes, whatever the file: a longer line is a
    broken row, and a field of several lines that is longer is one that is never closed. Raises DupqError naming
    `source` if the table is empty or no UTF-8, or its header lacks one of `columns` or has it twice.
    """
    pattern = _field_pattern(separator)
    window, names = _opened(stream, source, pattern, maximum_row)
    layout = locate(columns_of(columns, table), names, source)
    grammar = _Grammar(pattern, separator.encode(), layout, len(names), maximum_row)
    while window.skip_blank_lines():
        yield _next_row(window, grammar)


def column_names(stream: IO[bytes] | io.RawIOBase, source: str, separator: str) -> list[str]:
    """The names in the header of a table; of its rows nothing is read but some MB. Errors as of `read_delimited`."""
    return _opened(stream, source, _field_pattern(separator), _PIECE)[1]


def separator_of(uri: str) -> str:
    """What is between the fields of a table, by the name of its file, which may be compressed."""
    return "\t" if without_compression(uri).lower().endswith(".tsv") else ","


class _Window:
    """The bytes of a stream from where the reader is, enough of them to judge this row and the next."""

    def __init__(self, stream: IO[bytes] | io.RawIOBase, limit: int) -> None:
        self.limit = limit  # bytes of a row
        self.content = b""
        self.start = 0  # where the reader is in `content`
        self.line = 1
        self._stream = stream
        self._is_whole = False  # nothing is left to read
        self._has_cr_ends = False
        self._fill()
        self._has_cr_ends = _CR_ENDS.match(self.content) is not None
        self._make_ends()

    def advance(self, end: int) -> None:
        """Go on to `end`, a place in `content`."""
        self.line += self.content.count(b"\n", self.start, end)
        self.start = end
        if not self._is_whole and len(self.content) - end <= 2 * self.limit:
            self._fill()

    def skip_blank_lines(self) -> bool:
        """Go on to a line that is not blank; False if there is none."""
        while (end := _after_blank_lines(self.content, self.start)) > self.start:
            self.advance(end)
        return self.start < len(self.content)

    def line_end(self) -> int | None:
        """Where the line ends, its line break included; None if it is too long."""
        end = self.content.find(b"\n", self.start, self.start + self.limit) + 1
        if end:
            return end
        return len(self.content) if len(self.content) - self.start <= self.limit else None

    def skip_line(self) -> None:
        """Go on to the next line, however long this one is."""
        while self.start < len(self.content):
            end = self.content.find(b"\n", self.start) + 1
            self.advance(end or len(self.content))
            if end:
                return

    def _fill(self) -> None:
        pieces = [self.content[self.start :]]
        missing = 4 * self.limit + _PIECE - len(pieces[0])
        while missing > 0 and (piece := self._stream.read(min(missing, _PIECE))):
            pieces.append(piece)
            missing -= len(piece)
        self._is_whole = missing > 0
        self.content, self.start = b"".join(pieces), 0
        self._make_ends()

    def _make_ends(self) -> None:
        """End lines by line feeds, where only carriage returns do."""
        if self._has_cr_ends:
            self.content = self.content.replace(b"\r", b"\n")


class _Record(NamedTuple):
    """Some lines of the file, read as one row."""

    fields: list[bytes]
    end: int
    is_doubtful: bool  # a field begins with a quote, yet is not quoted


@dataclass(frozen=True)
class _Grammar:
    """How a row is written."""

    pattern: re.Pattern[bytes]  # of a field and the separator or end after it
    separator: bytes
    layout: Layout
    width: int  # fields of a row
    limit: int  # bytes of a row

    def fits(self, record: _Record) -> bool:
        """Whether `record` has as many fields as the header."""
        return len(record.fields) == self.width

    def is_row_at(self, content: bytes, start: int) -> bool:
        """Whether a row begins at `start`, going by its number of fields and its key."""
        record = _record(self.pattern, content, start, start + self.limit)
        return self.fits(record) and _KEY.fullmatch(record.fields[self.layout.places[0]]) is not None


def _field_pattern(separator: str) -> re.Pattern[bytes]:
    mark = re.escape(separator.encode())
    quoted = rb'"([^"]*+(?:""[^"]*+)*+)"(?=' + mark + rb"|\r?\n|\Z)"
    return re.compile(rb"(?:" + quoted + rb"|([^\n" + mark + rb"]*+))(" + mark + rb"|\r?\n|\Z)")


def _opened(
    stream: IO[bytes] | io.RawIOBase, source: str, pattern: re.Pattern[bytes], maximum_row: int
) -> tuple[_Window, list[str]]:
    """The window behind the header of a table, and the names that this holds."""
    window = _Window(stream, maximum_row)
    _skip_byte_order_mark(window, source)
    window.skip_blank_lines()
    return window, _header(window, pattern, source)


def _skip_byte_order_mark(window: _Window, source: str) -> None:
    if window.content.startswith(WIDE_ENCODINGS) or b"\0" in window.content[:4]:
        raise DupqError(f"{source}: encoded in UTF-16 or UTF-32; tables must be UTF-8")
    if window.content.startswith(_BYTE_ORDER_MARK):
        window.advance(len(_BYTE_ORDER_MARK))


def _header(window: _Window, pattern: re.Pattern[bytes], source: str) -> list[str]:
    """The names of the columns; the window goes on to what follows them."""
    end = window.line_end()
    if window.start == len(window.content):
        raise DupqError(f"{source}: an empty file; expected is a line that names the columns")
    if end is None:
        raise DupqError(f"{source}: no line that names the columns: the first is longer than {window.limit:,} bytes")
    try:
        names = [field.decode() for field in _record(pattern, window.content, window.start, end).fields]
    except UnicodeDecodeError:
        raise DupqError(f"{source}: the line that names the columns is not UTF-8") from None
    window.advance(end)
    return names


def _next_row(window: _Window, grammar: _Grammar) -> Row | BrokenRow:
    """The row that begins where the window is, which goes on to what follows it."""
    content, start, position = window.content, window.start, window.line
    line_end = window.line_end()
    if line_end is None:
        window.skip_line()
        return BrokenRow(position, f"longer than {grammar.limit:,} bytes", _shown(content, start, len(content)))
    line = content[start:line_end]
    if b'"' not in line:
        fields = line.removesuffix(b"\n").removesuffix(b"\r").split(grammar.separator)
        window.advance(line_end)
        return _row(fields, position, line, grammar)
    record, reason = _quoted_record(content, start, line_end, grammar)
    window.advance(record.end)
    if reason is not None:
        return BrokenRow(position, reason, _shown(content, start, record.end))
    return _row(record.fields, position, content[start : record.end], grammar)


def _quoted_record(content: bytes, start: int, line_end: int, grammar: _Grammar) -> tuple[_Record, str | None]:
    """The record at `start`, and why it is broken if it is.

    Where quotes may be taken in two ways, as quotes or as text, that one counts which leaves a row behind it.
    """
    limit = start + grammar.limit
    record = _record(grammar.pattern, content, start, limit)
    is_cut = record.end >= limit and len(content) > limit
    if grammar.fits(record) and not record.is_doubtful and not is_cut:
        return record, None
    line = _record(grammar.pattern, content, start, line_end)
    for candidate in [line] if is_cut else [record, line]:
        if grammar.fits(candidate) and _ends_well(candidate, content, start, grammar):
            return candidate, None
    swallows = record.end > line_end and grammar.is_row_at(content, _after_blank_lines(content, line_end))
    if record.is_doubtful or is_cut or swallows:
        return line, _BAD_QUOTES
    return record, _wrong_width(record.fields, grammar)


def _ends_well(record: _Record, content: bytes, start: int, grammar: _Grammar) -> bool:
    """Whether a row follows `record`, or it is the last one and its quotes come in pairs."""
    following = _after_blank_lines(content, record.end)
    if following == len(content):
        return content.count(b'"', start, record.end) % 2 == 0
    return grammar.is_row_at(content, following)


def _record(pattern: re.Pattern[bytes], content: bytes, start: int, end: int) -> _Record:
    """The fields from `start` to the end of the line on which the last of them ends, at the latest to `end`."""
    fields, is_doubtful, place = [], False, start
    while True:
        match = pattern.match(content, place, end)
        assert match is not None
        quoted, plain, mark = match.groups()
        is_last = mark in (b"", b"\n", b"\r\n")
        if quoted is not None:
            fields.append(quoted.replace(b'""', b'"'))
        else:
            is_doubtful = is_doubtful or plain.startswith(b'"')
            fields.append(plain.removesuffix(b"\r") if is_last else plain)
        place = match.end()
        if is_last:
            return _Record(fields, place, is_doubtful)


def _after_blank_lines(content: bytes, start: int) -> int:
    match = _BLANK_LINES.match(content, start)
    assert match is not None
    return match.end()


def _row(fields: list[bytes], position: int, line: bytes, grammar: _Grammar) -> Row | BrokenRow:
    try:
        line.decode()
    except UnicodeDecodeError:
        return BrokenRow(position, NOT_UTF8, excerpt(line))
    if len(fields) != grammar.width:
        return BrokenRow(position, _wrong_width(fields, grammar), excerpt(line))
    return read_row(position, [fields[place].decode() for place in grammar.layout.places], line, grammar.layout)


def _wrong_width(fields: list[bytes], grammar: _Grammar) -> str:
    return f"{len(fields)} fields where the header has {grammar.width}"


def _shown(content: bytes, start: int, end: int) -> str:
    return excerpt(content[start : min(end, start + 4 * EXCERPT)])
