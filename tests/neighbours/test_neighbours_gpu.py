"""The kernels of the search beside their twins in plain torch: on a GPU if there is one, else interpreted.

Without a GPU one test starts this file again under TRITON_INTERPRET=1, which Triton must see when it is imported.
"""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from oracles.slow_neighbours import as_rows, random_bags, slow_top_k

from dupq.neighbours.candidates import as_neighbours
from dupq.neighbours.embeddings import Embeddings, Measure, blocks
from dupq.neighbours.gpu import device_questions as lists_module
from dupq.neighbours.gpu import kernels, plain, search
from dupq.neighbours.gpu.device_questions import (
    Lists,
    Questions,
    Quick,
    columns_of_words,
    empty_lists,
    quick_of,
    upload,
)
from dupq.neighbours.gpu.kernels import Tiles
from dupq.neighbours.gpu.search import nearest_of_all, nearest_of_share
from dupq.neighbours.tiles import Search, block, search_tile

HYBRID = Measure("cosine", 0.7, 1.3)
MEASURES = [Measure(), HYBRID]
CLOSE = 1e-3  # of a quick score to a bound, which sums in another order may take over it
INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
SMALL = Tiles(16, 32, 64, group=2)
HAS_CUDA = torch.cuda.is_available()


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> torch.device:
    pytest.importorskip("triton")
    monkeypatch.setattr(kernels, "tiles_for", lambda _: SMALL)
    if not HAS_CUDA and not INTERPRETED:
        pytest.skip("neither a CUDA device nor TRITON_INTERPRET=1")
    return torch.device("cpu" if INTERPRETED else "cuda:0")


