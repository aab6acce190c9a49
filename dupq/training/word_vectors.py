"""The word vectors that a network begins with: random ones, or those of another encoder.

dupq counts the words itself, so that every source of vectors has the same words in the same order, and words over a
limit are counted. Memory: the counts, and two to three tables of the vectors; never the text. Word2vec, and vectors
from a file or a teacher, are the papers' (papers/dupq_papers/word_vectors.py).

`untrained_reader` makes an encoder that learns only how rare each word is, without torch.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from dupq.encoders.bags import FIRST_POWER, LEAST_RARITY, USUAL_LEXICAL_WEIGHT, Bag, inverse_document_frequencies
from dupq.encoders.saved import Reader
from dupq.errors import DupqError
from dupq.settings.config import Settings
from dupq.settings.sections import WordVectorSettings
from dupq.system import papers
from dupq.text.languages import normaliser_of
from dupq.text.questions import FIRST_WORD, Vocabulary, token_ids
from dupq.training.start import known_vectors, read_start, shared_words

# Counts of the vectors: occurrences of all words, and of those that word_vectors.start has.
OCCURRENCES, OF_START = "occurrences of words with vectors", "of these, of words of word_vectors.start"
SAME_LANGUAGE = 0.85  # least share of start words in texts of its language: .97 to .99 in English, .4 in made-up words
_ROWS_AT_ONCE = 8_192


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


def make_word_vectors(sentences: Iterable[list[str]], settings: WordVectorSettings, seed: int) -> WordVectors:
    """Return the words that are frequent enough, with vectors as `settings` say.

    All words of the encoder that `word_vectors.start` names are kept. `sentences` can be iterated several times. The
    same sentences and seed give the same vectors. Raises DupqError if no word is frequent enough, or a file of vectors
    is damaged.
    """
    counts = Counter[str]()
    for sentence in sentences:
        counts.update(sentence)
    frequent = [word for word, count in counts.items() if count >= settings.minimum_count]
    words = sorted(frequent, key=lambda word: (-counts[word], word))[: settings.words]
    chosen = FrequentWords(words, [counts[word] for word in words], len(frequent) - len(words))
    return vectors_for(with_start_words(chosen, settings), sentences, settings, seed)


def with_start_words(frequent: FrequentWords, settings: WordVectorSettings) -> FrequentWords:
    """Add the words of the encoder that `word_vectors.start` names, if it is used, after the frequent ones.

    They are known even if they are rare, because questions of later nights contain them. Raises DupqError if there is
    no word.
    """
    words, counts, over = frequent
    if settings.goes_on:
        missing = sorted(set(read_start(settings.start).words).difference(words))
        added = missing[: max(0, settings.words - len(words))]
        words, counts, over = words + added, counts + [0] * len(added), over + len(missing) - len(added)
    if not words:
        raise DupqError(
            f"word vectors: no word occurs {settings.minimum_count} times in the questions; give more of them, "
            "or lower word_vectors.minimum_count"
        )
    return FrequentWords(words, counts, over)


def vectors_for(
    frequent: FrequentWords,
    sentences: Iterable[list[str]],
    settings: WordVectorSettings,
    seed: int,
    written: tuple[Settings, Mapping[str, int]] | None = None,
) -> WordVectors:
    """Return the vectors of counted words; only word2vec reads the `sentences`.

    `written` has all settings and the counts of written words in the texts, where words get the vectors of these.
    """
    words, caps = frequent.words, {"cap: words over word_vectors.words": frequent.over}
    if settings.goes_on:
        vectors, counts = _start_vectors(frequent, settings, seed)
        caps |= counts
    elif settings.algorithm == "random" and not settings.file:
        vectors = _random_vectors(len(words), settings.dimensions, seed)
    else:
        vectors, counts = papers("word_vectors")[0].vectors_of(frequent, sentences, settings, seed, written)
        caps |= counts
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


class FlatMap:
    """The items that a function yields for each of some values; it can be iterated several times."""

    def __init__(self, values: Iterable[Any], function: Callable[..., Iterable[Any]], *arguments: object) -> None:
        """Call `function(value, *arguments)` for each value when iterated."""
        self._values, self._function, self._arguments = values, function, arguments

    def __iter__(self) -> Iterator[Any]:
        """Yield all items from the first value on."""
        return (item for value in self._values for item in self._function(value, *self._arguments))


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
