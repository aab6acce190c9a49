"""Reading word vectors trained elsewhere: word2vec (text or binary) and GloVe (text), gzip too; local or on S3.

A name that ends in .bin or .bin.gz is word2vec's binary form, every other one text: a word and its values a line,
separated by spaces, under a first line with the number of words and of dimensions (word2vec, fastText) or under none
(GloVe). The file is read once from front to end, and only the rows of wanted words are kept. Nothing is unpickled.

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
_LONGEST_WORD = 1 << 12
_BUFFER = 1 << 20


class FoundVectors(NamedTuple):
    """The vectors of words (float32, one row a word) and which of them the file has; the other rows are zero."""

    table: np.ndarray
    is_found: np.ndarray


def read_vectors(uri: str, words: Sequence[str], dimensions: int) -> FoundVectors:
    """The vectors of `words` in the file `uri`. Of a word that occurs twice the first row counts.

    Words are compared unchanged. Raises DupqError naming the line, or in a binary file the word, that is damaged.
    """
    rows = {word: row for row, word in enumerate(words)}
    found = FoundVectors(np.zeros((len(words), dimensions), np.float32), np.zeros(len(words), bool))
    name = storage.name(uri).removesuffix(".gz")
    with storage.open_input(uri) as raw:
        packed = gzip.GzipFile(fileobj=raw) if uri.endswith(".gz") else raw
        stream = io.BufferedReader(packed, _BUFFER)
        entries = (_binary if name.endswith(".bin") else _text)(stream, uri, dimensions)
        try:
            for place, word, values in entries:
                row = rows.get(word)
                if row is None or found.is_found[row]:
                    continue
                found.table[row] = _checked(values, f"{uri}: {place}", dimensions)
                found.is_found[row] = True
        except (OSError, EOFError) as error:  # gzip
            raise DupqError(f"{uri}: cannot be unpacked to its end ({error})") from error
    return found


_Values = bytes | list[bytes]


def _checked(values: _Values, place: str, dimensions: int) -> np.ndarray:
    try:
        vector = np.frombuffer(values, "<f4") if isinstance(values, bytes) else np.array(values).astype(np.float32)
    except ValueError as error:
        raise DupqError(f"{place} has a value that is no number ({error})") from error
    if not np.isfinite(vector).all():
        raise DupqError(f"{place} has a value that is not finite")
    assert len(vector) == dimensions
    return vector


def _text(stream: io.BufferedReader, uri: str, dimensions: int) -> Iterator[tuple[str, str, _Values]]:
    """(place, word, values) of every line; raises DupqError for a line of another number of values."""
    declared, number = None, 0
    while line := stream.readline(_LONGEST_LINE):
        number += 1
        place = f"line {number}"
        if len(line) == _LONGEST_LINE:
            raise DupqError(f"{uri}: {place} is longer than {_LONGEST_LINE:,} bytes; not a file of word vectors")
        fields = line.rstrip(b" \r\n").rsplit(b" ", dimensions)
        if number == 1:
            declared = _header(line)
            _check_dimensions(declared[1] if declared else line.rstrip().count(b" "), uri, dimensions)
            if declared:
                continue
        if len(fields) != dimensions + 1 or _ends_in_number(fields[0]):
            count = line.rstrip(b" \r\n").count(b" ")
            raise DupqError(f"{uri}: {place} has {count} values after its word; {dimensions} expected")
        yield place, fields[0].decode(errors="replace"), fields[1:]
    if not number:
        raise DupqError(f"{uri}: the file is empty")
    if declared and declared[0] != number - 1:
        raise DupqError(f"{uri}: line 1 says {declared[0]} words, but {number - 1} lines follow; it was cut or joined")


def _header(line: bytes) -> tuple[int, int] | None:
    """Words and dimensions, if that is what a first line holds."""
    fields = line.split()
    if len(fields) == 2 and all(field.isdigit() for field in fields):
        return int(fields[0]), int(fields[1])
    return None


def _check_dimensions(found: int, uri: str, dimensions: int) -> None:
    if found != dimensions:
        raise DupqError(
            f"{uri}: line 1 tells of {found} dimensions, but word_vectors.dimensions is {dimensions}; "
            "set it to those of the file, if it is one of word vectors"
        )


def _ends_in_number(word: bytes) -> bool:
    """Whether the text before the last values is a word and one value too many. GloVe has words with spaces."""
    if b" " not in word:
        return False
    try:
        float(word.rsplit(b" ", 1)[1])
    except ValueError:
        return False
    return True


def _binary(stream: io.BufferedReader, uri: str, dimensions: int) -> Iterator[tuple[str, str, _Values]]:
    """(place, word, values) of every word; raises DupqError where the file ends too early."""
    declared = _header(stream.readline(_LONGEST_WORD))
    if declared is None:
        raise DupqError(f"{uri}: line 1 is not the number of words and of dimensions; not a binary word2vec file")
    _check_dimensions(declared[1], uri, dimensions)
    for number in range(1, declared[0] + 1):
        place = f"word {number} of {declared[0]}"
        word = _until_space(stream, f"{uri}: {place}")
        values = stream.read(4 * dimensions)
        if len(values) != 4 * dimensions:
            raise DupqError(f"{uri}: {place}: the file ends inside it; it was cut")
        yield place, word.lstrip(b"\n").decode(errors="replace"), values
    if stream.read(2).strip():
        raise DupqError(f"{uri}: bytes follow the last of {declared[0]} words; it is damaged")


def _until_space(stream: io.BufferedReader, place: str) -> bytes:
    parts: list[bytes] = []
    while True:
        ahead = stream.peek(1)
        end = ahead.find(b" ")
        parts.append(stream.read(end + 1 if end >= 0 else len(ahead)))
        if not ahead:
            raise DupqError(f"{place}: the file ends before it; it was cut")
        if sum(map(len, parts)) > _LONGEST_WORD + _BUFFER or len(parts[-1]) > _LONGEST_WORD:
            raise DupqError(f"{place} is longer than {_LONGEST_WORD} bytes; the file is damaged before it")
        if end >= 0:
            return b"".join(parts)[:-1]


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
