import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
import ray

from dupq.archive import Shard
from dupq.errors import ClusterError
from dupq.job import actors, cluster, progress, tasks
from dupq.job.tasks import Report, run_tasks
from dupq.stages.training import fit

pytestmark = pytest.mark.usefixtures("ray_started")
ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers cannot import a module of tests


def shards(count: int) -> list[Shard]:
    """As of a job that can leave some out."""
    names = [f"site=a/{number}.parquet" for number in range(count)]
    return [Shard(number, f"/archive/{name}", "a", skip_as=name) for number, name in enumerate(names)]


def run_each(work: Callable[..., dict[str, int]], some: list[Shard], folder: Path) -> Report:
    return run_tasks("texts", work, [(shard, str(folder)) for shard in some], shards=some)


def note(file: str) -> int:
    """Another line in `file`; returns how many there are."""
    with open(file, "a") as lines:
        lines.write("attempt\n")
    return len(Path(file).read_text().splitlines())


def killed_at_first(shard: Shard, folder: str) -> dict[str, int]:
    if note(f"{folder}/{shard.number}") == 1 and shard.number == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return {"rows_in": 10}


def poisoned(shard: Shard, folder: str) -> dict[str, int]:
    note(f"{folder}/{shard.number}")
    if shard.number == 0:
        os.abort()
    return {"rows_in": 10}


def large(shard: Shard, folder: str) -> dict[str, int]:
    cpus = ray.get_runtime_context().get_assigned_resources()["CPU"]
    if shard.number == 0 and cpus < 2:
        raise MemoryError("no room")
    return {"rows_in": 10, f"on {cpus:g} CPUs": 1}


def wrong(shard: Shard, folder: str) -> dict[str, int]:
    note(f"{folder}/{shard.number}")
    raise ValueError("a bug")


def test_a_task_whose_worker_was_killed_is_done_again(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    report = run_each(killed_at_first, shards(3), tmp_path)
    assert (report.tasks, report.rows_in) == (3, 30)
    assert "texts: /archive/site=a/1.parquet: its worker died" in capfd.readouterr().out


def test_a_shard_that_kills_its_workers_is_named_after_all_others_are_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tasks, "RETRIES", 1)
    given_up = r"texts: /archive/site=a/0\.parquet: given up after 2 .*"
    with pytest.raises(ClusterError, match=rf"{given_up} --skip-shard site=a/0\.parquet leaves it out$"):
        run_each(poisoned, shards(6), tmp_path)
    assert str(tasks.lost("x", 1, ray.exceptions.RayError())).endswith("; run the same command again to go on")
    assert [note(str(tmp_path / str(number))) - 1 for number in range(6)] == [2, 1, 1, 1, 1, 1]


def test_after_too_little_memory_a_task_has_a_node_of_its_own(tmp_path: Path) -> None:
    report = run_each(large, shards(4), tmp_path)
    assert report.rows_in == 40
    assert report.counts == {"on 1 CPUs": 3, f"on {cluster.widest():g} CPUs": 1}


def test_an_error_of_the_code_is_not_tried_again(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="a bug"):
        run_each(wrong, shards(1), tmp_path)
    assert note(str(tmp_path / "0")) == 2


def test_what_no_node_can_run_is_said_before_it_is_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "start", lambda *_, **__: pytest.fail("a task was started"))
    with pytest.raises(ClusterError, match=r"encode needs 1 CPU\(s\) and 1 GPU\(s\).*have \d+ CPUs and 0 GPUs"):
        run_tasks("encode", wrong, [(shards(1)[0], str(tmp_path))], gpus=1)
    with pytest.raises(ClusterError, match=r"texts needs 1000 CPU\(s\)"):
        cluster.check_fits("texts", 1000, 0)


def test_what_a_growing_cluster_waits_for_is_a_line_of_the_log(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(cluster, "may_grow", lambda: True)
    progress.show_as("json")
    cluster.check_fits("fit", 1000, 0)
    progress.show_as("plain")
    assert json.loads(capsys.readouterr().err)["message"].startswith("waiting for nodes: fit needs 1000 CPU(s)")


@pytest.fixture
def other_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The nodes have another numpy than this script."""
    here = {**cluster.build(), "numpy": "0.1"}
    monkeypatch.setattr(cluster, "build", lambda: here)


DIFFERS = r"the node \S+ differs from this script: numpy \S+ there and 0\.1 here;"


def test_a_node_with_other_code_is_named_with_what_differs(other_nodes: None, tmp_path: Path) -> None:
    with pytest.raises(ClusterError, match=DIFFERS):
        run_each(wrong, shards(1), tmp_path)
    with pytest.raises(ClusterError, match=DIFFERS):
        tasks.result_of(next(tasks.start_stream(iter, [1])))


def test_an_actor_and_a_worker_that_trains_look_at_their_code_too() -> None:
    build = {**cluster.build(), "numpy": "0.1"}
    with pytest.raises(ClusterError, match=DIFFERS):
        actors._Actor(build, lambda _: {})(pa.table({"partition": [0]}))
    with pytest.raises(ClusterError, match=DIFFERS):
        fit.train_worker({"build": build})


def test_the_hash_of_the_source_follows_every_file(tmp_path: Path) -> None:
    (tmp_path / "preset.json").write_text("{}")
    hashes = [cluster._source_hash(tmp_path)]
    (tmp_path / "preset.json").write_text("[]")
    hashes.append(cluster._source_hash(tmp_path))
    (tmp_path / "preset.json").rename(tmp_path / "other.json")
    hashes.append(cluster._source_hash(tmp_path))
    assert len(set(hashes)) == 3


OUT_OF_MEMORY = """
import time
from dupq import cli, options
from dupq.job import cluster, tasks
from dupq.archive import Shard

def job():
    cluster.connect("local")
    tasks.RETRIES = 1
    tasks.run_tasks("texts", time.sleep, [(60,)], names=["/archive/0.parquet"])

parser = options.Parser()
parser.set_defaults(do=lambda _: job(), job="dedup")
cli._end(parser, [])
"""


def test_kills_for_memory_are_bounded_and_end_the_job_with_one_line() -> None:
    """Ray's monitor takes five per cent of the memory for too much, so that it kills each worker."""
    settings = {"RAY_memory_usage_threshold": "0.05", "RAY_memory_monitor_refresh_ms": "100"}
    done = subprocess.run(
        [sys.executable, "-c", OUT_OF_MEMORY],
        env={**os.environ, **settings},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 6, done.stderr
    (retried,), (error,) = done.stdout.splitlines(), done.stderr.splitlines()
    assert retried.startswith("warning: texts: /archive/0.parquet: not enough memory; attempt 2 of 2 on ")
    assert error.startswith("error: texts: /archive/0.parquet: given up after 2 attempt(s): not enough memory")
