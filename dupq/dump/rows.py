"""The rows of a dump's XML file, each parsed alone, so that a broken one costs no other.

A raw `<` can stand nowhere in a well-formed attribute, so `<row` and white space is the start of a row
wherever it is found, whatever the line ends, quotes or number of rows on a line.
"""

import itertools
import re
from collections.abc import Callable, Iterator
from typing import IO, NamedTuple

from lxml import etree

from dupq.dump.opening import LIMIT, read_opening
from dupq.errors import DupqError

CHUNK = 1 << 16  # bytes; what a pipe holds, so that unpacking goes on while a chunk is parsed
MAXIMUM_ROW = 8 << 20  # bytes; the XML parser takes no attribute of more than 10 MB
EXCERPT = 200  # characters

_ROW_START = re.compile(rb"<row[ \t\r\n]")
_ROW_START_LENGTH = len(b"<row ")
_CLOSING_LENGTH = 64  # bytes at the end of a row too long to keep, where the closing root tag may be
_WHOLE_ROW = re.compile(rb"""<row(?:\s+[^\s<>=/"']+\s*=\s*(?:"[^"<]*"|'[^'<]*'))*+\s*/>""")
_FORBIDDEN = re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1f]|\xef\xbf[\xbe\xbf]")
_REFERENCE = re.compile(rb"&#(?:x0*([0-9a-fA-F]{1,9})|0*([0-9]{1,9}));")
_PARSER = etree.XMLParser(resolve_entities=False, no_network=True, load_dtd=False, huge_tree=False)


class RawRow(NamedTuple):
    """A row as it stands in the file, with all that follows it up to the next one."""

    position: int  # byte offset in the uncompressed XML
    content: bytes


class Row(NamedTuple):
    """A parsed row."""

    position: int
    attributes: dict[str, str]
    content: bytes

    @property
    def excerpt(self) -> str:
        """The beginning of the row as it stands in the file, for a report on it."""
        return excerpt(self.content)


class SkippedRow(NamedTuple):
    """A row that the caller had no use for, and that was not parsed."""

    position: int


class BrokenRow(NamedTuple):
    """A row that is no XML, or text where only rows may be."""

    position: int
    reason: str
    excerpt: str


def read_rows(
    stream: IO[bytes], root: str, source: str, skip: Callable[[bytes], bool] | None = None
) -> Iterator[Row | SkippedRow | BrokenRow]:
    """Every row of the XML file in `stream`, in its order; those whose bytes `skip` takes are not parsed.

    Memory is bounded by MAXIMUM_ROW, whatever the file. Raises DupqError naming `source` if the file does
    not open with the element `root` (see `read_opening`), or, after its last row, if it does not end with it.
    """
    for row in split_rows(stream, root, source):
        if isinstance(row, BrokenRow):
            yield row
        elif skip is not None and skip(row.content):
            yield SkippedRow(row.position)
        else:
            yield from parse_row(row)


def split_rows(stream: IO[bytes], root: str, source: str) -> Iterator[RawRow | BrokenRow]:
    """The rows of `read_rows`, not yet parsed; broken are those too long and one that the end cuts off."""
    head = _read_head(stream)
    opening = read_opening(head, root, source)
    if opening.is_empty:
        return
    closing = re.compile(rb"</" + root.encode() + rb"\s*>\s*\Z")
    chunks = itertools.chain([head[opening.length :]], iter(lambda: stream.read(CHUNK), b""))
    for number, stretch in enumerate(_stretches(chunks, opening.length)):
        if not stretch.is_last:
            yield from _row_in(stretch)
        elif (end := closing.search(stretch.content)) is not None:
            yield from _row_in(stretch._replace(content=stretch.content[: end.start()]))
        else:
            is_whole = stretch.content.rstrip().endswith(b">")
            yield from _row_in(stretch) if is_whole else _cut_off(stretch)
            rows = max(0, number if is_whole else number - 1)
            raise DupqError(f"{source}: cut short: it does not end with </{root}>; whole rows: {rows:,}")


