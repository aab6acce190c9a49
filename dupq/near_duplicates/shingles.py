"""From texts to sets of hashed word shingles (Broder 1997), for whole columns at once.

A shingle is `size` consecutive tokens. A text of fewer tokens makes one shingle of them all; an empty text
makes none, so that it has no duplicates. Texts are tokens joined by single spaces, as in the TEXTS table.
"""

from typing import NamedTuple

import numpy as np
import pyarrow as pa

from dupq.near_duplicates.hashing import SLACK, count_shingles, hash_shingles, hash_texts, sort_sets
from dupq.text.strings import strings_of


class Shingles(NamedTuple):
    """The shingles of n texts: those of text i are `hashes[offsets[i]:offsets[i + 1]]` (uint64)."""

    hashes: np.ndarray
    offsets: np.ndarray


class TextHashes(NamedTuple):
    """128 bits of each text that is not empty: its row (int64) and both halves of its hash (uint64)."""

    rows: np.ndarray
    high: np.ndarray
    low: np.ndarray


def shingle(texts: pa.StringArray, size: int) -> Shingles:
    """The shingles of each text, in order and with repeats; offsets are int64."""
    offsets, data = strings_of(texts)
    begins = count_shingles(data, offsets, size)
    hashes = np.empty(begins[-1] + SLACK, np.uint64)
    hash_shingles(data, offsets, size, begins, hashes)
    return Shingles(hashes[: begins[-1]], begins)


def shingle_sets(texts: pa.StringArray, size: int) -> Shingles:
    """The set of shingles of each text: sorted, no repeats; offsets are int64."""
    hashes, begins = shingle(texts, size)
    offsets = np.zeros(len(begins), np.int64)
    sort_sets(begins, hashes, offsets)
    return Shingles(hashes[: offsets[-1]], offsets)


def hash_each(texts: pa.StringArray) -> TextHashes:
    """The hash of each text: the same for exact copies, and by chance for others with a probability of 2**-128."""
    offsets, data = strings_of(texts)
    hashes = np.empty((len(texts), 2), np.uint64)
    hash_texts(data, offsets, hashes)
    rows = np.flatnonzero(np.diff(offsets))
    return TextHashes(rows, hashes[rows, 0], hashes[rows, 1])
