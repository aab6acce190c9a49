"""dupq's own encoder for an archive of which nothing is learned but how rare each word is; without torch."""

import numpy as np
import pyarrow as pa

from dupq.encoders.bags import (
    FIRST_POWER,
    LEAST_RARITY,
    USUAL_LEXICAL_WEIGHT,
    Bag,
    inverse_document_frequencies,
)
from dupq.encoders.reader import Reader
from dupq.settings.config import Settings
from dupq.text.normalisation import Normaliser
from dupq.text.questions import token_ids
from dupq.text.vocabulary import Vocabulary
from dupq.training.start import read_start, shared_rows
from dupq.training.word_vectors import make_word_vectors


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
        own, other = shared_rows(start, vocabulary)
        log_weights[own] = start.tensors["log_weights.weight"][other, 0]
        power = float(start.tensors["power"])
    lexical = float(np.float32(USUAL_LEXICAL_WEIGHT))  # as a network holds it
    return Reader(Bag(table, log_weights, rarities, power, lexical), vocabulary, settings)


def words_of(texts: pa.Table, settings: Settings) -> tuple[Vocabulary, np.ndarray]:
    """The words of rows of TEXTS, and the table of their vectors. Raises DupqError if no text has a word."""
    normaliser = Normaliser(settings.text)
    sentences = [normaliser.all_words(text) for text in texts["text"].to_pylist() if text]
    vectors = make_word_vectors(sentences, settings.word_vectors, settings.training.seed)
    return Vocabulary(vectors.words, settings.text, settings.word_vectors.hashed), vectors.table
