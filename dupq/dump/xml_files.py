"""A dump's XML file: its opening and closing, its segments of whole rows, and its rows. Rows in the form that dumps
write are split at their quotes; lxml parses every other row alone, so that a broken row costs no other.
"""

import functools
import re
from collections.abc import Iterator, Mapping
from typing import IO, NamedTuple, cast

import numpy as np
import pyarrow as pa
from lxml import etree

from dupq.dump.posts import REFERENCES, RawAttributes
from dupq.dump.streams import UnpackedStream
from dupq.errors import DupqError

# Segments of whole rows, the same ones whether the file is read as a stream or in ranges.
#
# Segment n has the rows that begin in bytes [n * size, (n + 1) * size) of the unpacked file. A well-formed attribute
# has no raw `<`, so `<row` and white space always begin a row.

SEGMENT_SIZE = 16 << 20  # bytes
MAXIMUM_ROW = 8 << 20  # bytes; the XML parser takes no attribute of more than 10 MB
ROW_START = re.compile(rb"<row[ \t\r\n]")

_OVERLAP = len(b"<row ") - 1  # bytes that may hold an incomplete start of a row
_CLOSING = 1 << 10  # bytes that hold the root's end tag, or the start of a row


Stream = UnpackedStream | IO[bytes]
EXCERPT = 200  # characters

_ROW_TAG = re.compile(rb"""<row(?:\s+[^\s<>=/"']+\s*=\s*(?:"[^"<]*"|'[^'<]*'))*+\s*/?>""")
_SUSPECT = re.compile(  # characters that XML forbids, and references that may be to one
    rb"[\x00-\x08\x0b\x0c\x0e-\x1f]|\xef\xbf[\xbe\xbf]|&#(?:x0*[0-9a-fA-F]{1,9}|0*[0-9]{1,9});"
)
_OPTIONS = {"resolve_entities": False, "no_network": True, "load_dtd": False}
_PARSER = etree.XMLParser(huge_tree=False, **_OPTIONS)


class Segment(NamedTuple):
    """Consecutive rows of a file. The first segment begins with all that precedes the rows."""

    number: int
    position: int  # byte offset of `data` in the unpacked file
    data: bytes
    reaches_end: bool  # of the file


