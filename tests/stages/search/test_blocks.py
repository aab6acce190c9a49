"""The plan of a search (blocks, groups, waves of tiles), and what a worker keeps of the blocks that it reads."""

import itertools
import os
import sys
from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
import pytest
import ray
from hypothesis import given
from hypothesis import strategies as st
from searched import search_request

from dupq import storage
from dupq.job import cluster, tasks
from dupq.job.step import step
from dupq.job.table import Table
from dupq.kinds import JSON
from dupq.neighbours.embeddings import Embeddings, Measure
from dupq.stages.search.blocks import (
    Questions,
    Span,
    block_rows,
    blocks_of,
    forget_blocks,
    groups_of,
    pack,
    plan_blocks,
    read_block,
    waves,
)
from dupq.tables import BLOCKS, EMBEDDED

ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers cannot import a module of tests
KEPT, TASKS = 5, 4


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
    numbers = range(KEPT)
    for tile in [*zip(numbers, numbers, strict=True), *itertools.combinations(numbers, 2)]:
        left, right = (read_block(MadeUp(number)) for number in tile)  # type: ignore[arg-type]
        assert (left is right) == (tile[0] == tile[1])
    kept = read_block.cache_info()
    assert kept.currsize == 2
    diagonal, pairs = KEPT, KEPT * (KEPT - 1) // 2
    rows = KEPT - 1  # each begins with two that are not there, but for the last one
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


def numbered(sizes: list[int]) -> list[list[int]]:
    return [[100 * group + number for number in range(size)] for group, size in enumerate(sizes)]


@given(st.lists(st.integers(0, 40), max_size=4))
def test_waves_have_all_pairs_of_a_group_once(sizes: list[int]) -> None:
    groups = numbered(sizes)
    found = [tile for wave in waves(groups) for tile in wave]
    assert sorted(found) == sorted(pair for group in groups for pair in combinations(group, 2))


@given(st.lists(st.integers(1, 40), min_size=1, max_size=3))
def test_each_wave_doubles_what_a_block_has_met(sizes: list[int]) -> None:
    groups = numbered(sizes)
    met = {block: 0 for group in groups for block in group}
    for number, wave in enumerate(waves(groups), 1):
        for group in groups:
            for block in group:
                met[block] += sum(block in tile for tile in wave)
                assert met[block] == min(len(group) - 1, 2 * (2**number - 1))


def blocks_in(folder: Path, files: list[tuple[str, str, int]], scope: Literal["all", "site"]) -> list[Questions]:
    plan = Table(str(folder / scope), BLOCKS, 1)
    storage.write_table(plan.file(0), plan_blocks(files, scope, 4), BLOCKS)
    return blocks_of(plan, Table("", EMBEDDED, len(files)), search_request(scope=scope))


def spans_of(blocks: list[Questions]) -> list[list[tuple[str, int, int]]]:
    return [[(storage.name(span.file), span.start, span.stop) for span in block.spans] for block in blocks]


def test_blocks_have_consecutive_rows_and_where_only_sites_are_compared_those_of_one(
    tmp_path: Path,
) -> None:
    files = [("0", "a", 5), ("1", "a", 0), ("2", "a", 4), ("3", "b", 2)]
    blocks = blocks_in(tmp_path, files, "all")
    assert spans_of(blocks) == [[("0", 0, 4)], [("0", 4, 5), ("2", 0, 3)], [("2", 3, 4), ("3", 0, 2)]]
    assert ([block.size for block in blocks], groups_of(blocks)) == ([4, 4, 3], [[0, 1, 2]])
    blocks = blocks_in(tmp_path, files, "site")
    assert spans_of(blocks)[2:] == [[("2", 3, 4)], [("3", 0, 2)]]
    assert groups_of(blocks) == [[0, 1, 2], [3]]
    a, b, c, d = (replace(block, spans=(Span("", 0, rows),)) for block, rows in zip(blocks, [1, 3, 1, 1], strict=True))
    assert pack([a, b, c, d], 4) == [[a, b], [c], [d]]
    assert blocks_in(tmp_path / "empty", [("0", "a", 0)], "all") == []


def test_blocks_fill_the_memory_at_hand_and_give_every_core_some_tiles() -> None:
    assert block_rows(200_000, 4_000, 8 << 30, 2) == 50_000
    assert block_rows(10**7, 4_000, 8 << 30, 2) == 131_072
    assert block_rows(10**7, 4_000, 1 << 30, 2) == (1 << 28) // 8_000
    assert block_rows(5_000, 4_000, 8 << 30, 2) == 8_192
    assert block_rows(0, 4_000, 8 << 30, 64) >= 1
