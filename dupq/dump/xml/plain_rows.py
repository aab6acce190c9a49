"""Compiled parsing of rows in the plain form that dumps are written in; any other row is left to `rows.py`.

A plain row is `<row Name="value" … />` and white space up to the next row: either quotes, names of letters, no
name twice, no raw control character but tabs, valid UTF-8, and only references to characters that XML allows. Of such
rows this module gives exactly what `rows.parse_row` and the parsers of posts and links give, about a hundred
times as fast; whatever is not plain, or not certain, is handed back as a stretch of bytes for the slow way, so
that there is one place that decides what is broken and why.
"""

from typing import NamedTuple

import numpy as np

from dupq.dump.xml.segments import MAXIMUM_ROW
from dupq.kernel_cache import Integer, numba

STRING, INTEGER, DATE = 0, 1, 2

_U = np.uint64  # an unsigned index spares the kernel the check for a negative one
_LONGEST_NAME = 32
_MOST_ATTRIBUTES = 64
_FNV_START, _FNV_PRIME = np.uint64(0xCBF29CE484222325), np.uint64(0x100000001B3)

# What a byte inside an attribute's value means: itself, perhaps the end, a reference, non-ASCII, a tab, not plain.
_TEXT, _QUOTE, _AMPERSAND, _HIGH, _TAB, _ODD = 0, 1, 2, 3, 4, 5
_CLASSES = np.zeros(256, np.uint8)
_CLASSES[:0x20] = _ODD
_CLASSES[ord("\t")] = _TAB  # XML reads it as a space
_CLASSES[ord("<")] = _ODD
_CLASSES[[ord('"'), ord("'")]] = _QUOTE
_CLASSES[ord("&")] = _AMPERSAND
_CLASSES[0x80:] = _HIGH


NEVER, ALWAYS = -1, 0


class Attribute(NamedTuple):
    """An attribute to read. `lowest` and `highest` bound an integer's value, or a string's bytes by `highest`.

    Integers and dates may be required.
    """

    name: str
    kind: int  # STRING, INTEGER or DATE
    required: int = NEVER  # or ALWAYS, or the selector's value of the rows that must have it
    lowest: int = -(1 << 63)
    highest: int = (1 << 63) - 1


class Layout(NamedTuple):
    """What the kernel reads of each row: one array element for each attribute."""

    names: np.ndarray  # (attributes, _LONGEST_NAME) uint8
    lengths: np.ndarray  # of the names
    hashes: np.ndarray  # of the names, uint64
    kinds: np.ndarray
    places: np.ndarray  # the attribute's row in PlainRows.numbers or in PlainRows.texts
    required: np.ndarray
    lowest: np.ndarray
    highest: np.ndarray
    selector: int  # the attribute that says which rows are kept, or -1 to keep all
    kept: np.ndarray  # the selector's values of kept rows
    unsure: np.ndarray  # values of the first attribute that are left to the slow way


class PlainRows(NamedTuple):
    """Columns of the kept rows, in the order of the file, and what else there was."""

    starts: np.ndarray  # (rows,) where each row begins
    numbers: np.ndarray  # (integers and dates, rows) int64; dates in milliseconds since 1970
    present: np.ndarray  # like numbers: whether there is a value
    offsets: np.ndarray  # (strings, rows + 1) int32, as Arrow has them; an absent string is empty
    texts: np.ndarray  # (strings, bytes) uint8, UTF-8
    others: np.ndarray  # where each plain row begins that the selector does not keep
    odd: np.ndarray  # (odd rows, 2) start and end of each row for the slow way


