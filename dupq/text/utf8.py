"""Compiled reading and writing of UTF-8 in place: characters and stretches of bytes."""

import numpy as np

from dupq.kernel_cache import Integer, numba

_U = np.uint64  # an unsigned index spares the kernels the check for a negative one


@numba.njit(nogil=True, cache=True)
def decode(data: np.ndarray, at: Integer, end: Integer) -> tuple[Integer, int]:
    """The code point at `at` and its number of bytes, 0 where there is no valid UTF-8."""
    lead = np.int64(data[_U(at)])
    if lead < 0x80:
        return lead, 1
    size = 2 if 0xC2 <= lead <= 0xDF else 3 if 0xE0 <= lead <= 0xEF else 4 if 0xF0 <= lead <= 0xF4 else 0
    if size == 0 or at + size > end:
        return np.int64(0), 0
    code = lead & (0x7F >> size)
    for place in range(1, size):
        byte = np.int64(data[_U(at + place)])
        if byte & 0xC0 != 0x80:
            return np.int64(0), 0
        code = code << 6 | (byte & 63)
    is_surrogate = 0xD800 <= code < 0xE000
    is_too_long = (size == 3 and code < 0x800) or (size == 4 and code < 0x10000)
    if is_surrogate or is_too_long or code > 0x10FFFF:
        return np.int64(0), 0
    return code, size


@numba.njit(nogil=True, cache=True)
def decode_valid(normal: np.ndarray, at: Integer) -> tuple[Integer, int]:
    """The code point at `at` of valid UTF-8, and its number of bytes."""
    lead = np.int64(normal[_U(at)])
    if lead < 0x80:
        return lead, 1
    return _beyond_ascii(normal, at, lead)


@numba.njit(nogil=True, cache=True)
def _beyond_ascii(normal: np.ndarray, at: Integer, lead: Integer) -> tuple[Integer, int]:
    second = np.int64(normal[_U(at + 1)]) & 63
    if lead < 0xE0:
        return (lead & 31) << 6 | second, 2
    third = np.int64(normal[_U(at + 2)]) & 63
    if lead < 0xF0:
        return (lead & 15) << 12 | second << 6 | third, 3
    return (lead & 7) << 18 | second << 12 | third << 6 | np.int64(normal[_U(at + 3)]) & 63, 4


@numba.njit(nogil=True, cache=True)
def write_bytes(source: np.ndarray, start: Integer, end: Integer, target: np.ndarray, length: Integer) -> Integer:
    """Append bytes to `target`, which has `length`; its new length."""
    for place in range(end - start):
        target[_U(length + place)] = source[_U(start + place)]
    return length + end - start


@numba.njit(nogil=True, cache=True)
def write_character(source: np.ndarray, at: Integer, size: Integer, target: np.ndarray, length: Integer) -> Integer:
    """As `write_bytes` for one character, of one to four bytes: no loop that is made ready for more."""
    target[_U(length)] = source[_U(at)]
    if size > 1:
        target[_U(length + 1)] = source[_U(at + 1)]
    if size > 2:
        target[_U(length + 2)] = source[_U(at + 2)]
    if size > 3:
        target[_U(length + 3)] = source[_U(at + 3)]
    return length + size
