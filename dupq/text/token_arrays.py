"""Texts as plain arrays, for compiled code: the bytes of Arrow's string columns, words as numbers, ids of tokens with
offsets, and the tokeniser for whole columns, which gives exactly the tokens of `tokens.tokens`.
"""

import string
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple, overload

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dupq.kernel_cache import Integer, numba
from dupq.text import tokens


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
_START = np.uint64(0x243F6A8885A308D3)  # the first digits of pi
_STEP = np.uint64(0x9FB21C651E98DF25)  # odd, from Evensen's rrmxmx
_LONG = np.uint64(0xFF << 56)  # where a word of up to seven bytes has its length


def distinct_words(texts: pa.StringArray | pa.LargeStringArray) -> tuple[np.ndarray, np.ndarray, pa.LargeStringArray]:
    """The number of each word of `texts` (int32), where each text's words begin (int64, (n + 1,)), and the words.

    Words are numbered as they first appear. An absent text has no words.
    """
    texts = texts.cast(pa.large_string())
    lists = pc.split_pattern(pc.if_else(pc.equal(texts, ""), None, texts), " ")
    lengths = pc.list_value_length(lists).fill_null(0).to_numpy()
    words = pc.list_flatten(lists).dictionary_encode()
    return words.indices.to_numpy(), np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]), words.dictionary


@numba.njit(nogil=True, cache=True)
def buckets_of(words: Strings, buckets: int) -> np.ndarray:
    """Which of `buckets` each word belongs to (int32), by a hash of its bytes: the saved encoders depend on it."""
    found = np.empty(len(words.offsets) - 1, np.int32)
    for word in range(len(found)):
        start, end = words.offsets[word], words.offsets[word + 1]
        value, some, bits = _START, _U(0), _U(0)
        for at in range(start, end):
            some |= _U(words.data[_U(at)]) << bits
            bits += _U(8)
            if bits == 64:
                value, some, bits = _mix(value ^ some), _U(0), _U(0)
        key = some | _U(end - start) << _U(56) if end - start < 8 else _mix(value ^ some) | _LONG
        found[word] = _mix(key) % _U(buckets)
    return found


@numba.njit(nogil=True, cache=True)
def _mix(value: np.uint64) -> np.uint64:
    """A bijection that brings all bits to the lower ones."""
    value = (value ^ (value >> _U(28))) * _STEP
    return value ^ (value >> _U(32))


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


# The tokeniser for whole columns. Texts in ASCII, link marks and common signs, of English ones most, are cut by a
# compiled loop; `tokens.tokens` cuts all others, those with a web address or marked code too.

_LETTER, _WORD = 1, 2  # what a byte may be to a token
_BYTES = np.zeros(256, np.uint8)
_BYTES[[ord(byte) for byte in string.ascii_letters]] = _LETTER | _WORD
_BYTES[[ord(byte) for byte in f"{string.digits}_"]] = _WORD
_LOWER = np.frombuffer(bytes(range(256)).lower(), np.uint8)
_LINK = np.frombuffer(tokens.LINK_TOKEN.encode(), np.uint8)
_LINK_MARK = tuple(tokens.LINK_MARK.encode())
_MOST_GROWTH = 2  # "c#c#" is "c# c# ", a mark of three bytes "LINK "


def token_texts(texts: pa.StringArray | pa.LargeStringArray) -> pa.Array:
    """Return the tokens of each text joined by single spaces, "" where there are none; of the type of `texts`.

    An absent text counts as an empty one. Raises ArrowInvalid if the tokens of strings are over 2 GiB together.
    """
    kind, texts = texts.type, texts.cast(pa.large_string())
    data, ends, is_cut = _cut(strings_of(texts))
    others = pa.array(~is_cut)
    rest = [" ".join(tokens.tokens(text)) for text in texts.filter(others).to_pylist()]
    column = string_array(Strings(ends, data), pa.large_string())
    return pc.replace_with_mask(column, others, pa.array(rest, pa.large_string())).cast(kind)


