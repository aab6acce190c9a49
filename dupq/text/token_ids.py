"""Token ids of many texts in one array with offsets, so that a million texts are two arrays, not objects."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import overload

import numpy as np
import pyarrow as pa


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
