"""All pairs: the ten nearest of every question, from arrays on the host to lists on the host, and what took how long.

Speeds are counted as 2 N² d operations a second, as a search does that compares every question with every other,
although half of them are enough. Seconds come first, and then the recall, by float64 on the device.
"""

import contextlib
import subprocess
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from unittest import mock

import numpy as np
import torch

from dupq.neighbours.embeddings import Embeddings, Measure, blocks
from dupq.neighbours.gpu import search
from dupq.neighbours.gpu.device_questions import upload
from dupq.neighbours.gpu.search import nearest_of_all, nearest_of_share
from on_gpu.made_up import archive
from on_gpu.parts import Figures, Scale, gemm_peak

K, DIMENSIONS, QUERIES = 10, 300, 200
MEASURES = {"dense": Measure(), "hybrid": Measure("cosine", 0.5, 0.5)}
_WHOLE_ARCHIVE = 24_000_000
_PIECE = 1 << 16
_CLOCKS = ("nvidia-smi", "--query-gpu=clocks.sm,power.draw,temperature.gpu", "--format=csv,noheader,nounits", "-l", "5")


def dense(scale: Scale) -> Iterator[Figures]:
    """Plain cosines; at last a million by the first of two shares, and in four batches, as if there were no memory."""
    yield from _sizes(scale, "dense", (1_000_000, 2_000_000, 200_000))
    device, rows = torch.device(scale.device), 100 if scale.is_rehearsal else 250_000
    made, start = archive(4 * rows, scale.size(DIMENSIONS, 16), False, device), time.perf_counter()
    next(nearest_of_all([made], Measure(), K, device, (0, 2)))
    yield {"dense_half": {"questions": 4 * rows, "seconds": time.perf_counter() - start}}
    batches, start = [*blocks(made, rows)], time.perf_counter()
    lists = [next(nearest_of_share([own], ([other] for other in batches), Measure(), K, device)) for own in batches]
    yield {"dense_in_batches": {"questions": 4 * rows, "batches": 4, "seconds": time.perf_counter() - start}}
    others = np.concatenate([nearest.others for _, nearest in lists])
    yield {"dense_in_batches_recall": {"recall_at_10": recall(made, others, Measure(), device)}}


def hybrid(scale: Scale) -> Iterator[Figures]:
    """Vectors and words: 60 stems of 50,000, none of them alike: more candidates than real texts have."""
    yield from _sizes(scale, "hybrid", (200_000, 2_000_000))


def sustained(scale: Scale) -> Iterator[Figures]:
    """Plain cosines for a minute: does the chip keep its speed?"""
    if scale.is_rehearsal:
        yield {"sustained": "not rehearsed"}
        return
    with subprocess.Popen(_CLOCKS, stdout=subprocess.PIPE, text=True) as clocks:
        yield from _sizes(scale, "dense", (8_000_000,))
        clocks.terminate()
        yield {"mhz_watts_celsius": clocks.communicate()[0].splitlines()}


def _sizes(scale: Scale, name: str, sizes: tuple[int, ...]) -> Iterator[Figures]:
    peak = gemm_peak(scale, torch.float16)
    yield {"gemm_peak_tflops_float16": peak / 1e12}
    found: Figures = {}
    for questions in (300,) if scale.is_rehearsal else sizes:
        for figures in searched(scale, MEASURES[name], questions, peak):
            found |= figures
            yield {f"{name}_{questions}": dict(found)}
        found = {}


