"""From texts to sets of hashed word shingles (Broder 1997), for whole columns at once.

A shingle is `size` consecutive tokens. A text of fewer tokens makes one shingle of them all; an empty text
makes none, so that it has no duplicates. Texts are tokens joined by single spaces, as in the TEXTS table. A text that
is a title alone is compared letter by letter: its words are so few that one typing error would be half of its shingles.
"""

from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dupq.near_duplicates.hashing import hash_shingles, sort_sets
from dupq.text.strings import strings_of


class Shingles(NamedTuple):
    """The shingles of n texts: those of text i are `hashes[offsets[i]:offsets[i + 1]]` (uint64)."""

    hashes: np.ndarray
    offsets: np.ndarray


def compared(titles: pa.StringArray, texts: pa.StringArray) -> pa.StringArray:
    """The texts (title and body) as they are compared: of those that are titles alone, letters as tokens."""
    is_title = pc.and_(pc.equal(titles, texts), pc.not_equal(titles, ""))
    spelled = pc.replace_substring_regex(pc.replace_substring(texts.filter(is_title), " ", "_"), "(.)", r"\1 ")
    return pc.replace_with_mask(texts, is_title, pc.utf8_rtrim(spelled, " "))


def shingle(texts: pa.StringArray, size: int) -> Shingles:
    """The shingles of each text, in order and with repeats; offsets are int64."""
    offsets, data = strings_of(texts)
    return Shingles(*hash_shingles(data, offsets, size))


def shingle_sets(texts: pa.StringArray, size: int) -> Shingles:
    """The set of shingles of each text: sorted, no repeats; offsets are int64."""
    hashes, begins = shingle(texts, size)
    offsets = np.zeros(len(begins), np.int64)
    sort_sets(begins, hashes, offsets)
    return Shingles(hashes[: offsets[-1]], offsets)
