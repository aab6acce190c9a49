"""Texts as plain arrays for compiled code: the bytes of Arrow's string columns, numbered words, token ids with offsets,
and a tokeniser of whole columns, which gives exactly the tokens of `tokens.tokens`.
"""

import functools
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dupq.kernel_cache import Integer, numba, read_only
from dupq.text import tokens


def strings_of(texts: pa.StringArray | pa.LargeStringArray) -> tuple[np.ndarray, np.ndarray]:
    """Return the offsets of `texts` (int64, (n + 1,)) in their bytes, and these (uint8, UTF-8), which are not copied.

    Text i is `data[offsets[i]:offsets[i + 1]]`. A null counts as an empty text.
    """
    if texts.null_count:
        texts = texts.fill_null("")
    texts = texts.cast(pa.large_string())
    _, offsets, data = texts.buffers()
    own = np.frombuffer(offsets, np.int64)[texts.offset : texts.offset + len(texts) + 1]
    return own.copy(), read_only(np.frombuffer(data, np.uint8))


def distinct_words(texts: pa.StringArray | pa.LargeStringArray) -> tuple[np.ndarray, np.ndarray, pa.LargeStringArray]:
    """Return the number of each word of `texts` (int32), the offsets of the texts (int64, (n + 1,)), and the words.

    Words are numbered in the order of their first appearance. A null has no words.
    """
    texts = texts.cast(pa.large_string())
    lists = pc.split_pattern(pc.if_else(pc.equal(texts, ""), None, texts), " ")
    lengths = pc.list_value_length(lists).fill_null(0).to_numpy()
    words = pc.list_flatten(lists).dictionary_encode()
    return words.indices.to_numpy(), np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]), words.dictionary


def lists_in(column: pa.ChunkedArray) -> tuple[np.ndarray, np.ndarray]:
    """Return the offsets (int64, (n + 1,), from 0) and values of a column of lists."""
    lists = column.combine_chunks()
    lengths = lists.value_lengths().to_numpy(zero_copy_only=False)
    return np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]), lists.flatten().to_numpy()


@dataclass(frozen=True)
class TokenIds:
    """n texts: the ids of text i are `ids[offsets[i]:offsets[i + 1]]` (int32 ids, int64 offsets (n + 1,), from 0)."""

    ids: np.ndarray
    offsets: np.ndarray

    @classmethod
    def of(cls, texts: Iterable[np.ndarray]) -> "TokenIds":
        """Take one array of ids per text."""
        arrays = [np.zeros(0, np.int32), *texts]
        return cls(np.concatenate(arrays).astype(np.int32), np.cumsum([len(ids) for ids in arrays], dtype=np.int64))

    def __len__(self) -> int:
        """Return the number of texts."""
        return len(self.offsets) - 1

    @classmethod
    def from_lists(cls, column: pa.ChunkedArray) -> "TokenIds":
        """Read a column of lists of int32, one per text."""
        offsets, ids = lists_in(column)
        return cls(ids, offsets)

    def lists(self) -> pa.LargeListArray:
        """Return the column that `from_lists` reads. The ids are not copied."""
        return pa.LargeListArray.from_arrays(pa.array(self.offsets), pa.array(self.ids))

    def take(self, rows: np.ndarray) -> "TokenIds":
        """Return the texts `rows` (int64, repeats allowed)."""
        lengths = self.lengths[rows]
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        indices = np.repeat(self.offsets[:-1][rows] - offsets[:-1], lengths) + np.arange(offsets[-1])
        return TokenIds(self.ids[indices], offsets)

    def __getitem__(self, text: int) -> np.ndarray:
        """Return the ids of one text, not copied."""
        return self.ids[self.offsets[text] : self.offsets[text + 1]]

    def rows(self, rows: slice) -> "TokenIds":
        """Return the texts of a slice, with their ids not copied."""
        offsets = self.offsets[rows.start : rows.stop + 1]
        return TokenIds(self.ids[offsets[0] : offsets[-1]], offsets - offsets[0])

    def __iter__(self) -> Iterator[np.ndarray]:
        """Yield one array per text, not copied."""
        for start, end in zip(self.offsets[:-1].tolist(), self.offsets[1:].tolist(), strict=True):
            yield self.ids[start:end]

    @property
    def lengths(self) -> np.ndarray:
        """Return how many ids each text has (int64)."""
        return np.diff(self.offsets)


