"""Parsing the rows of a dump's XML file by lxml: all of a segment at once, or each alone if that has anything odd.

So a broken row costs no other.
"""

import re
from typing import NamedTuple

from lxml import etree

from dupq.dump.xml.segments import MAXIMUM_ROW, ROW_START

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
    attributes: dict[str, str]
    content: bytes
    forbidden: int = 0  # characters that XML forbids, which are left out of the attributes

    @property
    def excerpt(self) -> str:
        """The beginning of the row as it is in the file, for a report on it."""
        return excerpt(self.content)


class BrokenRow(NamedTuple):
    """A row that is no XML, or text where only rows may be."""

    position: int
    reason: str
    excerpt: str


def parse_together(rows: bytes, count: int) -> "list[etree._Element] | None":
    """Return `count` rows with nothing but white space between them, as elements; None for anything else.

    An element makes a text of an attribute when it is asked for it: of answers, which are the most, hardly any is.
    """
    try:
        root = etree.fromstring(b"<rows>" + rows + b"</rows>", etree.XMLParser(huge_tree=True, **_OPTIONS))
    except etree.XMLSyntaxError:
        return None
    if len(root) != count or root.xpath("count(row)") != count or root.xpath("count(//*)") != count + 1:
        return None
    return None if root.xpath("string()").strip() else list(root)


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
    return not (hexadecimal or decimal) or not _is_allowed(int(hexadecimal, 16) if hexadecimal else int(decimal))


def _is_allowed(code_point: int) -> bool:
    if code_point < 0x20:
        return code_point in (0x9, 0xA, 0xD)
    return code_point < 0xD800 or 0xE000 <= code_point < 0xFFFE or 0x10000 <= code_point < 0x110000
