import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dupq.encoders.encoding import build
from dupq.encoders.protocol import batches, padded_length
from dupq.encoders.saved import Fitness, SavedEncoder, load, read_description, save
from dupq.errors import DupqError
from dupq.settings import config
from dupq.text.questions import Vocabulary
from dupq.text.token_arrays import TokenIds

FITNESS = Fitness(questions=40, unknown_words=0.1, bodies_found=None)


@given(st.integers(0, 5000))
def test_padding_adds_at_most_eight_words_or_a_third(length: int) -> None:
    padded = padded_length(length)
    assert 0 <= padded - length <= max(8, length / 3)


@given(st.lists(st.integers(0, 50), max_size=40), st.integers(0, 8))
def test_batches_hold_every_text_once_and_unharmed(lengths: list[int], rows: int) -> None:
    sequences = [np.arange(1, length + 1, dtype=np.int32) for length in lengths]
    seen, padded = [], []
    for batch in batches(TokenIds.of(sequences), rows):
        assert batch.ids.shape[0] == len(batch.lengths) == (rows or len(batch.texts))
        padded.append(batch.ids.shape[1])
        for row, text in enumerate(batch.texts.tolist()):
            seen.append(text)
            assert batch.ids[row, : batch.lengths[row]].tolist() == sequences[text].tolist()
    assert sorted(seen) == list(range(len(lengths)))
    assert rows or len(set(padded)) == len(padded)


@pytest.fixture
def saved(tmp_path: Path) -> str:
    settings = config.load(assignments=["word_vectors.dimensions=6"])
    network = build(settings.encoder, np.random.default_rng(1).normal(size=(4, 6)).astype(np.float32), seed=1)
    encoder = SavedEncoder(network, Vocabulary(["a", "b"]), settings, 0.5, FITNESS, {"x": 1})
    save(str(tmp_path), encoder, run_id="r")
    return str(tmp_path)


def test_a_saved_encoder_is_the_same_when_opened(saved: str, tmp_path: Path) -> None:
    first = load(saved)
    save(str(tmp_path / "again"), first, run_id="r")
    assert (tmp_path / "again" / "model.safetensors").read_bytes() == (tmp_path / "model.safetensors").read_bytes()
    assert (tmp_path / "again" / "encoder.json").read_bytes() == (tmp_path / "encoder.json").read_bytes()
    assert (first.pair_threshold, first.fitness, first.metrics) == (0.5, FITNESS, {"x": 1})


def test_settings_are_those_of_the_description_that_was_checked(saved: str, monkeypatch: pytest.MonkeyPatch) -> None:
    place, checked = Path(saved) / "encoder.json", read_description(saved)
    other = json.loads(place.read_text())
    other["settings"]["text"]["fields"] = "title"
    place.write_text(json.dumps(other))  # replaced while it is opened
    monkeypatch.setattr("dupq.encoders.saved.read_description", lambda uri: checked)
    assert load(saved).settings.text == config.load().text


@pytest.mark.parametrize("name", ["model.safetensors", "vocabulary.txt"])
def test_a_damaged_encoder_is_refused(saved: str, name: str) -> None:
    path = Path(saved) / name
    content = bytearray(path.read_bytes())
    content[-2] ^= 1
    path.write_bytes(content)
    with pytest.raises(DupqError, match="damaged"):
        load(saved)


@pytest.mark.parametrize("changed", ["measure", "settings", "pair_threshold", "fitness"])
def test_an_encoder_whose_description_lacks_an_entry_is_refused(saved: str, tmp_path: Path, changed: str) -> None:
    description = json.loads((tmp_path / "encoder.json").read_text())
    del description[changed]
    (tmp_path / "encoder.json").write_text(json.dumps(description))
    with pytest.raises(DupqError, match=f"encoder.json: '{changed}' is missing"):
        load(saved)


def test_a_folder_without_an_encoder_and_one_of_another_format_are_refused(saved: str, tmp_path: Path) -> None:
    with pytest.raises(DupqError, match="no encoder here"):
        load(str(tmp_path / "nowhere"))
    description = json.loads((tmp_path / "encoder.json").read_text())
    (tmp_path / "encoder.json").write_text(json.dumps({**description, "format": 99}))
    with pytest.raises(DupqError, match="format"):
        load(saved)
