"""Texts as plain arrays: the bytes of Arrow's string columns, numbered words, token ids with offsets; and the tokens of
whole columns.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dupq.kernel_cache import read_only
from dupq.text.tokens import tokens


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


def token_texts(texts: pa.StringArray | pa.LargeStringArray) -> pa.Array:
    """Return each text's tokens joined by single spaces, in the type of `texts`. A null counts as an empty text."""
    return pa.array([" ".join(tokens(text or "")) for text in texts.to_pylist()], texts.type)