def layout(
    attributes: tuple[Attribute, ...],
    selector: str | None = None,
    kept: tuple[int, ...] = (),
    unsure: tuple[int, ...] = (),
) -> Layout:
    """The kernel's form of `attributes`."""
    names = np.zeros((len(attributes), _LONGEST_NAME), np.uint8)
    for index, attribute in enumerate(attributes):
        names[index, : len(attribute.name)] = np.frombuffer(attribute.name.encode(), np.uint8)
    kinds = np.array([attribute.kind for attribute in attributes], np.int64)
    is_text = kinds == STRING
    return Layout(
        names,
        np.array([len(attribute.name) for attribute in attributes], np.int64),
        np.array([_hash(attribute.name) for attribute in attributes], np.uint64),
        kinds,
        np.where(is_text, np.cumsum(is_text) - 1, np.cumsum(~is_text) - 1),
        np.array([attribute.required for attribute in attributes], np.int64),
        np.array([attribute.lowest for attribute in attributes], np.int64),
        np.array([attribute.highest for attribute in attributes], np.int64),
        -1 if selector is None else [attribute.name for attribute in attributes].index(selector),
        np.array(kept, np.int64),
        np.array(unsure, np.int64),
    )


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
    marks[_find_marks(data, _CLASSES, marks)] = len(data)
    kept, others, odd = _parse(data, attributes, found, _CLASSES, marks, MAXIMUM_ROW)
    return found._replace(
        starts=found.starts[:kept],
        numbers=found.numbers[:, :kept],
        present=found.present[:, :kept],
        offsets=found.offsets[:, : kept + 1],
        others=found.others[:others],
        odd=found.odd[:odd],
    )


def _hash(name: str) -> np.uint64:
    value = int(_FNV_START)
    for byte in name.encode():
        value = (value ^ byte) * int(_FNV_PRIME) & 0xFFFFFFFFFFFFFFFF
    return np.uint64(value)


@numba.njit(nogil=True, cache=True)
def _find_marks(data: np.ndarray, classes: np.ndarray, marks: np.ndarray) -> int:
    """The positions and number of the bytes with a special meaning; fast, as it has no branches."""
    count = 0
    for at in range(len(data)):
        marks[_U(count)] = at
        count += classes[data[_U(at)]] != _TEXT
    return count


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
        value = _FNV_START
        while at < size and (97 <= data[_U(at)] <= 122 or 65 <= data[_U(at)] <= 90):
            value = (value ^ np.uint64(data[_U(at)])) * _FNV_PRIME
            at += 1
        if at == name or at - name >= _LONGEST_NAME or at + 2 >= size:
            return -1, False
        if data[_U(at)] != 61 or classes[data[_U(at + 1)]] != _QUOTE or _is_reserved(data, name):  # =
            return -1, False
        for other in range(names):
            if seen[_U(other)] == value:
                return -1, False
        seen[_U(names)] = value
        names += 1
        known = _known(data, name, at - name, value, attributes)
        at += 2
        if known < 0 or (not is_wanted and known != 0):
            at, mark = _skip_value(data, at, classes, marks, mark)
            if at < 0:
                return -1, False
            continue
        first = at
        place = attributes.places[known]
        kind = attributes.kinds[known]
        if kind == STRING:
            begin = found.offsets[place, row]
            at, end, mark = _text(data, at, found.texts[place], begin, classes, marks, mark)
            if at < 0 or end - begin > attributes.highest[known]:
                return -1, False
            found.offsets[place, row + 1] = end
            continue
        at, mark = _skip_value(data, at, classes, marks, mark)
        if at < 0:
            return -1, False
        if at - 1 == first:
            continue
        if kind == INTEGER:
            number, is_good = _integer(data, first, at - 1)
            is_good = is_good and attributes.lowest[known] <= number <= attributes.highest[known]
        else:
            number, is_good = _date(data, first, at - 1)
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


@numba.njit(nogil=True, cache=True)
def _skip_value(
    data: np.ndarray, at: Integer, classes: np.ndarray, marks: np.ndarray, mark: int
) -> tuple[Integer, int]:
    """Where the value that begins at `at`, behind its quote, ends, past its other quote; -1 if it is not plain.

    And the next mark: those before `at` are passed over.
    """
    size, quote = len(data), data[_U(at - 1)]
    while True:
        while marks[_U(mark)] < at:
            mark += 1
        at = np.int64(marks[_U(mark)])
        if at == size:
            return -1, mark
        meaning = classes[data[_U(at)]]
        if meaning == _QUOTE:
            at += 1
            if data[_U(at - 1)] == quote:
                return at, mark
        elif meaning == _AMPERSAND:
            at, _ = _reference(data, at)
            if at < 0:
                return -1, mark
        elif meaning == _HIGH:
            length = _utf8_length(data, at)
            if length == 0:
                return -1, mark
            at += length
        elif meaning == _TAB:
            at += 1
        else:
            return -1, mark


