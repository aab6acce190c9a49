"""Texts as plain arrays: the bytes of Arrow's string columns, numbered words, token ids with offsets.

And a tokeniser of whole columns, which gives exactly the tokens of `tokens.tokens`.
"""

import functools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dupq.kernel_cache import read_only
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
# Most English texts are plain ASCII, and are split by a few operations on the bytes of the whole column. In most others
# a few words are not ASCII: `tokens.tokens` splits these first. Web addresses and marked code may go over several
# words, so `tokens.tokens` splits texts that have them.

_SPACE, _APOSTROPHE, _PLUS = b" '+"
_LINK = "\x01"  # stands for tokens.LINK_TOKEN, until all is in small letters
_OVER_WORDS = f"://|www\\.|[{_LINK}{tokens.CODE_START}{tokens.CODE_END}]"
_LETTERS = np.isin(np.arange(256), [*b"abcdefghijklmnopqrstuvwxyz", *range(128, 256)])
_IN_WORDS = _LETTERS | np.isin(np.arange(256), [*b"0123456789_"])
_READ_AS = bytes(byte if _IN_WORDS[byte] or byte in b"'#+\x01" else _SPACE for byte in bytes(range(256)).lower())
_RUN_TOGETHER = r"'[a-z\x{80}-\x{10ffff}]+[0-9_]|[#+][0-9a-z_\x{80}-\x{10ffff}]"  # two tokens: "don't2", "c#a"
_LEAST_ASCII = 8  # characters for each byte that a text has beyond one a character
_CACHED_WORDS, _LONGEST_CACHED = 1 << 16, 32  # words whose tokens are remembered, and their length: at most 24 MB


def token_texts(texts: pa.StringArray | pa.LargeStringArray) -> pa.Array:
    """Return each text's tokens joined by single spaces, in the type of `texts`.

    A null counts as an empty text. Raises ArrowInvalid if the tokens of a string column exceed 2 GiB.
    """
    wide = texts.cast(pa.large_string()).fill_null("")
    words = pc.if_else(pc.match_substring_regex(wide, _OVER_WORDS), None, wide)
    words = pc.replace_substring(words, tokens.LINK_MARK, f" {_LINK} ")
    is_ascii = pc.string_is_ascii(words).fill_null(True)
    others = map(_with_split_words, words.filter(pc.invert(is_ascii)).to_pylist())
    words = pc.replace_with_mask(words, pc.invert(is_ascii), pa.array(others, pa.large_string()))
    split = _split(words)
    rest = [" ".join(tokens.tokens(text)) for text in wide.filter(split.is_null()).to_pylist()]
    return pc.replace_with_mask(split, split.is_null(), pa.array(rest, pa.large_string())).cast(texts.type)


def _with_split_words(text: str) -> str | None:
    """Return a text in which what is not ASCII, and stands between two spaces, is tokens joined by spaces.

    Return None if much of it is not ASCII: then it is faster to split the whole text by `tokens.tokens`.
    """
    if _LEAST_ASCII * (len(text.encode()) - len(text)) > len(text):
        return None
    pieces, end = [], 0
    for at in np.flatnonzero(np.frombuffer(text.encode("utf-32-le"), "<u4") > 127).tolist():
        if at >= end:
            first, stop = max(end, text.rfind(" ", end, at)), text.find(" ", at)
            end, before = stop if stop >= 0 else len(text), text[end:first]
            word = text[first:end]
            pieces += [before, " ", _cached_split(word) if len(word) <= _LONGEST_CACHED else _split_word(word)]
    return "".join([*pieces, text[end:]])


def _split_word(word: str) -> str:
    return " ".join(tokens.tokens(word))


_cached_split = functools.lru_cache(_CACHED_WORDS)(_split_word)


def _split(texts: pa.LargeStringArray) -> pa.LargeStringArray:
    """Return the tokens of texts joined by spaces; null where a space would have to be put between two of them.

    What is not ASCII is tokens already.
    """
    empty, space = pa.scalar("", texts.type), pa.scalar(" ", texts.type)
    offsets, data = strings_of(pc.binary_join_element_wise(texts, empty, space))  # each ends with a space
    content = np.frombuffer(bytearray(data[offsets[0] : offsets[-1]]).translate(_READ_AS), np.uint8)
    at = np.flatnonzero((content > _SPACE) & (content <= _PLUS))
    sign, follower, is_behind_word = content[at], content[at + 1], _IN_WORDS[content[at - 1]]
    is_second_plus = (content[at - 1] == _PLUS) & _IN_WORDS[content[at - 2]]
    is_part = is_behind_word & ((sign != _APOSTROPHE) | _LETTERS[follower]) & ((sign != _PLUS) | (follower == _PLUS))
    content[at[~(is_part | (is_second_plus & (sign == _PLUS)))]] = _SPACE
    is_space = content == _SPACE
    repeated = np.flatnonzero(is_space & np.roll(is_space, 1))
    ends = offsets - offsets[0] - np.searchsorted(repeated, offsets - offsets[0])
    buffers = [texts.is_valid().buffers()[1], pa.py_buffer(ends), pa.py_buffer(np.delete(content, repeated))]
    split = pc.ascii_trim(pa.Array.from_buffers(texts.type, len(texts), buffers), " ")
    split = pc.if_else(pc.match_substring_regex(split, _RUN_TOGETHER), None, split)
    return pc.replace_substring(split, _LINK, tokens.LINK_TOKEN)
