"""What questions are about: a topic, and within it perhaps a subject, of which it shares some phrases with others.

Without subjects the questions of a topic are drawn at random, and most of the ten nearest of a question are anywhere in
it. People ask about the same things again and again, so the questions of a real archive lie close together.
What a question is about is one number: `topic + TOPICS * subject`, subject 0 being none.
"""

import numpy as np

from benchmarks.generator.vocabulary import PHRASES, TOPIC_PHRASES, TOPICS, Vocabulary

# Of all phrases, in 128ths. With 100 questions a subject, 13 of 141 lists hold 95 % of the ten nearest of 20,000
# questions, to an encoder trained from nothing; of 6,118 real ones of cs.stackexchange.com 5 of 78 lists.
_OF_SUBJECT = 40
_PHRASE_BITS = 5  # a subject has 2**5 phrases, some of them more often than others


def by_topic(rng: np.random.Generator, count: int) -> np.ndarray:
    """What so many questions are about: topics, of which few have many questions."""
    return (rng.random(count) ** 2 * TOPICS).astype(np.int64)


def by_subject(rng: np.random.Generator, count: int, subjects: int) -> np.ndarray:
    """What so many questions are about: subjects, of which few have many questions."""
    subject = 1 + (rng.random(count) ** 2 * subjects).astype(np.int64)
    topic = ((_hash(subject) / 2**32) ** 2 * TOPICS).astype(np.int64)
    return topic + TOPICS * subject


def topic_of(about: np.ndarray) -> np.ndarray:
    """The topic of each."""
    return about % TOPICS


def of_subjects(
    vocabulary: Vocabulary, about: np.ndarray, chance: np.ndarray, quantile: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Whether each phrase is one of its subject, of 7 bits of chance; and then which, of a quantile below 2**20."""
    subject = about // TOPICS
    place = quantile.astype(np.int64) ** 2 >> 40 - _PHRASE_BITS
    phrase = _hash((subject << _PHRASE_BITS) + place) % TOPIC_PHRASES
    return (subject > 0) & (chance < _OF_SUBJECT), (vocabulary.topic_starts[topic_of(about)] + phrase) % PHRASES


def _hash(numbers: np.ndarray) -> np.ndarray:
    """32 bits of each number (the finalizer of splitmix64)."""
    bits = numbers.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    bits = (bits ^ bits >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ bits >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
    return (bits >> np.uint64(32)).astype(np.int64)
