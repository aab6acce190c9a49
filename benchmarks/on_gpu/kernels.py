"""The kernels of the search beside float64 on the CPU, and how fast the fastest is beside a matrix product."""

import functools
import itertools
from collections.abc import Callable, Iterator

import numpy as np
import torch

from dupq.neighbours import gpu
from dupq.neighbours.gpu import Found, Tiles, found_by_torch, found_by_triton, group_bounds_by_torch
from on_gpu.parts import Figures, Scale, gemm_peak, seconds

KINDS = {"float16": torch.float16, "bfloat16": torch.bfloat16, "float32": torch.float32}
SHAPES = [(1, 1, 1), (130, 300, 65), (1_000, 700, 300), (4_096, 5_000, 320)]
DIAGONALS = (-100_000, 0, -7, 40)
TINY = [(1, 1, 1), (33, 70, 40)]
DIMENSIONS = 320  # 300, as the kernel pads them
_CLOSE = 8e-5  # float32 sums of 320 products that come to 1 at most, truncated at each step
_INTERPRETED = Tiles(16, 32, 16, group=2)
Find = Callable[..., Found]


def finders(scale: Scale) -> dict[str, Find]:
    """The ways to find candidates that there are here."""
    found: dict[str, Find] = {"torch": found_by_torch}
    if gpu.triton is not None:
        found["triton"] = _interpreted if scale.is_rehearsal else found_by_triton
    return found


def _interpreted(*arguments: object) -> Found:
    return found_by_triton(*arguments, tiles=_INTERPRETED)  # type: ignore[arg-type]


def figures(scale: Scale) -> Iterator[Figures]:
    """Whether each kernel is right, at several shapes; then its operations a second."""
    if gpu.triton is None:
        yield {"triton": "not installed: candidates are found by plain torch"}
    shapes, diagonals = (TINY, DIAGONALS[:2]) if scale.is_rehearsal else (SHAPES, DIAGONALS)
    for name, find in finders(scale).items():
        wrong, checked = [], 0
        for (kind, dtype), shape, diagonal in itertools.product(KINDS.items(), shapes, diagonals):
            if scale.is_rehearsal and name == "triton" and dtype == torch.bfloat16:
                continue  # Triton's interpreter has no such products
            checked += 1
            if not is_right(find, shape, diagonal, dtype, scale.device):
                wrong.append(f"{kind} {shape} {diagonal}")
        yield {f"{name}_checked": checked, f"{name}_wrong": wrong}
    yield {"bounds_wrong": [f"{shape}" for shape in shapes[1:] if not are_bounds_right(shape, scale.device)]}
    for kind in ("float16", "bfloat16"):
        yield speeds(scale, kind)


def made(shape: tuple[int, int, int], kind: torch.dtype) -> list[torch.Tensor]:
    """Unit rows of both sides, some the same in both, and bounds that a few scores reach; on the CPU."""
    rows, columns, dimensions = shape
    generator = np.random.default_rng(rows + columns + dimensions)
    left, right = generator.standard_normal((rows, dimensions)), generator.standard_normal((columns, dimensions))
    same = generator.random(columns) < 0.2
    right[same] = left[generator.integers(0, rows, int(same.sum()))]
    sides = [side / np.linalg.norm(side, axis=1, keepdims=True) for side in (left, right)]
    bounds = [generator.normal(3 / dimensions**0.5, 0.1, size) for size in (rows, columns)]
    return [torch.from_numpy(side).to(kind) for side in sides] + [torch.from_numpy(some).float() for some in bounds]


def is_right(find: Find, shape: tuple[int, int, int], diagonal: int, kind: torch.dtype, device: str) -> bool:
    """Whether exactly the scores at or above their bounds are found, but for those that rounding may move over them."""
    left, right, of_rows, of_columns = made(shape, kind)
    found = find(*(part.to(device) for part in (left, right, of_rows, of_columns)), diagonal)
    scores = (left.double() @ right.double().T).numpy()
    rows, columns = np.indices(scores.shape, sparse=True)
    bounds = np.minimum(of_rows.numpy()[:, None], of_columns.numpy()[None, :])
    times = np.zeros(scores.shape, np.int64)
    np.add.at(times, (found.rows, found.columns), 1)
    unlike = (times > 0) != ((columns > rows + diagonal) & (scores >= bounds))
    return bool(
        times.max(initial=0) <= 1
        and (np.abs(scores - bounds)[unlike] <= _CLOSE).all()
        and not (times > 0)[np.broadcast_to(columns <= rows + diagonal, scores.shape)].any()
        and (np.abs(found.values - scores[found.rows, found.columns]) <= _CLOSE).all()
    )


def are_bounds_right(shape: tuple[int, int, int], device: str) -> bool:
    """Whether no lower bound on the fifth best score of a row or column is above it."""
    left, right, *_ = made(shape, torch.float16)
    bounds = group_bounds_by_torch(left.to(device), right.to(device), 5)
    scores = left.double() @ right.double().T
    fifth = [side.topk(5, dim=1).values[:, -1] for side in (scores, scores.T)]
    return all(bool((bound.cpu() <= best + _CLOSE).all()) for bound, best in zip(bounds, fifth, strict=True))


def speeds(scale: Scale, name: str) -> Figures:
    """Of a piece as the search has them, of which hardly a score reaches its bound."""
    kind, rows = KINDS[name], scale.size(32_768, 32)
    if scale.is_rehearsal and name == "bfloat16":
        return {}
    left, right, *_ = (part.to(scale.device) for part in made((rows, rows, DIMENSIONS), kind))
    bounds = torch.full((rows,), 2.0, device=scale.device)
    peak, flat = gemm_peak(scale, kind), gemm_peak(scale, kind, DIMENSIONS)
    found = {f"gemm_peak_tflops_{name}": peak / 1e12, f"gemm_of_{DIMENSIONS}_tflops_{name}": flat / 1e12}
    for way, find in finders(scale).items():
        spent = seconds(functools.partial(find, left, right, bounds, bounds, -rows - 1), scale.size(5, 1))
        reached = 2.0 * rows * rows * DIMENSIONS / spent
        found |= {f"{way}_tflops_{name}": reached / 1e12, f"{way}_share_of_gemm_peak_{name}": reached / peak}
    return found
