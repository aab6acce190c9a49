"""Training that goes on from an encoder begins as that encoder, with what only the archive can tell."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import torch

from dupq.encoders.encoding import network_settings
from dupq.encoders.saved import FITNESS_QUESTIONS, Fitness, SavedEncoder, save
from dupq.errors import DupqError, SettingError
from dupq.settings import config
from dupq.settings.config import Settings
from dupq.settings.sections import WordVectorSettings
from dupq.tables import TEXTS
from dupq.text.questions import Vocabulary
from dupq.training.loop import train_on_texts
from dupq.training.start import BASE, Start, check_start, read_start, unpack
from dupq.training.word_vectors import OCCURRENCES, OF_START, make_word_vectors

CNN = ("encoder.kind=word_bag_cnn", "encoder.units=4")
TITLES = ["bake bread oven", "bread dough", "bicycle chain zzyzx", "zzyzx chain", "oven", "oven bread chain " * 2]
FOREIGN = ["hvordan baker man et bread", "hvordan baker man en kake", "hvor er kake", "hvor er et bread"]


def table(titles: list[str]) -> pa.Table:
    return pa.table([pa.array(np.arange(len(titles))), pa.array(titles), pa.array(titles)], schema=TEXTS)


def settings_from(uri: str, *assignments: str) -> Settings:
    return config.load("dupq", [f"word_vectors.start={uri}", "title_body.epochs=0", *assignments])


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> str:
    """An encoder learned from other texts, with its own weights."""
    texts = table(["bread bake oven flour", "bicycle chain gear", "flour oven", "gear bicycle bread"])
    own = config.load(
        "dupq", ["text.language=english", "word_vectors.algorithm=random", "word_vectors.dimensions=6", *CNN]
    )
    reader = train_on_texts(texts, own.changed(word_vectors=own.word_vectors.changed(minimum_count=1)))
    generator = torch.Generator().manual_seed(4)
    for parameter in reader.network.parameters():
        parameter.data.copy_(torch.randn(parameter.shape, generator=generator))
    uri = str(tmp_path_factory.mktemp("saved"))
    fitness = Fitness(questions=FITNESS_QUESTIONS, unknown_words=0.0, bodies_found=None)
    save(uri, SavedEncoder(reader.network, reader.vocabulary, reader.settings, None, fitness, {}), "run")
    return uri


def test_its_words_and_weights_are_taken_and_only_rarities_are_the_archives(saved: str) -> None:
    start = read_start(saved)
    actual = train_on_texts(table(TITLES), settings_from(saved, *CNN))
    weights = {name: value.numpy() for name, value in actual.network.state_dict().items()}
    for row, word in enumerate(actual.vocabulary.words, 2):
        if word in start.words:
            start_row = start.words.index(word) + 2
            for name in ("words.weight", "log_weights.weight"):
                assert np.array_equal(weights[name][row], start.tensors[name][start_row]), (word, name)
        else:
            assert word == "zzyzx"
            assert not weights["words.weight"][row].any()
            assert np.exp(weights["log_weights.weight"][row, 0]) == pytest.approx(np.log(6 / 2))
    for name in ("power", "convolution.weight", "convolution.bias", "change.weight"):
        assert np.array_equal(weights[name], start.tensors[name]), name
    rarity = dict(zip(actual.vocabulary.words, weights["rarities"][2:], strict=True))
    assert rarity["bread"] == pytest.approx(np.log(6 / 3))
    assert rarity["bake"] == pytest.approx(np.log(6))
    assert rarity["gear"] == pytest.approx(np.log(6))  # of the start only: as rare as a word can be
    assert set(start.words) | {"zzyzx"} == set(actual.vocabulary.words)


def test_words_of_both_are_in_the_order_of_their_counts_here(saved: str) -> None:
    vectors = make_word_vectors([title.split() for title in TITLES], settings_from(saved).word_vectors, 1)
    assert vectors.words[:4] == ["bread", "chain", "oven", "zzyzx"]
    assert set(vectors.words[-2:]) == {"flour", "gear"}
    assert vectors.table.shape == (len(vectors.words) + 2, 6)


def test_in_another_language_words_that_the_start_lacks_have_vectors_of_their_own(saved: str) -> None:
    start = read_start(saved)
    sentences = [title.split() for title in FOREIGN]
    words, vectors, counts = make_word_vectors(sentences, settings_from(saved).word_vectors, 1)
    kept = start.tensors["words.weight"][start.words.index("bread") + 2]
    assert np.array_equal(vectors[words.index("bread") + 2], kept)
    drawn = vectors[[row for row, word in enumerate(words, 2) if word not in start.words]]
    lengths, known = (np.linalg.norm(some, axis=1).mean() for some in (drawn, start.tensors["words.weight"][2:]))
    assert len(np.unique(drawn, axis=0)) == len(drawn) == 7
    assert 0.5 * known < lengths < 2 * known
    assert (counts[OCCURRENCES], counts[OF_START]) == (16, 2)


@pytest.mark.parametrize(
    ("assignment", "message"),
    [
        ("text.language=german", "setting 'text.language' is 'german', but the encoder .* has 'english'"),
        ("text.word_form=written", "setting 'text.word_form' is 'written'"),
        ("encoder.units=5", "setting 'encoder.units' is 5, but the encoder .* has 4"),
        ("encoder.kind=bow_cnn", "setting 'encoder.kind' is 'bow_cnn', but the encoder .* has 'word_bag_cnn'"),
        ("word_vectors.dimensions=50", "'word_vectors.dimensions' is 50, but the encoder .* has 6"),
    ],
)
def test_what_does_not_fit_the_start_is_named(saved: str, assignment: str, message: str) -> None:
    with pytest.raises(SettingError, match=message) as error:
        check_start(settings_from(saved, *CNN, assignment))
    assert "word_vectors.algorithm=random" in str(error.value)
    assert "\n" not in str(error.value)


def test_the_one_that_ships_knows_words_that_an_archive_lacks() -> None:
    start = read_start("base")
    assert isinstance(start, Start)
    check_start(config.load("dupq"))
    reader = train_on_texts(table(["How do I bake bread?", "Capital of Mongolia"]), settings_from("base"))
    assert isinstance(reader.vocabulary, Vocabulary)
    titles = table(["loaf in the oven", "baking bread", "moons of Jupiter"])
    vectors = reader.encode(titles).vectors.astype(np.float32)
    scores = vectors @ vectors.T
    assert scores[0, 1] > scores[0, 2] + 0.2
    assert scores[0, 1] > scores[1, 2] + 0.2


def test_a_file_of_vectors_takes_the_place_of_the_encoder_to_go_on_from(tmp_path: Path) -> None:
    (tmp_path / "v.txt").write_text("bread 1 0\noven 0 1\n")
    settings = settings_from("base", f"word_vectors.file={tmp_path}/v.txt", "word_vectors.dimensions=2")
    reader = train_on_texts(table(TITLES), settings)
    assert set(reader.vocabulary.words) == {"bread", "oven", "chain", "zzyzx"}
    assert reader.network.power.item() == 0.5


def test_the_encoder_that_ships_is_small_and_fits_the_default_preset() -> None:
    content = BASE.read_bytes()
    assert len(content) <= 5_000_000
    actual, expected = unpack(content), config.load("dupq")
    network = network_settings(expected.encoder).network(actual.tensors["words.weight"])
    shapes = {
        name: tuple(value.shape) for name, value in network.state_dict().items() if name not in network.archive_weights
    }
    assert {name: value.shape for name, value in actual.tensors.items()} == shapes
    assert len(actual.words) == len(set(actual.words)) > 10_000
    assert all(np.isfinite(value).all() for value in actual.tensors.values())
    assert (BASE.parent / "NOTICE.txt").exists()


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
