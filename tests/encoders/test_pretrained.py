"""An encoder that wraps a sentence-transformers model; a small stand-in has that package's place here."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sentence_stand_in
from oracles.slow_ids import slow_ids
from sentence_stand_in import unit

from dupq.encoders.encoding import build, encode, rebuild
from dupq.encoders.saved import Fitness, SavedEncoder, load, save
from dupq.errors import DupqError
from dupq.settings import config
from dupq.settings.config import Settings
from dupq.text.questions import Vocabulary

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
