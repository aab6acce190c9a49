"""Word vectors of the archive's own text."""

import numpy as np
import pytest

from dupq.errors import DupqError
from dupq.settings.sections import WordVectorSettings
from dupq.training.word_vectors import make_word_vectors


def test_word_vectors_are_the_same_each_time_and_order_words_by_frequency() -> None:
    sentences = [["flat", "bread"], ["bread", "rises"], ["bread", "flat", "flat"]] * 20
    settings = WordVectorSettings(dimensions=8, minimum_count=20)
    words, table, caps = make_word_vectors(sentences, settings, seed=1)
    again, same, _ = make_word_vectors(sentences, settings, seed=1)
    assert words == again == ["bread", "flat", "rises"]
    assert table.tobytes() == same.tobytes()
    assert table.shape == (5, 8)
    assert not table[0].any()
    assert table[1] == pytest.approx(table[2:].mean(axis=0, dtype=np.float64))
    assert not any(caps.values())


def test_what_the_limits_of_words_leave_out_is_counted() -> None:
    sentences = [["a", "b", "c"]] * 5 + [["a"]] * 3 + [["a", "b"]]
    words, _, caps = make_word_vectors(sentences, WordVectorSettings(dimensions=4, words=2), seed=1)
    assert words == ["a", "b"]
    assert caps["cap: words over word_vectors.words"] == 1


def test_texts_without_frequent_words_are_an_error_that_says_what_to_do() -> None:
    with pytest.raises(DupqError, match="minimum_count"):
        make_word_vectors([["once"]], WordVectorSettings(minimum_count=5), seed=1)
