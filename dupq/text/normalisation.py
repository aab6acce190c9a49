"""The words of stored texts in the form that an encoder reads, as TextSettings say.

The stored texts stay as the tokeniser made them, because the lexical filter and the baselines read them too. This step
comes between them and the vocabulary wherever an encoder reads a text; its settings are saved with it. Tokens of code
and links never change.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dupq.settings.sections import TextSettings
from dupq.system import papers
from dupq.text.languages import lemmas, stems
from dupq.text.token_arrays import distinct_words, token_texts
from dupq.text.tokens import CODE_PREFIX, LINK_TOKEN


class Normaliser:
    """From a plain text to a stored one, and to the words that an encoder knows. Same text and settings, same words."""

    def __init__(self, settings: TextSettings) -> None:
        """Read as `settings` say; `normaliser_of` gives the papers' own where they have settings of theirs."""
        forms: dict[str, Callable[[str], Callable[[str], str]]] = {"stems": stems, "lemmas": lemmas}
        self._form = forms[settings.word_form](settings.language) if settings.word_form != "written" else str

    def stored(self, texts: pa.Array) -> pa.Array:
        """Return the tokens of plain texts, joined by single spaces (large_string)."""
        return token_texts(texts)

    def learned(self, texts: pa.Array) -> pa.Array:
        """Return of stored texts what word vectors learn from, not yet in its form: all of it."""
        return texts

    def read(self, texts: pa.Array) -> pa.Array:
        """Return of stored texts what an encoder reads, not yet in its form: all of it."""
        return texts

    def each_form(self, words: list[str]) -> list[str | None]:
        """Return the form of each word; None for a word that its form leaves nothing of."""
        return [word if _is_mark(word) else (word and self._form(word)) or None for word in words]

    def all_words(self, text: str) -> list[str]:
        """Return the words that word vectors learn from a stored text, in their forms."""
        return self._in_form(self.learned(pa.array([text], pa.large_string())))

    def words(self, text: str) -> list[str]:
        """Return the words that an encoder reads of a stored text, in their forms."""
        return self._in_form(self.read(pa.array([text], pa.large_string())))

    def _in_form(self, one: pa.Array) -> list[str]:
        text = one[0].as_py()
        return [form for form in self.each_form(text.split(" ")) if form] if text else []


def _is_mark(token: str) -> bool:
    return token == LINK_TOKEN or token.startswith(CODE_PREFIX)


def normaliser_of(settings: TextSettings) -> Normaliser:
    """Return what reads texts by these settings: the papers' own normaliser where they have settings of theirs."""
    if type(settings) is TextSettings:
        return Normaliser(settings)
    [reading] = papers("reading")
    found: Normaliser = reading.PaperNormaliser(settings)
    return found


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
    numbers, begins, words = distinct_words(normaliser.learned(texts))
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
