"""The compiled cutting of a normal form in UTF-8 into tokens.

Words of ASCII, the usual case, go by 64 bytes at a time; where that is not enough, tokens go one by one.
"""

import numpy as np

from dupq.kernel_cache import Integer, numba
from dupq.text.characters import AFTER_APOSTROPHE, APOSTROPHE, FIRST, FURTHER, MARK
from dupq.text.html import CODE_START, LINK_MARK
from dupq.text.normal_form_bytes import LINK_BYTES
from dupq.text.packed_bytes import (
    beyond_ascii_in_64,
    count_bits,
    eight_bytes,
    equal_in_64,
    gather_64,
    highest_bit,
    letters_in_64,
    lowest_bit,
    store_eight,
    words_in_64,
)
from dupq.text.tokens import CODE_PREFIX, LINK_TOKEN
from dupq.text.utf8 import decode_valid, write_bytes, write_character

_U = np.uint64  # an unsigned index spares the kernels the check for a negative one
_LINK, _CODE = ord(LINK_MARK), ord(CODE_START)
_LINK_WORD = np.frombuffer(f"{LINK_TOKEN} ".encode(), np.uint8)
_LINK_TOKEN = np.frombuffer(LINK_TOKEN.encode(), np.uint8)
_PREFIX = np.frombuffer(CODE_PREFIX.encode(), np.uint8)
_QUOTE, _HASH, _PLUS = np.uint8(ord("'")), np.uint8(ord("#")), np.uint8(ord("+"))
_LAST_OF_64 = _U(1) << _U(63)


@numba.njit(nogil=True, cache=True)
def write_tokens(normal: np.ndarray, length: Integer, kinds: np.ndarray, result: np.ndarray, end: Integer) -> Integer:
    """Append the tokens of `normal[:length]`, with spaces between, to `result` from `end` on; where they end.

    64 spaces follow `normal[:length]`, and there is room for 64 bytes after what is written.
    """
    begin, at, is_code = end, np.int64(0), False
    while at < length:
        if not is_code:
            at, end = _write_plain_words(normal, at, length, kinds, result, end)  # type: ignore[assignment]
        if at < length:
            at, end, is_code = _write_some_tokens(normal, at, kinds, is_code, result, end)  # type: ignore[assignment]
    return end - 1 if end > begin else end


@numba.njit(nogil=True, cache=True)
def _write_plain_words(
    normal: np.ndarray, at: Integer, length: Integer, kinds: np.ndarray, result: np.ndarray, end: Integer
) -> tuple[Integer, Integer]:
    """Append words of ASCII and links, each with a space behind it, from `at` on, as long as it can.

    A token may begin at `at`. Returns where the words end and another token may begin, and where `result` ends. Takes
    64 bytes at a time, through the middle of words, so that no step waits for the one before; falls back to whole
    words where a token may need more than its bytes in their order.
    """
    begin, carry = end, _U(0)  # the latter: a word that is not complete precedes `at`
    while at < length or carry:
        parts, unsure, edge = _parts_of_words(normal, at, carry)
        size, inside, width = 64, ~_U(0), 0
        if unsure | edge:
            size = lowest_bit(unsure)
            width = _width_between(normal, at + size, kinds) if unsure else 0
            if width == 0:
                if carry:
                    at, end, carry = _without_last_word(at, result, begin, end)
                    parts, unsure, edge = _parts_of_words(normal, at, carry)
                size = _sure_size(normal, at, parts, unsure)
                if size == 0:
                    break
            inside = (_U(2) << _U(size - (width == 0))) - _U(1)
        blanks = (parts << _U(1) | carry) & ~parts
        chosen = (parts | blanks) & inside
        gather_64(normal, at, chosen, blanks, result, end)
        end += count_bits(chosen)
        at += size
        carry = parts >> _U(63) if size == 64 else _U(0)
        if width:
            if normal[_U(at)] == LINK_BYTES[0] and decode_valid(normal, at)[0] == _LINK:
                end = write_bytes(_LINK_WORD, 0, 5, result, end)
            at += width
    return at, end