# The tokeniser of whole columns.
#
# Compiled code splits plain texts: ASCII without web addresses, apart from link marks. Most English texts are plain. In
# most others a few words are not ASCII: `tokens.tokens` splits these, and compiled code the rest. Web addresses and
# marked code may go over several words, so `tokens.tokens` splits texts that have them.

_U = np.uint64
_SPACE, _APOSTROPHE, _SHARP, _PLUS, _DOT, _COLON, _SLASH, _W = b" '#+.:/w"
_SPECIAL = 0  # may be part of a token, or of a web address
_READ_AS = np.full(256, _SPACE, np.uint8)  # what each byte becomes
for _byte in b"0123456789_abcdefghijklmnopqrstuvwxyz":
    _READ_AS[[_byte, ord(chr(_byte).upper())]] = _byte
_READ_AS[[*b"'#+.:", *range(128, 256)]] = _SPECIAL
_LINK = np.frombuffer(b"LINK ", np.uint8)  # tokens.LINK_TOKEN: compiled code has constants of its own files only
_MARK = np.frombuffer("\ue000".encode(), np.uint8)  # tokens.LINK_MARK
_OVER_WORDS = re.compile(rf"://|www\.|[{tokens.CODE_START}{tokens.CODE_END}]")
_UNSPLIT = "://"  # has the whole text go through `tokens.tokens`, as it may be part of a web address
_LEAST_ASCII = 8  # characters for each byte that a text has beyond one a character
_CACHED_WORDS, _LONGEST_CACHED = 1 << 16, 32  # words whose tokens are remembered, and their length: at most 24 MB


def token_texts(texts: pa.StringArray | pa.LargeStringArray) -> pa.Array:
    """Return each text's tokens joined by single spaces, in the type of `texts`.

    A null counts as an empty text. Raises ArrowInvalid if the tokens of a string column exceed 2 GiB.
    """
    wide = texts.cast(pa.large_string())
    plain, are_plain = _split(wide, False)
    are_others = pa.array(~are_plain)
    others = wide.filter(are_others).to_pylist()
    split, are_split = _split(pa.array(map(_with_split_words, others), pa.large_string()), True)
    for row in np.flatnonzero(~are_split):
        others[row] = " ".join(tokens.tokens(others[row]))
    rest = pc.if_else(pa.array(are_split), split, pa.array(others, pa.large_string()))
    return pc.replace_with_mask(plain, are_others, rest).cast(texts.type)


def _with_split_words(text: str) -> str:
    """Return a text in which what is not ASCII, and stands between two spaces, is tokens joined by spaces.

    If much of it is not ASCII, return what has `tokens.tokens` split the whole text, which is faster then.
    """
    if _LEAST_ASCII * (len(text.encode()) - len(text)) > len(text):
        return _UNSPLIT
    pieces, end = [], 0
    for at in np.flatnonzero(np.frombuffer(text.encode("utf-32-le"), "<u4") > 127).tolist():
        if at >= end:
            first, stop = max(end, text.rfind(" ", end, at)), text.find(" ", at)
            end, before = stop if stop >= 0 else len(text), text[end:first]
            word = text[first:end]
            pieces += [before, " ", _cached_split(word) if len(word) <= _LONGEST_CACHED else _split_word(word)]
    return "".join([*pieces, text[end:]])


def _split_word(word: str) -> str:
    """Return the tokens of a word joined by spaces; `_UNSPLIT` if they depend on other words."""
    if _OVER_WORDS.search(word):
        return _UNSPLIT
    return " ".join(tokens.tokens(word)).replace(tokens.LINK_TOKEN, tokens.LINK_MARK)


_cached_split = functools.lru_cache(_CACHED_WORDS)(_split_word)


def _split(texts: pa.LargeStringArray, is_normal: bool) -> tuple[pa.LargeStringArray, np.ndarray]:
    """Return what `_tokens_of_plain` does, the tokens as a column."""
    result, ends, are_plain = _tokens_of_plain(*strings_of(texts), is_normal)
    return pa.Array.from_buffers(texts.type, len(texts), [None, pa.py_buffer(ends), pa.py_buffer(result)]), are_plain


