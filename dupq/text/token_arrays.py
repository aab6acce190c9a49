"""Texts as plain arrays for compiled code: the bytes of Arrow's string columns, numbered words, token ids with offsets,
and a tokeniser of whole columns, which gives exactly the tokens of `tokens.tokens`.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple, overload

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dupq.kernel_cache import Integer, numba
from dupq.text import tokens


class Strings(NamedTuple):
    """n texts in UTF-8: text i is `data[offsets[i]:offsets[i + 1]]` (int64 offsets, uint8 data)."""

    offsets: np.ndarray
    data: np.ndarray


def strings_of(texts: pa.StringArray | pa.LargeStringArray) -> Strings:
    """Return the bytes of `texts`, read-only and not copied. A null counts as an empty text."""
    wide = pa.types.is_large_string(texts.type) or pa.types.is_large_binary(texts.type)
    if texts.null_count:
        texts = texts.fill_null("")
    _, indices, content = texts.buffers()
    if indices is None or not len(texts):
        return Strings(np.zeros(len(texts) + 1, np.int64), _read_only(b""))
    offsets = np.frombuffer(indices, np.int64 if wide else np.int32)[texts.offset : texts.offset + len(texts) + 1]
    return Strings(offsets.astype(np.int64), _read_only(content if content is not None else b""))


def _read_only(content: pa.Buffer | bytes) -> np.ndarray:
    """Return a read-only array, whatever the buffer is, so that a kernel is compiled for one type."""
    data = np.frombuffer(content, np.uint8)
    data.flags.writeable = False
    return data


def distinct_words(texts: pa.StringArray | pa.LargeStringArray) -> tuple[np.ndarray, np.ndarray, pa.LargeStringArray]:
    """Return the number of each word of `texts` (int32), the offsets of the texts (int64, (n + 1,)), and the words.

    Words are numbered in the order of their first appearance. A null has no words.
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
        """Take one array of ids per text."""
        arrays = [np.zeros(0, np.int32), *texts]
        return cls(np.concatenate(arrays).astype(np.int32), np.cumsum([len(ids) for ids in arrays], dtype=np.int64))

    def __len__(self) -> int:
        """Return the number of texts."""
        return len(self.offsets) - 1

    @classmethod
    def from_lists(cls, column: pa.ChunkedArray) -> "TokenIds":
        """Read a column of lists of int32, one per text."""
        lists = column.combine_chunks()
        lengths = lists.value_lengths().to_numpy(zero_copy_only=False)
        return cls(lists.flatten().to_numpy(), np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]))

    def lists(self) -> pa.LargeListArray:
        """Return the column that `from_lists` reads. The ids are not copied."""
        return pa.LargeListArray.from_arrays(pa.array(self.offsets), pa.array(self.ids))

    @classmethod
    def concatenated(cls, batches: Iterable["TokenIds"]) -> "TokenIds":
        """Return the texts of all batches in their order."""
        batches = list(batches)
        lengths = np.concatenate([np.zeros(0, np.int64), *(batch.lengths for batch in batches)])
        ids = np.concatenate([np.zeros(0, np.int32), *(batch.ids for batch in batches)])
        return cls(ids, np.concatenate([[0], np.cumsum(lengths)]))

    def take(self, rows: np.ndarray) -> "TokenIds":
        """Return the texts `rows` (int64, repeats allowed)."""
        lengths = self.lengths[rows]
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        indices = np.repeat(self.offsets[:-1][rows] - offsets[:-1], lengths) + np.arange(offsets[-1])
        return TokenIds(self.ids[indices], offsets)

    @overload
    def __getitem__(self, texts: slice) -> "TokenIds": ...

    @overload
    def __getitem__(self, texts: int) -> np.ndarray: ...

    def __getitem__(self, texts: slice | int) -> "TokenIds | np.ndarray":
        """Return the ids of one text, or the texts of a slice of step 1. The ids are not copied."""
        if not isinstance(texts, slice):
            return self.ids[self.offsets[texts] : self.offsets[texts + 1]]
        start, stop, step = texts.indices(len(self))
        assert step == 1
        offsets = self.offsets[start : max(start, stop) + 1]
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
# Compiled code splits plain texts: ASCII without web addresses, apart from link marks. Most English texts are plain,
# and it takes a twentieth of the time. Any other text goes through `tokens.tokens`.

