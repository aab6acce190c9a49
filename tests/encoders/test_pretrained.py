"""An encoder that wraps a sentence-transformers model; a small stand-in has that package's place here."""

import importlib.machinery
import sys
import types
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import xxhash

from dupq.encoders.build import build, rebuild
from dupq.encoders.encode import encode
from dupq.encoders.fitness import Fitness
from dupq.encoders.networks.pretrained import check_model, model_fingerprint
from dupq.encoders.saved import SavedEncoder, load, save
from dupq.errors import DupqError
from dupq.settings import config
from dupq.settings.config import Settings
from dupq.text.vocabulary import Vocabulary

WORDS = ["flat", "bread", "rises", "blue", "sails"]
SIZE = 64


def counted(text: str) -> np.ndarray:
    """What the stand-in makes of a text: its words, counted by a hash."""
    vector = np.zeros(SIZE, np.float32)
    for word, count in Counter(text.split(" ")).items():
        vector[xxhash.xxh3_64_intdigest(word.encode()) % SIZE] += count
    return vector


class StandIn:
    """Has the part of SentenceTransformer's interface that is used."""

    def __init__(self, path: str, **options: Any) -> None:
        if "broken" in (Path(path) / "modules.json").read_text():
            raise OSError("no model")
        assert options["local_files_only"]
        assert not options["trust_remote_code"]

    def to(self, device: str) -> "StandIn":
        return self

    def encode(self, texts: Any, convert_to_tensor: bool = False, **options: Any) -> Any:
        if isinstance(texts, str):
            return counted(texts)
        assert all(texts)
        found = np.stack([counted(text) for text in texts])
        return torch.from_numpy(found) if convert_to_tensor else found


@pytest.fixture(autouse=True)
def package(monkeypatch: pytest.MonkeyPatch) -> None:
    module = types.ModuleType("sentence_transformers")
    module.SentenceTransformer = StandIn  # type: ignore[attr-defined]
    module.__spec__ = importlib.machinery.ModuleSpec("sentence_transformers", None)
    monkeypatch.setitem(sys.modules, "sentence_transformers", module)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "modules.json").write_text("[]")
    return folder


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
    found = encode(network, [vocabulary.ids(text, 10) for text in texts], 64).vectors.astype(np.float64)
    known = ["flat bread rises", None, None, "bread sails", "flat bread rises"]
    expected = [np.zeros(SIZE) if text is None else counted(text) / np.linalg.norm(counted(text)) for text in known]
    assert found == pytest.approx(np.array(expected), abs=1e-3)
    assert not network.trainable


def test_a_saved_encoder_names_the_model_and_holds_none_of_it(model: Path, tmp_path: Path) -> None:
    settings, vocabulary = settings_for(model), Vocabulary(WORDS, settings_for(model).text)
    network = network_for(model)
    assert set(network.state_dict()) == {"words.weight", "fingerprint"}
    folder = str(tmp_path / "encoder")
    save(folder, SavedEncoder(network, vocabulary, settings, 0.5, Fitness(9, 0.0, None), {}), "run")
    again = load(folder)
    assert again.settings.encoder.model == str(model)
    ids = [vocabulary.ids("blue sails", 10)]
    assert (encode(again.network, ids, 64).vectors == encode(network, ids, 64).vectors).all()


def test_another_model_at_the_same_place_is_an_error(model: Path) -> None:
    network = network_for(model)
    tensors = {name: value.numpy() for name, value in network.state_dict().items()}
    (model / "weights.bin").write_bytes(b"other")
    other = rebuild(settings_for(model).encoder, tensors, "place")
    other.set_vocabulary(WORDS)
    with pytest.raises(DupqError, match="not the model that the encoder was made with"):
        encode(other, [np.array([2, 3], np.int32)], 64)


def test_a_models_fingerprint_is_that_of_its_names_and_contents(model: Path) -> None:
    first = model_fingerprint(str(model))
    assert first == model_fingerprint(str(model))
    assert 0 < first < 2**63
    (model / "modules.json").rename(model / "other.json")
    assert model_fingerprint(str(model)) != first


def test_what_is_missing_is_one_clear_error(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check_model(str(model))
    for wrong in ("", str(model / "nowhere")):
        with pytest.raises(DupqError, match=r"encoder\.model=.*folder of a sentence-transformers model"):
            check_model(wrong)
    (model / "modules.json").write_text("broken")
    with pytest.raises(DupqError, match="not a readable sentence-transformers model"):
        network_for(model)
    monkeypatch.delitem(sys.modules, "sentence_transformers")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(DupqError, match=r"pip install 'dupq\[teacher\]'"):
        check_model(str(model))