def made(count: int, measure: Measure, device: torch.device, seed: int = 0) -> tuple[Questions, Quick]:
    """Unit vectors, some zero, some the same; bags, some empty."""
    generator = np.random.default_rng(seed)
    vectors = generator.normal(size=(count, 20))
    vectors /= np.linalg.norm(vectors, axis=1)[:, None]
    vectors[count // 2 :][: count // 4] = vectors[: count // 4]
    vectors[1::9] = 0
    words = random_bags(generator, count, 70) if measure.lexical else None
    _, questions = upload(Embeddings(np.arange(count), vectors.astype(np.float16), words), measure, device)
    return questions, quick_of(questions, measure, columns_of_words(questions))


def lists_of(quick: Quick, bound: float, room: int, device: torch.device) -> Lists:
    lists = empty_lists(quick.size, 3, device)
    bounds = bound + 0.2 * torch.rand(quick.size, generator=torch.Generator().manual_seed(1)) - 0.1
    bounds[::7], bounds[3::11] = torch.inf, -torch.inf
    return lists._replace(bounds=bounds.to(device), buffer=lists.buffer.new_full((quick.size, room), -1))


def assert_alike(found: Lists, expected: Lists, scores: torch.Tensor) -> None:
    """The same candidates, but for scores (mine, others) on a bound; no more of them than there is room for."""
    for row, (bound, count, told) in enumerate(zip(found.bounds, found.counts, expected.counts, strict=True)):
        close = {int(other) for other in ((scores[row] - bound).abs() < CLOSE).nonzero()}
        assert abs(int(count) - int(told)) <= len(close)
        mine, theirs = (set(one.buffer[row][: one.counts[row]].tolist()) for one in (found, expected))
        if count <= found.room:
            assert len(mine) == count
            assert not (mine ^ theirs) - close
        assert -1 not in mine


@pytest.mark.parametrize(
    ("measure", "rows", "columns", "room"), [(HYBRID, 1, 1, 4), (HYBRID, 33, 40, 50), (Measure(), 20, 33, 3)]
)
def test_kernel_finds_the_candidates_of_both_sides(
    device: torch.device, measure: Measure, rows: int, columns: int, room: int
) -> None:
    (_, left), (_, right) = made(rows, measure, device), made(columns, measure, device, 1)
    scores = plain.product(left.rows, right.rows)
    spans = (0, left.size), (right.size // 3, right.size)
    for both in (True, False):
        found, expected = ([lists_of(side, 0.2, room, device) for side in (left, right)] for _ in range(2))
        kernels.find(left, right, *spans, found[0], found[1] if both else None)
        plain.find(left, right, *spans, expected[0], expected[1] if both else None)
        assert int(expected[0].counts.sum()) > 0 or rows == 1
        for mine, theirs, of in zip(found, expected, (scores, scores.T), strict=True):
            assert_alike(mine, theirs, of)


@pytest.mark.parametrize("is_bulk", [True, False])
def test_kernel_compares_each_pair_of_a_span_with_itself_once(
    is_bulk: bool, device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With bulk copies and without."""
    monkeypatch.setattr(kernels, "tiles_for", lambda _: SMALL._replace(is_bulk=SMALL.is_bulk and is_bulk))
    _, quick = made(75, Measure(), device)
    found, expected = (lists_of(quick, 0.1, 80, device) for _ in range(2))
    for by, lists in ((kernels, found), (plain, expected)):
        by.find(quick, quick, (16, quick.size), (16, quick.size), lists, lists)
    assert_alike(found, expected, plain.product(quick.rows, quick.rows))


def test_kernel_finds_the_highest_score_of_each_group(device: torch.device) -> None:
    (_, left), (_, right) = made(37, Measure(), device), made(75, Measure(), device, 1)
    values, places = kernels.highest(left, right, (16, left.size))
    scores = plain.product(left.rows[16:], right.rows)
    assert values.shape == (left.size - 16, 3 if right.size > 64 else 2)
    expected = torch.stack([some.amax(1) for some in scores.split(32, dim=1)], 1)
    assert (values - expected).abs().max() < CLOSE
    assert (scores.gather(1, places) - expected).abs().max() < CLOSE


@pytest.mark.parametrize("measure", MEASURES)
def test_kernel_scores_as_its_twin_to_the_last_bit(device: torch.device, measure: Measure) -> None:
    (left, _), (right, _) = made(30, measure, device), made(70, measure, device, 1)
    rows = torch.arange(0, 20, 2, device=device)
    generator = torch.Generator().manual_seed(2)
    counts = torch.randint(0, 9, (10,), generator=generator).int()
    counts[0], counts[1] = 0, 7  # more than there is room for, and nothing
    buffer = torch.randint(0, 60, (10, 6), generator=generator).int()
    lists = empty_lists(10, 1, device)._replace(counts=counts.to(device), buffer=buffer.to(device))
    selves = torch.full((30,), -1, dtype=torch.int32, device=device)
    selves[2] = buffer[1, 3]
    found, expected = (by.score(measure, left, right, rows, lists, selves) for by in (kernels, plain))
    is_there = torch.arange(6, device=device) < lists.counts[:, None]
    np.testing.assert_array_equal(found[is_there].cpu(), expected[is_there].cpu())
    assert expected[1, 3] == -torch.inf


@pytest.mark.parametrize("keeps", [True, False])
def test_kernel_keeps_the_best_as_its_twin(device: torch.device, keeps: bool) -> None:
    generator = torch.Generator().manual_seed(3)
    room, k, count = 29, 3, 40
    scores = torch.randint(0, 4, (count, room), generator=generator).double()  # many are equal
    scores[5:9] = -torch.inf
    buffer = torch.stack([torch.randperm(100, generator=generator)[:room] for _ in range(count)]).int()
    counts = torch.randint(0, room + 6, (count,), generator=generator).int()
    ranks = torch.randperm(200, generator=generator).int().to(device)
    found, kth = [], []
    for by in (kernels, plain):
        lists = empty_lists(count, k, device)._replace(counts=counts.to(device), buffer=buffer.to(device))
        lists.scores[::2, :2], lists.others[::2, :2] = 2.0, torch.tensor([150, 120], dtype=torch.int32, device=device)
        lists.scores[:, :2].sort(1, descending=True)
        kth.append(by.settle(lists, scores.to(device), ranks, keeps).masked_fill(lists.counts == 0, 0.0))
        found.append(lists)
    for mine, theirs in zip((*found[0][:2], kth[0]), (*found[1][:2], kth[1]), strict=True):
        is_changed = (counts > 0).to(device)  # a twin puts equal ones of an old list in order, too
        np.testing.assert_array_equal(mine[is_changed].cpu(), theirs[is_changed].cpu())


@pytest.mark.parametrize("measure", [HYBRID] if INTERPRETED else [HYBRID, Measure()])
def test_kernel_serves_the_whole_search(
    device: torch.device, measure: Measure, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In several rounds, with buffers that are too small."""
    monkeypatch.setattr(kernels, "is_available", lambda device: True)
    monkeypatch.setattr(search, "_SMALLEST_PANEL", 16)
    monkeypatch.setattr(search, "_LARGEST_PANEL", 16)
    monkeypatch.setattr(search, "_SAMPLE", 8)
    monkeypatch.setattr(lists_module, "_SMALLEST", 16)
    monkeypatch.setattr(lists_module, "_LARGEST", 16)
    generator, count = np.random.default_rng(7), 26
    vectors = generator.normal(size=(count, 24)) / 5
    vectors[4:24] = vectors[4] + generator.normal(size=(20, 24)) / 500
    words = random_bags(generator, count) if measure.lexical else None
    archive = Embeddings(generator.permutation(count), vectors.astype(np.float16), words)
    found = []
    for keys, nearest in nearest_of_all(blocks(archive, 20), measure, 4, device):
        order = np.argsort(keys)
        found += as_rows(as_neighbours(keys[order], type(nearest)(*(column[order] for column in nearest))))
    assert sorted(found) == slow_top_k(archive, 4, measure)


def test_kernel_tells_a_thousand_near_copies_apart(device: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    """Most do not fit into the buffers of the questions that look for them, which are searched again.

    Of an interpreter, which takes a minute for a thousand, it is 100.
    """
    copies, room = (100, 32) if INTERPRETED else (1_000, 256)
    monkeypatch.setattr(kernels, "is_available", lambda device: True)
    monkeypatch.setattr(kernels, "tiles_for", lambda quick: Tiles(16, room, 64, group=2))
    monkeypatch.setattr(lists_module, "_SMALLEST", room)
    monkeypatch.setattr(lists_module, "_LARGEST", room)
    monkeypatch.setattr(search, "_SAMPLE", 8)
    again, lost = search._Search._search_again, []
    monkeypatch.setattr(search._Search, "_search_again", lambda *call: lost.append(len(call[1])) or again(*call))
    generator, count = np.random.default_rng(5), copies + 16
    vectors = generator.normal(size=(count, 16)) / 4
    vectors[8 : copies + 8] = vectors[8] + generator.normal(size=(copies, 16)) / 4_000
    archive = Embeddings(generator.permutation(count), vectors.astype(np.float16))
    some = archive.take(slice(7, 10))
    some = some.take(np.argsort(some.keys))
    keys, found = next(nearest_of_share([some], [[archive]], Measure(), 4, device))
    left = block(some, Measure())
    expected = search_tile(left, block(archive, Measure()), Search(Measure(), 4))[0]
    assert lost
    np.testing.assert_array_equal(keys, left.keys)
    np.testing.assert_array_equal(found.others, expected.others)
    np.testing.assert_array_equal(found.scores, expected.scores)


def test_the_kernels_need_a_cuda_device() -> None:
    assert not kernels.is_available(torch.device("cpu"))
    if HAS_CUDA:
        assert kernels.is_available(torch.device("cuda:0")) == (kernels.triton is not None)


@pytest.mark.skipif(HAS_CUDA, reason="a GPU is there")
def test_where_triton_fails_torch_is_used_and_a_line_says_so(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(kernels, "triton", object())
    capability = (7, 5)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: capability)
    assert not kernels.is_available.__wrapped__(torch.device("cuda:0"))
    assert not caplog.records
    capability = (9, 0)
    assert not kernels.is_available.__wrapped__(torch.device("cuda:0"))
    assert caplog.messages[0].startswith("the search is torch's, as Triton fails: Torch not compiled with CUDA")


@pytest.mark.skipif(INTERPRETED or HAS_CUDA, reason="the tests of the kernels run by themselves")
def test_the_kernels_interpreted() -> None:
    pytest.importorskip("triton")
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", __file__, "-k", "test_kernel_"],
        env=os.environ | {"TRITON_INTERPRET": "1"},
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout[-5000:]
    assert " passed" in ended.stdout


def compiled(
    kernel: Any, types: dict[str, str], numbers: dict[str, object], warps: int, chip: int, stages: int = 3
) -> Any:
    """A kernel, compiled for a chip that need not be here."""
    triton = pytest.importorskip("triton")
    from triton.backends.compiler import GPUTarget

    names = kernel.arg_names
    aligned = [name for name, kind in types.items() if kind.startswith("*")]
    source = triton.compiler.ASTSource(
        kernel,
        {name: types.get(name, "constexpr") for name in names},
        {(names.index(name),): number for name, number in numbers.items()},
        {(names.index(name),): [["tt.divisibility", 16]] for name in aligned},
    )
    return triton.compile(
        source, target=GPUTarget("cuda", chip, 32), options={"num_warps": warps, "num_stages": stages}
    )


OF_TILES = (
    dict.fromkeys(("row_bounds", "column_bounds"), "*fp32")
    | dict.fromkeys(("row_counts", "column_counts", "row_buffer", "column_buffer"), "*i32")
    | dict.fromkeys(("first_row", "last_row", "first_column", "last_column", "is_diagonal"), "i32")
    | dict.fromkeys(("row_room", "column_room", "m", "n"), "i32")
)


def numbers_of(tiles: Tiles, **more: object) -> dict[str, object]:
    return {"height": tiles.rows, "width": tiles.columns, "depth": tiles.depth, "group": tiles.group, **more}


@pytest.mark.skipif(INTERPRETED, reason="nothing is compiled")
@pytest.mark.parametrize(
    ("chip", "product", "copy"), [(90, "wgmma.mma_async", "cp.async.bulk.tensor"), (80, "mma.sync", "cp.async.cg")]
)
def test_the_kernel_compiles_for_chips_that_are_not_here(
    chip: int, product: str, copy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("triton")
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    tiles = Tiles() if chip >= 90 else kernels._SMALL_TILES._replace(is_bulk=False)
    sides = {"left": tiles.rows, "right": tiles.columns}
    types = {name: f"tensordesc<fp16[{rows},{tiles.depth}]>" for name, rows in sides.items()}
    types = OF_TILES | (types if tiles.is_bulk else dict.fromkeys(sides, "*fp16"))
    numbers = numbers_of(tiles, steps=5, is_bulk=tiles.is_bulk, mode=kernels._BOTH)
    ready = compiled(kernels._find, types, numbers, tiles.warps, chip, tiles.stages)
    assert product in ready.asm["ptx"]
    assert copy in ready.asm["ptx"]  # prefetched, 16 bytes or more at a time
    assert ready.metadata.shared <= (kernels._SHARED_MEMORY if chip >= 90 else 96 << 10)
