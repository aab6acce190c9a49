"""What --gpus gives a job, and what its tasks see of GPUs: with a Ray that counts two that are not there."""

import json
import os
import subprocess
import sys
from typing import NoReturn

import pyarrow as pa
import pytest
import torch

from dupq.errors import ClusterError, DupqError
from dupq.job import actors, cluster, gpus
from dupq.job.gpus import Gpus, gpus_for
from dupq.stages.training import fit

WITH_TWO = """
import json, os, time
import ray
from dupq import system
from dupq.errors import DupqError
from dupq.job import gpus, tasks

ray.init("local", num_cpus=2, num_gpus=2, include_dashboard=False, log_to_driver=False)

def seen(number, said):
    ids, visible = ray.get_runtime_context().get_accelerator_ids()["GPU"], os.environ.get("CUDA_VISIBLE_DEVICES")
    with open(said, "a") as lines:
        lines.write(f"{gpus.has_gpu()} {len(ids)} {visible == ','.join(ids)}\\n")
    return {}

def told(call, *arguments):
    try:
        return call(*arguments)
    except DupqError as error:
        return str(error)

def lines_of(count, work=seen):
    said = os.path.abspath(f"{work.__name__}-{count}")
    tasks.run_tasks("tiles", work, [(number, said) for number in range(5)], gpus=count)
    return sorted(open(said).read().splitlines())

def asked():
    system.usable(system.GPU)

def where(number, said):
    time.sleep((0.6, 0.2, 0.1)[number % 3])
    with open(said, "a") as lines:
        lines.write(f"{os.getpid()} {os.environ['CUDA_VISIBLE_DEVICES']}\\n")
    return {}

def full():
    import torch
    raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 5 GiB.\\nmore")

def dies_once(mark):
    if not os.path.exists(mark):
        open(mark, "w").close()
        os._exit(1)
    return {"rows_out": 1}

def are_left(names):
    gpus.end_gpu_processes()
    wait = time.monotonic() + 30
    while any(os.path.exists(f"/proc/{name}") for name in names) and time.monotonic() < wait:
        time.sleep(0.05)
    return any(os.path.exists(f"/proc/{name}") for name in names)

def kept():
    before, after = lines_of(2, where), lines_of(2, where)[5:]
    return before, after, are_left([line.split()[0] for line in before])

print(json.dumps({
    "auto": gpus.gpus_for(None).now(), "one": told(gpus.gpus_for, 1), "none": gpus.gpus_for(0).now(),
    "without": lines_of(0), "with": lines_of(2),
    "tried": told(tasks.run_tasks, "try", asked, [()], 1), "full": told(tasks.run_tasks, "fill", full, [()], 1),
    "again": tasks.run_tasks("die", dies_once, [(os.path.abspath("mark"),)], gpus=1).rows_out,
    "kept": kept(),  # the last, as it ends the processes that have loaded torch
}))
"""


def test_when_nodes_come_or_go_no_idle_process_keeps_its_gpu_from_the_next_trial(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ended: list[str] = []
    monkeypatch.setattr(gpus, "_idle", ["of the node a"])
    monkeypatch.setattr(gpus, "start_on_gpu", lambda *_, node: node)
    monkeypatch.setattr(gpus.ray, "kill", ended.append)
    with gpus.until_the_end():
        gpus._trials((("a", "10.0.0.1"), ("b", "10.0.0.2")))
        assert ended == ["of the node a"]


@pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU is there")
def test_tasks_have_the_gpus_that_they_asked_for_and_see_no_others(tmp_path: object) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", WITH_TWO],
        capture_output=True,
        text=True,
        cwd=str(tmp_path),
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"},
        timeout=300,
        check=True,
    )
    *lines, found = ended.stdout.splitlines()
    told = json.loads(found)
    assert told["without"] == ["False 0 True"] * 5
    assert told["with"] == ["True 1 True"] * 5
    assert (told["auto"], told["none"]) == (0, 0)
    trouble = "torch cannot use the GPUs of the node "
    assert lines[0].partition(trouble)[0].endswith("all is computed on CPUs: ")
    assert any(line.startswith("warning: die: task 1 of 1: its worker died") for line in lines)
    assert told["one"].startswith(f"--gpus 1: {trouble}")
    assert told["one"].endswith("; mend its driver or torch, or run with --gpus none")
    assert told["tried"].startswith("torch cannot use the GPU of the node ")
    first, second, are_left = told["kept"]
    processes = {tuple(line.split()) for line in [*first, *second]}  # the same ones for both steps, until the job ends
    assert (len(first), len(second), are_left) == (5, 5, False)
    assert len(processes) == len({process for process, _ in processes}) == len({gpu for _, gpu in processes}) == 2
    assert "too little memory (CUDA out of memory. Tried to allocate 5 GiB.); use one" in told["full"]
    assert told["again"] == 1


def test_too_little_memory_of_a_gpu_is_one_line_in_actors_and_in_training_too(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: object) -> NoReturn:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 5 GiB.\nmore")

    monkeypatch.setattr(actors, "enter", lambda build: None)
    monkeypatch.setattr(fit.system, "usable", full)
    actor = actors._Actor({}, full)
    said = r"too little memory \(CUDA out of memory\. Tried to allocate 5 GiB\.\); use one .*training\.batch_size"
    for begin in (lambda: actor(pa.table({"partition": [0]})), lambda: fit._train(None, (0, 2), "cuda:0")):
        with pytest.raises(DupqError, match=said):
            begin()


@pytest.fixture
def there(monkeypatch: pytest.MonkeyPatch) -> list[str | None]:
    """Three GPUs that are fine, on nodes that no other may join; what is wrong with them can be set."""
    trouble: list[str | None] = [None]
    monkeypatch.setattr(cluster, "gpus", lambda: 3)
    monkeypatch.setattr(cluster, "may_grow", lambda: False)
    monkeypatch.setattr(gpus, "_nodes_with_gpus", tuple)
    gpus._trials.cache_clear()
    monkeypatch.setattr(gpus, "_trouble", lambda nodes: trouble[0])
    return trouble


def test_auto_takes_what_is_there_and_a_number_so_many(there: list[str | None]) -> None:
    assert (gpus_for(None).now(), gpus_for(2).now(), gpus_for(0).now()) == (3, 2, 0)


def test_more_than_there_are_is_an_error_unless_nodes_may_come(
    there: list[str | None], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(ClusterError, match=r"^--gpus 4: the cluster has 3; ask for fewer, or join a larger cluster"):
        gpus_for(4)
    monkeypatch.setattr(cluster, "may_grow", lambda: True)
    assert gpus_for(4) == Gpus(4)
    assert "--gpus 4: the cluster has 3 now" in capsys.readouterr().err


def test_gpus_that_torch_cannot_use_are_told_and_auto_goes_on_without(
    there: list[str | None], capsys: pytest.CaptureFixture[str]
) -> None:
    there[0] = "the driver is too old"
    assert gpus_for(None).now() == 0
    assert "all is computed on CPUs: the driver is too old" in capsys.readouterr().out
    with pytest.raises(ClusterError, match=r"^--gpus 2: the driver is too old; mend"):
        gpus_for(2)
