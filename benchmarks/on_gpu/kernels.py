"""The kernels of the search beside their twins in plain torch, and lists beside the CPU's; then how fast they are."""

import functools
from collections.abc import Iterator
from statistics import NormalDist

import torch

from dupq.neighbours.embeddings import Measure
from dupq.neighbours.gpu import kernels, plain
from dupq.neighbours.gpu.device_questions import Lists, Quick, empty_lists, quick_of, upload
from dupq.neighbours.gpu.search import nearest_of_all
from dupq.neighbours.tiles import Search, block, search_tile
from on_gpu.made_up import archive
from on_gpu.parts import Figures, Scale, gemm_peak, seconds

SHAPES = [(1, 300), (130, 300), (1_000, 700), (4_096, 5_000)]
MEASURES = {"dense": Measure(), "hybrid": Measure("cosine", 0.5, 0.5)}
HITS = (0, 0.25, 10, 100)  # of a tile of 128 x 256 scores
_CLOSE = 1e-3  # of a score that rounding may take over a bound


def figures(scale: Scale) -> Iterator[Figures]:
    """Whether each kernel is right, at several shapes; whether lists are the CPU's; operations a second."""
    device = torch.device(scale.device)
    if kernels.triton is None:
        yield {"triton": "not installed: the search is plain torch's"}
    elif not scale.is_rehearsal:
        yield {"kernels_wrong": [f"dense {shape}" for shape in SHAPES if not is_right(shape, device)]}
    for name, measure in MEASURES.items():
        yield {f"{name}_lists_wrong": unlike_the_cpu(measure, scale.size(20_000, 300), scale.size(300, 16), device)}
    if scale.is_rehearsal:
        return
    for width in (320, 704):
        yield {f"products_of_{width}": speeds(scale, width)}
    for name in ("dense", "hybrid"):
        yield {f"exact_scores_per_second_{name}": scored_a_second(MEASURES[name], device)}


def is_right(shape: tuple[int, int], device: torch.device) -> bool:
    """Whether a kernel adds to buffers what its twin adds, and both find the highest scores."""
    rows, columns = shape
    measure = Measure()
    left, right = (
        quick_of(upload(archive(n, 300, device=device), measure, device)[1], measure) for n in (rows, columns)
    )
    best, twins = (by.highest(left, right, (0, rows))[0].amax(1) for by in (kernels, plain))
    if (best - twins).abs().max() > _CLOSE:
        return False
    found = []
    for by in (kernels, plain):
        lists = [empty_lists(n, 1, device) for n in (rows, columns)]
        lists = [one._replace(buffer=one.buffer.new_empty((len(one.counts), max(rows, columns)))) for one in lists]
        lists[0].bounds[:] = best - 0.1
        lists[1].bounds.fill_(float(best.max()) - 0.05)
        by.find(left, right, (0, rows), (0, columns), *lists)
        found.append(
            [
                {
                    (row, other)
                    for row, count in enumerate(one.counts.tolist())
                    for other in one.buffer[row, :count].tolist()
                }
                for one in lists
            ]
        )
    unlike = [ours ^ theirs for ours, theirs in zip(*found, strict=True)]
    return all(len(pairs) <= 1 + len(ours) // 1000 for pairs, ours in zip(unlike, found[1], strict=True))


def unlike_the_cpu(measure: Measure, questions: int, dimensions: int, device: torch.device) -> int:
    """How many lists differ from the CPU's in a neighbour, or in a bit of a score."""
    made = archive(questions, dimensions, measure.lexical != 0, device)
    ((_, found),) = nearest_of_all([made], measure, 10, device)
    whole = block(made, measure)
    expected = search_tile(whole, whole, Search(measure, 10))[0]
    return int(((found.others != expected.others) | (found.scores != expected.scores)).any(axis=1).sum())


def unit_rows(questions: int, width: int, device: torch.device) -> Quick:
    """Random directions."""
    rows = torch.nn.functional.normalize(torch.randn(questions, width, device=device)).half()
    return Quick(rows, 0.0, 1.0)


def speeds(scale: Scale, width: int) -> Figures:
    """Of products, by how many pairs of a tile reach a bound."""
    device, rows = torch.device(scale.device), 32_768
    quick, lists = unit_rows(rows, width, device), empty_lists(rows, 10, device)
    peak = gemm_peak(scale, torch.float16)
    found: Figures = {"gemm_peak_tflops": peak / 1e12, "gemm_tflops": gemm_peak(scale, torch.float16, width) / 1e12}
    for hits in HITS:
        lists.bounds.fill_(NormalDist(0, width**-0.5).inv_cdf(1 - hits / 32_768) if hits else 2.0)
        spent = seconds(functools.partial(_find, quick, lists))
        tiles = rows * (rows - 1) / 32_768
        lists.counts.zero_()
        _find(quick, lists)
        found[f"tflops_with_{hits}_hits"] = 2.0 * rows * rows * width / spent / 1e12
        found[f"hits_counted_{hits}"] = float(lists.counts.sum()) / 2 / tiles
    return found


def _find(quick: Quick, lists: Lists) -> None:
    kernels.find(quick, quick, (0, quick.size), (0, quick.size - 1), lists, lists)


def scored_a_second(measure: Measure, device: torch.device) -> float:
    """Of a million questions: more than the chip's caches hold."""
    questions = 1_000_000
    _, there = upload(archive(questions, 300, measure.lexical != 0, device), measure, device)
    lists, some = empty_lists(questions, 10, device), 100_000
    mine = lists.view(slice(some))
    mine.buffer.random_(0, questions)
    mine.counts.fill_(lists.room)
    rows = torch.arange(some, device=device)
    work = functools.partial(kernels.score, measure, there, there, rows, mine, rows.int())
    return some * lists.room / seconds(work, 3)
