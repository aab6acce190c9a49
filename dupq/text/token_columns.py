"""The tokeniser for whole columns, compiled: exactly the tokens of `tokens.tokens`.

A text in plain ASCII, the usual case, is cut as it is written. Any other text is brought to its normal form first.
"""

import functools
import sys

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import regex

from dupq.kernel_cache import Integer, numba
from dupq.text import tokens
from dupq.text.html import CODE_END, CODE_START, LINK_MARK
from dupq.text.strings import Strings, string_array, strings_of

_U = np.uint64  # an unsigned index spares the kernels the check for a negative one
_FIRST, _FURTHER, _AFTER_APOSTROPHE, _MARK = 1, 2, 4, 8  # what a character may be to a token
_EXPRESSIONS = {
    _FIRST: tokens.FIRST,
    _FURTHER: tokens.FURTHER,
    _AFTER_APOSTROPHE: tokens.AFTER_APOSTROPHE,
    _MARK: f"[{LINK_MARK}{CODE_START}{CODE_END}]",
}
_LINK, _CODE = ord(LINK_MARK), ord(CODE_START)
_LINK_TOKEN = np.frombuffer(f"{tokens.LINK_TOKEN} ".encode(), np.uint8)
_PREFIX = np.frombuffer(tokens.CODE_PREFIX.encode(), np.uint8)
_PLAIN = np.full(256, 32, np.uint8)  # how each byte is written: as a letter, a space between words, or not plainly (0)
_PLAIN[list(b"0123456789_abcdefghijklmnopqrstuvwxyz")] = list(b"0123456789_abcdefghijklmnopqrstuvwxyz")
_PLAIN[ord("A") : ord("Z") + 1] = _PLAIN[ord("a") : ord("z") + 1]
_PLAIN[list(b"'#+")] = _PLAIN[128:] = 0
_MOST_GROWTH = 4  # "c#c#" in code: "CODE_c# CODE_c# "


def token_texts(texts: pa.StringArray | pa.LargeStringArray) -> pa.Array:
    """The tokens of each text joined by single spaces, "" where there are none; of the type of `texts`.

    An absent text counts as an empty one. Raises ArrowInvalid if the tokens of strings are over 2 GiB together.
    """
    kind, texts = texts.type, texts.cast(pa.large_string())
    others = pa.array(~_are_plain(strings_of(texts)))
    forms = [tokens.normal_form(text) for text in texts.filter(others).to_pylist()]
    texts = pc.replace_with_mask(texts, others, pa.array(forms, pa.large_string()))
    result, ends = _cut(strings_of(texts), _kinds())
    return string_array(Strings(ends, result), kind)


@functools.cache
def _kinds() -> np.ndarray:
    """What each code point may be to a token, as bits (uint8)."""
    every = np.arange(sys.maxunicode + 1, dtype="<u4").tobytes().decode("utf-32-le", "surrogatepass")
    kinds = np.zeros(len(every), np.uint8)
    for bit, expression in _EXPRESSIONS.items():
        for match in regex.finditer(f"{expression}+", every):
            kinds[match.start() : match.end()] |= np.uint8(bit)
    return kinds


@numba.njit(nogil=True, cache=True)
def _are_plain(read: Strings) -> np.ndarray:
    """Which texts (bool) are ASCII and marks without a web address: but for capitals, they are their normal form."""
    data, is_plain = read.data, np.zeros(len(read.offsets) - 1, np.bool_)
    for text in range(len(is_plain)):
        start, stop = read.offsets[text], read.offsets[text + 1]
        others, addresses = np.uint32(0), np.uint8(0)  # small numbers, for loops on vectors
        for at in range(start, stop):
            others += np.uint32(data[_U(at)] >> np.uint8(7))
        for at in range(start, stop - 2):
            a, b, c = data[_U(at)], data[_U(at + 1)], data[_U(at + 2)]
            others -= np.uint32(3) * np.uint32((a == 0xEE) & (b == 0x80) & (c >= 0x80) & (c <= 0x82))  # a mark
            addresses |= np.uint8((a == 58) & (b == 47) & (c == 47) | (a == 119) & (b == 119) & (c == 46))  # :// ww.
        is_plain[text] = (others == 0) & (addresses == 0)
    return is_plain


