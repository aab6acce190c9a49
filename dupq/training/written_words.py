"""Which written words a form of the vocabulary comes from, for vectors of written words: a teacher's or a file's."""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from scipy import sparse

from dupq.settings.config import Settings
from dupq.text.normalisation import Normaliser
from dupq.training.vector_files import FoundVectors, read_vectors


class Spelling(NamedTuple):
    """One way in which a word of the vocabulary is written."""

    row: int  # of the vocabulary's words
    word: str
    times: int  # in the texts


def spellings(words: list[str], written: Mapping[str, int], settings: Settings) -> list[Spelling]:
    """How `words`, which have their form, are written in texts; `written` says how often these have what as written.

    Ways that occur often enough, by `word_vectors.minimum_count`; a word that has none is its own.
    """
    if settings.text.word_form == "written":
        return [Spelling(row, word, 1) for row, word in enumerate(words)]
    counts = {word: count for word, count in written.items() if count >= settings.word_vectors.minimum_count}
    forms = Normaliser(settings.text).each_form(list(counts))
    rows = {word: row for row, word in enumerate(words)}
    found = [Spelling(rows[form], *each) for form, each in zip(forms, counts.items(), strict=True) if form in rows]
    with_any = {spelling.row for spelling in found}
    return found + [Spelling(row, word, 1) for word, row in rows.items() if row not in with_any]


def means(found: list[Spelling], vectors: np.ndarray, size: int) -> np.ndarray:
    """The means (float32, shape (size, D)) of `vectors`, one a spelling, by row and weighted by count.

    Zero vectors, of words that are not known, do not count.
    """
    row, times = (np.array([each[place] for each in found], np.int64) for place in (0, 2))
    weights = sparse.csr_array((times * vectors.any(axis=1), (row, np.arange(len(row)))), (size, len(row)))
    totals = np.maximum(1, weights.sum(axis=1))
    return ((weights @ vectors.astype(np.float64)) / totals[:, None]).astype(np.float32)


def file_of_written_words(words: list[str], written: Mapping[str, int], settings: Settings) -> FoundVectors:
    """The vectors in `word_vectors.file` of words by the ways in which they are written, or else of their form."""
    found = spellings(words, written, settings)
    wanted = sorted({*words, *(spelling.word for spelling in found)})
    there = read_vectors(settings.word_vectors.file, wanted, settings.word_vectors.dimensions)
    row_of = {word: row for row, word in enumerate(wanted)}
    table = means(found, there.table[[row_of[spelling.word] for spelling in found]], len(words))
    of_forms = there.table[[row_of[word] for word in words]]
    is_written = np.asarray(table.any(axis=1))
    table = np.where(is_written[:, None], table, of_forms)
    return FoundVectors(table, np.asarray(table.any(axis=1)))