def segments(stream: Stream, first: int = 0, stop: int | None = None, size: int = SEGMENT_SIZE) -> Iterator[Segment]:
    """Yield the segments `first` to `stop` (exclusive) of a file whose `stream` is at byte `first * size`.

    Segments without rows are left out, except the first of the file. A row that reaches more than MAXIMUM_ROW into
    further segments is truncated there, still long enough to be rejected; if it is the last row, the end of the file
    follows as a segment of its own. Memory: three segments.
    """
    position, data = first * size, stream.read(size)
    at_end = len(data) < size
    if first:
        position, data, at_end = _next_row(stream, position, data, size, stop)
        if ROW_START.match(data) is None:
            return
    while stop is None or position < stop * size:
        number = position // size
        border = begin = (number + 1) * size - position
        while (match := ROW_START.search(data, begin)) is None and not at_end and begin - border <= MAXIMUM_ROW:
            begin = max(border, len(data) - _OVERLAP)
            data += (more := stream.read(size))
            at_end = len(more) < size
        if match is None and at_end:
            yield Segment(number, position, data, True)
            return
        end = begin if match is None else match.start()
        yield Segment(number, position, data[:end], False)
        position, data = position + end, data[end:]
        if match is None:
            position, data, at_end = _next_row(stream, position, data, size)
            if ROW_START.match(data) is None:
                closing = max(0, data.rfind(b"</"))  # which no value has
                yield Segment((position + closing) // size, position + closing, data[closing:], True)
                return


def _next_row(
    stream: Stream, position: int, data: bytes, size: int, stop: int | None = None
) -> tuple[int, bytes, bool]:
    """Skip `data` and read on to the next row. Return its position, the data from there, and whether the file ends.

    If no row begins in the segments up to `stop`, or in the file, return the last bytes instead.
    """
    at_end = False
    while (match := ROW_START.search(data)) is None:
        if at_end or (stop is not None and position >= stop * size):
            return position, data, at_end
        position, data = position + len(data[:-_CLOSING]), data[-_CLOSING:] + (more := stream.read(size))
        at_end = len(more) < size
    return position + match.start(), data[match.start() :], at_end


# The opening and the closing of a dump's XML file: perhaps a byte-order mark and a declaration, then the root element
# with nothing but white space and comments around it.

OPENING_LIMIT = 1 << 16  # bytes
WIDE_ENCODINGS = (b"\xff\xfe", b"\xfe\xff", b"<\0", b"\0<", b"\0\0")  # how UTF-16 and UTF-32 begin

_COMMENTS = re.compile(rb"\s*(?:<!--(?:(?!-->).)*+-->\s*)*+", re.DOTALL)  # with the white space around them
_DECLARATION = re.compile(rb"(?:\xef\xbb\xbf)?\s*(?:<\?xml(?P<attributes>\s[^>]*)\?>)?" + _COMMENTS.pattern, re.DOTALL)
_ENCODING = re.compile(rb"""\sencoding\s*=\s*["']([^"']*)["']""")
_TAG = re.compile(rb"""<(?P<name>[^\s<>/"'!?][^\s<>/"']*)(?:\s[^<>]*?)?(?P<empty>/?)>""")


def read_opening(head: bytes, root: str, source: str) -> tuple[int, bool]:
    """Return the length of a file's opening, and whether the root's start tag closes it at once.

    `head` is the file's first OPENING_LIMIT bytes. Raises DupqError naming `source` for another root element, another
    encoding than UTF-8, or a document type declaration, whose entities may expand without bound or name local files.
    """
    if head.startswith(WIDE_ENCODINGS):
        raise DupqError(f"{source}: encoded in UTF-16 or UTF-32; dumps are UTF-8")
    declaration = _DECLARATION.match(head)
    assert declaration is not None
    encoding = _ENCODING.search(declaration["attributes"] or b"")
    if encoding is not None and encoding[1].lower() not in (b"utf-8", b"utf8"):
        raise DupqError(f"{source}: declares the encoding {_printable(encoding[1])}; dumps are UTF-8")
    start = declaration.end()
    if head.startswith((b"<!DOCTYPE", b"<!ENTITY"), start):
        raise DupqError(f"{source}: refused, for dumps have no DOCTYPE or ENTITY declaration")
    tag = _TAG.match(head, start)
    if tag is None or tag["name"] != root.encode():
        other = _printable(head[start : start + 40]) if head[start:] else "an empty file"
        if tag is not None:
            other = f"<{_printable(tag['name'])[1:-1]}>"
        raise DupqError(f"{source}: no Stack Exchange dump: expected <{root}>, found {other}")
    return tag.end(), bool(tag["empty"])


def read_closing(data: bytes, root: str, source: str, position: int) -> int:
    """Return the index of the root's end tag in `data`, which reaches from byte `position` to the end of a file.

    Raises DupqError naming `source` if there is none, so that the file is cut short, or if more than white space
    and comments follows.
    """
    start = data.rfind(b"</" + root.encode())
    closing = re.match(rb"</%b\s*>" % root.encode(), data[start:]) if start >= 0 else None
    if closing is None:
        ending = ", but with NUL bytes" if data.endswith(b"\0") else ""
        raise DupqError(f"{source}: cut short: it does not end with </{root}>{ending}")
    end = start + closing.end()
    check_nothing_follows(data[end:], f"/{root}", source, position + end)
    return start


def check_nothing_follows(content: bytes, tag: str, source: str, position: int) -> None:
    """Raise DupqError naming `source` if `content`, which follows a tag, has more than white space and comments."""
    junk = _COMMENTS.sub(b"", content, count=1)
    if junk:
        shown = _printable(junk[:40]) if junk.strip(b"\0") else "NUL bytes"
        raise DupqError(f"{source}: {shown} after <{tag}>, at byte {position + len(content) - len(junk):,}")


def _printable(content: bytes) -> str:
    """Return any bytes as printable ASCII."""
    return ascii(content.decode("utf-8", "replace"))


class Row(NamedTuple):
    """A parsed row."""

    position: int  # byte offset in the unpacked file
    attributes: Mapping[str, str]
    content: bytes  # the row as it is in the file, up to the next one
    forbidden: int = 0  # characters that XML forbids, which are left out of the attributes

    @property
    def excerpt(self) -> str:
        """The beginning of the row as it is in the file."""
        return excerpt(self.content)


class PlainRow(NamedTuple):
    """A row in the form that dumps write, which needs no parsing."""

    position: int
    attributes: RawAttributes
    content: bytes


class BrokenRow(NamedTuple):
    """A row that is not XML, or text outside rows."""

    position: int
    reason: str
    excerpt: str


# Plain rows have double quotes around values, few kinds of references, and one space between attributes, so that the
# row's quotes separate names from values. Parsing them would give the same at half the speed.

_ATTRIBUTES = (  # after Id, which is the first
    "PostTypeId ParentId AcceptedAnswerId CreationDate DeletionDate Score ViewCount Body OwnerUserId OwnerDisplayName "
    "LastEditorUserId LastEditorDisplayName LastEditDate LastActivityDate Title Tags AnswerCount CommentCount "
    "FavoriteCount ClosedDate CommunityOwnedDate ContentLicense PostId RelatedPostId LinkTypeId"
)
_NAMES = {b"<row Id=": "Id", **{b" %b=" % name.encode(): name for name in _ATTRIBUTES.split()}}
_LONGEST_NAMES = 1 << 10  # bytes outside the values of a plain row: all of _NAMES have half as many
_ENDS = {b" />\n  ": 1, b" />\r\n  ": 2, b" />\n": 1, b" />\r\n": 2}  # of rows, with their control characters
_NON_CHARACTER = re.compile(b"\xef\xbf[\xbe\xbf]")  # U+FFFE and U+FFFF, which XML forbids
_OTHER_REFERENCE = re.compile(b"&(?!%b)" % "|".join(reference[1:] for reference in REFERENCES).encode())


def segment_rows(segment: Segment, root: str, source: str) -> Iterator[PlainRow | Row | BrokenRow]:
    """Yield the rows of a segment.

    Raises DupqError naming `source` if the file does not open with the element `root`, or does not close with it.
    """
    data, start, end = segment.data, 0, len(segment.data)
    if segment.position == 0:
        start, is_empty = read_opening(data[:OPENING_LIMIT], root, source)
        if is_empty and segment.reaches_end and ROW_START.search(data, start) is None:
            check_nothing_follows(data[start:], f"{root}/", source, start)
            return
    if segment.reaches_end:
        end = read_closing(data, root, source, segment.position)
    yield from rows_in(data, start, end, segment.position)


def rows_in(data: bytes, start: int, end: int, position: int) -> Iterator[PlainRow | Row | BrokenRow]:
    """Yield the rows from `start` to `end` in the data of a segment, which is at byte `position` of the file."""
    begins = [match.start() for match in ROW_START.finditer(data, start, end)]
    borders = [*begins, end]
    yield from parse_row(data[start : borders[0]][: MAXIMUM_ROW + 1], position + start)
    is_valid = _is_utf8(data) and _NON_CHARACTER.search(data) is None
    is_usual = data.count(b"<", start, end) == len(begins) and _OTHER_REFERENCE.search(data, start, end) is None
    controls = np.diff(np.searchsorted(np.flatnonzero(np.frombuffer(data, np.uint8) < ord(" ")), borders))  # per row
    for index, begin in enumerate(begins):
        content = data[begin : min(borders[index + 1], begin + MAXIMUM_ROW + 1)]
        *names_and_values, tail = content.split(b'"')
        outside = b'"'.join(names_and_values[::2])
        names = _names_of(outside) if len(outside) <= _LONGEST_NAMES else None
        if (
            is_valid
            and names is not None
            and len(content) <= MAXIMUM_ROW
            and _ENDS.get(tail) == controls[index]
            and 2 * len(names) == len(names_and_values)
            and (is_usual or (content.count(b"<") == 1 and _OTHER_REFERENCE.search(content) is None))
        ):
            yield PlainRow(position + begin, dict(zip(names, names_and_values[1::2], strict=True)), content)
        else:
            yield from parse_row(content, position + begin)


@functools.lru_cache(maxsize=1 << 12)
def _names_of(names: bytes) -> tuple[str, ...] | None:
    """Return the attributes of a row from all that is outside its values; None if it is not a plain row's."""
    attributes = tuple(map(_NAMES.get, names.split(b'"')))
    return None if None in attributes or len(set(attributes)) < len(attributes) else cast(tuple[str, ...], attributes)


def _is_utf8(data: bytes) -> bool:
    try:
        pa.array([data], pa.large_binary()).cast(pa.large_string())  # three times as fast as bytes.decode
    except pa.ArrowInvalid:
        return False
    return True


def parse_row(content: bytes, position: int) -> list[Row | BrokenRow]:
    """Parse the bytes from one row's start to the next. Anything after the row but white space and comments is broken.

    Characters that XML forbids are left out: dumps have `&#x0E;` in their texts.
    """
    if not content.strip():
        return []
    if len(content) > MAXIMUM_ROW:
        return [BrokenRow(position, f"longer than {MAXIMUM_ROW >> 20} MiB", excerpt(content))]
    if ROW_START.match(content) is None:
        return _text_outside(content, position)
    attributes = _parse(content)
    if attributes is not None:
        return [Row(position, attributes, content)]
    tag = _ROW_TAG.match(content)
    if tag is not None:
        cleaned, forbidden = _without_forbidden(tag[0])
        rest = content[tag.end() :]
        attributes = _parse(cleaned + rest) if forbidden else None
        if attributes is not None:
            return [Row(position, attributes, content, forbidden)]
        attributes = _parse(cleaned)
        if attributes is not None:
            return [Row(position, attributes, tag[0], forbidden), *_text_outside(rest, position + tag.end())]
    fault = "a character that XML forbids" if any(map(_is_forbidden, _SUSPECT.findall(content))) else "not well-formed"
    return [BrokenRow(position, fault if _is_utf8(content) else "not UTF-8", excerpt(content))]


def _text_outside(text: bytes, position: int) -> list[Row | BrokenRow]:
    """Return a broken row for text outside rows; none for white space and comments."""
    if _parse(b"<row />" + text) is not None:
        return []
    return [BrokenRow(position, "text outside rows", excerpt(text))]


def excerpt(content: bytes) -> str:
    """Return the first EXCERPT characters of `content`. Replaces bytes that are not UTF-8."""
    return content[: 4 * EXCERPT].decode("utf-8", "replace")[:EXCERPT]


def _parse(content: bytes) -> dict[str, str] | None:
    """Return the attributes of the only element in `content`; None if it is not well-formed."""
    try:
        return dict(etree.fromstring(content, _PARSER).items())
    except etree.XMLSyntaxError:
        return None


def _without_forbidden(content: bytes) -> tuple[bytes, int]:
    """Remove the characters that XML forbids, raw or by reference. Return the rest and how many were removed.

    Keeps everything if NUL bytes follow one another: a disk shows them in place of lost data.
    """
    if b"\0\0" in content:
        return content, 0
    forbidden = sum(map(_is_forbidden, _SUSPECT.findall(content)))
    return _SUSPECT.sub(lambda match: b"" if _is_forbidden(match[0]) else match[0], content), forbidden


@functools.lru_cache(maxsize=1 << 10)
def _is_forbidden(character: bytes) -> bool:
    """Tell whether XML forbids a character, raw or by reference."""
    return _parse(b'<row character="%b" />' % character) is None
