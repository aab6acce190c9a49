"""The compiled normal form of a text in UTF-8: addresses become LINK_MARK, then NFKC as it is read, without case.

It is exactly that of `tokens.normal_form`, to which a text is left whose form depends on more than single characters.
"""

import numpy as np

from dupq.kernel_cache import Integer, numba
from dupq.text.characters import UNSURE, Characters
from dupq.text.html import LINK_MARK
from dupq.text.packed_bytes import beyond_ascii_in_64, lower_64, lowest_bit
from dupq.text.utf8 import decode, write_bytes, write_character
from dupq.text.web_addresses import address_end, has_address, may_begin_address, may_have_address

_U = np.uint64  # an unsigned index spares the kernels the check for a negative one
LINK_BYTES = np.frombuffer(LINK_MARK.encode(), np.uint8)


@numba.njit(nogil=True, cache=True)
def write_normal_form(data: np.ndarray, start: Integer, end: Integer, known: Characters, normal: np.ndarray) -> Integer:
    """Write the text's normal form to `normal`; its length, or -1 if it takes the slow way."""
    is_ascii = _write_lower(data, start, end, normal, 0)
    if may_have_address(normal, end - start) and has_address(data, start, end):
        return _without_addresses(data, start, end, known, normal)
    if is_ascii or _are_normal(data, start, end, known.forms):
        return end - start
    return _normal_characters(data, start, end, known, normal, np.int64(0))


@numba.njit(nogil=True, cache=True)
def _are_normal(data: np.ndarray, at: Integer, end: Integer, forms: np.ndarray) -> bool:
    """Whether all characters beyond ASCII are their own forms, so that nothing but the case of ASCII may change."""
    while True:
        at = _ascii_end(data, at, end)
        if at == end:
            return True
        code, size = decode(data, at, end)
        if size == 0 or forms[_U(code)] != 0:
            return False
        at += size


@numba.njit(nogil=True, cache=True)
def _without_addresses(
    data: np.ndarray, start: Integer, end: Integer, known: Characters, normal: np.ndarray
) -> Integer:
    """As `write_normal_form`, with LINK_MARK for each web address.

    It is no mark, has no case, and composes with nothing.
    """
    length: Integer = np.int64(0)
    at = begin = start
    while at < end:
        after = address_end(data, at, end, known.kinds) if may_begin_address(data[_U(at)]) else at
        if after > at:
            length = _normal_characters(data, begin, at, known, normal, length)
            if length < 0:
                return -1
            length = write_bytes(LINK_BYTES, 0, 3, normal, length)
            at = begin = after
        else:
            at += 1
    return _normal_characters(data, begin, end, known, normal, length)


@numba.njit(nogil=True, cache=True)
def _normal_characters(
    data: np.ndarray, at: Integer, end: Integer, known: Characters, normal: np.ndarray, length: Integer
) -> Integer:
    """Append the normal form of a stretch to `normal`, which has `length`; its new length, or -1 for the slow way."""
    last_class = np.uint8(0)
    while at < end:
        if data[_U(at)] < 128:
            after = _ascii_end(data, at, end)
            _write_lower(data, at, after, normal, length)
            length += after - at
            at = after
            last_class = np.uint8(0)
            continue
        code, size = decode(data, at, end)
        if size == 0:
            return -1
        form = known.forms[_U(code)]
        if form == 0:
            length = write_character(data, at, size, normal, length)
            last_class = np.uint8(0)
        else:
            first_class = known.first_class[form]
            is_disordered = first_class != 0 and first_class < last_class
            if first_class == UNSURE or is_disordered:
                return -1
            length = write_bytes(known.text, known.starts[form], known.starts[form + 1], normal, length)
            last_class = known.last_class[form]
        at += size
    return length


@numba.njit(nogil=True, cache=True)
def _ascii_end(data: np.ndarray, at: Integer, end: Integer) -> Integer:
    """Where the run of ASCII ends that begins at `at`."""
    while at < end and at + 64 <= len(data):
        others = beyond_ascii_in_64(data, at)
        if others:
            return min(at + lowest_bit(others), end)
        at += 64
    while at < end and data[_U(at)] < 128:
        at += 1
    return min(at, end)


@numba.njit(nogil=True, cache=True)
def _write_lower(data: np.ndarray, start: Integer, end: Integer, normal: np.ndarray, length: Integer) -> bool:
    """Write the bytes to `normal` from `length` on, ASCII in lower case; whether all are ASCII.

    Up to 63 bytes behind them are written over.
    """
    at, others = start, _U(0)
    while at < end and at + 64 <= len(data):
        lower_64(data, at, normal, length + at - start)
        others |= beyond_ascii_in_64(data, at) & _first(end - at)
        at += 64
    for place in range(at, end):  # at the end of the column
        byte = data[_U(place)]
        is_capital = np.uint8(byte - np.uint8(65)) < np.uint8(26)
        normal[_U(length + place - start)] = byte | np.uint8(np.uint8(is_capital) << np.uint8(5))
        others |= _U(byte >> np.uint8(7))
    return others == 0


@numba.njit(nogil=True, cache=True)
def _first(count: Integer) -> np.uint64:
    """The mask of the first `count` bytes of 64, 1 or more."""
    return ~_U(0) >> _U(max(64 - count, 0))