@numba.njit(nogil=True, cache=True)
def _width_between(normal: np.ndarray, at: Integer, kinds: np.ndarray) -> int:
    """The bytes of the character at `at` if it is beyond ASCII and ends words, but does not tell code; else 0."""
    if normal[_U(at)] < 128:
        return 0
    code, size = decode_valid(normal, at)
    is_between = code == _LINK or not kinds[_U(code)] & (FIRST | FURTHER | AFTER_APOSTROPHE | APOSTROPHE | MARK)
    return size if is_between else 0


@numba.njit(nogil=True, cache=True)
def _parts_of_words(normal: np.ndarray, at: Integer, carry: np.uint64) -> tuple[np.uint64, np.uint64, np.uint64]:
    """Which of the 64 bytes from `at` on belong to words; `carry` is 1 if the byte before them does, else 0.

    Then those before which that is not sure or not enough: characters beyond ASCII, and what follows a token at once
    ("c++11", "don't2"), since the space between takes a byte more. And whether the next 64 bytes matter to the last.
    """
    letters, words, others = letters_in_64(normal, at), words_in_64(normal, at), beyond_ascii_in_64(normal, at)
    hashes, pluses = equal_in_64(normal, at, _HASH), equal_in_64(normal, at, _PLUS)
    quotes = equal_in_64(normal, at, _QUOTE)
    edge = (hashes | quotes | pluses) >> _U(63)
    before = words << _U(1) | carry
    inner = quotes & before & letters >> _U(1)
    pluses &= before & pluses >> _U(1)  # the first of two
    hashes &= before
    tails = letters + (inner << _U(1))  # the carry runs through the letters behind an apostrophe
    edge |= tails < letters
    unsure = others | words & (tails & ~letters | hashes << _U(1) | pluses << _U(2))
    return words | inner | hashes | pluses | pluses << _U(1), unsure, edge


@numba.njit(nogil=True, cache=True)
def _sure_size(normal: np.ndarray, at: Integer, parts: np.uint64, unsure: np.uint64) -> int:
    """How many of the 64 bytes are whole words, up to and with a byte that belongs to none."""
    quotes = equal_in_64(normal, at, _QUOTE) & unsure >> _U(1)  # what follows may belong to the word
    outside = ~(parts | quotes | _LAST_OF_64) & (unsure - _U(1)) & ~unsure
    return highest_bit(outside) + 1


@numba.njit(nogil=True, cache=True)
def _without_last_word(
    at: Integer, result: np.ndarray, begin: Integer, end: Integer
) -> tuple[Integer, Integer, np.uint64]:
    """Takes what is there of the last word out of `result[begin:end]`; and the carry that is left, which is none."""
    while end > begin and result[_U(end - 1)] != 32:
        at, end = at - 1, end - 1
    return at, end, _U(0)


@numba.njit(nogil=True, cache=True)
def _write_some_tokens(
    normal: np.ndarray, chunk: Integer, kinds: np.ndarray, is_code: bool, result: np.ndarray, end: Integer
) -> tuple[Integer, Integer, bool]:
    """Append whatever tokens begin in the 64 bytes from `chunk` on, where one may, each with a space behind it.

    Returns where the next may begin, where `result` ends, and whether the next is code. Walks from one byte that may
    begin a token to the next: the first ASCII letter, digit or underscore of a run, and whatever is not ASCII.
    """
    at = chunk
    letters, others = words_in_64(normal, chunk), beyond_ascii_in_64(normal, chunk)
    closing = others | equal_in_64(normal, chunk, _QUOTE) | equal_in_64(normal, chunk, _HASH)
    closing |= equal_in_64(normal, chunk, _PLUS)  # these may belong to the word in front of them
    starts = letters & ~(letters << _U(1)) | others
    while starts:
        place = lowest_bit(starts)
        starts &= starts - _U(1)
        at = chunk + place
        if others >> _U(place) & _U(1):
            code, size = decode_valid(normal, at)
            kind = kinds[_U(code)]
            if not kind & (FIRST | MARK) or (kind & MARK and code != _LINK):
                is_code = code == _CODE if kind & MARK else is_code
                at += size
                starts = _from(starts, at - chunk, letters)
                continue
            if is_code and code != _LINK:
                end = write_bytes(_PREFIX, 0, 5, result, end)
            at, end = _write_other(normal, at, kinds, result, end)
            starts = _from(starts, at - chunk, letters)
        else:
            if is_code:
                end = write_bytes(_PREFIX, 0, 5, result, end)
            size = lowest_bit(~(letters >> _U(place)))
            at, end = _write_word(normal, at, size, result, end)
            place += size
            if place >= 64 or closing >> _U(place) & _U(1):
                at, end = _write_rest(normal, at, kinds, result, end)
                starts = _from(starts, at - chunk, letters)
        result[_U(end)] = 32
        end += 1
    return max(at, chunk + 64), end, is_code


