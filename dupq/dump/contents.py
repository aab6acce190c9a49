"""The rows of one XML file of a dump as a table, and those that cannot be used as another."""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from dupq.dump.archives import Member, open_member
from dupq.dump.fields import BadField
from dupq.dump.rows import BrokenRow, Row, SkippedRow, read_rows
from dupq.tables import REJECTS

BATCH = 5_000  # rows that are Python objects at a time


@dataclass(frozen=True)
class Format:
    """A kind of XML file: its root element, its table, and what becomes of a row's attributes."""

    root: str
    schema: pa.Schema
    parse: Callable[[Mapping[str, str]], dict[str, Any] | str]  # a table row, or the name to count it under
    skip: Callable[[bytes], bool] | None = None  # rows not worth parsing, counted as `skipped`


@dataclass(frozen=True)
class Contents:
    """What was in one XML file. `counts` has all `rows`, and those in neither table by what they are."""

    table: pa.Table
    rejects: pa.Table
    counts: Counter[str]


def read_contents(member: Member, file_format: Format) -> Contents:
    """Every row of a file, in its order, held in memory.

    Raises DupqError if the file is missing, damaged, cut short or of another format.
    """
    table, rejects, counts = _Batches(file_format.schema), _Batches(REJECTS), Counter[str]()
    with open_member(member) as stream:
        for row in read_rows(stream, file_format.root, member.source, file_format.skip):
            counts["rows"] += 1
            parsed = _parsed(row, file_format)
            if isinstance(parsed, BrokenRow):
                rejects.add({"source": member.source, **parsed._asdict()})
            elif isinstance(parsed, str):
                counts[parsed] += 1
            else:
                table.add(parsed)
    return Contents(table.as_table(), rejects.as_table(), counts)


def _parsed(row: Row | SkippedRow | BrokenRow, file_format: Format) -> dict[str, Any] | str | BrokenRow:
    if isinstance(row, SkippedRow):
        return "skipped"
    if isinstance(row, BrokenRow):
        return row
    try:
        return file_format.parse(row.attributes)
    except BadField as bad:
        return BrokenRow(row.position, str(bad), row.excerpt)


class _Batches:
    """Rows on their way into an Arrow table; only the latest BATCH of them are Python objects."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._rows: list[dict[str, Any]] = []
        self._tables = [schema.empty_table()]

    def add(self, row: dict[str, Any]) -> None:
        self._rows.append(row)
        if len(self._rows) == BATCH:
            self._convert()

    def as_table(self) -> pa.Table:
        self._convert()
        return pa.concat_tables(self._tables)

    def _convert(self) -> None:
        self._tables.append(pa.Table.from_pylist(self._rows, self._schema))
        self._rows = []
