"""Where the encode stage runs."""

from pathlib import Path

import pytest
import ray

from dupq import storage
from dupq.errors import DupqError
from dupq.execution.tasks import Report
from dupq.runs.layout import Encoding
from dupq.settings.dedup import EncodeSettings
from dupq.stages import encode
from dupq.text.keys import Sites


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


@pytest.fixture
def ways(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """By which ways shards were encoded, and how many workers had to fit side by side."""
    taken: list[str] = []

    def pipeline(work: object, places: object, crew: object) -> Report:
        taken.append("a pipeline")
        raise ray.exceptions.ActorDiedError

    monkeypatch.setattr(encode, "read_description", lambda encoder: {"fingerprint": ""})
    monkeypatch.setattr(encode.cluster, "check_fits", lambda *asked: taken.append(f"{asked[-1]} fit"))
    monkeypatch.setattr(encode, "_by_pipeline", pipeline)
    monkeypatch.setattr(encode, "run_tasks", lambda *_, **__: taken.append("tasks"))
    return taken


@pytest.mark.parametrize(("shards", "wanted"), [(2, ["tasks"]), (3, ["3 fit", "a pipeline", "tasks"])])
def test_only_the_workers_of_a_pipeline_must_fit_side_by_side(
    shards: int, wanted: list[str], ways: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for number in range(shards):
        storage.write_bytes(f"{tmp_path}/texts/{number}.parquet", b"")
    folders = (f"{tmp_path}/{name}" for name in ("contents", "encoder"))
    job = Encoding(f"{tmp_path}/texts", *folders, None, f"{tmp_path}/as.json", f"{tmp_path}/embeddings")
    encode.encode_texts(job, Sites(["a"]), EncodeSettings(actors=2))
    assert ways == wanted
    assert ("an actor or a task died" in capsys.readouterr().out) == ("a pipeline" in wanted)