@numba.njit(nogil=True, cache=True)
def _from(starts: np.uint64, place: Integer, letters: np.uint64) -> np.uint64:
    """The starts from `place` on, where the last token ended. A letter there begins the next one."""
    if place > 63:
        return _U(0)
    return (starts >> _U(place) << _U(place)) | (letters & (_U(1) << _U(place)))


@numba.njit(nogil=True, cache=True)
def _write_word(
    normal: np.ndarray, at: Integer, size: Integer, result: np.ndarray, end: Integer
) -> tuple[Integer, Integer]:
    """Append `size` bytes: at least 16 are written over, so that most words take no branch."""
    store_eight(result, end, eight_bytes(normal, at))
    store_eight(result, end + 8, eight_bytes(normal, at + 8))
    for place in range(16, size, 8):
        store_eight(result, end + place, eight_bytes(normal, at + place))
    return at + size, end + size


@numba.njit(nogil=True, cache=True)
def _write_other(
    normal: np.ndarray, at: Integer, kinds: np.ndarray, result: np.ndarray, end: Integer
) -> tuple[Integer, Integer]:
    """Append the token that begins at `at` with a character beyond ASCII; where it ends in `normal` and `result`."""
    code, size = decode_valid(normal, at)
    if code == _LINK:
        return at + size, write_bytes(_LINK_TOKEN, 0, 4, result, end)
    end = write_character(normal, at, size, result, end)
    return _write_rest(normal, at + size, kinds, result, end)


@numba.njit(nogil=True, cache=True)
def _write_rest(
    normal: np.ndarray, at: Integer, kinds: np.ndarray, result: np.ndarray, end: Integer
) -> tuple[Integer, Integer]:
    """Append what belongs to a word behind its first letters: further ones, 's, ++, #."""
    at, end = _write_run(normal, at, kinds, FURTHER, result, end)
    while True:
        code, size = decode_valid(normal, at)
        if not kinds[_U(code)] & APOSTROPHE:
            break
        begin = at + size
        after, written = _write_run(normal, begin, kinds, AFTER_APOSTROPHE, result, end + size)
        if after == begin:
            break
        write_character(normal, at, size, result, end)
        at, end = after, written
    suffix = 1 if normal[_U(at)] == 35 else 2 if normal[_U(at)] == 43 and normal[_U(at + 1)] == 43 else 0  # C#, C++
    return at + suffix, write_bytes(normal, at, at + suffix, result, end)


@numba.njit(nogil=True, cache=True)
def _write_run(
    normal: np.ndarray, at: Integer, kinds: np.ndarray, wanted: int, result: np.ndarray, end: Integer
) -> tuple[Integer, Integer]:
    """Append the run of characters that are `wanted` from `at` on."""
    while True:
        code, size = decode_valid(normal, at)
        if not kinds[_U(code)] & wanted:
            return at, end
        end = write_character(normal, at, size, result, end)
        at += size
