"""Compiled parsing of rows in the plain form that dumps are written in; any other row is left to `rows.py`.

A plain row is `<row Name="value" … />` and white space up to the next row: either quotes, names of letters, no
name twice, no raw control character but tabs, valid UTF-8, and only references to characters that XML allows. Of such
rows this module gives exactly what `rows.parse_row` and the parsers of posts and links give, about a hundred
times as fast; whatever is not plain, or not certain, is handed back as a stretch of bytes for the slow way, so
that there is one place that decides what is broken and why.

`row_layout.py` has what is read of a row, `plain_values.py` and `plain_numbers.py` how values are read.
"""

from typing import NamedTuple

import numpy as np

from dupq.dump.xml.plain_numbers import date, integer
from dupq.dump.xml.plain_values import CLASSES, QUOTE, decode_value, find_marks, skip_value
from dupq.dump.xml.row_layout import ALWAYS, FNV_PRIME, FNV_START, INTEGER, LONGEST_NAME, STRING, Layout
from dupq.dump.xml.segments import MAXIMUM_ROW
from dupq.kernel_cache import Integer, numba

_U = np.uint64  # an unsigned index spares the kernels the check for a negative one
_MOST_ATTRIBUTES = 64


class PlainRows(NamedTuple):
    """Columns of the kept rows, in the order of the file, and what else there was."""

    starts: np.ndarray  # (rows,) where each row begins
    numbers: np.ndarray  # (integers and dates, rows) int64; dates in milliseconds since 1970
    present: np.ndarray  # like numbers: whether there is a value
    offsets: np.ndarray  # (strings, rows + 1) int32, as Arrow has them; an absent string is empty
    texts: np.ndarray  # (strings, bytes) uint8, UTF-8
    others: np.ndarray  # where each plain row begins that the selector does not keep
    odd: np.ndarray  # (odd rows, 2) start and end of each row for the slow way


def parse_plain_rows(data: np.ndarray, attributes: Layout) -> PlainRows:
    """The rows in `data` (uint8), which begins with the start of a row and ends where a row ends."""
    rows = int(_count(data))
    strings = int((attributes.kinds == STRING).sum())
    numbers = len(attributes.kinds) - strings
    found = PlainRows(
        np.empty(rows, np.int64),
        np.zeros((numbers, rows), np.int64),
        np.zeros((numbers, rows), np.bool_),
        np.zeros((strings, rows + 1), np.int32),
        np.empty((strings, len(data)), np.uint8),  # the pages that no text reaches are never touched
        np.empty(rows, np.int64),
        np.empty((rows, 2), np.int64),
    )
    marks = np.empty(len(data) + 1, np.int32)  # likewise
    marks[find_marks(data, CLASSES, marks)] = len(data)
    kept, others, odd = _parse(data, attributes, found, CLASSES, marks, MAXIMUM_ROW)
    return found._replace(
        starts=found.starts[:kept],
        numbers=found.numbers[:, :kept],
        present=found.present[:, :kept],
        offsets=found.offsets[:, : kept + 1],
        others=found.others[:others],
        odd=found.odd[:odd],
    )


@numba.njit(nogil=True, cache=True)
def _count(data: np.ndarray) -> int:
    count = 0
    for byte in data:
        count += byte == 60
    return count


@numba.njit(nogil=True, cache=True)
def _parse(
    data: np.ndarray, attributes: Layout, found: PlainRows, classes: np.ndarray, marks: np.ndarray, longest: int
) -> tuple[int, int, int]:
    """Fill `found`; returns how many rows were kept, left out by the selector, and odd."""
    kept = others = odd = 0
    start = mark = 0
    seen = np.empty(_MOST_ATTRIBUTES, np.uint64)
    while start < len(data):
        while marks[_U(mark)] < start:
            mark += 1
        end, is_wanted = _row(data, start, attributes, found, kept, classes, seen, marks, mark)
        if end < 0 or end - start > longest:
            end = _next_row(data, start + 1)
            found.odd[odd, 0] = start
            found.odd[odd, 1] = end
            odd += 1
            _clear(found, kept)
        elif is_wanted:
            found.starts[kept] = start
            kept += 1
            if kept < found.offsets.shape[1]:
                _open(found, kept)
        else:
            found.others[others] = start
            others += 1
            _clear(found, kept)
        start = end  # type: ignore[assignment]  # an Integer
    return kept, others, odd


@numba.njit(nogil=True, cache=True, inline="always")
def _open(found: PlainRows, row: int) -> None:
    """Row `row`'s texts begin where those of the row before ended, whether it will have any or not."""
    for place in range(found.offsets.shape[0]):
        if row + 1 < found.offsets.shape[1]:
            found.offsets[place, row + 1] = found.offsets[place, row]


@numba.njit(nogil=True, cache=True)
def _clear(found: PlainRows, row: int) -> None:
    """Forget what was read for `row`."""
    _open(found, row)
    for place in range(found.present.shape[0]):
        found.present[place, row] = False
        found.numbers[place, row] = 0


@numba.njit(nogil=True, cache=True)
def _is_space(byte: np.uint8) -> bool | np.bool:
    return byte == 32 or byte == 10 or byte == 13 or byte == 9


