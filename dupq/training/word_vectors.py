"""Word vectors of the archive's own text, by gensim (Mikolov et al. 2013), or from a file.

dupq counts the words itself, before: so every source of vectors has the same words in the same order, and what a limit
leaves out is counted. Memory: the counts, and two to three tables of the vectors; never the text.

Where nothing is learned but how rare each word is, `counted` makes the encoder, without torch.
"""

import gzip
import io
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import xxhash
from scipy import sparse

from dupq import storage
from dupq.encoders.bags import FIRST_POWER, LEAST_RARITY, USUAL_LEXICAL_WEIGHT, Bag, inverse_document_frequencies
from dupq.encoders.saved import Reader
from dupq.errors import DupqError
from dupq.settings.config import Settings
from dupq.settings.sections import WordVectorSettings
from dupq.text.languages import normaliser_of
from dupq.text.questions import FIRST_WORD, Vocabulary, token_ids
from dupq.training.start import known_vectors, read_start, shared_words

# Counts of the vectors: how often words occur, and of these the ones of the encoder that training goes on from.
OCCURRENCES, OF_START = "occurrences of words with vectors", "of these, of words of word_vectors.start"
SAME_LANGUAGE = 0.85  # least share of them in texts of its language: .97 to .99 in English ones, .4 in made-up words
_ROWS_AT_ONCE = 8_192
SENTENCE_WORDS = 10_000  # gensim silently drops the rest of a longer sentence


class WordVectors(NamedTuple):
    """Words, most frequent first, and the table of their vectors (float32), one row for each id of the vocabulary.

    The vector of padding is zero, that of unknown words the mean of all. `caps` says what the limits
    left out, and what an encoder that training goes on from has of the words.
    """

    words: list[str]
    table: np.ndarray
    caps: dict[str, int]


class FoundVectors(NamedTuple):
    """The vectors of words (float32, one row a word) and which of them the file has; the other rows are zero."""

    table: np.ndarray
    is_found: np.ndarray


class FrequentWords(NamedTuple):
    """The words that get vectors, most frequent first, of equally frequent ones by the word."""

    words: list[str]
    counts: list[int]  # how often each occurs
    frequent: int  # how many words are frequent enough, with those over `word_vectors.words`
    sentences: int  # that word2vec reads


def make_word_vectors(
    sentences: Iterable[list[str]],
    settings: WordVectorSettings,
    seed: int,
) -> WordVectors:
    """The words that are frequent enough, with their vectors, trained, random or read as `settings` say.

    Where training goes on from an encoder, all its words are kept. `sentences` can be iterated several times. The same
    sentences and seed give the same vectors. Raises DupqError if no word is frequent enough, or for what is wrong with
    a file of vectors.
    """
    counts, number = Counter[str](), 0
    for sentence in EachOf(sentences, _cut):
        counts.update(sentence)
        number += 1
    frequent = [word for word, count in counts.items() if count >= settings.minimum_count]
    words = sorted(frequent, key=lambda word: (-counts[word], word))[: settings.words]
    chosen = FrequentWords(words, [counts[word] for word in words], len(frequent), number)
    return vectors_of(with_start(chosen, settings), sentences, settings, seed)


def with_start(frequent: FrequentWords, settings: WordVectorSettings) -> FrequentWords:
    """With the words of the encoder that training goes on from, if there is one, behind the frequent ones.

    They are known also where they are rare: questions of later nights bring them. Raises DupqError if there is no word.
    """
    if settings.goes_on:
        more = sorted(set(read_start(settings.start).words).difference(frequent.words))
        kept = more[: max(0, settings.words - len(frequent.words))]
        frequent = frequent._replace(
            words=frequent.words + kept,
            counts=frequent.counts + [0] * len(kept),
            frequent=frequent.frequent + len(more),
        )
    if not frequent.words:
        raise DupqError(
            f"word vectors: no word occurs {settings.minimum_count} times in the questions; give more of them, "
            "or lower word_vectors.minimum_count"
        )
    return frequent