@numba.njit(nogil=True, cache=True)
def _text(
    data: np.ndarray, at: Integer, texts: np.ndarray, end: Integer, classes: np.ndarray, marks: np.ndarray, mark: int
) -> tuple[Integer, Integer, int]:
    """Decode the value at `at` to `texts` from `end` on; where both end, -1 if it is not plain; the next mark."""
    size, quote = len(data), data[_U(at - 1)]
    while True:
        while marks[_U(mark)] < at:
            mark += 1
        length: Integer = np.int64(marks[_U(mark)]) - at
        for place in range(length):
            texts[_U(end + place)] = data[_U(at + place)]
        end += length
        at += length
        if at == size:
            return -1, end, mark
        byte = data[_U(at)]
        meaning = classes[byte]
        if meaning == _QUOTE:
            at += 1
            if byte == quote:
                return at, end, mark
            texts[_U(end)] = byte
            end += 1
        elif meaning == _AMPERSAND:
            at, code = _reference(data, at)
            if at < 0:
                return -1, end, mark
            end = _encode(code, texts, end)
        elif meaning == _HIGH:
            length = _utf8_length(data, at)
            if length == 0:
                return -1, end, mark
            for place in range(length):
                texts[_U(end + place)] = data[_U(at + place)]
            end += length
            at += length
        elif meaning == _TAB:
            texts[_U(end)] = 32
            end += 1
            at += 1
        else:
            return -1, end, mark


@numba.njit(nogil=True, cache=True, inline="always")
def _reference(data: np.ndarray, at: Integer) -> tuple[Integer, Integer]:
    """The character of the reference at `at`, and where it ends; -1 if it is not plain."""
    if at + 6 >= len(data):
        return -1, 0
    second, third, fourth = data[_U(at + 1)], data[_U(at + 2)], data[_U(at + 3)]
    if third == 116 and fourth == 59:  # t;
        if second == 108:  # l
            return at + 4, 60
        if second == 103:  # g
            return at + 4, 62
        return -1, 0
    if second == 35:  # #
        return _character(data, at + 2)
    if second == 97 and third == 109 and fourth == 112 and data[_U(at + 4)] == 59:  # amp;
        return at + 5, 38
    if second == 113 and third == 117 and fourth == 111 and data[_U(at + 4)] == 116 and data[_U(at + 5)] == 59:  # quot;
        return at + 6, 34
    if second == 97 and third == 112 and fourth == 111 and data[_U(at + 4)] == 115 and data[_U(at + 5)] == 59:  # apos;
        return at + 6, 39
    return -1, 0


@numba.njit(nogil=True, cache=True)
def _character(data: np.ndarray, at: Integer) -> tuple[Integer, Integer]:
    """The code point of a reference by number, whose number (`10` or `xA`) begins at `at`."""
    is_hexadecimal = data[_U(at)] == 120
    base = 16 if is_hexadecimal else 10
    at += is_hexadecimal
    first, code = at, np.int64(0)
    while at < len(data) and at - first < 8:
        byte = data[_U(at)]
        if 48 <= byte <= 57:
            digit = np.int64(byte) - 48
        elif is_hexadecimal and 97 <= (byte | 32) <= 102:
            digit = np.int64(byte | 32) - 87
        else:
            break
        code = code * base + digit
        at += 1
    if at == first or at >= len(data) or data[_U(at)] != 59 or not _is_allowed(code):
        return -1, 0
    return at + 1, code


@numba.njit(nogil=True, cache=True)
def _is_allowed(code: Integer) -> bool | np.bool:
    """Whether XML allows the character."""
    if code < 0x20:
        return code == 9 or code == 10 or code == 13
    return code < 0xD800 or 0xE000 <= code < 0xFFFE or 0x10000 <= code < 0x110000


@numba.njit(nogil=True, cache=True)
def _encode(code: Integer, texts: np.ndarray, end: Integer) -> Integer:
    """Write the character as UTF-8; returns where it ends."""
    if code < 0x80:
        texts[_U(end)] = code
        return end + 1
    if code < 0x800:
        texts[_U(end)] = 0xC0 | code >> 6
        texts[_U(end + 1)] = 0x80 | code & 63
        return end + 2
    if code < 0x10000:
        texts[_U(end)] = 0xE0 | code >> 12
        texts[_U(end + 1)] = 0x80 | code >> 6 & 63
        texts[_U(end + 2)] = 0x80 | code & 63
        return end + 3
    texts[_U(end)] = 0xF0 | code >> 18
    texts[_U(end + 1)] = 0x80 | code >> 12 & 63
    texts[_U(end + 2)] = 0x80 | code >> 6 & 63
    texts[_U(end + 3)] = 0x80 | code & 63
    return end + 4


