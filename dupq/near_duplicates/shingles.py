"""Texts to sets of hashed word shingles (Broder 1997), for whole columns at once.

A shingle is `size` consecutive tokens. A text of fewer tokens makes one shingle of them all; an empty text
makes none, so that it is nobody's duplicate.
"""

from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import xxhash

_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)  # 2**64 / golden ratio: odd, bits well spread


class Shingles(NamedTuple):
    """The shingles of n texts: those of text i are `hashes[offsets[i]:offsets[i + 1]]` (uint64)."""

    hashes: np.ndarray
    offsets: np.ndarray


def shingle(texts: pa.StringArray, size: int) -> Shingles:
    """The shingles of each text, in order and with repeats. Tokens are separated by single spaces."""
    words, word_offsets = _word_hashes(texts)
    counts = np.diff(word_offsets)
    shingle_counts = np.where(counts == 0, 0, np.maximum(counts - size + 1, 1))
    offsets = np.concatenate([[0], np.cumsum(shingle_counts)])
    owners = np.repeat(np.arange(len(counts)), shingle_counts)
    first_words = word_offsets[owners] + np.arange(offsets[-1]) - offsets[owners]
    lengths = np.minimum(counts, size)[owners]
    hashes = np.zeros(offsets[-1], np.uint64)
    for position in range(size):
        inside = position < lengths
        following = words[np.where(inside, first_words + position, 0)] if len(words) else hashes
        hashes = np.where(inside, _mix(hashes * _MULTIPLIER ^ following), hashes)
    return Shingles(hashes, offsets)


def shingle_sets(texts: pa.StringArray, size: int) -> Shingles:
    """The set of shingles of each text: sorted, no repeats."""
    hashes, offsets = shingle(texts, size)
    owners = np.repeat(np.arange(len(texts)), np.diff(offsets))
    order = np.lexsort((hashes, owners))
    hashes, owners = hashes[order], owners[order]
    first = np.ones(len(hashes), bool)
    first[1:] = (hashes[1:] != hashes[:-1]) | (owners[1:] != owners[:-1])
    counts = np.bincount(owners[first], minlength=len(texts))
    return Shingles(hashes[first], np.concatenate([[0], np.cumsum(counts)]))


def text_hashes(texts: pa.StringArray) -> list[bytes | None]:
    """A 128-bit hash of each text, the same only for exact copies; None for an empty text."""
    return [xxhash.xxh3_128_digest(text) if text else None for text in texts.cast(pa.binary()).to_pylist()]


def _word_hashes(texts: pa.StringArray) -> tuple[np.ndarray, np.ndarray]:
    """The hash of every word of every text (flat), and where each text's words start."""
    lists = pc.split_pattern(texts, " ")
    flat = lists.flatten().dictionary_encode()
    dictionary = [xxhash.xxh3_64_intdigest(word) for word in flat.dictionary.cast(pa.binary()).to_pylist()]
    hashes = np.array(dictionary, np.uint64)[flat.indices.to_numpy()]
    counts = pc.list_value_length(lists).to_numpy(zero_copy_only=False).astype(np.int64)
    empty = pc.equal(texts, "").to_numpy(zero_copy_only=False)
    if empty.any():  # an empty string splits into one empty word
        hashes = hashes[~np.repeat(empty, counts)]
        counts = np.where(empty, 0, counts)
    return hashes, np.concatenate([[0], np.cumsum(counts)])


def _mix(hashes: np.ndarray) -> np.ndarray:
    """MurmurHash3's 64-bit finaliser: every input bit reaches every output bit."""
    hashes = (hashes ^ (hashes >> np.uint64(33))) * np.uint64(0xFF51AFD7ED558CCD)
    hashes = (hashes ^ (hashes >> np.uint64(33))) * np.uint64(0xC4CEB9FE1A85EC53)
    return hashes ^ (hashes >> np.uint64(33))
