"""What a worker keeps of the blocks that it reads for tiles."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import ray
from test_neighbour_stage import made_up, search_request

from dupq.execution import cluster, tasks
from dupq.neighbours.measure import Measure
from dupq.neighbours.search import tile_places
from dupq.neighbours.tiles import block
from dupq.runs.layout import NeighbourFiles
from dupq.stages.neighbours import blocks
from dupq.stages.neighbours.blocks import forget_blocks, kept, ready_block
from dupq.stages.neighbours.plan import Plan

ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers cannot import a module of tests
BLOCKS, TASKS = 5, 4


@pytest.fixture(autouse=True)
def _nothing_kept() -> Iterator[None]:
    forget_blocks()
    yield
    forget_blocks()


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """The names of the blocks that are read, and how many others are kept meanwhile."""
    found = []

    def read_block(_files: object, _request: object, _plan: object, name: str) -> object:
        found.append((name, len(blocks._kept)))
        return made_up([20, 0, 0], seed=int(name))

    monkeypatch.setattr(blocks, "read_block", read_block)
    return found


def tiles_in_order(run: Path) -> None:
    for some in tile_places(BLOCKS):
        for tile in some:
            for number in tile:
                ready_block(NeighbourFiles(str(run)), search_request(), Plan([], [], "all"), str(number))


def test_large_blocks_are_kept_for_one_tile_and_each_tile_reads_one(
    read: list[tuple[str, int]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blocks, "_KEPT_BYTES", 0)
    tiles_in_order(tmp_path)
    assert max(others for _, others in read) == 1
    assert len(blocks._kept) == 2
    diagonal, pairs = BLOCKS, BLOCKS * (BLOCKS - 1) // 2
    rows = BLOCKS - 1  # each begins with two that are not there, but for the last one
    assert len(read) <= diagonal + pairs + rows


def test_small_blocks_are_read_once(read: list[tuple[str, int]], tmp_path: Path) -> None:
    tiles_in_order(tmp_path)
    assert [name for name, _ in read] == [str(number) for number in range(BLOCKS)]
    tiles_in_order(tmp_path / "another run")
    assert len(read) == 2 * BLOCKS
    forget_blocks()
    tiles_in_order(tmp_path)
    assert len(read) == 3 * BLOCKS


def test_what_is_kept_is_counted_with_all_of_its_arrays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = block(made_up([20, 0, 0]), Measure("cosine", 1.0, 0.5))
    arrays = [made.keys, *made.side]
    monkeypatch.setattr(blocks, "_KEPT_BYTES", sum(array.nbytes for array in arrays) * 3 - 1)
    files = NeighbourFiles(str(tmp_path))
    for name in "abc":
        assert kept(files, name, lambda: made) is made
    assert [name for _, name in blocks._kept] == ["b", "c"]
    monkeypatch.setattr(blocks, "_KEPT_BYTES", blocks._KEPT_BYTES + 1)
    kept(files, "d", lambda: made)
    assert [name for _, name in blocks._kept] == ["b", "c", "d"]


def keeping(run: str) -> dict[str, int]:
    """Counts the tasks of this process, and how often it made what it keeps."""
    made = []
    kept(NeighbourFiles(run), "block", lambda: made.append("block"))
    return {f"tasks of {os.getpid()}": 1, f"made by {os.getpid()}": len(made)}


def looking(_run: str) -> dict[str, int]:
    """Counts what this process has kept."""
    return {f"kept by {os.getpid()}": len(blocks._kept)}


@pytest.mark.parametrize("where", ["here", pytest.param("in a worker", marks=pytest.mark.ray)])
def test_what_is_kept_is_freed_with_the_step(where: str, tmp_path: Path) -> None:
    calls = [(str(tmp_path),)] * TASKS
    steps = [
        tasks.run_tasks("step", work, calls, cpus=cluster.cpus()).counts  # one at a time, and so in one process
        for work in (keeping, looking, keeping)
    ]
    [process] = {int(name.split()[-1]) for counts in steps for name in counts}
    assert (process == os.getpid()) == (where == "here")
    once = {f"tasks of {process}": TASKS, f"made by {process}": 1}
    assert steps == [once, {f"kept by {process}": 0}, once]
