"""Vectors of a file for words that have another form in the vocabulary."""

from collections import Counter
from itertools import chain
from pathlib import Path

import numpy as np
import pytest
from trained import TrainedSample

from dupq.encoders.saved import load
from dupq.settings import config
from dupq.settings.config import Settings
from dupq.text.languages import stems
from dupq.training.word_vectors import FrequentWords, make_word_vectors, vectors_for
from dupq_papers.word_vectors import spellings, teacher_word_vectors

WRITTEN = [["ovens", "baking", "oven", "ovens"], ["baked", "oven", "ovens", "breads"]]
FORMS = [["oven", "bake", "oven", "oven"], ["bake", "oven", "oven", "bread"]]


def test_a_stem_has_the_mean_of_its_written_words_or_else_its_own_vector(tmp_path: Path) -> None:
    vectors = {"oven": (1.0, 0.0), "ovens": (0.0, 1.0), "baked": (3.0, 3.0), "bread": (5.0, 6.0)}
    (tmp_path / "v.txt").write_text("".join(f"{word} {x} {y}\n" for word, (x, y) in vectors.items()))
    assignments = ["text.word_form=stems", "word_vectors.minimum_count=1", "word_vectors.dimensions=2"]
    settings = config.load("dupq", [*assignments, f"word_vectors.file={tmp_path}/v.txt"])
    counts = Counter(chain(*FORMS))
    actual = vectors_for(
        FrequentWords(list(counts), list(counts.values()), 0),
        FORMS,
        settings.word_vectors.changed(file_words="written"),
        1,
        (settings, Counter(chain(*WRITTEN))),
    )
    rows = {word: actual.table[row + 2].tolist() for row, word in enumerate(actual.words)}
    assert rows["oven"] == pytest.approx([2 / 5, 3 / 5])  # written so twice, and "ovens" three times
    assert rows["bake"] == [3.0, 3.0]  # "baking" is not there
    assert rows["bread"] == [5.0, 6.0]  # "breads" is not there, the stem is
    by_form = make_word_vectors(FORMS, settings.word_vectors, 1)
    assert by_form.table[by_form.words.index("oven") + 2].tolist() == [1.0, 0.0]
    assert by_form.caps["words absent from word_vectors.file"] == 1  # "bake"
    assert actual.caps["words absent from word_vectors.file"] == 0


def test_words_that_are_read_as_they_are_written_are_their_own_spellings() -> None:
    settings = config.load("dupq", ["text.word_form=written"])
    assert [tuple(actual) for actual in spellings(["b", "a"], {}, settings)] == [(0, "b", 1), (1, "a", 1)]
    assert np.array(spellings([], {}, settings)).size == 0


def taught_words(words: list[str], encoder: str, written: dict[str, int], settings: Settings) -> np.ndarray:
    return teacher_word_vectors(encoder, spellings(words, written, settings), len(words))


def test_a_stem_has_the_mean_of_its_words_embeddings(trained_sample: TrainedSample) -> None:
    settings = config.load("dupq-distilled", ["text.word_form=stems", "word_vectors.minimum_count=2"])
    known = set(load(trained_sample.encoder).vocabulary.words)
    by_stem: dict[str, list[str]] = {}
    for word in sorted(known):
        by_stem.setdefault(stems("english")(word), []).append(word)
    stem, (one, other) = next((stem, words[:2]) for stem, words in by_stem.items() if len(words) > 1)
    alone = next(stem for stem, words in by_stem.items() if words == [stem])
    plain = taught_words([one, other, alone], trained_sample.encoder, {}, Settings())
    written = {one: 3, other: 2, f"{one}-unheard-of": 1}
    found = taught_words([alone, stem], trained_sample.encoder, written, settings)
    expected = (3 * plain[0].astype(float) + 2 * plain[1].astype(float)) / 5
    assert found[0] == pytest.approx(plain[2], abs=1e-3)  # which is nowhere frequent enough
    assert found[1] == pytest.approx(expected, abs=1e-3)
