"""Word vectors of a collection, and bags of words."""

import numpy as np
from made_collections import (
    collection_of,
)

from dupq_papers.settings import PaperText, PaperWordVectors
from dupq_papers.systems.vectors import AS_STORED, Sentences, bags, trained_on

SMALL = PaperWordVectors(algorithm="skip-gram", dimensions=8, window=2, epochs=3, minimum_count=2)


def test_bags_count_words_and_may_filter_them() -> None:
    collection = collection_of(["the sail of the boat", "", "of the"])
    words, counts = bags(collection.texts, AS_STORED)
    assert words == ("boat", "of", "sail", "the")
    assert counts.toarray().tolist() == [[1, 1, 1, 2], [0, 0, 0, 0], [0, 1, 0, 1]]
    _, counts = bags(collection.texts, PaperText(stop_words="removed"), ["sail", "the"])
    assert counts.toarray().tolist() == [[1, 0], [0, 0], [0, 1]]  # a text of stop words keeps them
    assert bags(collection_of(["", ""]).texts, AS_STORED)[1].shape == (2, 0)


def test_vectors_are_trained_on_the_words_as_they_are_read_and_again_the_same() -> None:
    collection = collection_of(["sails of boats", "a sail of a boat", "boats sail"] * 5)
    lemmas = PaperText(word_form="lemmas")
    once, again, other = (trained_on(Sentences(collection.texts, lemmas), SMALL, seed) for seed in (1, 1, 2))
    assert sorted(once.words) == ["a", "boat", "of", "sail"]
    assert once.words == again.words
    assert once.table.dtype == np.float32
    assert once.table.shape == (4, 8)
    assert (once.table == again.table).all()
    assert (once.table != other.table).any()
