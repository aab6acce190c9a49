"""What a cluster that cannot grow has no room for is refused before any work, and nothing is written or lost."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from fabricated_run import CS
from world import build_world, files_of

from dupq import storage
from dupq.errors import ClusterError
from dupq.job import cluster
from dupq.job.gpus import NO_GPUS, Gpus
from dupq.pipelines.dedup import DedupJob, dedup
from dupq.pipelines.evaluate import EvaluationJob, evaluate
from dupq.pipelines.train import TrainingJob, train
from dupq.settings.sections import EncodeSettings
from dupq.stages.embeddings import check_room_to_encode
from dupq.stages.training.fit import check_room_to_fit

JOBS: dict[str, Callable[[str, int | None, str], object]] = {
    "train": lambda world, gpus, setting: train(
        TrainingJob(f"{world}/questions", f"{world}/links", f"{world}/new", "bogdanova-max", (setting,), gpus=gpus)
    ),
    "dedup": lambda world, gpus, setting: dedup(
        DedupJob(f"{world}/questions", f"{world}/encoder", f"{world}/new", assignments=(setting,), gpus=gpus)
    ),
    "evaluate": lambda world, gpus, setting: evaluate(
        EvaluationJob(
            *(f"{world}/{name}" for name in ("questions", "links", "new", "encoder")), assignments=(setting,), gpus=gpus
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


@pytest.mark.parametrize("job", JOBS)
def test_gpus_that_are_not_there_are_refused_before_any_work(job: str, world: Path) -> None:
    before = files_of(world)
    with pytest.raises(ClusterError) as caught:
        JOBS[job](str(world), 5, "encode.batch_size=64")
    assert str(caught.value) == "--gpus 5: the cluster has 0; ask for fewer, or join a larger cluster with --ray"
    assert files_of(world) == before


def test_workers_and_actors_side_by_side_are_refused_too(world: Path) -> None:
    folder = world / "questions" / f"site={CS}"
    for number in range(4):
        shutil.copy(folder / "part-00000.parquet", folder / f"part-1000{number}.parquet")
    job = TrainingJob(f"{world}/questions", f"{world}/links", f"{world}/new", "bogdanova-max", (), 100_000)
    before = files_of(world)
    with pytest.raises(ClusterError, match=r"^fit needs 100000 times 1 CPU\(s\), each on one node; the nodes have 2"):
        train(job)
    with pytest.raises(ClusterError, match=r"^encode needs 4 times 1 CPU\(s\), each on one node; the nodes have 2"):
        JOBS["dedup"](str(world), None, "encode.actors=4")
    assert files_of(world) == before


def test_what_finds_room_is_not_refused(world: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun = str(world)
    check_room_to_encode(EncodeSettings(actors=3), 3, begun, NO_GPUS)  # tasks, one after the other
    check_room_to_encode(EncodeSettings(actors=2), 9, begun, Gpus(None))
    check_room_to_fit(2, Gpus(None))
    with pytest.raises(ClusterError, match=r"^encode needs 1 CPU\(s\) and 1 GPU\(s\)"):
        check_room_to_encode(EncodeSettings(), 1, begun, Gpus(5))
    storage.write_json(f"{begun}/work/encode/device.json", {"device": "cpu"})
    check_room_to_encode(EncodeSettings(), 1, begun, Gpus(5))  # a run stays on the device that it was begun on
    monkeypatch.setattr(cluster, "may_grow", lambda: True)
    check_room_to_encode(EncodeSettings(actors=9), 99, str(world / "new"), Gpus(5))
    check_room_to_fit(5, Gpus(5))