@numba.njit(nogil=True, cache=True)
def _utf8_length(data: np.ndarray, at: Integer) -> int:
    """The bytes of the non-ASCII character at `at`; 0 if it is no valid UTF-8 or XML forbids it."""
    lead = data[_U(at)]
    length = 2 if 0xC2 <= lead <= 0xDF else 3 if 0xE0 <= lead <= 0xEF else 4 if 0xF0 <= lead <= 0xF4 else 0
    if length == 0 or at + length > len(data):
        return 0
    code = np.int64(lead) & (0x7F >> length)
    for place in range(1, length):
        byte = data[_U(at + place)]
        if byte & 0xC0 != 0x80:
            return 0
        code = code << 6 | np.int64(byte & 63)
    is_shortest = length == 2 or (length == 3 and code >= 0x800) or (length == 4 and code >= 0x10000)
    return length if is_shortest and _is_allowed(code) else 0


@numba.njit(nogil=True, cache=True)
def _integer(data: np.ndarray, start: Integer, end: Integer) -> tuple[Integer, bool]:
    """The number between `start` and `end`, written in the one usual way."""
    is_negative = data[_U(start)] == 45
    first = start + is_negative
    if end == first or end - first > 18 or (data[_U(first)] == 48 and end - start > 1):
        return 0, False
    number = np.int64(0)
    for at in range(first, end):
        if not 48 <= data[_U(at)] <= 57:
            return 0, False
        number = number * 10 + np.int64(data[_U(at)]) - 48
    return -number if is_negative else number, True


@numba.njit(nogil=True, cache=True)
def _digits(data: np.ndarray, start: Integer, count: int) -> Integer:
    """The number in `count` digits; -1 if one of them is no digit."""
    number = np.int64(0)
    for at in range(start, start + count):
        if not 48 <= data[_U(at)] <= 57:
            return -1
        number = number * 10 + np.int64(data[_U(at)]) - 48
    return number


@numba.njit(nogil=True, cache=True)
def _date(data: np.ndarray, start: Integer, end: Integer) -> tuple[Integer, bool]:
    """The milliseconds since 1970 of `2012-03-06T19:06:05` or `2012-03-06T19:06:05.667`, in UTC."""
    if end - start != 19 and end - start != 23:
        return 0, False
    has_marks = (
        data[_U(start + 4)] == 45
        and data[_U(start + 7)] == 45
        and data[_U(start + 10)] == 84
        and data[_U(start + 13)] == 58
        and data[_U(start + 16)] == 58
    )
    year, month, day = _digits(data, start, 4), _digits(data, start + 5, 2), _digits(data, start + 8, 2)
    hour, minute, second = _digits(data, start + 11, 2), _digits(data, start + 14, 2), _digits(data, start + 17, 2)
    fraction: Integer = 0
    if end - start == 23:
        has_marks = has_marks and data[_U(start + 19)] == 46
        fraction = _digits(data, start + 20, 3)
    if not has_marks or year < 1 or not 1 <= month <= 12 or fraction < 0:
        return 0, False
    if not 1 <= day <= _month_length(year, month) or not 0 <= hour < 24 or not 0 <= minute < 60 or not 0 <= second < 60:
        return 0, False
    seconds = ((_days(year, month, day) * 24 + hour) * 60 + minute) * 60 + second
    return seconds * 1000 + fraction, True


@numba.njit(nogil=True, cache=True)
def _month_length(year: Integer, month: Integer) -> int:
    if month == 2:
        return 29 if year % 4 == 0 and (year % 100 != 0 or year % 400 == 0) else 28
    return 30 if month == 4 or month == 6 or month == 9 or month == 11 else 31


@numba.njit(nogil=True, cache=True)
def _days(year: Integer, month: Integer, day: Integer) -> Integer:
    """Days since 1970-01-01 in the Gregorian calendar, counted in years that begin in March."""
    shifted = year - (month <= 2)
    since_march = (month + 9) % 12
    return 365 * shifted + shifted // 4 - shifted // 100 + shifted // 400 + (153 * since_march + 2) // 5 + day - 719469
