"""Word vectors by word2vec."""

from typing import Any

import numpy as np
import pytest

from dupq.training.word_vectors import FlatMap, make_word_vectors
from dupq_papers.settings import PaperWordVectors
from dupq_papers.word_vectors import SENTENCE_WORDS, _split_long


def test_word_vectors_are_the_same_each_time() -> None:
    sentences = [["flat", "bread"], ["bread", "rises"], ["bread", "flat", "flat"]] * 20
    settings = PaperWordVectors(algorithm="skip-gram", dimensions=8, minimum_count=20)
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
    settings = PaperWordVectors(
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
    plain = PaperWordVectors(algorithm="skip-gram", dimensions=8, epochs=1)
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


def test_a_text_longer_than_gensim_takes_is_learnt_to_its_end() -> None:
    long = [["early"] * SENTENCE_WORDS + ["late", "later"] * 100]
    assert [len(piece) for piece in FlatMap(long, _split_long)] == [SENTENCE_WORDS, 200]
    assert (
        make_word_vectors(long, PaperWordVectors(algorithm="skip-gram", dimensions=4, epochs=1), seed=1).words[0]
        == "early"
    )
