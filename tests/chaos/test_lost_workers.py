"""A run on a real cluster of two nodes that loses a node, workers, an actor or its driver gives the tables of one
that lost nothing.

The nodes are on this machine, each with an address of loopback. What is lost is lost in a stage that is drawn by the
seed of the session.
"""

import contextlib
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from disturbed import differing, latest, tables_of
from small_archive import Small
from waiting import await_it

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
        [*command, *small.split(), *arguments], env=ENVIRONMENT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
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
    assert await_it(lambda: failure_at(address, 1) is None)
    yield address
    kill(node)


@pytest.fixture
def other_node(head: str) -> Iterator[psutil.Process]:
    node = start_node(OTHER, f"--address={head}")
    assert await_it(lambda: any(each.name() == "raylet" for each in node.children(recursive=True)))
    yield node
    if node.is_running():
        kill(node)


class Job:
    """A job on the cluster, with one actor where it encodes."""

    def __init__(self, head: str, small: Small, output: Path) -> None:
        job = small.job(output)
        command = [sys.executable, str(ROOT / "jobs" / "dedup.py"), "--ray", head, "--questions", job.questions]
        command += ["--links", str(job.links), "--encoder", job.encoder, "--output", str(output), "--reranker", "none"]
        self._said = output.with_suffix(".txt")
        self._output = output
        with self._said.open("w") as said:
            self.process = subprocess.Popen(
                [*command, "--set", "encode.actors=1"], env=ENVIRONMENT, stdout=said, stderr=said
            )

    def has_done(self, stage: str) -> bool:
        return any(self._output.glob(f"*/stages/{stage}.json"))

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


def test_an_actor_workers_a_node_and_the_driver_are_lost_in_one_run(
    head: str, other_node: psutil.Process, small: Small, dice: random.Random, tmp_path: Path
) -> None:
    """The driver is started again at once, while its workers may still write."""
    job, left = Job(head, small, tmp_path / "runs"), {"actor": "", "workers": "", "node": "", "driver": ""}
    left |= {what: dice.choice(STAGES) for what in left if what != "actor"}  # after which it is lost
    while left and job.process.poll() is None:
        for what in [what for what, stage in left.items() if not stage or job.has_done(stage)]:
            if what == "driver":
                job.process.kill()
                job.process.wait()
                job = Job(head, small, tmp_path / "runs")
            elif what == "node":
                kill(other_node)
            else:
                processes = workers(ACTOR if what == "actor" else "_on_node")
                if not processes:
                    continue  # between two tasks
                for process in processes:
                    process.kill()
            del left[what]
        time.sleep(0.2)
    assert left.keys() <= {"workers"}
    job.end(small)
