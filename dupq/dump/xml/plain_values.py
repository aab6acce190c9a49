"""Compiled reading of an attribute's value in a plain row: where it ends, and its text with all references resolved.

The bytes with a special meaning, the marks, are found for all rows before one is read; those between two marks stand
for themselves and are copied at once.
"""

import numpy as np

from dupq.kernel_cache import Integer, numba

_U = np.uint64  # an unsigned index spares the kernels the check for a negative one

# What a byte inside an attribute's value means: itself, perhaps the end, a reference, non-ASCII, a tab, not plain.
_TEXT, QUOTE, _AMPERSAND, _HIGH, _TAB, _ODD = 0, 1, 2, 3, 4, 5
CLASSES = np.zeros(256, np.uint8)
CLASSES[:0x20] = _ODD
CLASSES[ord("\t")] = _TAB  # XML reads it as a space
CLASSES[ord("<")] = _ODD
CLASSES[[ord('"'), ord("'")]] = QUOTE
CLASSES[ord("&")] = _AMPERSAND
CLASSES[0x80:] = _HIGH


@numba.njit(nogil=True, cache=True)
def find_marks(data: np.ndarray, classes: np.ndarray, marks: np.ndarray) -> int:
    """The positions and number of the bytes with a special meaning; fast, as it has no branches."""
    count = 0
    for at in range(len(data)):
        marks[_U(count)] = at
        count += classes[data[_U(at)]] != _TEXT
    return count


@numba.njit(nogil=True, cache=True)
def skip_value(data: np.ndarray, at: Integer, classes: np.ndarray, marks: np.ndarray, mark: int) -> tuple[Integer, int]:
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
        if meaning == QUOTE:
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
def decode_value(
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
        if meaning == QUOTE:
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
