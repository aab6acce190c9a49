"""The word vectors of an experiment: of one data set's text for the words of the same or of another."""

import pyarrow as pa

from dupq.settings.config import Settings
from dupq.text.normalisation import Normaliser
from dupq.text.vocabulary import FIRST_WORD
from dupq.training.word_vectors import WordVectors, make_word_vectors


def learned(texts: pa.StringArray, settings: Settings) -> WordVectors:
    """The vectors of the words of `texts` (tokens joined by single spaces) from these texts."""
    normaliser = Normaliser(settings.text)
    sentences = [normaliser.all_words(text) for text in texts.to_pylist() if text]
    return make_word_vectors(sentences, settings.word_vectors, settings.training.seed)


def lent(texts: pa.StringArray, settings: Settings, other: WordVectors) -> WordVectors:
    """The words of `texts` with the vectors that `other` has of them.

    A word that it lacks has a random vector, normal, with the standard deviation of the others' values.
    """
    random = settings.changed(word_vectors=settings.word_vectors.changed(algorithm="random"))
    words, table, caps = learned(texts, random)
    known = other.table[FIRST_WORD : FIRST_WORD + len(other.words)]
    table *= known.std() * settings.word_vectors.dimensions**0.5
    rows = {word: row for row, word in enumerate(other.words)}
    for place, word in enumerate(words, FIRST_WORD):
        if word in rows:
            table[place] = known[rows[word]]
    table[FIRST_WORD - 1] = table[FIRST_WORD : FIRST_WORD + len(words)].mean(axis=0)
    return WordVectors(words, table, caps)
