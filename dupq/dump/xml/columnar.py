"""Turning attributes, as text, into columns: those in the usual form as a whole, and which rows have others.

A row with any other form is judged alone (`dupq/dump/fields.py`), so that one place decides what is broken and why.
"""

from collections.abc import Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc

_TIME = r"^[12][0-9]{3}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,3})?$"
_USUAL = {pa.int32(): r"^-?[0-9]{1,9}$", pa.int64(): r"^-?[0-9]{1,18}$"}
_IDENTIFIER = r"^[0-9]{1,14}$"


class Columns:
    """The columns of `rows`, null where an attribute is absent or empty, and which rows are in the usual form."""

    def __init__(self, rows: Sequence[Mapping[str, str]]) -> None:
        """All rows are, until a column says otherwise."""
        self._rows = rows
        self.is_usual = pa.array([True] * len(rows), pa.bool_())

    def text(self, name: str, maximum: int) -> pa.Array:
        """Texts of at most `maximum` bytes."""
        column = pa.array([row.get(name) or None for row in self._rows], pa.string())
        self._expect(pc.less_equal(pc.binary_length(column), maximum))
        return column

    def identifier(self, name: str) -> pa.Array:
        """Ids, which must be there."""
        return self._number(name, pa.int64(), _IDENTIFIER, may_lack=False)

    def number(self, name: str, kind: pa.DataType) -> pa.Array:
        """Integers of the type `kind`."""
        return self._number(name, kind, _USUAL[kind])

    def time(self, name: str) -> pa.Array:
        """Times in UTC, in milliseconds."""
        column = pa.array([row.get(name) or None for row in self._rows], pa.string())
        matches = pc.match_substring_regex(column, _TIME)
        try:
            times = pc.if_else(matches, column, None).cast(pa.timestamp("ms"))
        except pa.ArrowInvalid:  # such as the 31st of June
            matches, times = pc.if_else(pc.is_valid(column), False, None), pa.nulls(len(column), pa.timestamp("ms"))
        self._expect(matches)
        return times.cast(pa.timestamp("ms", tz="UTC"))

    def _number(self, name: str, kind: pa.DataType, pattern: str, may_lack: bool = True) -> pa.Array:
        column = pa.array([row.get(name) or None for row in self._rows], pa.string())
        matches = pc.match_substring_regex(column, pattern)
        self._expect(matches, may_lack)
        return pc.if_else(matches, column, None).cast(pa.int64()).cast(kind)

    def _expect(self, matches: pa.Array, may_lack: bool = True) -> None:
        self.is_usual = pc.and_(self.is_usual, pc.fill_null(matches, may_lack))
