"""A dump's XML file: how it begins and ends, its cut into segments of whole rows, and the parsing of these rows by
lxml, each alone: so a broken row costs no other.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol, cast

import numpy as np
from lxml import etree

from dupq.dump.posts import REFERENCES, Written, are_at
from dupq.errors import DupqError

# Cutting an XML file into segments of whole rows, the same ones whether it is read as a stream or in ranges.
#
# Segment n has the rows that begin in bytes [n * size, (n + 1) * size) of the unpacked file. A raw `<` can be nowhere
# in a well-formed attribute, so `<row` and white space is the start of a row wherever it is found.

SIZE = 16 << 20  # bytes
MAXIMUM_ROW = 8 << 20  # bytes; the XML parser takes no attribute of more than 10 MB
ROW_START = re.compile(rb"<row[ \t\r\n]")

_OVERLAP = len(b"<row ") - 1  # bytes in which a row may begin whose start is not whole
_CLOSING = 1 << 10  # bytes in which the root's end tag is, and a row's start may be


class Stream(Protocol):
    """Bytes in order."""

    def read(self, size: int, /) -> bytes:
        """Read up to `size` bytes, fewer only at the end."""


class Segment(NamedTuple):
    """Some rows of a file; the first also holds what precedes all rows."""

    number: int
    position: int  # byte offset of `data` in the unpacked file
    data: bytes
    reaches_end: bool  # of the file


def cut(stream: Stream, first: int = 0, stop: int | None = None, size: int = SIZE) -> Iterator[Segment]:
    """Yield the segments `first` up to `stop` of a file, of which `stream` is at byte `first * size`.

    A segment without rows is left out, but for the first of the file. A row that reaches over MAXIMUM_ROW into further
    segments ends there, long enough to be rejected; if it is the last one, the end of the file is a segment of its own.
    Memory: three segments.
    """
    position, data = first * size, stream.read(size)
    is_whole = len(data) < size
    if first:
        position, data, is_whole = _next_row(stream, position, data, size, stop)
        if ROW_START.match(data) is None:
            return
    while stop is None or position < stop * size:
        number = position // size
        border = begin = (number + 1) * size - position
        while (match := ROW_START.search(data, begin)) is None and not is_whole and begin - border <= MAXIMUM_ROW:
            begin = max(border, len(data) - _OVERLAP)
            data += (more := stream.read(size))
            is_whole = len(more) < size
        if match is None and is_whole:
            yield Segment(number, position, data, True)
            return
        end = begin if match is None else match.start()
        yield Segment(number, position, data[:end], False)
        position, data = position + end, data[end:]
        if match is None:
            position, data, is_whole = _next_row(stream, position, data, size)
            if ROW_START.match(data) is None:
                closing = max(0, data.rfind(b"</"))  # which no value has
                yield Segment((position + closing) // size, position + closing, data[closing:], True)
                return


def _next_row(
    stream: Stream, position: int, data: bytes, size: int, stop: int | None = None
) -> tuple[int, bytes, bool]:
    """Read on from `data` to the next row: where it begins, what is read from there on, and whether the file ends so.

    Without one in the segments up to `stop`, or in the file, it is the last bytes instead.
    """
    is_whole = False
    while (match := ROW_START.search(data)) is None:
        if is_whole or (stop is not None and position >= stop * size):
            return position, data, is_whole
        position, data = position + len(data[:-_CLOSING]), data[-_CLOSING:] + (more := stream.read(size))
        is_whole = len(more) < size
    return position + match.start(), data[match.start() :], is_whole


# Checking how a dump's XML file begins and ends.
#
# Perhaps a byte-order mark and a declaration, then its root element with nothing but white space around it.

LIMIT = 1 << 16  # bytes that an opening may take
WIDE_ENCODINGS = (b"\xff\xfe", b"\xfe\xff", b"<\0", b"\0<", b"\0\0")  # how UTF-16 and UTF-32 begin

_DECLARATION = re.compile(rb"(?:\xef\xbb\xbf)?\s*(?:<\?xml(?P<attributes>\s[^>]*)\?>)?\s*")
_ENCODING = re.compile(rb"""\sencoding\s*=\s*["']([^"']*)["']""")
_TAG = re.compile(rb"""<(?P<name>[^\s<>/"'!?][^\s<>/"']*)(?:\s[^<>]*?)?(?P<empty>/?)>""")


class Opening(NamedTuple):
    """The bytes up to the end of the root's start tag, and whether that tag closes the root at once."""

    length: int
    is_empty: bool


def read_opening(head: bytes, root: str, source: str) -> Opening:
    """The opening of a file that begins with `head` (`LIMIT` bytes, or all if it has fewer).

    Raises DupqError naming `source` for another root element, another encoding than UTF-8, or a document
    type declaration, the door to entities that expand without bound or name files of this machine.
    """
    if head.startswith(WIDE_ENCODINGS):
        raise DupqError(f"{source}: encoded in UTF-16 or UTF-32; dumps are UTF-8")
    declaration = _DECLARATION.match(head)
    assert declaration is not None
    encoding = _ENCODING.search(declaration["attributes"] or b"")
    if encoding is not None and encoding[1].lower() not in (b"utf-8", b"utf8"):
        raise DupqError(f"{source}: declares the encoding {_shown(encoding[1])}; dumps are UTF-8")
    start = declaration.end()
    if head.startswith((b"<!DOCTYPE", b"<!ENTITY"), start):
        raise DupqError(f"{source}: refused, for dumps have no DOCTYPE or ENTITY declaration")
    tag = _TAG.match(head, start)
    if tag is None or tag["name"] != root.encode():
        found = _found(head[start:], tag)
        raise DupqError(f"{source}: no Stack Exchange dump: expected <{root}>, found {found}")
    return Opening(tag.end(), bool(tag["empty"]))


def read_closing(data: bytes, root: str, source: str, position: int) -> int:
    """Return where in `data`, which reaches from byte `position` to the end of a file, the root element is closed.

    Raises DupqError naming `source` if it is not, for the file is cut short, or if anything but white space follows.
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
    """Raise DupqError naming `source` if anything but white space is in `content`, which follows a tag."""
    junk = content.lstrip()
    if junk:
        shown = _shown(junk[:40]) if junk.strip(b"\0") else "NUL bytes"
        raise DupqError(f"{source}: {shown} behind <{tag}>, at byte {position + len(content) - len(junk):,}")


def _found(rest: bytes, tag: re.Match[bytes] | None) -> str:
    if not rest:
        return "an empty file"
    return _shown(rest[:40]) if tag is None else f"<{_shown(tag['name'])[1:-1]}>"


def _shown(content: bytes) -> str:
    """`content` as printable ASCII, for it may be anything."""
    return ascii(content.decode("utf-8", "replace"))


EXCERPT = 200  # characters

_ROW_TAG = re.compile(rb"""<row(?:\s+[^\s<>=/"']+\s*=\s*(?:"[^"<]*"|'[^'<]*'))*+\s*/?>""")
_SUSPECT = re.compile(  # characters that XML forbids, and references, which may be to one
    rb"[\x00-\x08\x0b\x0c\x0e-\x1f]|\xef\xbf[\xbe\xbf]|&#(?:x0*([0-9a-fA-F]{1,9})|0*([0-9]{1,9}));"
)
_OPTIONS = {"resolve_entities": False, "no_network": True, "load_dtd": False}
_PARSER = etree.XMLParser(huge_tree=False, **_OPTIONS)


class RawRow(NamedTuple):
    """A row as it is in the file, with all that follows it up to the next one."""

    position: int  # byte offset in the uncompressed XML
    content: bytes


class Row(NamedTuple):
    """A parsed row."""

    position: int
    attributes: Mapping[str, str]
    content: bytes
    forbidden: int = 0  # characters that XML forbids, which are left out of the attributes

    @property
    def excerpt(self) -> str:
        """The beginning of the row as it is in the file, for a report on it."""
        return excerpt(self.content)


class PlainRow(NamedTuple):
    """A row in the form that dumps write, so that it need not be parsed."""

    position: int
    attributes: Written
    content: bytes


class BrokenRow(NamedTuple):
    """A row that is no XML, or text where only rows may be."""

    position: int
    reason: str
    excerpt: str


# Rows in the form that dumps write: double quotes around values, few kinds of references, one space between attributes.
# So the quotes of a row part names from values. All other rows are parsed, which gives the same at half the speed.

_ATTRIBUTES = (  # but Id, which is the first
    "PostTypeId ParentId AcceptedAnswerId CreationDate DeletionDate Score ViewCount Body OwnerUserId OwnerDisplayName "
    "LastEditorUserId LastEditorDisplayName LastEditDate LastActivityDate Title Tags AnswerCount CommentCount "
    "FavoriteCount ClosedDate CommunityOwnedDate ContentLicense PostId RelatedPostId LinkTypeId"
)
_NAMES = {b"<row Id=": "Id", **{b" %b=" % name.encode(): name for name in _ATTRIBUTES.split()}}
_ENDS = {b" />\n  ": 1, b" />\r\n  ": 2, b" />\n": 1, b" />\r\n": 2}  # of rows, with how many control characters


def rows_in(data: bytes, start: int, end: int, position: int) -> Iterator[PlainRow | Row | BrokenRow]:
    """Yield the rows from `start` to `end` in the data of a segment, which is at byte `position` of the file."""
    begins = [match.start() for match in ROW_START.finditer(data, start, end)]
    borders = [*begins, end]
    yield from parse_row(RawRow(position + start, data[start : borders[0]][: MAXIMUM_ROW + 1]))
    characters = np.frombuffer(data, np.uint8)[:end]
    controls = _per_row(np.flatnonzero(characters < ord(" ")), borders)
    openings = _per_row(np.flatnonzero(characters == ord("<")), borders)
    odd = _per_row(_non_characters(characters), borders) + _per_row(_other_references(characters), borders)
    is_utf8 = _is_utf8(data)
    for index, begin in enumerate(begins):
        content = data[begin : min(borders[index + 1], begin + MAXIMUM_ROW + 1)]
        *parts, tail = content.split(b'"')
        attributes = dict(zip(map(_NAMES.get, parts[::2]), parts[1::2], strict=False))
        if (
            is_utf8
            and len(content) <= MAXIMUM_ROW
            and _ENDS.get(tail) == controls[index]
            and openings[index] + odd[index] == 1
            and 2 * len(attributes) == len(parts)
            and None not in attributes
        ):
            yield PlainRow(position + begin, cast(Written, attributes), content)
        else:
            yield from parse_row(RawRow(position + begin, content))


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def _per_row(indices: np.ndarray, borders: Sequence[int]) -> np.ndarray:
    """Return how many of the ascending `indices` are between each two borders."""
    return np.diff(np.searchsorted(indices, borders))


def _non_characters(characters: np.ndarray) -> np.ndarray:
    """Return where U+FFFE and U+FFFF, which XML forbids, begin in UTF-8."""
    first = np.flatnonzero(characters[:-2] == 0xEF)
    return first[(characters[first + 1] == 0xBF) & (characters[first + 2] >= 0xBE)]


def _other_references(characters: np.ndarray) -> np.ndarray:
    """Return where references begin that dumps do not have, or that may reach over the end."""
    left = np.flatnonzero(characters == ord("&"))
    others = left[left > len(characters) - 6]
    left = left[left <= len(characters) - 6]
    for reference in REFERENCES:
        left = left[~are_at(characters, left, reference)]
    return np.append(left, others)


def parse_row(row: RawRow) -> list[Row | BrokenRow]:
    """The row, parsed; followed by what comes after its end, if that is not just white space or a comment.

    Those alone are no row. Characters that XML forbids are left out: dumps have `&#x0E;` in their texts.
    """
    if not row.content.strip():
        return []
    if len(row.content) > MAXIMUM_ROW:
        return [BrokenRow(row.position, f"longer than {MAXIMUM_ROW >> 20} MiB", excerpt(row.content))]
    if ROW_START.match(row.content) is None:
        return _parse_text(row)
    attributes = _attributes(row.content)
    if attributes is not None:
        return [Row(row.position, attributes, row.content)]
    tag = _ROW_TAG.match(row.content)
    if tag is not None:
        written, forbidden = _without_forbidden(tag[0])
        rest = RawRow(row.position + tag.end(), row.content[tag.end() :])
        attributes = _attributes(written + rest.content) if forbidden else None
        if attributes is not None:
            return [Row(row.position, attributes, row.content, forbidden)]
        attributes = _attributes(written)
        if attributes is not None:
            return [Row(row.position, attributes, tag[0], forbidden), *_parse_text(rest)]
    return [BrokenRow(row.position, _fault(row.content), excerpt(row.content))]


def _parse_text(text: RawRow) -> list[Row | BrokenRow]:
    """What is made of text outside rows."""
    if _attributes(b"<row />" + text.content) is not None:
        return []
    return [BrokenRow(text.position, "text outside rows", excerpt(text.content))]


def excerpt(content: bytes) -> str:
    """The first EXCERPT characters of `content`, bytes that are no UTF-8 replaced."""
    return content[: 4 * EXCERPT].decode("utf-8", "replace")[:EXCERPT]


def _attributes(content: bytes) -> dict[str, str] | None:
    """The attributes of the one element that `content` is; None if it is not well-formed."""
    try:
        return dict(etree.fromstring(content, _PARSER).items())
    except etree.XMLSyntaxError:
        return None


def _without_forbidden(content: bytes) -> tuple[bytes, int]:
    """`content` without the characters that XML forbids, as they are or by reference, and how many those were.

    Nothing is changed where NUL bytes follow one another: a disk has them where a text is lost.
    """
    if b"\0\0" in content:
        return content, 0
    forbidden = sum(map(_is_forbidden, _SUSPECT.finditer(content)))
    return _SUSPECT.sub(lambda match: b"" if _is_forbidden(match) else match[0], content), forbidden


def _fault(content: bytes) -> str:
    """Why `content` is no XML."""
    try:
        content.decode("utf-8")
    except UnicodeDecodeError:
        return "not UTF-8"
    return "a character that XML forbids" if any(map(_is_forbidden, _SUSPECT.finditer(content))) else "not well-formed"


def _is_forbidden(match: re.Match[bytes]) -> bool:
    """Whether XML forbids what _SUSPECT has found."""
    hexadecimal, decimal = match.groups()
    if not (hexadecimal or decimal):
        return True
    code_point = int(hexadecimal, 16) if hexadecimal else int(decimal)
    if code_point < 0x20:
        return code_point not in (0x9, 0xA, 0xD)
    return not (code_point < 0xD800 or 0xE000 <= code_point < 0xFFFE or 0x10000 <= code_point < 0x110000)
