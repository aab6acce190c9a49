"""Reads the rows of CSV and TSV files, each on its own, so that a broken one costs no other.

Quotes are read as in RFC 4180. Tables in the wild also have other quotes: behind a blank, marked by a backslash, or
some that quote nothing (`"All lives" or not?`) or are never closed and would swallow all following rows. So if a row
cannot be read, or has too many or too few fields, it is read again in these ways, at last its first line with quotes as
text. If that is not a row either, the line is broken.
"""

import csv
import re
from collections import deque
from collections.abc import Iterator, Sequence
from typing import TextIO

from dupq.dump.files import has_ending
from dupq.dump.xml_files import EXCERPT, BrokenRow
from dupq.errors import DupqError

NOT_UTF8 = "not UTF-8 (save the file as UTF-8; in Excel: CSV UTF-8)"

Values = Iterator[tuple[int, Sequence[str | None]] | BrokenRow]  # of rows, with their positions

_LONGEST = 8 << 20  # characters of a row
_SEPARATORS = ",;\t|"
_ESCAPED = r"\""  # a quote
_NOT_UTF8 = re.compile("[\udc80-\udcff]")  # what Python reads in place of other bytes

csv.field_size_limit(_LONGEST)  # for the whole process


class CsvFile:
    """The column names and the rows of an open CSV file."""

    def __init__(self, file: TextIO, source: str) -> None:
        """Read the header. Raises DupqError naming `source` for an empty file."""
        self._file, self._source = file, source
        self._number = 0  # of the last line
        self._row: list[str] = []  # the lines of the last row
        self._again = deque[str]()  # lines that were put back
        header = next((line for line in self._lines() if line.strip() and not line.lower().startswith("sep=")), "")
        if not header:
            raise DupqError(f"{source}: empty, without a header that names its columns")
        self._put_back([header])
        fields = {separator: len(next(csv.reader([header], delimiter=separator))) for separator in _SEPARATORS}
        self._separator = "\t" if has_ending(source, ".tsv") else max(fields, key=lambda mark: fields[mark])
        self.names: list[str] = []
        self.names = [name.strip() for name in self._record() or ()]

    def rows(self, indices: Sequence[int]) -> Values:
        """Yield the number of each row's first line, from 1, and its fields at the `indices`."""
        while (fields := self._record()) is not None:
            line, text = self._number - len(self._row) + 1, self._row[0].rstrip("\r\n")
            reason = f"{len(fields)} fields where the header has {len(self.names)}" if fields else ""
            if len(fields) != len(self.names) and text.strip():
                self._put_back(self._row[1:])
                fields = [text] if len(self.names) == 1 else text.split(self._separator)
            if not "".join(fields).isascii() and any(map(_NOT_UTF8.search, fields)):
                shown = text.encode(errors="surrogateescape").decode(errors="replace")
                yield BrokenRow(line, NOT_UTF8, shown[:EXCERPT])
            elif len(fields) == len(self.names):
                yield line, [fields[index] for index in indices]
            elif text.strip():
                yield BrokenRow(line, reason or "quotes that do not match", text[:EXCERPT])

    def _record(self) -> list[str] | None:
        """Return the fields of the next row, empty if it cannot be read; None at the end."""
        fields = self._fields()
        if fields is None or not self.names:
            return fields
        is_spaced = any(field.startswith(" ") and field.lstrip(" ").startswith('"') for field in fields)
        is_escaped = len(fields) != len(self.names) and any(_ESCAPED in line for line in self._row)
        if not (is_spaced or is_escaped):
            return fields
        self._put_back(self._row)
        others = self._fields(is_spaced, is_escaped)
        if others is not None and len(others) == len(self.names):
            return others
        self._put_back(self._row)
        return self._fields()

    def _fields(self, is_spaced: bool = False, is_escaped: bool = False) -> list[str] | None:
        """Return what `_record` does of a row with blanks before its quotes, or with backslashes."""
        self._row = []
        lines = (line.replace(_ESCAPED, '""') for line in self._lines()) if is_escaped else self._lines()
        try:
            reader = csv.reader(lines, delimiter=self._separator, strict=True, skipinitialspace=is_spaced)
            return next(reader, None)
        except csv.Error:
            return []

    def _lines(self) -> Iterator[str]:
        """Yield the next lines, as lines of one row."""
        size = 0
        while line := self._again.popleft() if self._again else self._file.readline(_LONGEST):
            self._number += 1
            self._row.append(line)
            size += len(line)
            if size >= _LONGEST:
                if len(self._row) == 1:
                    raise DupqError(f"{self._source}: line {self._number:,} is longer than {_LONGEST >> 20} MiB")
                raise csv.Error("too long")
            yield line

    def _put_back(self, lines: Sequence[str]) -> None:
        self._again.extendleft(reversed(lines))
        self._number -= len(lines)
