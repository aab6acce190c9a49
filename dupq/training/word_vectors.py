"""Word vectors of the archive's own text, by gensim (Mikolov et al. 2013), of another encoder, or from a file.

dupq counts the words itself, so that every source of vectors has the same words in the same order, and words over a
limit are counted. Memory: the counts, and two to three tables of the vectors; never the text.

`untrained_reader` makes an encoder that learns only how rare each word is, without torch.
"""

import gzip
import io
import re
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

# Counts of the vectors: occurrences of all words, and of those that word_vectors.start has.
OCCURRENCES, OF_START = "occurrences of words with vectors", "of these, of words of word_vectors.start"
SAME_LANGUAGE = 0.85  # least share of start words in texts of its language: .97 to .99 in English, .4 in made-up words
_ROWS_AT_ONCE = 8_192
SENTENCE_WORDS = 10_000  # gensim silently drops the rest of a longer sentence


class WordVectors(NamedTuple):
    """Words, most frequent first, and the table of their vectors (float32), one row per id of the vocabulary.

    The vector of padding is zero, and that of unknown words is the mean of all vectors. `caps` counts what limits left
    out, and the words that the start encoder has.
    """

    words: list[str]
    table: np.ndarray
    caps: dict[str, int]


class FrequentWords(NamedTuple):
    """The words that get vectors, the most frequent first, then in the order of the words."""

    words: list[str]
    counts: list[int]  # how often each occurs
    over: int  # number of words over `word_vectors.words`, which get none
    sentences: int  # number of sentences for word2vec


def make_word_vectors(sentences: Iterable[list[str]], settings: WordVectorSettings, seed: int) -> WordVectors:
    """Return the words that are frequent enough, with vectors that are trained, random or read as `settings` say.

    All words of the encoder that `word_vectors.start` names are kept. `sentences` can be iterated several times. The
    same sentences and seed give the same vectors. Raises DupqError if no word is frequent enough, or a file of vectors
    is damaged.
    """
    counts, number = Counter[str](), 0
    for sentence in FlatMap(sentences, _split_long):
        counts.update(sentence)
        number += 1
    frequent = [word for word, count in counts.items() if count >= settings.minimum_count]
    words = sorted(frequent, key=lambda word: (-counts[word], word))[: settings.words]
    chosen = FrequentWords(words, [counts[word] for word in words], len(frequent) - len(words), number)
    return vectors_for(with_start_words(chosen, settings), sentences, settings, seed)


def with_start_words(frequent: FrequentWords, settings: WordVectorSettings) -> FrequentWords:
    """Add the words of the encoder that `word_vectors.start` names, if it is used, after the frequent ones.

    They are known even if they are rare, because questions of later nights contain them. Raises DupqError if there is
    no word.
    """
    words, counts, over, sentences = frequent
    if settings.goes_on:
        missing = sorted(set(read_start(settings.start).words).difference(words))
        added = missing[: max(0, settings.words - len(words))]
        words, counts, over = words + added, counts + [0] * len(added), over + len(missing) - len(added)
    if not words:
        raise DupqError(
            f"word vectors: no word occurs {settings.minimum_count} times in the questions; give more of them, "
            "or lower word_vectors.minimum_count"
        )
    return FrequentWords(words, counts, over, sentences)


def vectors_for(
    frequent: FrequentWords,
    sentences: Iterable[list[str]],
    settings: WordVectorSettings,
    seed: int,
    ask_teacher: Callable[[list[str]], np.ndarray] | None = None,
    read_file: Callable[[list[str]], tuple[np.ndarray, np.ndarray]] | None = None,
) -> WordVectors:
    """Return the vectors of counted words; only word2vec reads the `sentences`.

    `ask_teacher` returns a teacher's vectors of words, one row each. `read_file` returns those of a file; by default
    the words themselves are looked up.
    """
    words = frequent.words
    caps = {"cap: words over word_vectors.words": frequent.over}
    if settings.file:
        vectors, is_found = read_file(words) if read_file else read_vectors(settings.file, words, settings.dimensions)
        caps["words absent from word_vectors.file"] = int((~is_found).sum())
        _fill(vectors, is_found, words, settings, seed)
    elif settings.algorithm == "random":
        vectors = _random_vectors(len(words), settings.dimensions, seed)
    elif settings.goes_on:
        vectors, counts = _start_vectors(frequent, settings, seed)
        caps |= counts
    elif settings.algorithm == "teacher":
        assert ask_teacher is not None
        vectors = _standardised(ask_teacher(words).astype(np.float32))
    else:
        vectors = _word2vec(sentences, frequent, settings, seed)
    mean = vectors.mean(axis=0, keepdims=True, dtype=np.float64).astype(np.float32)
    table = np.concatenate([np.zeros((1, vectors.shape[1]), np.float32), mean, vectors])
    return WordVectors(words, table, caps)


def _start_vectors(
    frequent: FrequentWords, settings: WordVectorSettings, seed: int
) -> tuple[np.ndarray, dict[str, int]]:
    """Return the vectors of the encoder that `word_vectors.start` names, and their counts.

    Words that it lacks get zero in its language: they are rare, and the lexical part has them. In another language they
    are most words. With zero vectors the few other words would be all that questions have in common, so they get random
    vectors instead.
    """
    vectors, is_known = known_vectors(read_start(settings.start), frequent.words)
    occurrences = np.array(frequent.counts, np.int64)
    counts = {OCCURRENCES: int(occurrences.sum()), OF_START: int(occurrences[is_known].sum())}
    if counts[OF_START] < SAME_LANGUAGE * counts[OCCURRENCES]:
        length = float(np.linalg.norm(vectors[is_known], axis=1).mean()) if is_known.any() else 1.0
        vectors[~is_known] = length * _random_vectors(len(vectors), vectors.shape[1], seed)[~is_known]
    return vectors, counts


