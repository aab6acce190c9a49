"""Cutting an XML file into segments of whole rows, the same ones whether it is read as a stream or in ranges.

Segment n has the rows that begin in bytes [n * size, (n + 1) * size) of the unpacked file. A raw `<` can be
nowhere in a well-formed attribute, so `<row` and white space is the start of a row wherever it is found.

Of a row that is too long the middle is left out, so that one that never ends takes no more memory than another.
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
_TAIL = 1 << 16  # bytes kept of the file's end after a row too long to keep, where the root is closed


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
    left_out: int = 0  # bytes, just before the file's last _TAIL ones

    def place(self, at: int) -> int:
        """The position in the unpacked file of byte `at` of `data`."""
        is_behind = self.left_out and at >= len(self.data) - _TAIL
        return self.position + at + (self.left_out if is_behind else 0)


class _Taken(NamedTuple):
    data: np.ndarray
    left_out: int = 0


def cut(stream: Stream, first: int = 0, stop: int | None = None, size: int = SIZE) -> Iterator[Segment]:
    """The segments `first` up to `stop` of a file, of which `stream` is at byte `first * size`.

    A segment without rows is left out, but for the first of the file. Memory: one segment and MAXIMUM_ROW.
    """
    return _cut(_Reader(stream, first * size), first, stop, size)


def cut_mapped(data: np.ndarray, first: int = 0, stop: int | None = None, size: int = SIZE) -> Iterator[Segment]:
    """Likewise of a file whose bytes (uint8) are all in memory; segments are views of them if nothing is left out."""
    return _cut(_Mapped(data, first * size), first, stop, size)


def _cut(reader: "_Reader | _Mapped", first: int, stop: int | None, size: int) -> Iterator[Segment]:
    if first:
        reader.skip_to_row(None if stop is None else stop * size)
    while reader.position == 0 or reader.pending:
        number = reader.position // size
        if stop is not None and number >= stop:
            return
        position = reader.position
        data, left_out = reader.take_to_row((number + 1) * size)
        yield Segment(number, position, data, not reader.pending, left_out)
        if not reader.pending:
            return


class _Mapped:
    """A `_Reader` over bytes that are all in memory."""

    def __init__(self, data: np.ndarray, position: int) -> None:
        self._data = data
        self.position = min(position, len(data))
        self.pending = len(data) - self.position

    def take_to_row(self, boundary: int) -> _Taken:
        """What `_Reader.take_to_row` gives."""
        start, limit = self.position, boundary + MAXIMUM_ROW
        end = self._next_row(boundary)
        self._move_to(end)
        if end <= limit:
            return _Taken(self._data[start:end])
        if self.pending:
            return _Taken(self._data[start:limit])
        tail = max(limit, end - _TAIL)
        return _Taken(np.concatenate([self._data[start:limit], self._data[tail:end]]), tail - limit)

    def skip_to_row(self, limit: int | None) -> None:
        """Leave out all bytes up to the first start of a row, or up to `limit` (in the file), or up to the end."""
        self._move_to(self._next_row(self.position, limit))

    def _next_row(self, start: int, limit: int | None = None) -> int:
        limit = len(self._data) if limit is None else min(limit, len(self._data))
        match = ROW_START.search(self._data.data, start, limit + _ROW_START_LENGTH - 1)
        return limit if match is None else match.start()

    def _move_to(self, position: int) -> None:
        self.position, self.pending = position, len(self._data) - position


class _Reader:
    """A stream, and what was read of it but not taken yet."""

    def __init__(self, stream: Stream, position: int) -> None:
        self._stream = stream
        self._buffer = np.empty(0, np.uint8)
        self._filled = 0
        self._ended = False
        self.position = position  # in the file, of the first pending byte
        self.pending = 0  # bytes; 0 once a take or skip came to the end

    def take_to_row(self, boundary: int) -> _Taken:
        """All bytes up to the first row that begins at or after `boundary` (in the file), or up to the end.

        If those reach further than MAXIMUM_ROW past `boundary`, the rest is left out, but for the file's last _TAIL.
        """
        wanted = boundary - self.position
        limit = wanted + MAXIMUM_ROW
        found = self._find_row(wanted, limit)
        end = self._filled if found is None else found
        taken = self._buffer[: min(end, limit)]
        self._keep_from(len(taken))
        if end <= limit:
            return _Taken(taken)
        dropped, tail = self._drop(None)
        if self.pending:
            return _Taken(taken)
        return _Taken(np.concatenate([taken, tail]), dropped - len(tail))

    def skip_to_row(self, limit: int | None) -> None:
        """Leave out all bytes up to the first start of a row, or to where `limit` (in the file) is passed, or all."""
        self._drop(limit)

    def _drop(self, limit: int | None) -> tuple[int, np.ndarray]:
        """Leave out what there is up to a row, as `skip_to_row`; how many bytes those were, and the last _TAIL."""
        start, tail = self.position, np.empty(0, np.uint8)
        while True:
            found = self._find_row(0, _LOOK_AHEAD)
            is_last = found is not None or self._ended
            end = found if found is not None else self._filled if self._ended else self._filled - _ROW_START_LENGTH + 1
            tail = np.concatenate([tail, self._buffer[:end]])[-_TAIL:]
            self._keep_from(end)
            if is_last or (limit is not None and self.position >= limit):
                return self.position - start, tail

    def _find_row(self, start: int, limit: int) -> int | None:
        """Where in the buffer the first row from `start` on begins; None: not up to `limit`, or none at all."""
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
        """Give up the first `start` bytes: their buffer belongs to the caller now, and the rest is copied."""
        self.position += start
        self.pending = self._filled - start
        self._buffer = self._buffer[start : self._filled].copy()
        self._filled = self.pending