@numba.njit(nogil=True, cache=True)
def _tokens_of_plain(
    offsets: np.ndarray, data: np.ndarray, is_normal: bool
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the tokens of plain texts joined by spaces (uint8), their ends per text, and which texts are plain (bool).

    A text that is not plain has no tokens here. With `is_normal`, words that are not ASCII are tokens already.
    """
    result = np.empty(2 * (offsets[-1] - offsets[0]) + 1, np.uint8)  # "c#c#" becomes "c# c# ", a mark " LINK "
    ends, are_plain = np.zeros(len(offsets), np.int64), np.ones(len(offsets) - 1, np.bool_)
    end: Integer = np.int64(0)
    for text in range(len(offsets) - 1):
        begin, at, stop, last = end, offsets[text], offsets[text + 1], np.uint8(_SPACE)
        while at < stop:
            byte = _READ_AS[data[_U(at)]]  # an unsigned index needs no look whether it is negative
            if byte != _SPECIAL:
                result[_U(end)] = byte
                end += (byte != _SPACE) | (last != _SPACE)  # one space, and none at the beginning
                last = byte
                at += 1
            else:
                read, end, last = _write_special(data, offsets[text], at, stop, result, end, last, is_normal)
                at += read
                if read == 0:
                    are_plain[text], end = False, begin
                    break
        if end > begin and last == _SPACE:
            end -= 1
        ends[text + 1] = end
    return result[:end], ends, are_plain


@numba.njit(nogil=True, cache=True)
def _write_special(
    data: np.ndarray,
    start: Integer,
    at: Integer,
    stop: Integer,
    result: np.ndarray,
    end: Integer,
    last: np.uint8,
    is_normal: bool,
) -> tuple[Integer, Integer, np.uint8]:
    """Write what a special byte of the text `data[start:stop]` begins.

    Return how many bytes were read, 0 if the text is not plain, the new end of `result`, and its last byte.
    """
    byte, following = data[at], data[at + 1] if at + 1 < stop else np.uint8(_SPACE)
    if byte >= 128:
        if at + 2 < stop and byte == _MARK[0] and following == _MARK[1] and data[at + 2] == _MARK[2]:
            end += _close(result, end, last)
            result[end : end + len(_LINK)] = _LINK
            return len(_MARK), end + len(_LINK), np.uint8(_SPACE)
        result[end] = byte
        return np.int64(is_normal), end + 1, byte
    if _may_be_address(data, start, at, stop):
        return 0, end, last
    if last == _SPACE:
        return 1, end, last
    if byte == _APOSTROPHE and _is_letter(following, is_normal):
        result[end] = byte
        read, end = 1, end + 1
        while at + read < stop and _is_letter(data[at + read], is_normal):
            result[end] = data[at + read] | 32 if data[at + read] < 128 else data[at + read]
            read, end = read + 1, end + 1
        last = result[end - 1]
        if at + read == stop or _READ_AS[data[at + read]] == _SPECIAL:
            return read, end, last  # else a digit begins another token
    elif byte == _SHARP or (byte == _PLUS and following == _PLUS):  # C#, C++
        read = 1 if byte == _SHARP else 2
        result[end : end + read] = byte
        end += read
    else:
        read = 1
    return read, end + _close(result, end, last), np.uint8(_SPACE)


@numba.njit(nogil=True, cache=True)
def _close(result: np.ndarray, end: Integer, last: np.uint8) -> Integer:
    """Write a space unless one was written last; return how many were written."""
    result[end] = _SPACE
    return np.int64(last != _SPACE)


@numba.njit(nogil=True, cache=True)
def _is_letter(byte: np.uint8, is_normal: bool) -> bool:
    return bool(97 <= byte | 32 <= 122 or (is_normal and byte >= 128))


@numba.njit(nogil=True, cache=True)
def _may_be_address(data: np.ndarray, start: Integer, at: Integer, stop: Integer) -> bool:
    """Tell whether the byte at `at` is the colon of :// or the dot of www., so that it may be in a web address."""
    if data[at] == _COLON:
        return bool(at + 2 < stop and data[at + 1] == _SLASH and data[at + 2] == _SLASH)
    is_www = at - start > 2 and data[at - 1] | 32 == data[at - 2] | 32 == data[at - 3] | 32 == _W
    return bool(data[at] == _DOT and is_www)
