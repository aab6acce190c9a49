"""Word vectors of a collection, trained and read, and bags of words."""

from pathlib import Path

import numpy as np
import pytest
from made_collections import (
    collection_of,
)

from dupq.errors import DupqError
from dupq.evaluation.systems.vectors import AS_STORED, bags, read, trained
from dupq.settings.text import TextSettings
from dupq.settings.training import WordVectorSettings

SMALL = WordVectorSettings(dimensions=8, window=2, epochs=3, minimum_count=2)


def test_bags_count_words_and_may_filter_them() -> None:
    collection = collection_of(["the sail of the boat", "", "of the"])
    words, counts = bags(collection.texts, AS_STORED)
    assert words == ("boat", "of", "sail", "the")
    assert counts.toarray().tolist() == [[1, 1, 1, 2], [0, 0, 0, 0], [0, 1, 0, 1]]
    _, counts = bags(collection.texts, TextSettings(stop_words="removed"), ["sail", "the"])
    assert counts.toarray().tolist() == [[1, 0], [0, 0], [0, 1]]  # a text of stop words keeps them
    assert bags(collection_of(["", ""]).texts, AS_STORED)[1].shape == (2, 0)


def test_vectors_are_trained_on_the_words_as_they_are_read_and_again_the_same() -> None:
    collection = collection_of(["sails of boats", "a sail of a boat", "boats sail"] * 5)
    lemmas = TextSettings(word_form="lemmas")
    once, again = (trained(collection, SMALL, 1, lemmas) for _ in range(2))
    assert sorted(once.words) == ["a", "boat", "of", "sail"]
    assert once.words == again.words
    assert once.table.dtype == np.float32
    assert once.table.shape == (4, 8)
    assert (once.table == again.table).all()
    assert (once.table != trained(collection, SMALL, 2, lemmas).table).any()


def test_vectors_are_read_for_the_words_that_the_file_has(tmp_path: Path) -> None:
    path = tmp_path / "glove.txt"
    path.write_text("boat 1 2\nrope 3 4\nsail 5 6\n")
    found = read(str(path), collection_of(["a sail", "no boat"]), 2)
    assert found.words == ("boat", "sail")
    assert found.table.tolist() == [[1, 2], [5, 6]]
    with pytest.raises(DupqError, match="none of the 1 words"):
        read(str(path), collection_of(["bread"]), 2)
