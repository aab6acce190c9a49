"""The word vectors of an experiment: of one data set's text for the words of the same or of another."""

from dupq.settings.config import Settings
from dupq.text.keys import sample_by_hash
from dupq.text.languages import normaliser_of
from dupq.text.questions import FIRST_WORD
from dupq.training.word_vectors import WordVectors, make_word_vectors
from dupq_papers.settings import PaperWordVectors
from dupq_papers.systems.collection import Collection


def learned(questions: Collection, settings: Settings) -> WordVectors:
    """The vectors of the words of `questions` from their texts, or from `word_vectors.sentences` of them."""
    normaliser, most = normaliser_of(settings.text), PaperWordVectors.parse(dict(settings.word_vectors)).sentences
    texts = questions.texts
    if most:
        texts = texts.take(questions.rows(sample_by_hash(questions.keys, most)))
    sentences = [normaliser.all_words(text) for text in texts.to_pylist() if text]
    return make_word_vectors(sentences, settings.word_vectors, settings.training.seed)


def lent(questions: Collection, settings: Settings, other: WordVectors) -> WordVectors:
    """The words of `questions` with the vectors that `other` has of them.

    A word that it lacks has a random vector, normal, with the standard deviation of the others' values.
    """
    dimensions = other.table.shape[1]
    random = settings.changed(word_vectors=settings.word_vectors.changed(algorithm="random", dimensions=dimensions))
    words, table, caps = learned(questions, random)
    known = other.table[FIRST_WORD : FIRST_WORD + len(other.words)]
    table *= known.std() * dimensions**0.5
    rows = {word: row for row, word in enumerate(other.words)}
    for place, word in enumerate(words, FIRST_WORD):
        if word in rows:
            table[place] = known[rows[word]]
    table[FIRST_WORD - 1] = table[FIRST_WORD : FIRST_WORD + len(words)].mean(axis=0)
    return WordVectors(words, table, caps)
