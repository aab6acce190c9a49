"""Rows of CSV and TSV files, each on its own, so that a broken one costs no other.

Quotes are read as in RFC 4180. Tables in the wild also have quotes that quote nothing: `"All lives" or not?`, or one
that is never closed and would take all that follow along. So where a row cannot be read, or has too many or too few
fields, its first line is read again alone, its quotes as text; if that is no row either, that line is broken.
"""

import csv
from collections import deque
from collections.abc import Iterator, Sequence
from typing import TextIO

from dupq.dump.xml.rows import EXCERPT, BrokenRow
from dupq.errors import DupqError

NOT_UTF8 = "not UTF-8"

_LONGEST = 8 << 20  # characters of a row
_SEPARATORS = ",;\t|"
_WIDE = (b"\xff\xfe", b"\xfe\xff")  # how UTF-16 begins

csv.field_size_limit(_LONGEST)  # of the process


class CsvFile:
    """A CSV file, opened: the names of its columns, and its rows."""

    def __init__(self, file: TextIO, source: str) -> None:
        """Read the header. Raises DupqError naming `source` for an empty file or one that is not UTF-8."""
        self._lines = _Lines(file, source)
        if file.buffer.peek(2).startswith(_WIDE):  # type: ignore[attr-defined]
            raise DupqError(f"{source}: encoded in UTF-16 or UTF-32; save it as UTF-8")
        header = next((line for line in self._lines if line.strip()), "")
        if not header:
            raise DupqError(f"{source}: empty, without a header that names its columns")
        self._lines.give_back([header])
        fields = {separator: len(next(csv.reader([header], delimiter=separator))) for separator in _SEPARATORS}
        self._separator = "\t" if ".tsv" in source.lower() else max(fields, key=lambda mark: fields[mark])
        self.names = [name.strip() for name in self._record() or ()]

    def rows(self) -> Iterator[tuple[int, Sequence[str]] | BrokenRow]:
        """Yield the line that each row begins on, from 1, and its fields, as many as the header has."""
        while (fields := self._record()) is not None:
            line, text = self._lines.first, self._lines.taken[0].rstrip("\r\n") if self._lines.taken else ""
            if len(fields) != len(self.names) and text.strip():
                self._lines.give_back(self._lines.taken[1:])
                fields = text.split(self._separator)
            if not _is_utf8(fields):
                shown = text.encode(errors="surrogateescape").decode(errors="replace")
                yield BrokenRow(line, NOT_UTF8, shown[:EXCERPT])
            elif len(fields) == len(self.names):
                yield line, fields
            elif text.strip():
                reason = f"{len(fields)} fields where the header has {len(self.names)}"
                yield BrokenRow(line, "quotes that do not match" if '"' in text else reason, text[:EXCERPT])

    def _record(self) -> list[str] | None:
        """Return the next row, none of its fields if it cannot be read; None at the end."""
        self._lines.begin()
        try:
            return next(csv.reader(self._lines, delimiter=self._separator, strict=True), None)
        except csv.Error:
            return []


def _is_utf8(fields: Sequence[str]) -> bool:
    try:
        "".join(fields).encode()
    except UnicodeEncodeError:
        return False
    return True


class _Lines:
    """The lines of a file, which can be given back."""

    def __init__(self, file: TextIO, source: str) -> None:
        self._file, self._source = file, source
        self._waiting: deque[str] = deque()
        self._number = 0  # of lines that were taken
        self.begin()

    def begin(self) -> None:
        """Begin a row with the next line."""
        self.first, self.taken, self._size = self._number + 1, list[str](), 0

    def give_back(self, lines: Sequence[str]) -> None:
        """Take some lines back, the last that were given."""
        self._waiting.extendleft(reversed(lines))
        self._number -= len(lines)

    def __iter__(self) -> "_Lines":
        return self

    def __next__(self) -> str:
        line = self._waiting.popleft() if self._waiting else self._file.readline(_LONGEST)
        if not line:
            raise StopIteration
        self._number += 1
        self.taken.append(line)
        self._size += len(line)
        if self._size >= _LONGEST:
            if len(self.taken) == 1:
                raise DupqError(f"{self._source}: line {self._number:,} is longer than {_LONGEST >> 20} MiB")
            raise csv.Error("too long")
        return line