def parse_row(row: RawRow) -> list[Row | BrokenRow]:
    """The row, parsed; followed by what comes after its end, if that is not just white space or a comment."""
    attributes = _attributes(row.content)
    if attributes is not None:
        return [Row(row.position, attributes, row.content)]
    whole = _WHOLE_ROW.match(row.content)
    attributes = None if whole is None else _attributes(whole[0])
    if whole is None or attributes is None:
        return [BrokenRow(row.position, _fault(row.content), excerpt(row.content))]
    rest = BrokenRow(row.position + whole.end(), "text outside rows", excerpt(row.content[whole.end() :]))
    return [Row(row.position, attributes, whole[0]), rest]


def excerpt(content: bytes) -> str:
    """The first EXCERPT characters of `content`, bytes that are no UTF-8 replaced."""
    return content[: 4 * EXCERPT].decode("utf-8", "replace")[:EXCERPT]


class _Stretch(NamedTuple):
    """The file from the start of one row to the start of the next; the first holds what precedes all rows."""

    position: int
    content: bytes  # without its middle if too long
    is_too_long: bool
    is_last: bool


def _stretches(chunks: Iterator[bytes], position: int) -> Iterator[_Stretch]:
    """Cut `chunks`, the file from `position` on, at each start of a row."""
    pending, end, is_too_long = b"", position, False
    for chunk in chunks:
        unsearched = max(0, len(pending) - _ROW_START_LENGTH + 1)
        pending += chunk
        end += len(chunk)
        first = 0
        for match in _ROW_START.finditer(pending, unsearched):
            content = pending[first : match.start()]
            yield _Stretch(position, content, is_too_long or len(content) > MAXIMUM_ROW, is_last=False)
            first, is_too_long = match.start(), False
            position = end - len(pending) + first
        pending = pending[first:]
        if len(pending) > MAXIMUM_ROW:
            pending, is_too_long = pending[: 4 * EXCERPT] + pending[-_CLOSING_LENGTH:], True
    yield _Stretch(position, pending, is_too_long, is_last=True)


def _row_in(stretch: _Stretch) -> Iterator[RawRow | BrokenRow]:
    if stretch.is_too_long:
        yield BrokenRow(stretch.position, f"longer than {MAXIMUM_ROW >> 20} MiB", excerpt(stretch.content))
    elif stretch.content.strip():
        yield RawRow(stretch.position, stretch.content)


def _cut_off(stretch: _Stretch) -> Iterator[BrokenRow]:
    if stretch.content.strip():
        yield BrokenRow(stretch.position, "cut off by the end of the file", excerpt(stretch.content))


def _read_head(stream: IO[bytes]) -> bytes:
    head = b""
    while len(head) < LIMIT and (chunk := stream.read(CHUNK)):
        head += chunk
    return head


def _attributes(content: bytes) -> dict[str, str] | None:
    """The attributes of the one element that `content` is; None if it is no well-formed row."""
    if _ROW_START.match(content) is None:
        return None
    try:
        return dict(etree.fromstring(content, _PARSER).items())
    except etree.XMLSyntaxError:
        return None


def _fault(content: bytes) -> str:
    """Why `content` is no XML."""
    try:
        content.decode("utf-8")
    except UnicodeDecodeError:
        return "not UTF-8"
    references = (int(match[1], 16) if match[1] else int(match[2]) for match in _REFERENCE.finditer(content))
    if _FORBIDDEN.search(content) or not all(map(_is_allowed, references)):
        return "a character that XML forbids"
    return "not well-formed"


def _is_allowed(code_point: int) -> bool:
    if code_point < 0x20:
        return code_point in (0x9, 0xA, 0xD)
    return code_point < 0xD800 or 0xE000 <= code_point < 0xFFFE or 0x10000 <= code_point < 0x110000