def _random_vectors(words: int, dimensions: int, seed: int) -> np.ndarray:
    """Return normal vectors of length 1 on average, drawn in blocks of rows because numpy draws in double precision."""
    generator, vectors = np.random.default_rng(seed), np.empty((words, dimensions), np.float32)
    for start in range(0, words, _ROWS_AT_ONCE):
        rows = vectors[start : start + _ROWS_AT_ONCE]
        rows[:] = generator.normal(0, dimensions**-0.5, rows.shape)
    return vectors


def _standardised(vectors: np.ndarray) -> np.ndarray:
    """Return the vectors less their mean, scaled to an average length of 1; zero vectors stay zero."""
    is_known = np.asarray(vectors.any(axis=1))
    centred = np.where(is_known[:, None], vectors - vectors[is_known].mean(axis=0), 0.0)
    return (centred / np.linalg.norm(centred[is_known], axis=1).mean()).astype(np.float32)


class FlatMap:
    """The items that a function yields for each of some values; it can be iterated several times."""

    def __init__(self, values: Iterable[Any], function: Callable[..., Iterable[Any]], *arguments: object) -> None:
        """Call `function(value, *arguments)` for each value when iterated."""
        self._values, self._function, self._arguments = values, function, arguments

    def __iter__(self) -> Iterator[Any]:
        """Yield all items from the first value on."""
        return (item for value in self._values for item in self._function(value, *self._arguments))


def _split_long(sentence: list[str]) -> Iterator[list[str]]:
    """Yield a sentence, in several if it is too long for gensim."""
    return (sentence[start : start + SENTENCE_WORDS] for start in range(0, len(sentence), SENTENCE_WORDS))


def _word2vec(
    sentences: Iterable[list[str]], frequent: FrequentWords, settings: WordVectorSettings, seed: int
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
    counts = dict(zip(frequent.words, frequent.counts, strict=True))
    model.build_vocab_from_freq(counts, corpus_count=frequent.sentences)
    model.train(FlatMap(sentences, _split_long), total_examples=frequent.sentences, epochs=settings.epochs)
    assert model.wv.index_to_key == frequent.words
    return model.wv.vectors.astype(np.float32)


def _fill(table: np.ndarray, is_found: np.ndarray, words: list[str], settings: WordVectorSettings, seed: int) -> None:
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


def untrained_reader(texts: pa.Table, settings: Settings) -> Reader:
    """Return the weighted bag of words that training on rows of TEXTS begins with, as `new_network` makes it.

    Raises DupqError if no text has a word.
    """
    vocabulary, table = vocabulary_and_vectors(texts, settings)
    rarities = inverse_document_frequencies(token_ids(texts, vocabulary, settings)[0], len(vocabulary))
    rarities = np.maximum(rarities, np.float32(LEAST_RARITY))
    log_weights, power = np.log(rarities), FIRST_POWER
    if settings.word_vectors.goes_on:
        start = read_start(settings.word_vectors.start)
        rows, start_rows = shared_words(start, vocabulary.words)
        log_weights[FIRST_WORD + rows] = start.tensors["log_weights.weight"][FIRST_WORD + start_rows, 0]
        power = float(start.tensors["power"])
    lexical = float(np.float32(USUAL_LEXICAL_WEIGHT))  # networks hold it in float32
    return Reader(Bag(table, log_weights, rarities, power, lexical), vocabulary, settings)


def vocabulary_and_vectors(texts: pa.Table, settings: Settings) -> tuple[Vocabulary, np.ndarray]:
    """Return the words of rows of TEXTS and the table of their vectors. Raises DupqError if no text has a word."""
    normaliser = normaliser_of(settings.text)
    sentences = [normaliser.all_words(text) for text in texts["text"].to_pylist() if text]
    vectors = make_word_vectors(sentences, settings.word_vectors, settings.training.seed)
    return Vocabulary(vectors.words, settings.text), vectors.table


# Word vectors trained elsewhere, as text: word2vec, fastText and GloVe, also gzipped; local or on S3.
#
# A line is a word and its values, separated by spaces. The first line of word2vec and fastText has the numbers of words
# and dimensions instead. The file is read once from front to end, and only the rows of the needed words are kept.
# Nothing is unpickled.
#
# Such files, and teachers, have vectors of written words; a `Spelling` is a written word of a form in the vocabulary.

_LONGEST_LINE, _BUFFER = 1 << 20, 1 << 20  # bytes
_NUMBER_AT_END = re.compile(rb" [-+]?(\d+\.?\d*|\.\d+)(e[-+]?\d+)?$", re.IGNORECASE)


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


def read_spelt_vectors(
    words: list[str], written: Mapping[str, int], settings: Settings
) -> tuple[np.ndarray, np.ndarray]:
    """Return what `read_vectors` does, by the spellings of words, or by their form if these are absent."""
    spelt = spellings(words, written, settings)
    names = sorted({*words, *(spelling.word for spelling in spelt)})
    vectors = read_vectors(settings.word_vectors.file, names, settings.word_vectors.dimensions)[0]
    rows = {name: row for row, name in enumerate(names)}
    means = mean_vectors(spelt, vectors[[rows[spelling.word] for spelling in spelt]], len(words))
    table = np.where(means.any(axis=1, keepdims=True), means, vectors[[rows[word] for word in words]])
    return table, np.asarray(table.any(axis=1))
