"""Checking how a dump's XML file begins and ends.

Perhaps a byte-order mark and a declaration, then its root element; comments and processing instructions may stand
before and behind it.
"""

import re
from typing import NamedTuple

from dupq.errors import DupqError

LIMIT = 1 << 16  # bytes that an opening may take
WIDE_ENCODINGS = (b"\xff\xfe", b"\xfe\xff", b"<\0", b"\0<", b"\0\0")  # how UTF-16 and UTF-32 begin

_DECLARATION = re.compile(rb"(?:\xef\xbb\xbf)?\s*(?:<\?xml(?P<attributes>\s[^>]*)\?>)?")
_ENCODING = re.compile(rb"""\sencoding\s*=\s*["']([^"']*)["']""")
_TAG = re.compile(rb"""<(?P<name>[^\s<>/"'!?][^\s<>/"']*)(?:\s[^<>]*?)?(?P<empty>/?)>""")
_COMMENT = rb"<!--[^-]*+(?:-[^-]++)*+-->"
_INSTRUCTION = rb"<\?(?!(?i:xml)[\s?])[A-Za-z_:][^?]*+(?:\?++[^?>][^?]*+)*+\?++>"
_MISCELLANEOUS = re.compile(rb"(?:[ \t\r\n]++|" + _COMMENT + rb"|" + _INSTRUCTION + rb")*+")


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
    start = _skip_miscellaneous(head, declaration.end())
    if head.startswith((b"<!DOCTYPE", b"<!ENTITY"), start):
        raise DupqError(f"{source}: refused, for dumps have no DOCTYPE or ENTITY declaration")
    tag = _TAG.match(head, start)
    if tag is None or tag["name"] != root.encode():
        found = _found(head[start:], tag)
        raise DupqError(f"{source}: no Stack Exchange dump: expected <{root}>, found {found}")
    return Opening(tag.end(), bool(tag["empty"]))


def read_closing(data: bytes, root: str, source: str, position: int) -> int:
    """Return where in `data`, which reaches from byte `position` to the end of a file, the root element is closed.

    Raises DupqError naming `source` if it is not, for the file is cut short, or if anything but comments and
    processing instructions follows.
    """
    start = data.rfind(b"</" + root.encode())
    closing = re.match(rb"</%b\s*>" % root.encode(), data[start:]) if start >= 0 else None
    if closing is None:
        ending = ", but with NUL bytes" if data.endswith(b"\0") else ""
        raise DupqError(f"{source}: cut short: it does not end with </{root}>{ending}")
    end = start + closing.end()
    check_nothing_follows(data[end:], f"/{root}", source, position + end)
    return start


def check_nothing_follows(content: bytes, tag: str, source: str, place: int) -> None:
    """Raise DupqError naming `source` if anything but the miscellaneous is in `content`, which follows a tag."""
    junk = _skip_miscellaneous(content, 0)
    if junk < len(content):
        raise DupqError(f"{source}: {_junk(content[junk:])} behind <{tag}>, at byte {place + junk:,}")


def _skip_miscellaneous(content: bytes, start: int) -> int:
    match = _MISCELLANEOUS.match(content, start)
    assert match is not None
    return match.end()


def _junk(content: bytes) -> str:
    return _shown(content[:40]) if content.strip(b"\0") else "NUL bytes"


def _found(rest: bytes, tag: re.Match[bytes] | None) -> str:
    if not rest:
        return "an empty file"
    return _shown(rest[:40]) if tag is None else f"<{_shown(tag['name'])[1:-1]}>"


def _shown(content: bytes) -> str:
    """`content` as printable ASCII, for it may be anything."""
    return ascii(content.decode("utf-8", "replace"))