def _known_vectors(
    frequent: FrequentWords, settings: WordVectorSettings, seed: int
) -> tuple[np.ndarray, dict[str, int]]:
    """The vectors of the encoder that training goes on from, and their counts.

    Words that it lacks get zero, as a rule: they are rare, and have the lexical part. In another language they are most
    of the words; all zero, the few others would be all that questions have in common, so they get random vectors.
    """
    vectors, is_known = known_vectors(read_start(settings.start), frequent.words)
    counts = np.array(frequent.counts, np.int64)
    found = {OCCURRENCES: int(counts.sum()), OF_START: int(counts[is_known].sum())}
    if found[OF_START] < SAME_LANGUAGE * found[OCCURRENCES]:
        length = float(np.linalg.norm(vectors[is_known], axis=1).mean()) if is_known.any() else 1.0
        vectors[~is_known] = length * _drawn(len(vectors), vectors.shape[1], seed)[~is_known]
    return vectors, found


def vectors_of(
    frequent: FrequentWords,
    sentences: Iterable[list[str]],
    settings: WordVectorSettings,
    seed: int,
    taught: Callable[[list[str]], np.ndarray] | None = None,
    from_file: Callable[[list[str]], FoundVectors] | None = None,
) -> WordVectors:
    """As `make_word_vectors`, of words that were counted before; `sentences` are read by word2vec alone.

    `taught` gives a teacher's vectors of words, one row each; `from_file` those of a file, if not by the words
    themselves.
    """
    words = frequent.words
    caps = {"cap: words over word_vectors.words": frequent.frequent - len(words)}
    if settings.file:
        found = from_file(words) if from_file else read_vectors(settings.file, words, settings.dimensions)
        vectors, absent = _filled(found, words, settings, seed)
        caps["words absent from word_vectors.file"] = absent
    elif settings.algorithm == "random":
        vectors = _drawn(len(words), settings.dimensions, seed)
    elif settings.goes_on:
        vectors, counted = _known_vectors(frequent, settings, seed)
        caps |= counted
    elif settings.algorithm == "teacher":
        assert taught is not None
        vectors = _spread(taught(words).astype(np.float32))
    else:
        counts = dict(zip(words, frequent.counts, strict=True))
        vectors = _trained(sentences, counts, frequent.sentences, settings, seed)
    mean = vectors.mean(axis=0, keepdims=True, dtype=np.float64).astype(np.float32)
    table = np.concatenate([np.zeros((1, vectors.shape[1]), np.float32), mean, vectors])
    return WordVectors(words, table, caps)


def _drawn(words: int, dimensions: int, seed: int) -> np.ndarray:
    """Normal vectors, of length 1 on average; drawn some rows at a time, as numpy draws in double precision."""
    generator, vectors = np.random.default_rng(seed), np.empty((words, dimensions), np.float32)
    for start in range(0, words, _ROWS_AT_ONCE):
        some = vectors[start : start + _ROWS_AT_ONCE]
        some[:] = generator.normal(0, dimensions**-0.5, some.shape)
    return vectors


def _spread(vectors: np.ndarray) -> np.ndarray:
    """Vectors less their mean, which all have in common, scaled to an average length of 1; zero vectors stay zero."""
    is_there = np.asarray(vectors.any(axis=1))
    found = np.where(is_there[:, None], vectors - vectors[is_there].mean(axis=0), 0.0)
    return (found / np.linalg.norm(found[is_there], axis=1).mean()).astype(np.float32)


class EachOf:
    """What a function yields of each of some values, as often as it is gone through."""

    def __init__(self, values: Iterable[Any], function: Callable[..., Iterable[Any]], *arguments: object) -> None:
        """`function(value, *arguments)` of each value; what it yields comes one after the other."""
        self._values, self._function, self._arguments = values, function, arguments

    def __iter__(self) -> Iterator[Any]:
        """All of it, from the first value on."""
        return (one for value in self._values for one in self._function(value, *self._arguments))


