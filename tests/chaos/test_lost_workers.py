"""A run on a real cluster of two nodes that loses a node, workers, an actor or its driver gives the tables of one
that lost nothing.

The nodes are on this machine, each with an address of loopback. What is lost is lost in a stage that is drawn by the
seed of the session.
"""

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from disturbed import differing, latest, tables_of
from small_archive import Small

from dupq.job.cluster import failure_at

ROOT = Path(__file__).parents[2]
HEAD, OTHER, PORT, TOKEN = "127.0.0.5", "127.0.0.6", 26380, "7" * 64
ENVIRONMENT = {**os.environ, "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": TOKEN, "PYTHONPATH": str(ROOT)}
STAGES = ("texts", "near_duplicates", "terms", "neighbours", "pairs", "clusters", "evaluate")
ACTOR = "MapWorker(MapBatches(_Actor))"
LIMIT_SECONDS = 300


def start_node(address: str, *arguments: str) -> psutil.Process:
    """A node of one CPU."""
    small = "--block --num-cpus=1 --object-store-memory=100000000 --disable-usage-stats"
    command = [sys.executable, "-m", "ray.scripts.scripts", "start", f"--node-ip-address={address}"]
    started = subprocess.Popen(
        [*command, *small.split(), *arguments],
        env=ENVIRONMENT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    return psutil.Process(started.pid)


def kill(process: psutil.Process) -> None:
    """With all that it has started, if it has not ended by itself."""
    with contextlib.suppress(psutil.NoSuchProcess):
        for each in [*process.children(recursive=True), process]:
            each.kill()
    process.wait()


@pytest.fixture(scope="module")
def head() -> Iterator[str]:
    """The address of a cluster of one node."""
    address = f"{HEAD}:{PORT}"
    node = start_node(HEAD, "--head", f"--port={PORT}", "--include-dashboard=false")
    await_it(lambda: failure_at(address, 1) is None)
    yield address
    kill(node)


@pytest.fixture
def other_node(head: str) -> Iterator[psutil.Process]:
    node = start_node(OTHER, f"--address={head}")
    await_it(lambda: any(each.name() == "raylet" for each in node.children(recursive=True)))
    yield node
    if node.is_running():
        kill(node)


class Job:
    """A job on the cluster, with one actor where it encodes."""

    def __init__(self, head: str, small: Small, output: Path) -> None:
        job = small.job(output)
        command = [sys.executable, str(ROOT / "jobs" / "dedup.py"), "--ray", head, "--questions", job.questions]
        command += ["--links", str(job.links), "--encoder", job.encoder, "--output", str(output)]
        self._said = output.with_suffix(".txt")
        self._output = output
        with self._said.open("w") as said:
            self.process = subprocess.Popen(
                [*command, "--set", "encode.actors=1"], env=ENVIRONMENT, stdout=said, stderr=said
            )

    def has_done(self, stage: str) -> bool:
        return any(self._output.glob(f"*/stages/{stage}.json"))

    def await_stage(self, name: str) -> None:
        """Until that stage is done."""
        await_it(lambda: self.has_done(name) or self.process.poll() is not None)
        assert self.process.poll() is None, self._said.read_text()

    def end(self, small: Small) -> None:
        """It must succeed, with the tables of a run that nothing disturbed."""
        assert self.process.wait(LIMIT_SECONDS) == 0, self._said.read_text()
        assert not differing(tables_of(latest(str(self._output))), small.tables)


def workers(title: str) -> list[psutil.Process]:
    """The workers of this cluster that are at work on what has that title."""
    found = []
    for process in psutil.process_iter():
        try:
            line = " ".join(process.cmdline())
            if line.startswith(f"ray::{title}") and process.environ().get("RAY_AUTH_TOKEN") == TOKEN:
                found.append(process)
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
    return found


def test_the_actor_that_encodes_is_killed_and_in_some_stage_workers_and_a_node_are(
    head: str, other_node: psutil.Process, small: Small, dice: random.Random, tmp_path: Path
) -> None:
    job, stages = Job(head, small, tmp_path / "runs"), [dice.choice(STAGES) for _ in range(2)]
    is_node_lost, victims = False, {ACTOR: "", "_on_node": stages[0]}  # by title, and after which stage
    while (victims or not is_node_lost) and job.process.poll() is None:
        for title in [title for title, stage in victims.items() if not stage or job.has_done(stage)]:
            for process in (processes := workers(title)):
                process.kill()
            if processes:
                del victims[title]
        if not is_node_lost and job.has_done(stages[1]):
            kill(other_node)
            is_node_lost = True
        time.sleep(0.2)
    assert is_node_lost
    assert ACTOR not in victims
    job.end(small)


def test_the_driver_is_killed_and_its_job_started_again_at_once(
    head: str, small: Small, dice: random.Random, tmp_path: Path
) -> None:
    """While its workers may still write."""
    first = Job(head, small, tmp_path / "runs")
    first.await_stage(dice.choice(STAGES))
    time.sleep(dice.random())
    first.process.send_signal(signal.SIGKILL)
    first.process.wait()
    Job(head, small, tmp_path / "runs").end(small)


def await_it(condition: Callable[[], object]) -> None:
    for _ in range(LIMIT_SECONDS * 5):
        if condition():
            return
        time.sleep(0.2)
    raise TimeoutError
