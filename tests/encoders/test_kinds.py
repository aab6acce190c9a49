"""The settings of each kind of network, and what is refused; the kind that wraps a model of sentence-transformers."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sentence_stand_in
from oracles.slow_ids import slow_ids
from sentence_stand_in import unit

from dupq.encoders.encoding import build, encode, kinds, network_settings, rebuild
from dupq.encoders.saved import Fitness, SavedEncoder, load, save
from dupq.errors import DupqError, SettingError
from dupq.settings import config
from dupq.settings.config import Settings
from dupq.settings.sections import EncoderSettings
from dupq.text.questions import Vocabulary


def test_each_preset_names_only_what_its_network_reads() -> None:
    seen = {network_settings(config.load(name).encoder).kind for name in config.preset_names()}
    assert seen == set(kinds())
    assert {"cnn", "lstm", "word_bag"} <= seen


@pytest.mark.parametrize("kind", [kind for kind in kinds() if kind != "sentence_transformers"])
def test_each_kind_builds_its_network_from_its_defaults(kind: str) -> None:
    network = build(EncoderSettings(kind=kind), np.ones((5, 4), np.float32), seed=1)
    assert network.words.weight.shape == (5, 4)
    assert network.trainable == (kind not in ("sif", "mappsent"))


@pytest.mark.parametrize(
    ("preset", "assignment", "named"),
    [
        ("bogdanova-sum", "encoder.window=4", "encoder.window' is '4'; an odd number expected"),
        ("bogdanova-sum", "encoder.similarity=manhattan", "encoder.kind=cnn does not read it; it reads kind, max"),
        ("dupq", "encoder.units=5", "encoder.kind=word_bag does not read it"),
        ("dupq", "encoder.dropout=1", "encoder.dropout' is '1'; less than 1"),
    ],
)
def test_a_wrong_setting_of_a_network_is_named(preset: str, assignment: str, named: str) -> None:
    with pytest.raises(SettingError, match=re.escape(named)):
        network_settings(config.load(preset, assignment.split(",")).encoder)


def test_another_kind_starts_from_its_own_defaults_in_whatever_order_it_is_assigned() -> None:
    there = config.load("dupq", ["encoder.maximum_tokens=9"])
    for assignments in (["encoder.kind=lstm", "encoder.units=5"], ["encoder.units=5", "encoder.kind=lstm"]):
        actual = network_settings(config.assign(there, assignments).encoder)
        assert (actual.kind, actual.model_dump()["units"], actual.maximum_tokens) == ("lstm", 5, 9)


WORDS = ["flat", "bread", "rises", "blue", "sails"]


@pytest.fixture(autouse=True)
def package(monkeypatch: pytest.MonkeyPatch) -> None:
    sentence_stand_in.install(monkeypatch)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return sentence_stand_in.write_model(tmp_path / "model")


def settings_for(model: Path) -> Settings:
    return config.load("sentence-transformers", [f"encoder.model={model}"])


def network_for(model: Path) -> Any:
    network = build(settings_for(model).encoder, np.zeros((len(WORDS) + 2, 1), np.float32), seed=1)
    network.set_vocabulary(WORDS)
    network.prepare([], [])
    return network


def test_texts_are_spelled_out_without_unknown_words_and_an_empty_one_is_zero(model: Path) -> None:
    network, vocabulary = network_for(model), Vocabulary(WORDS)
    texts = ["flat bread rises", "", "what", "bread what sails", "flat bread rises"]
    actual = encode(network, [slow_ids(vocabulary, text, 10) for text in texts], 64).vectors.astype(np.float64)
    known = ["flat bread rises", None, None, "bread sails", "flat bread rises"]
    expected = [np.zeros(sentence_stand_in.SIZE) if text is None else unit(text) for text in known]
    assert actual == pytest.approx(np.array(expected), abs=1e-3)
    assert not network.trainable


def test_a_saved_encoder_names_the_model_and_holds_none_of_it(model: Path, tmp_path: Path) -> None:
    settings, vocabulary = settings_for(model), Vocabulary(WORDS, settings_for(model).text)
    network = network_for(model)
    assert set(network.state_dict()) == {"words.weight", "fingerprint"}
    folder = str(tmp_path / "encoder")
    fitness = Fitness(questions=9, unknown_words=0.0, bodies_found=None)
    save(folder, SavedEncoder(network, vocabulary, settings, 0.5, fitness, {}), "run")
    again = load(folder)
    assert again.settings.encoder.model == str(model)
    ids = [slow_ids(vocabulary, "blue sails", 10)]
    assert (encode(again.network, ids, 64).vectors == encode(network, ids, 64).vectors).all()


def test_another_model_at_the_same_place_is_an_error(model: Path) -> None:
    network = network_for(model)
    tensors = {name: value.numpy() for name, value in network.state_dict().items()}
    (model / "model.safetensors").write_bytes(b"other")
    other = rebuild(settings_for(model).encoder, tensors, "place")
    other.set_vocabulary(WORDS)
    with pytest.raises(DupqError, match="not the model that the encoder was made with"):
        encode(other, [np.array([2, 3], np.int32)], 64)
