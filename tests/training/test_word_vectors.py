"""Word vectors of the archive's own text."""

from typing import Any

import numpy as np
import pytest

from dupq.errors import DupqError
from dupq.settings.sections import WordVectorSettings
from dupq.training import word_vectors
from dupq.training.word_vectors import SENTENCE_WORDS, make_word_vectors


def test_word_vectors_are_the_same_each_time_and_order_words_by_frequency() -> None:
    sentences = [["flat", "bread"], ["bread", "rises"], ["bread", "flat", "flat"]] * 20
    settings = WordVectorSettings(dimensions=8, minimum_count=20)
    words, table, caps = make_word_vectors(sentences, settings, seed=1)
    again, same, _ = make_word_vectors(sentences, settings, seed=1)
    assert words == again == ["bread", "flat", "rises"]
    assert table.tobytes() == same.tobytes()
    assert table.shape == (5, 8)
    assert not table[0].any()
    assert table[1] == pytest.approx(table[2:].mean(axis=0))
    assert not any(caps.values())


@pytest.mark.parametrize("algorithm", ["skip-gram", "cbow"])
@pytest.mark.parametrize("objective", ["negative-sampling", "hierarchical-softmax", "both"])
def test_words_that_stand_together_get_vectors_that_do(algorithm: Any, objective: Any) -> None:
    generator = np.random.default_rng(1)
    topics = [[f"{topic}{word}" for word in range(8)] for topic in "ab"]
    sentences = [generator.choice(topics[number % 2], 6).tolist() for number in range(600)]
    settings = WordVectorSettings(
        algorithm=algorithm, objective=objective, dimensions=16, window=3, epochs=20, sample=0.0
    )
    words, table, _ = make_word_vectors(sentences, settings, seed=1)
    assert sorted(words) == sorted(topics[0] + topics[1])
    unit = table[2:] / np.linalg.norm(table[2:], axis=1, keepdims=True)
    cosines = unit @ unit.T
    same = np.array([[left[0] == right[0] for right in words] for left in words])
    assert cosines[same].mean() > cosines[~same].mean() + 0.3


def test_each_setting_of_word2vec_is_heard() -> None:
    sentences = [[f"w{(number * step) % 17}" for step in range(9)] for number in range(200)]
    plain = WordVectorSettings(dimensions=8, epochs=1)
    tables = [
        make_word_vectors(sentences, plain.changed(**change), seed=1).table.tobytes()
        for change in (
            {},
            {"algorithm": "cbow"},
            {"window": 2},
            {"epochs": 2},
            {"negative": 2},
            {"sample": 0.01},
            {"objective": "both"},
            {"objective": "hierarchical-softmax"},
        )
    ]
    assert len(set(tables)) == len(tables)


def test_what_the_limits_of_words_leave_out_is_counted() -> None:
    sentences = [["a", "b", "c"]] * 5 + [["a"]] * 3 + [["a", "b"]]
    words, _, caps = make_word_vectors(sentences, WordVectorSettings(dimensions=4, words=2), seed=1)
    assert words == ["a", "b"]
    assert caps["cap: words over word_vectors.words"] == 1


def test_a_text_longer_than_gensim_takes_is_learnt_to_its_end() -> None:
    long = [["early"] * SENTENCE_WORDS + ["late", "later"] * 100]
    assert [len(piece) for piece in word_vectors.FlatMap(long, word_vectors._split_long)] == [SENTENCE_WORDS, 200]
    assert make_word_vectors(long, WordVectorSettings(dimensions=4, epochs=1), seed=1).words[0] == "early"


def test_texts_without_frequent_words_are_an_error_that_says_what_to_do() -> None:
    with pytest.raises(DupqError, match="minimum_count"):
        make_word_vectors([["once"]], WordVectorSettings(minimum_count=5), seed=1)
