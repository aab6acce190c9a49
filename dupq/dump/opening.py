"""How a dump's XML file must open and close: perhaps a byte-order mark and a declaration, then its root element."""

import re
from typing import NamedTuple

import numpy as np

from dupq.errors import DupqError

LIMIT = 1 << 16  # bytes that an opening may take, or what follows the last row
WIDE_ENCODINGS = (b"\xff\xfe", b"\xfe\xff", b"<\0", b"\0<", b"\0\0")  # how UTF-16 and UTF-32 begin

_DECLARATION = re.compile(rb"(?:\xef\xbb\xbf)?\s*(?:<\?xml(?P<attributes>\s[^>]*)\?>\s*)?")
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
    if head.startswith((b"<!DOCTYPE", b"<!ENTITY"), declaration.end()):
        raise DupqError(f"{source}: refused, for dumps have no DOCTYPE or ENTITY declaration")
    tag = _TAG.match(head, declaration.end())
    if tag is None or tag["name"] != root.encode():
        found = _found(head[declaration.end() :], tag)
        raise DupqError(f"{source}: no Stack Exchange dump: expected <{root}>, found {found}")
    return Opening(tag.end(), bool(tag["empty"]))


def read_closing(data: np.ndarray, root: str, source: str) -> int:
    """Where in `data` (uint8), which reaches the end of a file, the root element is closed.

    Raises DupqError naming `source` if it is not: the file is cut short.
    """
    start = max(0, len(data) - LIMIT)
    closing = re.search(rb"</" + root.encode() + rb"\s*>\s*\Z", bytes(data[start:]))
    if closing is None:
        raise DupqError(f"{source}: cut short: it does not end with </{root}>")
    return start + closing.start()


def _found(rest: bytes, tag: re.Match[bytes] | None) -> str:
    if not rest:
        return "an empty file"
    return _shown(rest[:40]) if tag is None else f"<{_shown(tag['name'])[1:-1]}>"


def _shown(content: bytes) -> str:
    """`content` as printable ASCII, for it may be anything."""
    return ascii(content.decode("utf-8", "replace"))
