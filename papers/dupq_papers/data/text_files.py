"""Reading small files of text whole, plain or packed by xz."""

import lzma

from dupq import storage
from dupq.errors import DupqError

_MOST_BYTES = 1 << 30  # unpacked; the largest of the papers' files has 13 MB
_XZ_MEMORY = 256 << 20  # bytes that decoding may take; `xz -9` needs 65 MiB


def read_text(uri: str) -> str:
    """The text of a file in UTF-8, with or without a byte-order mark; one whose name ends in .xz is unpacked.

    Raises DupqError naming the file that is missing, damaged, too large unpacked, or no text in UTF-8.
    """
    content = storage.read_bytes(uri)
    if uri.endswith(".xz"):
        content = _unpacked(content, uri)
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DupqError(f"{uri}: not a text in UTF-8 ({error})") from error


def _unpacked(content: bytes, uri: str) -> bytes:
    """What the streams of xz hold together: there may be several, padded by zeros."""
    pieces: list[bytes] = []
    room = _MOST_BYTES
    while content or not pieces:
        decoder = lzma.LZMADecompressor(lzma.FORMAT_XZ, _XZ_MEMORY)
        try:
            pieces.append(decoder.decompress(content, room))
        except lzma.LZMAError as error:
            raise DupqError(f"{uri}: damaged ({error})") from error
        room -= len(pieces[-1])
        if not room:
            raise DupqError(f"{uri}: unpacks to {_MOST_BYTES:,} bytes or more")
        if not decoder.eof:
            raise DupqError(f"{uri}: damaged or cut short (the end is missing)")
        content = decoder.unused_data.lstrip(b"\0")
    return b"".join(pieces)
