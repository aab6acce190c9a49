"""Counting the words of a column of texts: each distinct word is brought to its form once."""

from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dupq.text.normalisation import Normaliser
from dupq.text.words import distinct_words

WORD_COUNTS = pa.schema([pa.field("word", pa.large_string(), False), pa.field("count", pa.int64(), False)])


class Forms(NamedTuple):
    """n texts as `Normaliser.all_words` reads them: those of text i are `numbers[begins[i]:begins[i + 1]]`."""

    forms: pa.LargeStringArray  # a word of each number; null for one that its form leaves nothing of
    numbers: np.ndarray  # int32
    begins: np.ndarray  # int64, (n + 1,)

    @property
    def lengths(self) -> np.ndarray:
        """How many words each text has (int64)."""
        is_there = self.forms.is_valid().to_numpy(zero_copy_only=False)
        before = np.concatenate([[0], np.cumsum(is_there[self.numbers])])
        return np.diff(before[self.begins])


def forms_of(texts: pa.StringArray | pa.ChunkedArray, normaliser: Normaliser) -> Forms:
    """Every word of stored texts, in its form. An absent text is an empty one."""
    if isinstance(texts, pa.ChunkedArray):
        texts = texts.combine_chunks()
    numbers, begins, words = distinct_words(normaliser.with_dates_masked(texts))
    return Forms(pa.array(normaliser.each_form(words.to_pylist()), pa.large_string()), numbers, begins)


def word_counts(found: Forms) -> pa.Table:
    """How often each word occurs: rows of WORD_COUNTS, sorted by word."""
    counts = np.bincount(found.numbers, minlength=len(found.forms))
    table = pa.table([found.forms, pa.array(counts)], names=["word", "count"])
    return summed([table.filter(pc.and_(pc.is_valid(table["word"]), pc.greater(table["count"], 0)))])


def summed(tables: list[pa.Table]) -> pa.Table:
    """The counts of all tables together, sorted by word. Memory: some 50 bytes a row of all, and their words."""
    together = pa.concat_tables([WORD_COUNTS.empty_table(), *(table.cast(WORD_COUNTS) for table in tables)])
    by_word = together.group_by("word", use_threads=False).aggregate([("count", "sum")])
    return by_word.rename_columns({"count_sum": "count"}).select(WORD_COUNTS.names).sort_by("word").cast(WORD_COUNTS)


def most_frequent(table: pa.Table, most: int) -> pa.Table:
    """At most `most` rows of WORD_COUNTS, the most frequent words first, of equally frequent ones by the word."""
    return table.sort_by([("count", "descending"), ("word", "ascending")]).slice(0, most)


def joined(found: Forms, is_wanted: np.ndarray) -> pa.LargeStringArray:
    """The words of the texts that are wanted (bool, (n,)), joined by single spaces; no text without words."""
    sizes = found.lengths[is_wanted]
    numbers = found.numbers[is_wanted.repeat(np.diff(found.begins))]
    offsets = pa.array(np.concatenate([[0], np.cumsum(sizes)]))
    lists = pa.LargeListArray.from_arrays(offsets, found.forms.take(pa.array(numbers)).drop_null())
    return pc.binary_join(lists.filter(pa.array(sizes > 0)), pa.scalar(" ", pa.large_string()))
