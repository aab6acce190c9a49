"""Where the encode stage runs."""

from pathlib import Path

import pytest

from dupq import storage
from dupq.errors import DupqError
from dupq.settings.dedup import EncodeSettings
from dupq.stages import encode


@pytest.fixture
def place(tmp_path: Path) -> str:
    return str(tmp_path / "encoded_on.json")


@pytest.mark.parametrize("there", [0, 2])
def test_a_run_begun_on_cpus_stays_on_them(there: int, place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encode.cluster, "gpus", lambda: 0)
    assert encode.gpus_for(place, EncodeSettings(), f"{place}.embeddings", {}) == 0
    monkeypatch.setattr(encode.cluster, "gpus", lambda: there)
    assert encode.gpus_for(place, EncodeSettings(gpus=there), f"{place}.embeddings", {}) == 0
    assert storage.read_json(place) == {"device": "cpu"}


def test_a_run_begun_on_gpus_needs_them_to_its_end(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encode.cluster, "gpus", lambda: 4)
    assert encode.gpus_for(place, EncodeSettings(), f"{place}.embeddings", {}) == 4
    monkeypatch.setattr(encode.cluster, "gpus", lambda: 0)
    assert encode.gpus_for(place, EncodeSettings(gpus=1), f"{place}.embeddings", {}) == 1
    with pytest.raises(DupqError, match="begun on GPUs, and the cluster has none now"):
        encode.gpus_for(place, EncodeSettings(), f"{place}.embeddings", {})