def searched(scale: Scale, measure: Measure, questions: int, peak: float) -> Iterator[Figures]:
    """The time of one search, and the share of its answer that is right."""
    device = torch.device(scale.device)
    made = archive(questions, scale.size(DIMENSIONS, 16), measure.lexical != 0, device)
    for _ in range(1 if questions > 10**6 else 2):  # the first compiles what is compiled, and takes the memory
        start = time.perf_counter()
        with _watched() as watch:
            ((_, nearest),) = nearest_of_all([made], measure, K, device)
        spent = time.perf_counter() - start
    larger, others = _WHOLE_ARCHIVE / questions, spent - watch.seconds["found"]  # which grow with the questions
    reached = 2.0 * questions**2 * made.vectors.shape[1] / spent
    yield {
        "seconds": spent,
        "seconds_of": dict(watch.seconds),
        "candidates_a_question": watch.candidates / questions,
        "searched_again_a_question": watch.lost / questions,
        "tflops": reached / 1e12,
        "share_of_gemm_peak": reached / peak,
        "projected_24m_minutes": spent * larger**2 / 60,
        "projected_24m_minutes_by_step": (watch.seconds["found"] * larger**2 + others * larger) / 60,
    }
    if device.type == "cuda":
        yield {"peak_memory_gb": torch.cuda.max_memory_allocated() / 1e9}
    yield {"recall_at_10": recall(made, nearest.others, measure, device)}


class _Watch:
    """Seconds by step, with what the device has begun; how many candidates, and how many buffers were too small."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self.candidates, self.lost, self._last = 0, 0, time.perf_counter()

    def end(self, step: str) -> None:
        """Count the time since the step before as that of this step."""
        if torch.cuda.is_initialized():
            torch.cuda.synchronize()
        self.seconds[step] += time.perf_counter() - self._last
        self._last = time.perf_counter()

    def around(self, function: Callable[..., object], before: str, step: str) -> Callable[..., object]:
        """Return a method of a search that is a step, and ends the one `before`."""

        def called(searching: search._Search, *arguments: object) -> object:
            self.end(before)
            self.candidates += int(searching.lists.counts.sum())
            self.lost += int((searching.lists.counts > searching.lists.room).sum())
            result = function(searching, *arguments)
            self.end(step)
            return result

        return called


@contextlib.contextmanager
def _watched() -> Iterator[_Watch]:
    watch, methods = _Watch(), search._Search
    with (
        mock.patch.object(methods, "_begin", watch.around(methods._begin, "prepared", "begun")),
        mock.patch.object(methods, "_settle_all", watch.around(methods._settle_all, "found", "settled")),
    ):
        yield watch
    watch.end("returned")


def recall(made: Embeddings, found: np.ndarray, measure: Measure, device: torch.device) -> float:
    """The share of what is listed for some questions that scores no less than the tenth best of all."""
    chosen = np.random.default_rng(1).choice(
        len(made.keys), min(QUERIES, len(made.keys), 4 * 10**8 // len(made.keys)), replace=False
    )
    rows = torch.from_numpy(chosen).to(device)
    scores = slow_scores(made, chosen, measure, device)
    scores.scatter_(1, rows[:, None], -torch.inf)
    tenth = scores.topk(K, dim=1).values[:, -1:]
    listed = torch.from_numpy(found[chosen]).to(device)
    return float((scores.gather(1, listed) >= tenth - 1e-12).double().mean())


def slow_scores(made: Embeddings, chosen: np.ndarray, measure: Measure, device: torch.device) -> torch.Tensor:
    """The scores (float64) of some questions with all."""
    pieces = []
    _, asked = upload(made.take(chosen), measure, device)
    queries = asked.vectors.double()
    for start in range(0, len(made.keys), _PIECE):
        piece = made.take(slice(start, start + _PIECE))
        _, others = upload(piece, measure, device)
        vectors = others.vectors.double()
        scores = measure.dense * (queries @ vectors.T) / (asked.squares[:, None] * others.squares).sqrt()
        if measure.lexical and made.words is not None:
            bags = torch.sparse_csr_tensor(
                others.starts, others.words.long(), others.weights.double(), piece.words.shape
            )
            of_queries = torch.from_numpy(made.words[chosen].toarray()).to(device).double()
            common = (bags @ of_queries.T).T
            scores += measure.lexical * common / (asked.bag_squares[:, None] * others.bag_squares).sqrt()
        pieces.append(scores)
    return torch.cat(pieces, dim=1)