@numba.njit(nogil=True, cache=True)
def _cut(read: Strings) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return tokens with spaces between (uint8), where each text's end (int64, (n + 1,)), and which texts were cut."""
    data, offsets = read.data, read.offsets
    result = np.empty(_MOST_GROWTH * (offsets[-1] - offsets[0]) + 1, np.uint8)
    ends: np.ndarray = np.zeros(len(offsets), np.int64)
    is_cut = np.ones(len(offsets) - 1, np.bool_)
    end: Integer = np.int64(0)
    for text in range(len(is_cut)):
        at, stop = offsets[text], offsets[text + 1]
        while at < stop and is_cut[text]:
            byte = data[_U(at)]
            if byte == _LINK_MARK[0] and data[_U(at + 1)] == _LINK_MARK[1] and data[_U(at + 2)] == _LINK_MARK[2]:
                result[end : end + len(_LINK)] = _LINK
                at, end = at + len(_LINK_MARK), end + len(_LINK)
            elif _BYTES[byte]:
                at, end = _write_run(data, at, stop, _WORD, result, end)
                size = _apostrophe(data, at, stop)
                while size:
                    result[_U(end)] = 39
                    at, end = _write_run(data, at + size, stop, _LETTER, result, end + 1)
                    size = _apostrophe(data, at, stop)
                is_sharp = at < stop and data[_U(at)] == 35
                is_plus = at + 1 < stop and data[_U(at)] == 43 and data[_U(at + 1)] == 43
                for _ in range(is_sharp + 2 * is_plus):  # C#, C++
                    result[_U(end)] = data[_U(at)]
                    at, end = at + 1, end + 1
            else:
                size = _separator(data, at, stop)
                is_cut[text] = size > 0 and not _is_in_address(data, at, offsets[text], stop)
                at += size
                continue
            result[_U(end)] = 32
            end += 1
        end = max(ends[text], end - 1) if is_cut[text] else ends[text]
        ends[text + 1] = end
    return result[:end], ends, is_cut


@numba.njit(nogil=True, cache=True)
def _write_run(
    data: np.ndarray, at: Integer, stop: Integer, wanted: int, result: np.ndarray, end: Integer
) -> tuple[Integer, Integer]:
    """Append the run of bytes that are `wanted` from `at` on, in lower case; return where it ends in both."""
    while at < stop and _BYTES[data[_U(at)]] & wanted:
        result[_U(end)] = _LOWER[data[_U(at)]]
        at, end = at + 1, end + 1
    return at, end


@numba.njit(nogil=True, cache=True)
def _apostrophe(data: np.ndarray, at: Integer, stop: Integer) -> int:
    """Return how many bytes the apostrophe at `at`, straight or curled, has; 0 if none is there before a letter."""
    size = 1
    if at + 3 < stop and data[at] == 0xE2 and data[at + 1] == 0x80 and (data[at + 2] == 0x98 or data[at + 2] == 0x99):
        size = 3
    elif at + 1 >= stop or data[at] != 39:
        return 0
    return size if _BYTES[data[at + size]] & _LETTER else 0


@numba.njit(nogil=True, cache=True)
def _separator(data: np.ndarray, at: Integer, stop: Integer) -> int:
    """Return how many bytes the sign at `at` has, which is in no word; 0 for a character that may be."""
    if data[_U(at)] < 128:
        return 1
    if data[_U(at)] == 0xC2 and data[_U(at + 1)] == 0xA0:  # a space
        return 2
    if data[_U(at)] != 0xE2:
        return 0
    second, third = data[_U(at + 1)], data[_U(at + 2)]
    if second == 0x80:  # dashes, quotation marks, dots
        return 3 if 0x90 <= third <= 0x9A or 0x9C <= third <= 0x9F or third == 0xA6 else 0
    return 3 if (second == 0x86 and third >= 0x90) or 0x87 <= second <= 0x8B else 0  # arrows, mathematical operators


@numba.njit(nogil=True, cache=True)
def _is_in_address(data: np.ndarray, at: Integer, start: Integer, stop: Integer) -> bool:
    """Tell whether `://` begins, or `www.` ends, at `at`."""
    if data[_U(at)] == 58:
        return bool(at + 2 < stop and data[_U(at + 1)] == 47 and data[_U(at + 2)] == 47)
    if data[_U(at)] != 46 or at - start < 3:
        return False
    return bool((_LOWER[data[at - 3 : at]] == 119).all())
