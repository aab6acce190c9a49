"""Compiled search for web addresses in UTF-8: exactly those of `tokens.normal_form`."""

import numpy as np

from dupq.kernel_cache import Integer, numba
from dupq.text.characters import IN_ADDRESS
from dupq.text.packed_bytes import equal_in_64
from dupq.text.utf8 import decode

_U = np.uint64  # an unsigned index spares the kernels the check for a negative one
_W, _COLON, _SLASH = np.uint8(ord("w")), np.uint8(ord(":")), np.uint8(ord("/"))
_LONG_S = 0x17F  # regex takes it for an s where case does not matter


@numba.njit(nogil=True, cache=True)
def may_have_address(normal: np.ndarray, length: Integer) -> bool:
    """Whether there is a :/ or ww; behind `normal[:length]` is room."""
    found = _U(0)
    for chunk in range(0, length, 64):
        found |= equal_in_64(normal, chunk, _W) & equal_in_64(normal, chunk + 1, _W)
        found |= equal_in_64(normal, chunk, _COLON) & equal_in_64(normal, chunk + 1, _SLASH)
    return found != 0


@numba.njit(nogil=True, cache=True)
def has_address(data: np.ndarray, start: Integer, end: Integer) -> bool:
    """Whether :// or www. is in the text, which `tokens` checks first."""
    for at in range(start, end - 2):
        byte = data[_U(at)]
        if byte == 58 and data[_U(at + 1)] == 47 and data[_U(at + 2)] == 47:
            return True
        is_www = byte == 119 and data[_U(at + 1)] == 119 and data[_U(at + 2)] == 119
        if is_www and at + 3 < end and data[_U(at + 3)] == 46:
            return True
    return False


@numba.njit(nogil=True, cache=True)
def may_begin_address(byte: np.uint8) -> bool:
    """Whether an address may begin with the byte."""
    letter = byte | 32
    return letter == 104 or letter == 102 or letter == 119  # h, f, w


@numba.njit(nogil=True, cache=True)
def address_end(data: np.ndarray, start: Integer, end: Integer, kinds: np.ndarray) -> Integer:
    """Where the web address that begins at `start` ends; `start` if none does."""
    at = _scheme_end(data, start, end)
    first = at
    while start < at < end:
        code, size = decode(data, at, end)
        if size == 0 or not kinds[_U(code)] & IN_ADDRESS:
            break
        at += size
    return at if at > first else start


@numba.njit(nogil=True, cache=True)
def _scheme_end(data: np.ndarray, start: Integer, end: Integer) -> Integer:
    """Where http://, https://, ftp:// or www. ends, in whatever case; `start` if it is not there."""
    first = _letter(data, start, end)
    second, third = _letter(data, start + 1, end), _letter(data, start + 2, end)
    if first == 119:  # www.
        is_there = second == 119 and third == 119 and _letter(data, start + 3, end) == 46
        return start + 4 if is_there else start
    if first == 102 and second == 116 and third == 112:  # ftp
        return _colon_end(data, start, start + 3, end)
    if first == 104 and second == 116 and third == 116 and _letter(data, start + 3, end) == 112:  # http
        after = start + 4
        if _letter(data, after, end) == 115:
            after += 1
        elif after < end:
            code, size = decode(data, after, end)
            after += size if code == _LONG_S else 0
        return _colon_end(data, start, after, end)
    return start


@numba.njit(nogil=True, cache=True)
def _letter(data: np.ndarray, at: Integer, end: Integer) -> Integer:
    """The byte at `at` in lower case; 0 behind the end."""
    if at >= end:
        return 0
    byte = np.int64(data[_U(at)])
    return byte | 32 if 65 <= byte <= 90 else byte


@numba.njit(nogil=True, cache=True)
def _colon_end(data: np.ndarray, start: Integer, at: Integer, end: Integer) -> Integer:
    is_there = at + 3 <= end and data[_U(at)] == 58 and data[_U(at + 1)] == 47 and data[_U(at + 2)] == 47
    return at + 3 if is_there else start
