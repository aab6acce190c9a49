"""The kernels of the search beside float64 on the CPU, and how fast the fastest is beside a matrix product."""

import functools
import itertools
from collections.abc import Callable, Iterator

import numpy as np
import torch

from dupq.neighbours.exact import COSINE, EUCLIDEAN, MANHATTAN, exact_scores, rule_of, side_of
from dupq.neighbours.gpu import kernels
from dupq.neighbours.gpu.found import Found, best_by_torch, found_by_torch
from dupq.neighbours.gpu.kernels import Tiles, found_by_triton
from dupq.neighbours.gpu.scores import ExactScores
from dupq.neighbours.gpu.sides import on_device
from dupq.neighbours.measure import Measure
from on_gpu.made_up import archive
from on_gpu.parts import Figures, Scale, gemm_peak, seconds

KINDS = {"float16": torch.float16, "bfloat16": torch.bfloat16, "float32": torch.float32}
DISTANCES = {"manhattan": MANHATTAN, "euclidean": EUCLIDEAN}
SHAPES = [(1, 1, 1), (130, 300, 65), (1_000, 700, 300), (4_096, 5_000, 320)]
DIAGONALS = (-100_000, 0, -7, 40)
TINY = [(1, 1, 1), (33, 70, 40)]
DIMENSIONS, HYBRID_DIMENSIONS = 320, 704  # 300 alone, and with columns of words, as the kernel pads them
_CLOSE = 8e-5  # float32 sums of 320 products that come to 1 at most, truncated at each step
_CLOSE_DISTANCE = 1e-3  # of 320 differences that come to 26 at most
_INTERPRETED = Tiles(16, 32, 16, group=2)
Find = Callable[..., Found]


def finders(scale: Scale) -> dict[str, Find]:
    """The ways to find candidates that there are here."""
    found: dict[str, Find] = {"torch": found_by_torch}
    if kernels.triton is not None:
        found["triton"] = _interpreted if scale.is_rehearsal else found_by_triton
    return found


def _interpreted(*arguments: object) -> Found:
    return found_by_triton(*arguments, tiles=_INTERPRETED)  # type: ignore[arg-type]


def figures(scale: Scale) -> Iterator[Figures]:
    """Whether each kernel is right, at several shapes; then its operations a second."""
    if kernels.triton is None:
        yield {"triton": "not installed: candidates are found by plain torch"}
    shapes, diagonals = (TINY, DIAGONALS[:2]) if scale.is_rehearsal else (SHAPES, DIAGONALS)
    cases = [(name, kind, COSINE) for name, kind in KINDS.items()]
    cases += [(name, torch.float32, by) for name, by in DISTANCES.items()]
    for way, find in finders(scale).items():
        wrong, checked = [], 0
        for (name, kind, by), shape, diagonal in itertools.product(cases, shapes, diagonals):
            if scale.is_rehearsal and way == "triton" and kind == torch.bfloat16:
                continue  # Triton's interpreter has no such products
            checked += 1
            if not is_right(find, shape, diagonal, kind, scale.device, by):
                wrong.append(f"{name} {shape} {diagonal}")
        yield {f"{way}_checked": checked, f"{way}_wrong": wrong}
    yield {"bounds_wrong": [f"{shape}" for shape in shapes[1:] if not are_bounds_right(shape, scale.device)]}
    yield scored(scale)
    for kind in ("float16", "bfloat16"):
        yield speeds(scale, kind, DIMENSIONS)
    yield {"hybrid": speeds(scale, "float16", HYBRID_DIMENSIONS)}
    for name in DISTANCES:
        yield speeds_of_distances(scale, name)


def made(shape: tuple[int, int, int], kind: torch.dtype, by: int = COSINE) -> list[torch.Tensor]:
    """Unit rows of both sides, some the same in both, and bounds that a few scores reach; on the CPU."""
    rows, columns, dimensions = shape
    generator = np.random.default_rng(rows + columns + dimensions)
    left, right = generator.standard_normal((rows, dimensions)), generator.standard_normal((columns, dimensions))
    same = generator.random(columns) < 0.2
    right[same] = left[generator.integers(0, rows, int(same.sum()))]
    sides = [side / np.linalg.norm(side, axis=1, keepdims=True) for side in (left, right)]
    # far from the mean of a product, or of a distance, of random directions
    middle, spread = {
        COSINE: (3 / dimensions**0.5, 0.1),
        MANHATTAN: (-0.95 * (4 * dimensions / np.pi) ** 0.5, 0.5),
        EUCLIDEAN: (-1.3, 0.05),
    }[by]
    bounds = [generator.normal(middle, spread, size) for size in (rows, columns)]
    return [torch.from_numpy(side).to(kind) for side in sides] + [torch.from_numpy(some).float() for some in bounds]


