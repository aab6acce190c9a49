"""What a worker keeps of the blocks that it reads for tiles."""

import itertools
import os
import sys
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pytest
import ray

from dupq.job import cluster, tasks
from dupq.job.step import step
from dupq.kinds import JSON
from dupq.neighbours.embeddings import Embeddings, Measure
from dupq.stages.search.blocks import forget_blocks, read_block

ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers cannot import a module of tests
BLOCKS, TASKS = 5, 4


class MadeUp(NamedTuple):
    """In place of Questions."""

    seed: int
    measure: Measure = Measure()
    window: int | None = None

    def embeddings(self) -> Embeddings:
        return Embeddings(np.arange(20), np.random.default_rng(self.seed).normal(size=(20, 3)).astype(np.float16))


@pytest.fixture(autouse=True)
def _nothing_kept() -> Iterator[None]:
    forget_blocks()
    yield
    forget_blocks()


def test_blocks_are_kept_for_one_tile_and_each_tile_reads_one() -> None:
    numbers = range(BLOCKS)
    for tile in [*zip(numbers, numbers, strict=True), *itertools.combinations(numbers, 2)]:
        left, right = (read_block(MadeUp(number)) for number in tile)  # type: ignore[arg-type]
        assert (left is right) == (tile[0] == tile[1])
    kept = read_block.cache_info()
    assert kept.currsize == 2
    diagonal, pairs = BLOCKS, BLOCKS * (BLOCKS - 1) // 2
    rows = BLOCKS - 1  # each begins with two that are not there, but for the last one
    assert kept.misses <= diagonal + pairs + rows


def keeping(seed: int) -> dict[str, int]:
    """Counts the tasks of this process, and how often it made what it keeps."""
    before = read_block.cache_info().misses
    read_block(MadeUp(seed))  # type: ignore[arg-type]
    return {f"tasks of {os.getpid()}": 1, f"made by {os.getpid()}": read_block.cache_info().misses - before}


def looking(_seed: int) -> dict[str, int]:
    """Counts what this process has kept."""
    return {f"kept by {os.getpid()}": read_block.cache_info().currsize}


@pytest.mark.parametrize("where", ["here", pytest.param("in a worker", marks=pytest.mark.ray)])
def test_what_is_kept_is_freed_with_the_step(where: str) -> None:
    found = []
    for work in (keeping, looking, keeping):  # with all CPUs: one at a time, and so in one process
        started = [tasks.start(tasks.recorded, work, 7, cpus=cluster.cpus()) for _ in range(TASKS)]
        found.append(tasks.summarise([*map(tasks.result_of, started)]).counts)
    [process] = {int(name.split()[-1]) for counts in found for name in counts}
    assert (process == os.getpid()) == (where == "here")
    once = {f"tasks of {process}": TASKS, f"made by {process}": 1}
    assert found == [once, {f"kept by {process}": 0}, once]


def test_steps_that_the_runner_calls_are_told_apart() -> None:
    were_kept = []
    for function in (keeping, keeping, looking):
        tasks.begin(tasks.run_tasks, 3, step(makes=JSON)(function))
        were_kept.append(read_block.cache_info().currsize)
        keeping(7)
    assert were_kept == [0, 1, 0]
