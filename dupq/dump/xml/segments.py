"""Cutting an XML file into segments of whole rows, the same ones whether it is read as a stream or in ranges.

Segment n has the rows that begin in bytes [n * size, (n + 1) * size) of the unpacked file. A raw `<` can be
nowhere in a well-formed attribute, so `<row` and white space is the start of a row wherever it is found.
"""

import re
from collections.abc import Iterator
from typing import NamedTuple, Protocol

from dupq.errors import DupqError

SIZE = 16 << 20  # bytes
MAXIMUM_ROW = 8 << 20  # bytes; the XML parser takes no attribute of more than 10 MB
ROW_START = re.compile(rb"<row[ \t\r\n]")

_OVERLAP = len(b"<row ") - 1  # bytes in which a row may begin whose start is not whole


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


def cut(stream: Stream, source: str, first: int = 0, stop: int | None = None, size: int = SIZE) -> Iterator[Segment]:
    """Yield the segments `first` up to `stop` of a file, of which `stream` is at byte `first * size`.

    A segment without rows is left out, but for the first of the file. Memory: three segments. Raises DupqError naming
    `source` for a row that is longer than MAXIMUM_ROW and reaches into another segment.
    """
    position, data = first * size, stream.read(size)
    is_whole = len(data) < size
    while first and ROW_START.search(data) is None:
        if is_whole or (stop is not None and position >= stop * size):
            return
        position, data = position + len(data[:-_OVERLAP]), data[-_OVERLAP:] + (more := stream.read(size))
        is_whole = len(more) < size
    if first and (match := ROW_START.search(data)) is not None:
        position, data = position + match.start(), data[match.start() :]
    while stop is None or position < stop * size:
        number = position // size
        border = begin = (number + 1) * size - position
        while (match := ROW_START.search(data, begin)) is None and not is_whole:
            if len(data) - border > MAXIMUM_ROW:
                raise DupqError(
                    f"{source}: no row begins in {MAXIMUM_ROW >> 20} MiB from byte {position + border:,} on"
                )
            begin = max(border, len(data) - _OVERLAP)
            data += (more := stream.read(size))
            is_whole = len(more) < size
        if match is None:
            yield Segment(number, position, data, True)
            return
        yield Segment(number, position, data[: match.start()], False)
        position, data = position + match.start(), data[match.start() :]
