"""Cutting an XML file into segments of whole rows, the same ones whether it is read as a stream or in ranges.

Segment n has the rows that begin in bytes [n * size, (n + 1) * size) of the unpacked file. A raw `<` can stand
nowhere in a well-formed attribute, so `<row` and white space is the start of a row wherever it is found.
"""

import re
from collections.abc import Iterator
from typing import NamedTuple, Protocol

import numpy as np

SIZE = 16 << 20  # bytes
MAXIMUM_ROW = 8 << 20  # bytes; the XML parser takes no attribute of more than 10 MB
ROW_START = re.compile(rb"<row[ \t\r\n]")

_ROW_START_LENGTH = len(b"<row ")
_LOOK_AHEAD = 1 << 16  # bytes read past a segment's end at first, to find the next row's start
_TAIL = 64  # bytes kept of the end of a row too long to keep, where the closing root tag may be


class Stream(Protocol):
    """Bytes in order."""

    def readinto(self, buffer: memoryview, /) -> int:
        """Fill `buffer`; returns how many bytes it got, fewer than it holds only at the end."""


class Segment(NamedTuple):
    """Some rows of a file; the first also holds what precedes all rows."""

    number: int
    position: int  # byte offset of `data` in the unpacked file
    data: np.ndarray  # uint8; the middle of a row of more than MAXIMUM_ROW bytes may be left out
    reaches_end: bool  # of the file


def cut(stream: Stream, first: int = 0, stop: int | None = None, size: int = SIZE) -> Iterator[Segment]:
    """The segments `first` up to `stop` of a file, of which `stream` is at byte `first * size`.

    A segment without rows is left out, but for the first of the file. Memory: one segment and MAXIMUM_ROW.
    """
    return _cut(_Reader(stream, first * size), first, stop, size)


def cut_mapped(data: np.ndarray, first: int = 0, stop: int | None = None, size: int = SIZE) -> Iterator[Segment]:
    """Likewise of a file whose bytes (uint8) are all at hand; its segments are views of them, rows never cut."""
    return _cut(_Mapped(data, first * size), first, stop, size)


def _cut(reader: "_Reader | _Mapped", first: int, stop: int | None, size: int) -> Iterator[Segment]:
    if first:
        reader.skip_to_row()
    while reader.position == 0 or reader.pending:
        number = reader.position // size
        if stop is not None and number >= stop:
            return
        position = reader.position
        data = reader.take_to_row((number + 1) * size)
        yield Segment(number, position, data, reaches_end=not reader.pending)
        if not reader.pending:
            return


class _Mapped:
    """What `_Reader` is, over bytes that are all at hand."""

    def __init__(self, data: np.ndarray, position: int) -> None:
        self._data = data
        self.position = min(position, len(data))
        self.pending = len(data) - self.position

    def take_to_row(self, boundary: int) -> np.ndarray:
        """All bytes up to the first row that begins at or after `boundary`, or up to the end."""
        match = ROW_START.search(self._data.data, boundary)
        end = len(self._data) if match is None else match.start()
        taken = self._data[self.position : end]
        self.position, self.pending = end, len(self._data) - end
        return taken

    def skip_to_row(self) -> None:
        """Leave out all bytes up to the first start of a row, or up to the end."""
        self.take_to_row(self.position)


class _Reader:
    """A stream, and what was read of it but not taken yet."""

    def __init__(self, stream: Stream, position: int) -> None:
        self._stream = stream
        self._buffer = np.empty(0, np.uint8)
        self._filled = 0
        self._ended = False
        self.position = position  # in the file, of the first pending byte
        self.pending = 0  # bytes; 0 once a take or skip came to the end

    def take_to_row(self, boundary: int) -> np.ndarray:
        """All bytes up to the first row that begins at or after `boundary` (in the file), or up to the end."""
        wanted = boundary - self.position
        found = self._find_row(wanted, wanted + MAXIMUM_ROW)
        if found is None and not self._ended:
            kept = self._buffer[: self._filled]
            tail = self._drop(self._filled)
            return kept if self.pending else np.concatenate([kept, tail])
        end = self._filled if found is None else found
        taken = self._buffer[:end]
        self._keep_from(end)
        return taken

    def skip_to_row(self) -> None:
        """Leave out all bytes up to the first start of a row, or up to the end."""
        found = self._find_row(0, _LOOK_AHEAD)
        if found is None and not self._ended:
            self._drop(self._filled)
        else:
            self._keep_from(self._filled if found is None else found)

    def _drop(self, length: int) -> np.ndarray:
        """Leave out `length` pending bytes and what follows up to a row; the last bytes before it, at most _TAIL."""
        tail = self._buffer[max(0, length - _TAIL) : length].copy()
        self._keep_from(max(0, length - _ROW_START_LENGTH + 1))
        while True:
            found = self._find_row(0, _LOOK_AHEAD)
            end = self._filled if found is None else found
            tail = np.concatenate([tail, self._buffer[_ROW_START_LENGTH - 1 : end]])[-_TAIL:]
            if found is not None or self._ended:
                self._keep_from(end)
                return tail
            self._keep_from(end - _ROW_START_LENGTH + 1)

    def _find_row(self, start: int, limit: int) -> int | None:
        """Where in the buffer the first row from `start` on begins; None: not before `limit`, or none at all."""
        length = start + _LOOK_AHEAD
        while True:
            self._fill(length)
            match = ROW_START.search(self._buffer[: self._filled].data, start)
            if match is not None:
                return match.start()
            if self._ended or self._filled >= limit + _ROW_START_LENGTH:
                return None
            start = max(start, self._filled - _ROW_START_LENGTH + 1)
            length = min(self._filled * 2, limit + _ROW_START_LENGTH)

    def _fill(self, length: int) -> None:
        """Read until `length` bytes are in the buffer, or the stream ends."""
        if self._filled >= length or self._ended:
            return
        if len(self._buffer) < length:
            wider = np.empty(length, np.uint8)
            wider[: self._filled] = self._buffer[: self._filled]
            self._buffer = wider
        got = self._stream.readinto(self._buffer[self._filled : length].data)
        self._ended = self._filled + got < length
        self._filled += got

    def _keep_from(self, start: int) -> None:
        """Leave the first `start` bytes to whoever took them: the buffer is theirs, the rest is copied."""
        self.position += start
        self.pending = self._filled - start
        self._buffer = self._buffer[start : self._filled].copy()
        self._filled = self.pending
