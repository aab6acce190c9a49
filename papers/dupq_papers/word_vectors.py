"""Word vectors by gensim's word2vec (Mikolov et al. 2013), from a file of vectors trained elsewhere, or from a teacher.

A file is text: word2vec, fastText and GloVe, also gzipped; local or on S3. A line is a word and its values, separated
by spaces. The first line of word2vec and fastText has the numbers of words and dimensions instead. The file is read
once from front to end, and only the rows of the needed words are kept. Nothing is unpickled.

Files and teachers have vectors of written words. A `Spelling` is a written word of a form in the vocabulary.
"""

import gzip
import io
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import xxhash
from scipy import sparse

from dupq import storage
from dupq.errors import DupqError
from dupq.settings.config import Settings
from dupq.text.languages import normaliser_of
from dupq.training.start import embeddings_by
from dupq.training.word_vectors import FlatMap, FrequentWords
from dupq_papers.settings import PaperWordVectors

SENTENCE_WORDS = 10_000  # gensim silently drops the rest of a longer sentence
_LONGEST_LINE, _BUFFER = 1 << 20, 1 << 20  # bytes
_NUMBER_AT_END = re.compile(rb" [-+]?(\d+\.?\d*|\.\d+)(e[-+]?\d+)?$", re.IGNORECASE)


def vectors_of(
    frequent: FrequentWords,
    sentences: Iterable[list[str]],
    settings: PaperWordVectors,
    seed: int,
    written: tuple[Settings, Mapping[str, int]] | None,
) -> tuple[np.ndarray, dict[str, int]]:
    """Return the vectors (float32, a row each) of words, learned from `sentences` or read; and counts.

    `written` has all settings and the counts of written words in the texts; without it a word is its own spelling.
    """
    words = frequent.words
    if settings.learned_from is not None:
        return _word2vec(sentences, frequent, settings, seed), {}
    spelt = spellings(words, written[1], written[0]) if written else spellings(words, {}, Settings())
    if not settings.file:
        assert written is not None
        return _standardised(teacher_word_vectors(written[0].teacher.encoder, spelt, len(words))), {}
    if settings.file_words == "written":
        vectors, is_found = read_spelt_vectors(settings.file, words, spelt, settings.dimensions)
    else:
        vectors, is_found = read_vectors(settings.file, words, settings.dimensions)
    _fill(vectors, is_found, words, settings, seed)
    return vectors, {"words absent from word_vectors.file": int((~is_found).sum())}


class Spelling(NamedTuple):
    """A written word of a form in the vocabulary."""

    row: int  # index of the form in the vocabulary's words
    word: str
    times: int  # in the texts


def spellings(words: list[str], written: Mapping[str, int], settings: Settings) -> list[Spelling]:
    """Return the spellings of `words`; `written` are the counts of written words in the texts.

    Spellings occur at least `word_vectors.minimum_count` times; a form without any is its own spelling.
    """
    counts = {word: count for word, count in written.items() if count >= settings.word_vectors.minimum_count}
    forms = normaliser_of(settings.text).each_form(list(counts))
    rows = {word: row for row, word in enumerate(words)}
    spelt = [Spelling(rows[form], *item) for form, item in zip(forms, counts.items(), strict=True) if form in rows]
    has_spelling = {spelling.row for spelling in spelt}
    return spelt + [Spelling(row, word, 1) for word, row in rows.items() if row not in has_spelling]


def mean_vectors(spelt: list[Spelling], vectors: np.ndarray, size: int) -> np.ndarray:
    """Return the means (float32, shape (size, D)) by row of `vectors`, one per spelling, weighted by count.

    Zero vectors belong to unknown words and do not count.
    """
    row, times = (np.array([getattr(spelling, name) for spelling in spelt], np.int64) for name in ("row", "times"))
    weights = sparse.csr_array((times * vectors.any(axis=1), (row, np.arange(len(row)))), (size, len(row)))
    totals = np.maximum(1, weights.sum(axis=1))
    return ((weights @ vectors.astype(np.float64)) / totals[:, None]).astype(np.float32)


def teacher_word_vectors(encoder: str, spelt: list[Spelling], size: int) -> np.ndarray:
    """Return the teacher's embeddings of `size` words (float32, one row each); zero for a word that it does not know.

    They are the means of the embeddings of their spellings, weighted by count.
    """
    texts = pa.array([spelling.word for spelling in spelt], pa.string())
    table = pa.table({"title": pa.array([""] * len(spelt), pa.string()), "text": texts})
    return mean_vectors(spelt, embeddings_by(encoder, table, None), size)


def _standardised(vectors: np.ndarray) -> np.ndarray:
    """Return the vectors less their mean, scaled to an average length of 1; zero vectors stay zero."""
    is_known = np.asarray(vectors.any(axis=1))
    centred = np.where(is_known[:, None], vectors - vectors[is_known].mean(axis=0), 0.0)
    return (centred / np.linalg.norm(centred[is_known], axis=1).mean()).astype(np.float32)


def _split_long(sentence: list[str]) -> Iterator[list[str]]:
    """Yield a sentence, in several if it is too long for gensim."""
    return (sentence[start : start + SENTENCE_WORDS] for start in range(0, len(sentence), SENTENCE_WORDS))


