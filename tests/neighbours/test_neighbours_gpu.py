"""Pairs that reach a bound: plain torch on the CPU and, if there is one, on a GPU; kernels there or interpreted.

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
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles.slow_neighbours import assert_all_are_found, random_bags

from dupq.neighbours.embeddings import Embeddings
from dupq.neighbours.exact import COSINE, EUCLIDEAN, MANHATTAN
from dupq.neighbours.gpu import found as found_module
from dupq.neighbours.gpu import kernels
from dupq.neighbours.gpu.found import Found, best_by_torch, found_by_torch
from dupq.neighbours.gpu.kernels import Tiles, found_by_triton
from dupq.neighbours.measure import Measure
from dupq.neighbours.tiles import Search as Searched

# sums in another order of d products that together are 1 at most, or of differences that are 32: d + 1 roundings
CLOSE = {COSINE: 2e-5, MANHATTAN: 6e-4, EUCLIDEAN: 6e-4}
DISTANCES = [MANHATTAN, EUCLIDEAN]
KINDS = (torch.bfloat16, torch.float16, torch.float32)
INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
SMALL = Tiles(16, 32, 16, group=2)
DIAGONALS = (-1000, -7, -1, 0, 5, 1000)
HAS_CUDA = torch.cuda.is_available()
DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.skipif(not HAS_CUDA, reason="no CUDA device"))]

Search = tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]


@pytest.fixture
def kernel_device() -> str:
    pytest.importorskip("triton")
    if HAS_CUDA and not INTERPRETED:
        return "cuda"
    if not INTERPRETED:
        pytest.skip("neither a CUDA device nor TRITON_INTERPRET=1")
    return "cpu"


def searched(m: int, n: int, d: int, kind: torch.dtype, seed: int = 0, bound: float = 0.3) -> Search:
    """Unit rows, some of them zero and some the same in both, and bounds of which some are infinite."""
    generator = np.random.default_rng(seed)
    left, right = generator.standard_normal((m, d)), generator.standard_normal((n, d))
    left[generator.random(m) < 0.05] = 0
    same = generator.random(n) < 0.2
    right[same] = left[generator.integers(0, m, same.sum())]
    sides = [side / np.maximum(np.linalg.norm(side, axis=1, keepdims=True), 1e-9) for side in (left, right)]
    bounds = [generator.normal(bound, 0.1, size) for size in (m, n)]
    for some in bounds:
        some[generator.random(len(some)) < 0.05] = -np.inf
        some[generator.random(len(some)) < 0.2] = np.inf
    tensors = [torch.from_numpy(side).to(kind) for side in sides] + [torch.from_numpy(some).float() for some in bounds]
    return tensors[0], tensors[1], tensors[2], tensors[3]


def slow_scores(
    left: torch.Tensor, right: torch.Tensor, diagonal: int, by: int = COSINE
) -> tuple[np.ndarray, np.ndarray]:
    """All scores in float64, and which of them count."""
    one, other = (side.cpu().double().numpy() for side in (left, right))
    if by == COSINE:
        scores = one @ other.T
    else:
        scores = -np.stack([np.linalg.norm(row - other, 1 if by == MANHATTAN else 2, axis=1) for row in one])
    return scores, np.arange(scores.shape[1])[None, :] > np.arange(scores.shape[0])[:, None] + diagonal


def assert_right(on_device: Found, search: Search, diagonal: int, by: int = COSINE) -> None:
    """What is found is what a float64 search finds, but for scores that rounding may take over a bound."""
    left, right, row_bounds, column_bounds = search
    scores, counted = slow_scores(left, right, diagonal, by)
    bounds = np.minimum(row_bounds.cpu().numpy()[:, None], column_bounds.cpu().numpy()[None, :])
    rows, columns, values = (column.cpu().numpy() for column in on_device)
    assert (rows.dtype, columns.dtype, values.dtype) == (np.int32, np.int32, np.float32)
    times = np.zeros(scores.shape, np.int64)
    np.add.at(times, (rows, columns), 1)
    assert times.max(initial=0) <= 1
    assert not times[~counted].any()
    unlike = (times > 0) != (counted & (scores >= bounds))
    assert (np.abs(scores - bounds)[unlike] <= CLOSE[by]).all()
    np.testing.assert_allclose(values, scores[rows, columns], rtol=0, atol=CLOSE[by])


def on(device: str, search: Search) -> Search:
    return tuple(tensor.to(device) for tensor in search)  # type: ignore[return-value]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("diagonal", DIAGONALS)
@pytest.mark.parametrize(("m", "n", "d"), [(1, 1, 1), (7, 300, 5), (300, 7, 300), (129, 257, 65)])
def test_torch_finds_what_float64_finds(m: int, n: int, d: int, diagonal: int, kind: torch.dtype, device: str) -> None:
    search = on(device, searched(m, n, d, kind))
    assert_right(found_by_torch(*search, diagonal, scores_at_once=2000), search, diagonal)


@given(
    m=st.integers(1, 40),
    n=st.integers(1, 40),
    d=st.integers(1, 20),
    diagonal=st.integers(-50, 50),
    scores_at_once=st.integers(7, 2000),
    kind=st.sampled_from(KINDS),
    seed=st.integers(0, 2**32),
    bound=st.sampled_from([-np.inf, -0.5, 0.0, 0.5, 1.0, np.inf]),
)
@settings(max_examples=60)
def test_torch_finds_it_in_any_pieces(
    m: int, n: int, d: int, diagonal: int, scores_at_once: int, kind: torch.dtype, seed: int, bound: float
) -> None:
    search = searched(m, n, d, kind, seed, bound)
    assert_right(found_by_torch(*search, diagonal, scores_at_once=scores_at_once), search, diagonal)


def test_pieces_bound_the_memory_and_leave_out_what_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = []
    product = found_module._product

    def recorded(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        sizes.append(len(left) * len(right))
        return product(left, right)

    monkeypatch.setattr(found_module, "_product", recorded)
    found_by_torch(*searched(300, 300, 8, torch.float32), 0, scores_at_once=1000)
    assert max(sizes) <= 1000
    assert sum(sizes) < 0.6 * 300 * 300


def test_float32_products_stay_float32_where_less_is_allowed() -> None:
    products = torch.backends.mkldnn.matmul
    search, before = searched(200, 200, 300, torch.float32), products.fp32_precision
    products.fp32_precision = "bf16"
    try:
        found = found_by_torch(*search, 0)
        assert products.fp32_precision == "bf16"
    finally:
        products.fp32_precision = before
    assert_right(found, search, 0)


def whole_numbers(kind: torch.dtype) -> Search:
    """Scores that are exact, many of them equal to a bound."""
    generator = np.random.default_rng(1)
    vectors = [torch.from_numpy(generator.integers(-1, 2, (size, 20))).to(kind) for size in (30, 45)]
    bounds = [torch.from_numpy(generator.integers(2, 9, size)).float() for size in (30, 45)]
    return vectors[0], vectors[1], bounds[0], bounds[1]


def assert_exactly_right(found: Found, search: Search, diagonal: int) -> None:
    scores, counted = slow_scores(*search[:2], diagonal)
    bounds = np.minimum(search[2].cpu().numpy()[:, None], search[3].cpu().numpy()[None, :])
    expected = np.argwhere(counted & (scores >= bounds))
    assert (counted & (scores == bounds)).sum() > 20
    np.testing.assert_array_equal(sorted(zip(found.rows.tolist(), found.columns.tolist(), strict=True)), expected)


@pytest.mark.parametrize("kind", KINDS)
def test_a_score_that_is_its_bound_is_found(kind: torch.dtype) -> None:
    search = whole_numbers(kind)
    assert_exactly_right(found_by_torch(*search, 2, scores_at_once=100), search, 2)


def test_kernel_finds_a_score_that_is_its_bound(kernel_device: str) -> None:
    search = on(kernel_device, whole_numbers(torch.float16))
    assert_exactly_right(found_by_triton(*search, 2, tiles=SMALL), search, 2)


@pytest.mark.parametrize(("m", "n"), [(0, 5), (5, 0), (0, 0)])
def test_nothing_is_found_in_nothing(m: int, n: int) -> None:
    search = (torch.zeros(m, 4), torch.zeros(n, 4), torch.full((m,), -torch.inf), torch.full((n,), -torch.inf))
    assert [len(column) for column in found_by_torch(*search, -9)] == [0, 0, 0]
    assert [len(column) for column in found_by_triton(*search, -9)] == [0, 0, 0]
    assert [best.values.tolist() for best in best_by_torch(*search[:2], 1)] == [[[-np.inf]] * m, [[-np.inf]] * n]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("by", [COSINE, *DISTANCES])
@pytest.mark.parametrize("diagonal", [None, -300, 0, 40, 500])
@pytest.mark.parametrize(("m", "n", "rank"), [(1, 1, 1), (150, 300, 1), (300, 260, 5), (60, 30, 10), (300, 300, 299)])
def test_the_best_are_pairs_of_their_own(m: int, n: int, rank: int, diagonal: int | None, by: int, device: str) -> None:
    left, right, *_ = on(device, searched(m, n, 24, torch.float32))
    scores, counted = slow_scores(left, right, -m if diagonal is None else diagonal, by)
    scores[~counted] = -np.inf
    for at_once in (700, 1 << 20):
        best = best_by_torch(left, right, rank, diagonal, by, at_once)
        for some, side in zip(best, (scores, scores.T), strict=True):
            assert some.values.dtype == torch.float32
            assert some.values.shape == (len(side), rank)
            values, others = some.values.cpu().numpy(), some.others.cpu().numpy()
            there = values > -np.inf
            rows = np.nonzero(there)[0]
            np.testing.assert_allclose(values[there], side[rows, others[there]], rtol=0, atol=CLOSE[by])
            assert len(set(zip(rows, others[there], strict=True))) == len(rows)
            if side.shape[1] < 16 * rank:  # groups of one
                expected = -np.sort(-side, axis=1)[:, :rank]
                padded = np.pad(expected, [(0, 0), (0, rank - expected.shape[1])], constant_values=-np.inf)
                np.testing.assert_allclose(values, padded, rtol=0, atol=CLOSE[by])


@pytest.mark.parametrize("kind", KINDS)
def test_the_last_of_the_best_lets_few_scores_through(kind: torch.dtype) -> None:
    left, right, *_ = searched(300, 2000, 32, kind)
    scores, _ = slow_scores(left, right, 0)
    rows, columns = (best.values[:, -1].numpy() - CLOSE[COSINE] for best in best_by_torch(left, right, 5))
    for through in ((scores >= rows[:, None]).sum(axis=1), (scores >= columns[None, :]).sum(axis=0)):
        assert through.min() >= 5
        assert np.median(through) <= 10


def distant(m: int, n: int, d: int, by: int, seed: int = 0) -> Search:
    """As `searched`, with bounds that some distances reach."""
    left, right, rows, columns = searched(m, n, d, torch.float16, seed)
    near = np.quantile(slow_scores(left, right, 0, by)[0], 0.9)
    return left.float(), right.float(), *((some - 0.3 + float(near)) for some in (rows, columns))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("by", DISTANCES)
@pytest.mark.parametrize("diagonal", DIAGONALS)
@pytest.mark.parametrize(("m", "n", "d"), [(1, 1, 1), (7, 300, 5), (129, 257, 65)])
def test_torch_finds_the_distances_that_float64_finds(
    m: int, n: int, d: int, diagonal: int, by: int, device: str
) -> None:
    search = on(device, distant(m, n, d, by))
    assert_right(found_by_torch(*search, diagonal, by, scores_at_once=2000), search, diagonal, by)


@pytest.mark.parametrize("by", DISTANCES)
@pytest.mark.parametrize("diagonal", DIAGONALS)
def test_kernel_finds_the_distances_that_float64_finds(kernel_device: str, diagonal: int, by: int) -> None:
    for m, n, d in [(1, 1, 1), (33, 70, 40), (40, 20, 7)]:
        search = on(kernel_device, distant(m, n, d, by))
        assert_right(found_by_triton(*search, diagonal, by, tiles=SMALL), search, diagonal, by)


@pytest.mark.parametrize("by", DISTANCES)
@pytest.mark.parametrize("diagonal", DIAGONALS[1:2] if INTERPRETED else DIAGONALS)
def test_kernel_finds_distances_with_the_tiles_it_has_of_itself(kernel_device: str, diagonal: int, by: int) -> None:
    search = on(kernel_device, distant(150, 90, 50, by))
    assert_right(found_by_triton(*search, diagonal, by, room=7), search, diagonal, by)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("diagonal", DIAGONALS)
def test_kernel_finds_what_float64_finds(kernel_device: str, diagonal: int, kind: torch.dtype) -> None:
    if INTERPRETED and kind == torch.bfloat16:
        pytest.skip("Triton's interpreter has no bfloat16 products")
    for m, n, d in [(1, 1, 1), (33, 70, 40), (40, 20, 7)]:
        search = on(kernel_device, searched(m, n, d, kind))
        assert_right(found_by_triton(*search, diagonal, tiles=SMALL), search, diagonal)
    assert_right(found_by_triton(*search, diagonal, tiles=SMALL._replace(is_bulk=False)), search, diagonal)


@pytest.mark.parametrize("kind", [torch.float16, torch.float32])
def test_kernel_finds_it_with_the_tiles_it_has_of_itself(kernel_device: str, kind: torch.dtype) -> None:
    search = on(kernel_device, searched(100, 200, 70, kind))
    assert_right(found_by_triton(*search, 3), search, 3)


def test_kernel_sees_the_corner_of_a_tile(kernel_device: str) -> None:
    left, right, rows, columns = on(kernel_device, searched(16, 40, 16, torch.float16))
    search = (left, right, torch.full_like(rows, -torch.inf), columns)
    for width, diagonal, pairs in [(32, 30, 1), (32, 31, 0), (40, 38, 1)]:
        part = (search[0], search[1][:width], search[2], search[3][:width])
        found = found_by_triton(*part, diagonal, tiles=SMALL)
        assert list(zip(found.rows.tolist(), found.columns.tolist(), strict=True)) == [(0, width - 1)] * pairs


def test_kernel_makes_room_for_all(kernel_device: str) -> None:
    left, right, rows, columns = on(kernel_device, searched(20, 40, 16, torch.float16, bound=0.5))
    for bounds in (rows, torch.full_like(rows, -torch.inf)):
        search = (left, right, bounds, columns)
        for room in (1, 37, None):
            assert_right(found_by_triton(*search, -50, room=room, tiles=SMALL), search, -50)


def test_kernel_reads_rows_as_they_lie(kernel_device: str) -> None:
    left, right, rows, columns = on(kernel_device, searched(40, 40, 64, torch.float16))
    search = (left[3:, 1:], right[:, :-1].T.contiguous().T, rows[3:], columns)
    assert_right(found_by_triton(*search, 0, tiles=SMALL), search, 0)


@pytest.mark.parametrize("measure", [Measure("cosine", 0.7, 1.3), Measure("manhattan"), Measure("euclidean")])
def test_kernel_serves_the_whole_search(kernel_device: str, measure: Measure, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "is_available", lambda: True)
    generator = np.random.default_rng(7)
    vectors = generator.normal(size=(50, 24))
    vectors[30:40] = vectors[:10]
    words = random_bags(generator, 50) if measure.lexical else None
    archive = Embeddings(np.arange(50), (vectors / 5).astype(np.float16), words)
    assert_all_are_found(archive, 30, Searched(measure, 4, 0.9, device=f"{kernel_device}:0"))


def test_the_kernel_needs_a_cuda_device() -> None:
    assert kernels.is_available() == (HAS_CUDA and kernels.triton is not None)


@pytest.mark.skipif(HAS_CUDA, reason="a GPU is there")
def test_where_triton_fails_torch_is_used_and_a_line_says_so(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(kernels, "triton", object())
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    capability = (7, 5)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: capability)
    assert not kernels.is_available.__wrapped__()
    assert not caplog.records
    capability = (9, 0)
    assert not kernels.is_available.__wrapped__()
    assert caplog.messages[0].startswith("tiles are searched by torch, as Triton fails: Torch not compiled with CUDA")


@pytest.mark.skipif(INTERPRETED or HAS_CUDA, reason="the tests of the kernel run by themselves")
def test_the_kernel_interpreted() -> None:
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


def compiled(kernel: Any, types: dict[str, str], tiles: Tiles, numbers: dict[str, int], chip: int) -> Any:
    """A kernel, compiled for a chip that need not be here; what has a type of its own is aligned."""
    aligned = [name for name, kind in types.items() if not kind.startswith("tensordesc")]
    triton = pytest.importorskip("triton")
    from triton.backends.compiler import GPUTarget

    names = kernel.arg_names
    types = types | dict.fromkeys(("row_bounds", "column_bounds", "found_values"), "*fp32")
    types |= {"count": "*i64", "found_rows": "*i32", "found_columns": "*i32"}
    types |= dict.fromkeys(("m", "n", "diagonal", "room"), "i32")
    if "steps" not in numbers:
        types["steps"] = "i32"
    numbers = numbers | dict(zip(("height", "width", "depth", "group"), tiles, strict=False))
    source = triton.compiler.ASTSource(
        kernel,
        {name: types.get(name, "constexpr") for name in names},
        {(names.index(name),): number for name, number in numbers.items()},
        {(names.index(name),): [["tt.divisibility", 16]] for name in aligned},
    )
    options = {"num_warps": tiles.warps, "num_stages": tiles.stages}
    return triton.compile(source, target=GPUTarget("cuda", chip, 32), options=options)


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
    blocks = {"left": tiles.rows, "right": tiles.columns}
    types = {name: f"tensordesc<bf16[{rows},{tiles.depth}]>" for name, rows in blocks.items()}
    types = types if tiles.is_bulk else dict.fromkeys(blocks, "*bf16")
    made = compiled(kernels._find_products, types, tiles, {"steps": 5, "is_bulk": tiles.is_bulk}, chip)
    assert product in made.asm["ptx"]
    assert copy in made.asm["ptx"]  # prefetched, 16 bytes or more at a time
    assert made.metadata.shared <= (kernels._SHARED_MEMORY if chip >= 90 else 96 << 10)


@pytest.mark.skipif(INTERPRETED, reason="nothing is compiled")
@pytest.mark.parametrize("chip", [90, 80])
@pytest.mark.parametrize("is_manhattan", [True, False])
def test_the_kernel_of_distances_compiles_too(
    is_manhattan: bool, chip: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("triton")
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    numbers = {"is_manhattan": is_manhattan}
    types = {"left": "*fp32", "right": "*fp32", "left_width": "i32", "right_width": "i32"}
    made = compiled(kernels._find_distances, types, kernels._DISTANCE_TILES, numbers, chip)
    assert made.metadata.shared <= 48 << 10
    assert made.asm["ptx"].count("ld.global.v4") == 16  # 64 columns, four at a time, in the loop over dimensions