@numba.njit(nogil=True, cache=True)
def _is_row_start(data: np.ndarray, at: Integer) -> bool | np.bool:
    return (
        at + 4 < len(data)
        and data[_U(at)] == 60  # <
        and data[_U(at + 1)] == 114  # r
        and data[_U(at + 2)] == 111  # o
        and data[_U(at + 3)] == 119  # w
        and _is_space(data[_U(at + 4)])
    )


@numba.njit(nogil=True, cache=True)
def _next_row(data: np.ndarray, at: Integer) -> Integer:
    while at < len(data) and not (data[_U(at)] == 60 and _is_row_start(data, at)):
        at += 1
    return at


@numba.njit(nogil=True, cache=True)
def _row(
    data: np.ndarray,
    start: Integer,
    attributes: Layout,
    found: PlainRows,
    row: int,
    classes: np.ndarray,
    seen: np.ndarray,
    marks: np.ndarray,
    mark: int,
) -> tuple[Integer, bool]:
    """Read the row at `start`; returns where the next one begins, -1 if it is odd, and whether it is kept."""
    size = len(data)
    if not _is_row_start(data, start):
        return -1, False
    at = start + 5
    names = 0
    is_wanted = True
    while True:
        while at < size and _is_space(data[_U(at)]):
            at += 1
        if at + 1 >= size:
            return -1, False
        if data[_U(at)] == 47:  # /
            break
        if not _is_space(data[_U(at - 1)]) or names == _MOST_ATTRIBUTES:
            return -1, False
        name = at
        value = FNV_START
        while at < size and (97 <= data[_U(at)] <= 122 or 65 <= data[_U(at)] <= 90):
            value = (value ^ np.uint64(data[_U(at)])) * FNV_PRIME
            at += 1
        if at == name or at - name >= LONGEST_NAME or at + 2 >= size:
            return -1, False
        if data[_U(at)] != 61 or classes[data[_U(at + 1)]] != QUOTE or _is_reserved(data, name):  # =
            return -1, False
        for other in range(names):
            if seen[_U(other)] == value:
                return -1, False
        seen[_U(names)] = value
        names += 1
        known = _known(data, name, at - name, value, attributes)
        at += 2
        if known < 0 or (not is_wanted and known != 0):
            at, mark = skip_value(data, at, classes, marks, mark)
            if at < 0:
                return -1, False
            continue
        first = at
        place = attributes.places[known]
        kind = attributes.kinds[known]
        if kind == STRING:
            begin = found.offsets[place, row]
            at, end, mark = decode_value(data, at, found.texts[place], begin, classes, marks, mark)
            if at < 0 or end - begin > attributes.highest[known]:
                return -1, False
            found.offsets[place, row + 1] = end
            continue
        at, mark = skip_value(data, at, classes, marks, mark)
        if at < 0:
            return -1, False
        if at - 1 == first:
            continue
        if kind == INTEGER:
            number, is_good = integer(data, first, at - 1)
            is_good = is_good and attributes.lowest[known] <= number <= attributes.highest[known]
        else:
            number, is_good = date(data, first, at - 1)
        if not is_good:
            return -1, False
        if known == 0:
            for unsure in attributes.unsure:
                if number == unsure:
                    return -1, False
        if known == attributes.selector:
            is_wanted = False
            for kept in attributes.kept:
                if number == kept:
                    is_wanted = True
        found.numbers[place, row] = number
        found.present[place, row] = True
    if data[_U(at + 1)] != 62:  # >
        return -1, False
    at += 2
    while at < size and _is_space(data[_U(at)]):
        at += 1
    if at < size and not _is_row_start(data, at):
        return -1, False
    if is_wanted and not _is_complete(attributes, found, row):
        return -1, False
    return at, is_wanted


@numba.njit(nogil=True, cache=True)
def _is_complete(attributes: Layout, found: PlainRows, row: int) -> bool:
    """Whether the row has all that it must have."""
    selected = np.int64(0)
    if attributes.selector >= 0:
        selected = found.numbers[attributes.places[attributes.selector], row]
    for known in range(len(attributes.required)):
        required = attributes.required[known]
        is_needed = required == ALWAYS or (required > 0 and required == selected)
        if is_needed and not found.present[attributes.places[known], row]:
            return False
    return True


@numba.njit(nogil=True, cache=True)
def _is_reserved(data: np.ndarray, name: Integer) -> bool:
    """Whether the name begins with xml, which names of XML's own do."""
    return (data[_U(name)] | 32) == 120 and (data[_U(name + 1)] | 32) == 109 and (data[_U(name + 2)] | 32) == 108


@numba.njit(nogil=True, cache=True, inline="always")
def _known(data: np.ndarray, name: Integer, length: Integer, value: np.uint64, attributes: Layout) -> int:
    """Which attribute has this name, -1 for none."""
    for index in range(len(attributes.hashes)):
        if attributes.hashes[index] == value and attributes.lengths[index] == length:
            for place in range(length):
                if data[_U(name + place)] != attributes.names[index, place]:
                    return -1
            return index
    return -1
