"""Texts as sets of terms: stems, each by a hash, so that two texts are compared by merging sorted numbers.

A table of how many questions have a term has a fixed size then, however many words an archive has. Two stems that
share a bucket count as one term: with 4 million buckets a pair of texts of 100 words meets that once in 400 pairs.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import xxhash

from dupq.kernel_cache import numba as nb
from dupq.text.word_forms import stems
from dupq.text.words import distinct_words

TERM_BITS = 22
BUCKETS = 1 << TERM_BITS


class Terms(NamedTuple):
    """The terms of n texts: text i has `ids[offsets[i]:offsets[i + 1]]`, ascending, each once, `counts` times."""

    offsets: np.ndarray  # int64, (n + 1,)
    ids: np.ndarray  # int32, below BUCKETS
    counts: np.ndarray  # uint8, at most 255

    def take(self, rows: np.ndarray) -> "Terms":
        """The terms of the texts `rows` (int64)."""
        lengths = np.diff(self.offsets)[rows]
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        places = np.repeat(self.offsets[:-1][rows] - offsets[:-1], lengths) + np.arange(offsets[-1])
        return Terms(offsets, self.ids[places], self.counts[places])


def gathered(found: Sequence[Terms]) -> Terms:
    """The terms of all texts, one after the other; of at least one part."""
    lengths = np.concatenate([np.diff(terms.offsets) for terms in found])
    ids, counts = (np.concatenate([terms[column] for terms in found]) for column in (1, 2))
    return Terms(np.concatenate([[0], np.cumsum(lengths)]), ids, counts)


def terms_of(texts: pa.StringArray, language: str) -> Terms:
    """The terms of stored texts (tokens joined by single spaces)."""
    numbers, begins, words = distinct_words(texts)
    stem = stems(language)
    buckets = [bucket_of(stem(word)) for word in words.to_pylist()]
    ids = np.array(buckets, np.int32)[numbers] if len(numbers) else np.zeros(0, np.int32)
    return Terms(*_counted(ids, begins))


def bucket_of(term: str) -> int:
    """The number of a stem or a tag, below BUCKETS."""
    return xxhash.xxh3_64_intdigest(term.encode()) & (BUCKETS - 1)


def tags_of(tags: pa.ListArray) -> Terms:
    """The tags of questions as terms: whole, not by their stems."""
    names = pc.dictionary_encode(tags.flatten())
    hashed = [bucket_of(name or "") for name in names.dictionary.to_pylist()]
    ids = np.array(hashed, np.int32)[names.indices.to_numpy()] if len(names) else np.zeros(0, np.int32)
    lengths = tags.value_lengths().fill_null(0).to_numpy()
    owners = np.repeat(np.arange(len(tags)), lengths)
    distinct = np.unique(np.stack([owners, ids], axis=1), axis=0)
    offsets = np.concatenate([[0], np.cumsum(np.bincount(distinct[:, 0], minlength=len(tags)))])
    return Terms(offsets, distinct[:, 1].astype(np.int32), np.ones(len(distinct), np.uint8))


@nb.njit(nogil=True, cache=True)
def _counted(ids: np.ndarray, begins: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Sort the ids of each text, and count those that repeat."""
    offsets = np.zeros(len(begins), np.int64)
    distinct, counts = np.empty(len(ids), np.int32), np.empty(len(ids), np.uint8)
    end = 0
    for text in range(len(begins) - 1):
        ordered = np.sort(ids[begins[text] : begins[text + 1]])
        for place in range(len(ordered)):
            if place and ordered[place] == ordered[place - 1]:
                counts[end - 1] = min(255, counts[end - 1] + 1)
            else:
                distinct[end], counts[end] = ordered[place], 1
                end += 1
        offsets[text + 1] = end
    return offsets, distinct[:end].copy(), counts[:end].copy()


def document_counts(terms: Terms) -> np.ndarray:
    """How many of the texts have each term (int64, shape (BUCKETS,))."""
    return np.bincount(terms.ids, minlength=BUCKETS)


def rarities(counts: np.ndarray, questions: int) -> np.ndarray:
    """How much it says that a question has a term (float32, shape (BUCKETS,)): ln(1 + (n - c + .5) / (c + .5)).

    That is BM25's inverse document frequency in Lucene's form; never below 0.
    """
    seen = np.minimum(counts, questions)
    return np.log1p((questions - seen + 0.5) / (seen + 0.5)).astype(np.float32)


def rare_words(table: np.ndarray, questions: int, language: str) -> Callable[[str], bool]:
    """A test whether at most one question has a word; `table` as `rarities` gives it for so many questions."""
    stem, least = stems(language), rarities(np.ones(1, np.int64), questions)[0]
    return lambda word: bool(table[bucket_of(stem(word))] >= least)
