import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dupq.encoders.encoding import build
from dupq.encoders.protocol import batches, padded_length
from dupq.encoders.saved import Fitness, SavedEncoder, load, read_description, save
from dupq.settings import config
from dupq.text.questions import Vocabulary
from dupq.text.token_arrays import TokenIds


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


def test_settings_are_those_of_the_description_that_was_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings, fitness = config.load(), Fitness(questions=40, unknown_words=0.1, bodies_found=None)
    network = build(settings.encoder, np.ones((4, 6), np.float32), seed=1)
    save(str(tmp_path), SavedEncoder(network, Vocabulary(["a", "b"]), settings, 0.5, fitness, {}), run_id="r")
    place, checked = tmp_path / "encoder.json", read_description(str(tmp_path))
    other = json.loads(place.read_text())
    other["settings"]["text"]["fields"] = "title"
    place.write_text(json.dumps(other))  # replaced while it is opened
    monkeypatch.setattr("dupq.encoders.saved.read_description", lambda uri: checked)
    assert load(str(tmp_path)).settings.text == settings.text
