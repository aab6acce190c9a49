"""What jobs refuse before any work, though each file by itself is right; nothing is written or lost."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from fabricated_run import CS
from world import build_world, files_of, table

from dupq import storage
from dupq.errors import ClusterError, DupqError
from dupq.job import cluster
from dupq.job.gpus import NO_GPUS, Gpus
from dupq.pipelines.dedup import DedupJob, dedup
from dupq.pipelines.evaluate import EvaluationJob, evaluate
from dupq.pipelines.train import TrainingJob, train
from dupq.settings.sections import EncodeSettings
from dupq.stages.embeddings import check_room_to_encode
from dupq.stages.training.fit import check_room_to_fit

JOBS: dict[str, Callable[..., object]] = {
    "train": lambda world, **more: train(
        TrainingJob(f"{world}/questions", f"{world}/links", f"{world}/new", "bogdanova-max", **more)
    ),
    "dedup": lambda world, **more: dedup(DedupJob(f"{world}/questions", f"{world}/encoder", f"{world}/new", **more)),
    "evaluate": lambda world, **more: evaluate(
        EvaluationJob(*(f"{world}/{name}" for name in ("questions", "links", "new", "encoder")), **more)
    ),
}


@pytest.fixture
def world(tmp_path: Path) -> Path:
    build_world(tmp_path)
    return tmp_path


@pytest.fixture
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cluster of one node without a GPU, which cannot grow."""
    monkeypatch.setattr(cluster, "_node_resources", lambda: [{"CPU": 2.0}])
    monkeypatch.setattr(cluster, "may_grow", lambda: False)
    monkeypatch.setattr(cluster, "gpus", lambda: 0)
    monkeypatch.setattr(cluster, "cpus", lambda: 2)


@pytest.mark.usefixtures("_small")
@pytest.mark.parametrize("job", JOBS)
def test_gpus_that_are_not_there_are_refused_before_any_work(job: str, world: Path) -> None:
    before = files_of(world)
    with pytest.raises(ClusterError) as caught:
        JOBS[job](world, gpus=5, assignments=("encode.batch_size=64",))
    assert str(caught.value) == "--gpus 5: the cluster has 0; ask for fewer, or join a larger cluster with --ray"
    assert files_of(world) == before


@pytest.mark.usefixtures("_small")
def test_workers_and_actors_side_by_side_are_refused_too(world: Path) -> None:
    folder = world / "questions" / f"site={CS}"
    for number in range(4):
        shutil.copy(folder / "part-00000.parquet", folder / f"part-1000{number}.parquet")
    before = files_of(world)
    with pytest.raises(ClusterError, match=r"^fit needs 100000 times 1 CPU\(s\), each on one node; the nodes have 2"):
        JOBS["train"](world, workers=100_000)
    with pytest.raises(ClusterError, match=r"^encode needs 4 times 1 CPU\(s\), each on one node; the nodes have 2"):
        JOBS["dedup"](world, assignments=("encode.actors=4",))
    assert files_of(world) == before


@pytest.mark.usefixtures("_small")
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


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("job", JOBS)
def test_a_question_that_appears_twice_is_refused_whichever_row_is_meant(job: str, world: Path) -> None:
    """In the second of two shards there is a question of the first."""
    first, second = (f"questions/site={CS}/part-0000{number}.parquet" for number in (0, 1))
    row = storage.read_table(str(world / first)).slice(0, 1)
    table(second, lambda found: pa.concat_tables([found, row]))(world)
    with pytest.raises(DupqError, match=f"{CS}/1 appears more than once"):
        JOBS[job](world)