@numba.njit(nogil=True, cache=True)
def _cut(read: Strings, kinds: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The tokens of normal forms, with spaces between (uint8), and where those of each text end (int64, (n + 1,))."""
    data, offsets = read.data, read.offsets
    result = np.empty(_MOST_GROWTH * (offsets[-1] - offsets[0]) + len(_PREFIX) + 1, np.uint8)
    ends: np.ndarray = np.zeros(len(offsets), np.int64)
    end: Integer = np.int64(0)
    for text in range(len(offsets) - 1):
        at, stop, is_code = offsets[text], offsets[text + 1], False
        while at < stop:
            if not is_code:
                at, end = _write_plain_words(data, at, stop, result, end)
                if at == stop:
                    break
            code, size = _character(data, at)
            kind = kinds[_U(code)]
            if code == _LINK:
                end = _write(_LINK_TOKEN, result, end)
            elif kind & _MARK:
                is_code = code == _CODE
            if not kind & _FIRST:
                at += size
                continue
            if is_code:
                end = _write(_PREFIX, result, end)
            at, end = _write_run(data, at, stop, kinds, _FURTHER, result, end)
            while at < stop and data[_U(at)] == 39:  # an apostrophe
                after, written = _write_run(data, at + 1, stop, kinds, _AFTER_APOSTROPHE, result, end + 1)
                if after == at + 1:
                    break
                result[_U(end)] = 39
                at, end = after, written
            is_sharp = at < stop and data[_U(at)] == 35
            is_plus = at + 1 < stop and data[_U(at)] == 43 and data[_U(at + 1)] == 43
            for _ in range(is_sharp + 2 * is_plus):  # C#, C++
                result[_U(end)] = data[_U(at)]
                at, end = at + 1, end + 1
            result[_U(end)] = 32
            end += 1
        if end > ends[text]:
            end -= 1
        ends[text + 1] = end
    return result[:end], ends


@numba.njit(nogil=True, cache=True)
def _write_plain_words(
    data: np.ndarray, at: Integer, stop: Integer, result: np.ndarray, end: Integer
) -> tuple[Integer, Integer]:
    """Append words of ASCII from `at` on, each with a space behind it, up to the first that may have more.

    Branches are few, as a processor guesses the ends of words wrongly: each byte is written, and some over again.
    """
    begin, before = at, np.uint8(0)  # the latter: whether the byte before belongs to a word
    while at < stop:
        letter = _PLAIN[data[_U(at)]]
        if letter == 0:
            break
        result[_U(end)] = letter
        is_word = np.uint8(letter != 32)
        end += np.int64(before | is_word)
        before = is_word
        at += 1
    if at == stop and before:
        result[_U(end)] = 32
        return at, end + 1
    while at > begin and _PLAIN[data[_U(at - 1)]] > 32:  # the word may go on
        at, end = at - 1, end - 1
    return at, end


@numba.njit(nogil=True, cache=True)
def _character(data: np.ndarray, at: Integer) -> tuple[Integer, int]:
    """The code point at `at` of valid UTF-8, and its number of bytes."""
    code = np.int64(data[_U(at)])
    if code < 0x80:
        return code, 1
    size = 2 if code < 0xE0 else 3 if code < 0xF0 else 4
    code &= 0x7F >> size
    for place in range(1, size):
        code = code << 6 | (np.int64(data[_U(at + place)]) & 63)
    return code, size


@numba.njit(nogil=True, cache=True)
def _write_run(
    data: np.ndarray, at: Integer, stop: Integer, kinds: np.ndarray, wanted: int, result: np.ndarray, end: Integer
) -> tuple[Integer, Integer]:
    """Append the run of characters that are `wanted` from `at` on, ASCII in lower case; where it ends in both."""
    while at < stop:
        code, size = _character(data, at)
        if not kinds[_U(code)] & wanted:
            break
        if size == 1:
            result[_U(end)] = code | 32 if 65 <= code <= 90 else code
        else:
            for place in range(size):
                result[_U(end + place)] = data[_U(at + place)]
        at, end = at + size, end + size
    return at, end


@numba.njit(nogil=True, cache=True)
def _write(token: np.ndarray, result: np.ndarray, end: Integer) -> Integer:
    """Append `token`; where it ends."""
    result[end : end + len(token)] = token
    return end + len(token)