def _cut(sentence: list[str]) -> Iterator[list[str]]:
    """Yield a sentence as gensim takes it, a longer one in several."""
    return (sentence[start : start + SENTENCE_WORDS] for start in range(0, len(sentence), SENTENCE_WORDS))


def _trained(
    sentences: Iterable[list[str]], counts: dict[str, int], number: int, settings: WordVectorSettings, seed: int
) -> np.ndarray:
    """word2vec by gensim; rows in the order of `counts`."""
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
    model.build_vocab_from_freq(counts, corpus_count=number)
    model.train(EachOf(sentences, _cut), total_examples=number, epochs=settings.epochs)
    assert model.wv.index_to_key == list(counts)
    return model.wv.vectors.astype(np.float32)


def _filled(found: FoundVectors, words: list[str], settings: WordVectorSettings, seed: int) -> tuple[np.ndarray, int]:
    """The vectors of a file, and how many of `words` it lacks.

    An absent word gets a random vector of its own: normal, with the mean and standard deviation of all values that are
    there, and the same for the same word and seed in every archive.
    """
    table, is_found = found
    if not is_found.any():
        raise DupqError(
            f"{settings.file}: none of the {len(words):,} words of the archive is in it; is it of another language, "
            "or are its words in other forms than text.word_form gives?"
        )
    absent = np.flatnonzero(~is_found)
    mean, deviation = float(table[is_found].mean()), float(table[is_found].std())
    for row in absent.tolist():
        generator = np.random.default_rng(xxhash.xxh3_64_intdigest(words[row].encode(), seed))
        table[row] = generator.normal(mean, deviation, settings.dimensions)
    return table, len(absent)


def counted(texts: pa.Table, settings: Settings) -> Reader:
    """The weighted bag of words that training on rows of TEXTS begins with, as `new_network` makes it.

    Raises DupqError if no text has a word.
    """
    vocabulary, table = words_of(texts, settings)
    rarities = inverse_document_frequencies(token_ids(texts, vocabulary, settings)[0], len(vocabulary))
    rarities = np.maximum(rarities, np.float32(LEAST_RARITY))
    log_weights, power = np.log(rarities), FIRST_POWER
    if settings.word_vectors.goes_on:
        start = read_start(settings.word_vectors.start)
        own, other = shared_words(start, vocabulary.words)
        log_weights[FIRST_WORD + own] = start.tensors["log_weights.weight"][FIRST_WORD + other, 0]
        power = float(start.tensors["power"])
    lexical = float(np.float32(USUAL_LEXICAL_WEIGHT))  # as a network holds it
    return Reader(Bag(table, log_weights, rarities, power, lexical), vocabulary, settings)


def words_of(texts: pa.Table, settings: Settings) -> tuple[Vocabulary, np.ndarray]:
    """The words of rows of TEXTS, and the table of their vectors. Raises DupqError if no text has a word."""
    normaliser = normaliser_of(settings.text)
    sentences = [normaliser.all_words(text) for text in texts["text"].to_pylist() if text]
    vectors = make_word_vectors(sentences, settings.word_vectors, settings.training.seed)
    return Vocabulary(vectors.words, settings.text), vectors.table


# Word vectors trained elsewhere, as text: word2vec, fastText and GloVe, gzip too; local or on S3.
#
# A line is a word and its values, separated by spaces, under a first line with the number of words and of dimensions
# (word2vec, fastText) or under none (GloVe). The file is read once from front to end, and only the rows of wanted words
# are kept. Nothing is unpickled.
#
# Such files, and teachers, have vectors of written words: `Spelling` says which written words a form of the vocabulary
# comes from.

_LONGEST_LINE = 1 << 20  # bytes
_BUFFER = 1 << 20


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
