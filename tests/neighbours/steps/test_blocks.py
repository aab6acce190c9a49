"""What a worker keeps of the blocks that it reads for tiles."""

import itertools
import os
import sys
from collections.abc import Iterator

import pyarrow as pa
import pytest
import ray
from searched import MIX, made_up

from dupq import storage
from dupq.job import cluster, tasks
from dupq.neighbours.steps import blocks
from dupq.neighbours.steps.blocks import Questions, Span, cached, forget_blocks
from dupq.runs.question_tables import embeddings_table
from dupq.text.keys import Sites

ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers cannot import a module of tests
BLOCKS, TASKS = 5, 4


@pytest.fixture(autouse=True)
def _nothing_kept() -> Iterator[None]:
    forget_blocks()
    yield
    forget_blocks()


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """The names of the files that are read, and how many blocks are kept meanwhile."""
    found = []

    def read_table(uri: str, **_: object) -> pa.Table:
        found.append((uri[-1], len(blocks._cache)))
        return embeddings_table(made_up([20], seed=int(uri[-1])), Sites(["a"]))

    monkeypatch.setattr(storage, "read_table", read_table)
    return found


def tiles_in_order(run: str) -> None:
    numbers = range(BLOCKS)
    for tile in [*zip(numbers, numbers, strict=True), *itertools.combinations(numbers, 2)]:
        for number in tile:
            Questions((Span(f"{run}/{number}", 0, 20),), ("a",), MIX, "").read()


def test_large_blocks_are_kept_for_one_tile_and_each_tile_reads_one(
    read: list[tuple[str, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blocks, "_CACHED_QUESTIONS", 0)
    tiles_in_order("run")
    assert max(others for _, others in read) == 1
    assert len(blocks._cache) == 2
    diagonal, pairs = BLOCKS, BLOCKS * (BLOCKS - 1) // 2
    rows = BLOCKS - 1  # each begins with two that are not there, but for the last one
    assert len(read) <= diagonal + pairs + rows


def test_small_blocks_are_read_once(read: list[tuple[str, int]]) -> None:
    tiles_in_order("run")
    assert [name for name, _ in read] == [str(number) for number in range(BLOCKS)]
    tiles_in_order("another run")
    assert len(read) == 2 * BLOCKS
    forget_blocks()
    tiles_in_order("run")
    assert len(read) == 3 * BLOCKS


def keeping(name: str) -> dict[str, int]:
    """Counts the tasks of this process, and how often it made what it keeps."""
    made = []
    cached(name, lambda: made.append("block"))
    return {f"tasks of {os.getpid()}": 1, f"made by {os.getpid()}": len(made)}


def looking(_name: str) -> dict[str, int]:
    """Counts what this process has kept."""
    return {f"kept by {os.getpid()}": len(blocks._cache)}


@pytest.mark.parametrize("where", ["here", pytest.param("in a worker", marks=pytest.mark.ray)])
def test_what_is_kept_is_freed_with_the_step(where: str) -> None:
    calls = [("block",)] * TASKS
    found = [
        tasks.run_tasks("step", work, calls, cpus=cluster.cpus()).counts  # one at a time, and so in one process
        for work in (keeping, looking, keeping)
    ]
    [process] = {int(name.split()[-1]) for counts in found for name in counts}
    assert (process == os.getpid()) == (where == "here")
    once = {f"tasks of {process}": TASKS, f"made by {process}": 1}
    assert found == [once, {f"kept by {process}": 0}, once]


def test_steps_that_the_runner_calls_are_told_apart() -> None:
    were_kept = []
    for step in (keeping, keeping, looking):
        tasks.begin(tasks.run_tasks, 3, step)
        were_kept.append("block" in blocks._cache)
        keeping("block")
    assert were_kept == [False, True, False]
