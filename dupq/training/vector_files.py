"""Reading word vectors trained elsewhere, as text: word2vec, fastText and GloVe, gzip too; local or on S3.

A line is a word and its values, separated by spaces, under a first line with the number of words and of dimensions
(word2vec, fastText) or under none (GloVe). The file is read once from front to end, and only the rows of wanted words
are kept. Nothing is unpickled.

Such files, and teachers, have vectors of written words: `Spelling` says which written words a form of the vocabulary
comes from.
"""

import gzip
import io
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from scipy import sparse

from dupq import storage
from dupq.errors import DupqError
from dupq.settings.config import Settings
from dupq.text.normalisation import normaliser_of

_LONGEST_LINE = 1 << 20  # bytes
_BUFFER = 1 << 20


class FoundVectors(NamedTuple):
    """The vectors of words (float32, one row a word) and which of them the file has; the other rows are zero."""

    table: np.ndarray
    is_found: np.ndarray


def read_vectors(uri: str, words: Sequence[str], dimensions: int) -> FoundVectors:
    """Return the vectors of `words` in the file `uri`. Of a word that occurs twice the first row counts.

    Words are compared unchanged. Raises DupqError naming the line that is damaged.
    """
    rows = {word: row for row, word in enumerate(words)}
    found = FoundVectors(np.zeros((len(words), dimensions), np.float32), np.zeros(len(words), bool))
    if uri.removesuffix(".gz").endswith(".bin"):
        raise DupqError(
            f"{uri}: word2vec's binary form is not read; write it as text with gensim: "
            "KeyedVectors.load_word2vec_format(file, binary=True).save_word2vec_format(text_file)"
        )
    with storage.open_input(uri) as raw:
        stream = io.BufferedReader(gzip.GzipFile(fileobj=raw) if uri.endswith(".gz") else raw, _BUFFER)
        try:
            for place, word, values in _text(stream, uri, dimensions):
                row = rows.get(word.decode(errors="replace"))
                if row is not None and not found.is_found[row]:
                    found.table[row] = _checked(values, f"{uri}: {place}")
                    found.is_found[row] = True
        except (OSError, EOFError) as error:  # gzip
            raise DupqError(f"{uri}: cannot be unpacked to its end ({error})") from error
    return found


def _checked(values: list[bytes], place: str) -> np.ndarray:
    try:
        vector = np.array(values).astype(np.float32)
    except ValueError as error:
        raise DupqError(f"{place} has a value that is no number ({error})") from error
    if not np.isfinite(vector).all():
        raise DupqError(f"{place} has a value that is not finite")
    return vector


def _text(stream: io.BufferedReader, uri: str, dimensions: int) -> Iterator[tuple[str, bytes, list[bytes]]]:
    """Yield where it is, the word and the values of every line; raises DupqError for another number of values."""
    declared, number = None, 0
    while line := stream.readline(_LONGEST_LINE):
        number += 1
        if len(line) == _LONGEST_LINE:
            raise DupqError(f"{uri}: line {number} is longer than {_LONGEST_LINE:,} bytes; not a file of word vectors")
        line = line.rstrip(b" \r\n")
        count = line.count(b" ")
        if number == 1:
            declared = _header(line)
            there = declared[1] if declared else count
            if there != dimensions:
                raise DupqError(
                    f"{uri}: line 1 tells of {there} dimensions, but word_vectors.dimensions is {dimensions}; set it "
                    "to those of the file, if it is one of word vectors"
                )
            if declared:
                continue
        word, *values = line.rsplit(b" ", dimensions)
        if len(values) != dimensions or (b" " in word and _is_number(word.rsplit(b" ", 1)[1])):  # GloVe's have spaces
            raise DupqError(f"{uri}: line {number} has {count} values after its word; {dimensions} expected")
        yield f"line {number}", word, values
    if not number:
        raise DupqError(f"{uri}: the file is empty")
    if declared and declared[0] != number - 1:
        raise DupqError(f"{uri}: line 1 says {declared[0]} words, but {number - 1} lines follow; it was cut or joined")


def _header(line: bytes) -> tuple[int, int] | None:
    """Return words and dimensions, if that is what a first line holds."""
    fields = line.split()
    return (int(fields[0]), int(fields[1])) if len(fields) == 2 and all(map(bytes.isdigit, fields)) else None


def _is_number(text: bytes) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


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
    forms = normaliser_of(settings.text).each_form(list(counts))
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