def is_right(
    find: Find, shape: tuple[int, int, int], diagonal: int, kind: torch.dtype, device: str, by: int = COSINE
) -> bool:
    """Whether exactly the scores at or above their bounds are found, but for those that rounding may move over them."""
    (left, right, of_rows, of_columns), scores = with_scores(shape, kind, by)
    there = find(*(part.to(device) for part in (left, right, of_rows, of_columns)), diagonal, by)
    found_rows, found_columns, values = (column.cpu().numpy() for column in there)
    close = _CLOSE if by == COSINE else _CLOSE_DISTANCE
    rows, columns = np.indices(scores.shape, sparse=True)
    bounds = np.minimum(of_rows.numpy()[:, None], of_columns.numpy()[None, :])
    times = np.zeros(scores.shape, np.int64)
    np.add.at(times, (found_rows, found_columns), 1)
    unlike = (times > 0) != ((columns > rows + diagonal) & (scores >= bounds))
    return bool(
        times.max(initial=0) <= 1
        and (np.abs(scores - bounds)[unlike] <= close).all()
        and not (times > 0)[np.broadcast_to(columns <= rows + diagonal, scores.shape)].any()
        and (np.abs(values - scores[found_rows, found_columns]) <= close).all()
    )


@functools.cache  # as float64 takes the CPU longer than all else
def with_scores(shape: tuple[int, int, int], kind: torch.dtype, by: int) -> tuple[list[torch.Tensor], np.ndarray]:
    """What is made, and all scores in float64 on the CPU."""
    parts = made(shape, kind, by)
    left, right = (side.double() for side in parts[:2])
    scores = left @ right.T if by == COSINE else -torch.cdist(left, right, 1.0 if by == MANHATTAN else 2.0)
    return parts, scores.numpy()


def are_bounds_right(shape: tuple[int, int, int], device: str) -> bool:
    """Whether no lower bound on the fifth best score of a row or column is above it."""
    left, right, *_ = made(shape, torch.float16)
    best = best_by_torch(left.to(device), right.to(device), 5)
    scores = left.double() @ right.double().T
    fifth = [side.topk(5, dim=1).values[:, -1] for side in (scores, scores.T)]
    return all(bool((some.values[:, -1].cpu() <= nth + _CLOSE).all()) for some, nth in zip(best, fifth, strict=True))


def scored(scale: Scale) -> Figures:
    """Exact scores of pairs on the device, beside the host's; and pairs a second."""
    rule = rule_of(Measure("cosine", 0.5, 0.5))
    side = side_of(archive(scale.size(20_000, 50), scale.size(300, 16), has_bags=True), rule)
    generator = np.random.default_rng(1)
    pairs = generator.integers(0, len(side.squares), (2, scale.size(1 << 20, 300)))
    there = on_device(side, torch.device(scale.device))
    rows, columns = torch.from_numpy(pairs).to(scale.device)
    scores = ExactScores(there, there, rule)
    found, expected = scores.of(rows, columns).cpu().numpy(), exact_scores(*pairs, side, side, rule)
    spent = seconds(functools.partial(scores.of, rows, columns), scale.size(5, 1))
    wrong = int((np.abs(found - expected) > 1e-14).sum())
    return {"exact_scores_wrong": wrong, "exact_scores_per_second": pairs.shape[1] / spent}


def speeds(scale: Scale, name: str, dimensions: int) -> Figures:
    """Of a piece as the search has them, of which hardly a score reaches its bound."""
    kind, rows = KINDS[name], scale.size(32_768, 32)
    if scale.is_rehearsal and name == "bfloat16":
        return {}
    left, right, *_ = (part.to(scale.device) for part in made((rows, rows, dimensions), kind))
    bounds = torch.full((rows,), 2.0, device=scale.device)
    peak, flat = gemm_peak(scale, kind), gemm_peak(scale, kind, dimensions)
    found = {f"gemm_peak_tflops_{name}": peak / 1e12, f"gemm_of_{dimensions}_tflops_{name}": flat / 1e12}
    for way, find in finders(scale).items():
        spent = seconds(functools.partial(find, left, right, bounds, bounds, -rows - 1), scale.size(5, 1))
        reached = 2.0 * rows * rows * dimensions / spent
        found |= {f"{way}_tflops_{name}": reached / 1e12, f"{way}_share_of_gemm_peak_{name}": reached / peak}
    return found


def speeds_of_distances(scale: Scale, name: str) -> Figures:
    """The same for a distance, as 2 operations a dimension: a difference, and its sum."""
    found = {}
    for dimensions in (50, 300):
        for way, find in finders(scale).items():
            rows = scale.size(32_768 if way == "triton" else 8_192, 32)  # torch's own is slow
            left, right, *_ = (part.to(scale.device) for part in made((rows, rows, dimensions), torch.float32))
            bounds = torch.full((rows,), 2.0, device=scale.device)
            work = functools.partial(find, left, right, bounds, bounds, -rows - 1, DISTANCES[name])
            reached = 2.0 * rows * rows * dimensions / seconds(work, scale.size(3, 1))
            found[f"{way}_tflops_{name}_of_{dimensions}"] = reached / 1e12
    return found