def _word2vec(
    sentences: Iterable[list[str]], frequent: FrequentWords, settings: PaperWordVectors, seed: int
) -> np.ndarray:
    """Return word2vec vectors by gensim, one row per word."""
    from gensim.models import Word2Vec

    model = Word2Vec(
        vector_size=settings.dimensions,
        window=settings.window,
        min_count=1,
        sg=int(settings.algorithm == "skip-gram"),
        hs=int(settings.objective != "negative-sampling"),
        negative=0 if settings.objective == "hierarchical-softmax" else settings.negative,
        sample=settings.sample,
        workers=1,  # with more, gensim gives other vectors at each run
        seed=seed,
        sorted_vocab=0,
    )
    short = FlatMap(sentences, _split_long)
    count = sum(1 for _ in short)
    model.build_vocab_from_freq(dict(zip(frequent.words, frequent.counts, strict=True)), corpus_count=count)
    model.train(short, total_examples=count, epochs=settings.epochs)
    assert model.wv.index_to_key == frequent.words
    return model.wv.vectors.astype(np.float32)


def _fill(table: np.ndarray, is_found: np.ndarray, words: list[str], settings: PaperWordVectors, seed: int) -> None:
    """Give absent words normal vectors, with the mean and standard deviation of all values in the file.

    A word has the same vector with the same seed in every archive.
    """
    if not is_found.any():
        raise DupqError(
            f"{settings.file}: none of the {len(words):,} words of the archive is in it; is it of another language, "
            "or are its words in other forms than text.word_form gives?"
        )
    mean, deviation = float(table[is_found].mean()), float(table[is_found].std())
    for row in np.flatnonzero(~is_found).tolist():
        generator = np.random.default_rng(xxhash.xxh3_64_intdigest(words[row].encode(), seed))
        table[row] = generator.normal(mean, deviation, settings.dimensions)


def read_vectors(uri: str, words: Sequence[str], dimensions: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the vectors of `words` in the file `uri` (float32, one row each), and which it has (bool).

    The other rows are zero. If a word occurs twice, its first row counts. Words are compared unchanged. Raises
    DupqError naming a damaged line.
    """
    rows = {word: row for row, word in enumerate(words)}
    table, is_found = np.zeros((len(words), dimensions), np.float32), np.zeros(len(words), bool)
    if uri.removesuffix(".gz").endswith(".bin"):
        raise DupqError(
            f"{uri}: word2vec's binary form is not read; write it as text with gensim: "
            "KeyedVectors.load_word2vec_format(file, binary=True).save_word2vec_format(text_file)"
        )
    with storage.open_input(uri) as raw:
        stream = io.BufferedReader(gzip.GzipFile(fileobj=raw) if uri.endswith(".gz") else raw, _BUFFER)
        try:
            for line, word, values in _lines(stream, uri, dimensions):
                row = rows.get(word.decode(errors="replace"))
                if row is not None and not is_found[row]:
                    table[row], is_found[row] = _parsed(values, line), True
        except (OSError, EOFError) as error:  # gzip
            raise DupqError(f"{uri}: cannot be unpacked to its end ({error})") from error
    return table, is_found


def _parsed(values: list[bytes], line: str) -> np.ndarray:
    try:
        vector = np.array(values).astype(np.float32)
    except ValueError as error:
        raise DupqError(f"{line} has a value that is not a number ({error})") from error
    if not np.isfinite(vector).all():
        raise DupqError(f"{line} has a value that is not finite")
    return vector


def _lines(stream: io.BufferedReader, uri: str, dimensions: int) -> Iterator[tuple[str, bytes, list[bytes]]]:
    """Yield the name, the word and the values of every line. Raises DupqError for a wrong number of values."""
    number, words = 0, None
    for number, read in enumerate(iter(lambda: stream.readline(_LONGEST_LINE), b""), 1):
        name, line = f"{uri}: line {number}", read.rstrip(b" \r\n")
        if number == 1:
            first = line.split(b" ")
            is_header = len(first) == 2 and all(map(bytes.isdigit, first))
            length = int(first[1]) if is_header else len(first) - 1
            if length != dimensions:
                raise DupqError(
                    f"{name} says {length} dimensions, but word_vectors.dimensions is {dimensions}; set it "
                    "to those of the file, if it is one of word vectors"
                )
            if is_header:
                words = int(first[0])
                continue
        word, *values = line.rsplit(b" ", dimensions)
        # GloVe has words with spaces, but none that ends in a number
        if len(values) != dimensions or _NUMBER_AT_END.search(word):
            raise DupqError(f"{name} has {line.count(b' ')} values after its word; {dimensions} expected")
        yield name, word, values
    if not number:
        raise DupqError(f"{uri}: the file is empty")
    if words not in (None, number - 1):
        raise DupqError(f"{uri}: line 1 says {words} words, but {number - 1} lines follow; it was cut or joined")


def read_spelt_vectors(
    uri: str, words: list[str], spelt: list[Spelling], dimensions: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return what `read_vectors` does, by the spellings of words, or by their form if these are absent."""
    names = sorted({*words, *(spelling.word for spelling in spelt)})
    vectors = read_vectors(uri, names, dimensions)[0]
    rows = {name: row for row, name in enumerate(names)}
    means = mean_vectors(spelt, vectors[[rows[spelling.word] for spelling in spelt]], len(words))
    table = np.where(means.any(axis=1, keepdims=True), means, vectors[[rows[word] for word in words]])
    return table, np.asarray(table.any(axis=1))
