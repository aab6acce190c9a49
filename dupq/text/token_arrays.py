"""Texts as plain arrays, for compiled code: the bytes of Arrow's string columns, words as numbers, ids of tokens with
offsets, and the tokeniser for whole columns, which gives exactly the tokens of `tokens.tokens`.
"""

import functools
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple, overload

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import regex

from dupq.kernel_cache import Integer, numba
from dupq.text import tokens
from dupq.text.tokens import CODE_END, CODE_START, LINK_MARK


class Strings(NamedTuple):
    """n texts in UTF-8: those of text i are `data[offsets[i]:offsets[i + 1]]` (int64 offsets, uint8 data)."""

    offsets: np.ndarray
    data: np.ndarray


def strings_of(texts: pa.StringArray | pa.LargeStringArray) -> Strings:
    """The bytes of `texts`, none copied, read-only. An absent text counts as an empty one."""
    wide = pa.types.is_large_string(texts.type) or pa.types.is_large_binary(texts.type)
    if texts.null_count:
        texts = texts.fill_null("")
    _, indices, content = texts.buffers()
    if indices is None or not len(texts):
        return Strings(np.zeros(len(texts) + 1, np.int64), _read_only(b""))
    offsets = np.frombuffer(indices, np.int64 if wide else np.int32)[texts.offset : texts.offset + len(texts) + 1]
    return Strings(offsets.astype(np.int64), _read_only(content if content is not None else b""))


def _read_only(content: pa.Buffer | bytes) -> np.ndarray:
    """One type of array whatever the buffer is, so that a kernel is compiled once."""
    data = np.frombuffer(content, np.uint8)
    data.flags.writeable = False
    return data


def string_array(strings: Strings, kind: pa.DataType) -> pa.Array:
    """The Arrow array of `kind` (string or large_string) over `strings`; their bytes are not copied.

    Raises ArrowInvalid if they are too many for `kind` (2 GiB for string).
    """
    count = len(strings.offsets) - 1
    buffers = [None, pa.py_buffer(strings.offsets), pa.py_buffer(strings.data)]
    return pa.Array.from_buffers(pa.large_string(), count, buffers).cast(kind)


@numba.njit(nogil=True, cache=True)
def longest(offsets: np.ndarray) -> np.int64:
    """The length of the longest stretch that `offsets` bound."""
    most = np.int64(0)
    for text in range(len(offsets) - 1):
        most = max(most, offsets[text + 1] - offsets[text])
    return most


_U = np.uint64


def distinct_words(texts: pa.StringArray | pa.LargeStringArray) -> tuple[np.ndarray, np.ndarray, pa.LargeStringArray]:
    """The number of each word of `texts` (int32), where each text's words begin (int64, (n + 1,)), and the words.

    Words are numbered as they first appear. An absent text has no words.
    """
    texts = texts.cast(pa.large_string())
    lists = pc.split_pattern(pc.if_else(pc.equal(texts, ""), None, texts), " ")
    lengths = pc.list_value_length(lists).fill_null(0).to_numpy()
    words = pc.list_flatten(lists).dictionary_encode()
    return words.indices.to_numpy(), np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]), words.dictionary


@dataclass(frozen=True)
class TokenIds:
    """n texts: the ids of text i are `ids[offsets[i]:offsets[i + 1]]` (int32 ids, int64 offsets (n + 1,), from 0)."""

    ids: np.ndarray
    offsets: np.ndarray

    @classmethod
    def of(cls, texts: Iterable[np.ndarray]) -> "TokenIds":
        """From one array a text."""
        arrays = [np.zeros(0, np.int32), *texts]
        return cls(np.concatenate(arrays).astype(np.int32), np.cumsum([len(ids) for ids in arrays], dtype=np.int64))

    def __len__(self) -> int:
        """The number of texts."""
        return len(self.offsets) - 1

    @classmethod
    def from_lists(cls, column: pa.ChunkedArray) -> "TokenIds":
        """From a column of lists of int32, one a text."""
        lists = column.combine_chunks()
        lengths = lists.value_lengths().to_numpy(zero_copy_only=False)
        return cls(lists.flatten().to_numpy(), np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]))

    def lists(self) -> pa.LargeListArray:
        """What `from_lists` reads; the ids are not copied."""
        return pa.LargeListArray.from_arrays(pa.array(self.offsets), pa.array(self.ids))

    @classmethod
    def joined(cls, parts: Iterable["TokenIds"]) -> "TokenIds":
        """The texts of each of `parts`, one after the other."""
        parts = list(parts)
        lengths = np.concatenate([np.zeros(0, np.int64), *(part.lengths for part in parts)])
        ids = np.concatenate([np.zeros(0, np.int32), *(part.ids for part in parts)])
        return cls(ids, np.concatenate([[0], np.cumsum(lengths)]))

    def take(self, rows: np.ndarray) -> "TokenIds":
        """The texts of some rows (int64, any number, repeats allowed)."""
        lengths = self.lengths[rows]
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        places = np.repeat(self.offsets[:-1][rows] - offsets[:-1], lengths) + np.arange(offsets[-1])
        return TokenIds(self.ids[places], offsets)

    @overload
    def __getitem__(self, texts: slice) -> "TokenIds": ...

    @overload
    def __getitem__(self, texts: int) -> np.ndarray: ...

    def __getitem__(self, texts: slice | int) -> "TokenIds | np.ndarray":
        """One text, or some that follow each other; their ids are not copied."""
        if not isinstance(texts, slice):
            return self.ids[self.offsets[texts] : self.offsets[texts + 1]]
        start, stop, step = texts.indices(len(self))
        assert step == 1
        offsets = self.offsets[start : max(start, stop) + 1]
        return TokenIds(self.ids[offsets[0] : offsets[-1]], offsets - offsets[0])

    def __iter__(self) -> Iterator[np.ndarray]:
        """One array a text, none copied."""
        for start, end in zip(self.offsets[:-1].tolist(), self.offsets[1:].tolist(), strict=True):
            yield self.ids[start:end]

    @property
    def lengths(self) -> np.ndarray:
        """How many ids each text has (int64)."""
        return np.diff(self.offsets)


# The tokeniser for whole columns, compiled: exactly the tokens of `tokens.tokens`.
#
# A text in plain ASCII, the usual case, is cut as it is written. Any other text is brought to its normal form first.

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