_WORD, _LETTER = 1, 2  # classes of bytes
_BYTES = np.zeros(256, np.uint8)
_BYTES[list(b"0123456789_")] = _WORD
_BYTES[list(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")] = _WORD | _LETTER
_LINK = np.frombuffer(f"{tokens.LINK_TOKEN} ".encode(), np.uint8)
_MARK = np.frombuffer(tokens.LINK_MARK.encode(), np.uint8)


def token_texts(texts: pa.StringArray | pa.LargeStringArray) -> pa.Array:
    """Return each text's tokens joined by single spaces, in the type of `texts`.

    A null counts as an empty text. Raises ArrowInvalid if the tokens of a string column exceed 2 GiB.
    """
    wide = texts.cast(pa.large_string())
    result, ends, is_plain = _tokens_of_plain(strings_of(wide))
    is_other = pa.array(~is_plain)
    others = [" ".join(tokens.tokens(text)) for text in wide.filter(is_other).to_pylist()]
    plain = pa.Array.from_buffers(pa.large_string(), len(texts), [None, pa.py_buffer(ends), pa.py_buffer(result)])
    return pc.replace_with_mask(plain, is_other, pa.array(others, pa.large_string())).cast(texts.type)


@numba.njit(nogil=True, cache=True)
def _tokens_of_plain(texts: Strings) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the tokens of plain texts joined by spaces (uint8), their ends per text, and which texts are plain (bool).

    A text that is not plain has no tokens here.
    """
    data, offsets = texts.data, texts.offsets
    result = np.empty(2 * (offsets[-1] - offsets[0]) + 1, np.uint8)  # "c#c#" becomes "c# c# ", a mark "LINK "
    ends, is_plain = np.zeros(len(offsets), np.int64), np.ones(len(offsets) - 1, np.bool_)
    end: Integer = np.int64(0)
    for text in range(len(offsets) - 1):
        begin, at, stop = end, offsets[text], offsets[text + 1]
        while at < stop:
            if _BYTES[data[at]] & _WORD:
                at, end = _write_run(data, at, stop, _WORD, result, end)
                while at + 1 < stop and data[at] == 39 and _BYTES[data[at + 1]] & _LETTER:  # an apostrophe
                    result[end] = 39
                    at, end = _write_run(data, at + 1, stop, _LETTER, result, end + 1)
                is_sharp = at < stop and data[at] == 35
                is_plus = at + 1 < stop and data[at] == 43 and data[at + 1] == 43
                for _ in range(is_sharp + 2 * is_plus):  # C#, C++
                    result[end] = data[at]
                    at, end = at + 1, end + 1
                result[end] = 32
                end += 1
            elif at + 2 < stop and (data[at] == _MARK[0]) & (data[at + 1] == _MARK[1]) & (data[at + 2] == _MARK[2]):
                result[end : end + len(_LINK)] = _LINK
                at, end = at + len(_MARK), end + len(_LINK)
            elif data[at] >= 128 or _may_be_address(data, offsets[text], at, stop):
                is_plain[text], end = False, begin
                break
            else:
                at += 1
        if end > begin:
            end -= 1
        ends[text + 1] = end
    return result[:end], ends, is_plain


@numba.njit(nogil=True, cache=True)
def _write_run(
    data: np.ndarray, at: Integer, stop: Integer, byte_class: int, result: np.ndarray, end: Integer
) -> tuple[Integer, Integer]:
    """Append the run of bytes of a class that begins at `at`, in lower case; return its end in `data` and `result`."""
    while at < stop and _BYTES[data[at]] & byte_class:
        result[end] = data[at] | 32 if 65 <= data[at] <= 90 else data[at]
        at, end = at + 1, end + 1
    return at, end


@numba.njit(nogil=True, cache=True)
def _may_be_address(data: np.ndarray, start: Integer, at: Integer, stop: Integer) -> bool:
    """Tell whether the byte at `at` is the colon of :// or the dot of www., so that it may be in a web address."""
    if data[at] == 58:
        return bool(at + 2 < stop and data[at + 1] == 47 and data[at + 2] == 47)
    is_www = at - start > 2 and data[at - 1] | 32 == data[at - 2] | 32 == data[at - 3] | 32 == 119
    return bool(data[at] == 46 and is_www)
