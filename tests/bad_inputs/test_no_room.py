"""What a cluster that cannot grow has no room for is refused before any work, and nothing is written or lost."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from fabricated_run import CS
from world import build_world, files_of

from dupq import storage
from dupq.errors import ClusterError
from dupq.execution import cluster
from dupq.pipelines.dedup import DedupJob, dedup
from dupq.pipelines.evaluate import EvaluationJob, evaluate
from dupq.pipelines.train import TrainingJob, train
from dupq.settings.dedup import EncodeSettings
from dupq.stages.encode import check_room_to_encode

JOBS: dict[str, Callable[[str, str], object]] = {
    "train": lambda world, setting: train(
        TrainingJob(f"{world}/questions", f"{world}/links", f"{world}/new", "bogdanova-max", (setting,))
    ),
    "dedup": lambda world, setting: dedup(
        DedupJob(f"{world}/questions", f"{world}/encoder", f"{world}/new", assignments=(setting,))
    ),
    "evaluate": lambda world, setting: evaluate(
        EvaluationJob(
            f"{world}/questions", f"{world}/links", f"{world}/new", f"{world}/encoder", assignments=(setting,)
        )
    ),
}


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """On a cluster of one node without a GPU."""
    build_world(tmp_path)
    monkeypatch.setattr(cluster, "_node_resources", lambda: [{"CPU": 2.0}])
    monkeypatch.setattr(cluster, "may_grow", lambda: False)
    monkeypatch.setattr(cluster, "gpus", lambda: 0)
    monkeypatch.setattr(cluster, "cpus", lambda: 2)
    return tmp_path


@pytest.mark.parametrize(
    ("job", "setting", "said"),
    [
        ("train", "training.gpu=always", "fit needs 1 CPU(s) and 1 GPU(s)"),
        ("dedup", "encode.gpus=5", "encode needs 5 times 0.5 CPU(s) and 1 GPU(s)"),
        ("evaluate", "encode.gpus=5", "encode needs 5 times 0.5 CPU(s) and 1 GPU(s)"),
    ],
)
def test_gpus_that_are_not_there_are_refused_before_any_work(job: str, setting: str, said: str, world: Path) -> None:
    before = files_of(world)
    with pytest.raises(ClusterError) as caught:
        JOBS[job](str(world), setting)
    assert str(caught.value) == (
        f"{said}, each on one node; the nodes have 2 CPUs and 0 GPUs; ask for less, or join a larger cluster with --ray"
    )
    assert files_of(world) == before


def test_workers_and_actors_side_by_side_are_refused_too(world: Path) -> None:
    folder = world / "questions" / f"site={CS}"
    for number in range(4):
        shutil.copy(folder / "part-00000.parquet", folder / f"part-1000{number}.parquet")
    job = TrainingJob(f"{world}/questions", f"{world}/links", f"{world}/new", "bogdanova-max", (), 100_000)
    before = files_of(world)
    with pytest.raises(ClusterError, match=r"^fit needs 100000 times 1 CPU\(s\), each on one node; the nodes have 2"):
        train(job)
    with pytest.raises(ClusterError, match=r"^encode needs 5 times 0.5 CPU\(s\), each on one node; the nodes have 2"):
        JOBS["dedup"](str(world), "encode.actors=4")
    assert files_of(world) == before


def test_what_finds_room_is_not_refused(world: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun = str(world / "encoded_as.json")
    check_room_to_encode(EncodeSettings(actors=3), 3, begun)  # tasks, one after the other
    check_room_to_encode(EncodeSettings(actors=2), 9, begun)
    storage.write_json(begun, {"device": "cpu"})
    check_room_to_encode(EncodeSettings(gpus=5), 1, begun)  # a run stays on the device that it was begun on
    monkeypatch.setattr(cluster, "may_grow", lambda: True)
    check_room_to_encode(EncodeSettings(gpus=5, actors=9), 99, str(world / "new"))
