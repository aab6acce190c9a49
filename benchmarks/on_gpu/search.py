"""All pairs: the ten nearest of every question, with each kind of score, as `all_pairs` searches them.

Speeds are counted as 2 N² d operations a second, as a search does that compares every question with every other,
although half of them are enough.
"""

import os
import time
from collections.abc import Iterator

import numpy as np
import torch

from dupq.neighbours.bounds import gpu_can_score
from dupq.neighbours.embeddings import Embeddings, blocks
from dupq.neighbours.exact import pair_scores, rule_of
from dupq.neighbours.measure import Measure
from dupq.neighbours.search import all_pairs
from dupq.neighbours.tiles import Search, block
from on_gpu.made_up import archive
from on_gpu.parts import Figures, Scale, gemm_peak

K, DIMENSIONS = 10, 300
SIZES = (200_000, 1_000_000, 2_000_000)
MEASURES = {
    "dense": Measure(),
    "hybrid": Measure("cosine", 0.5, 0.5),
    "manhattan": Measure("manhattan"),
    "euclidean": Measure("euclidean"),
}
_BLOCK = 131_072
_CPU_AS_A_GPU = "cpu:0"  # searched the way of GPUs
_WHOLE_ARCHIVE = 24_000_000


def figures(scale: Scale) -> Iterator[Figures]:
    """Every measure at the smallest size, then plain cosines at all; what CPUs score has a smaller size."""
    peak = gemm_peak(scale, torch.float16)
    yield {"gemm_peak_tflops_float16": peak / 1e12}
    spent = {}
    for name, measure in MEASURES.items():
        questions = scale.size(SIZES[0] if gpu_can_score(rule_of(measure)) else 10_000, 300)
        found = searched(scale, measure, questions, peak)
        spent[name] = found["seconds"]
        yield {f"{name}_{questions}": found}
    yield {"hybrid_vs_dense": spent["hybrid"] / spent["dense"]}
    for questions in () if scale.is_rehearsal else SIZES[1:]:
        found = searched(scale, MEASURES["dense"], questions, peak)
        minutes = found["seconds"] * (_WHOLE_ARCHIVE / questions) ** 2 / 60
        yield {f"dense_{questions}": found, "projected_24m_minutes": minutes}


def searched(scale: Scale, measure: Measure, questions: int, peak: float) -> Figures:
    """The time of one search, and the share of its answer that is right."""
    is_on_gpu = gpu_can_score(rule_of(measure))
    made = archive(questions, scale.size(DIMENSIONS, 16), measure.lexical != 0)
    search = Search(measure, K, device=_CPU_AS_A_GPU if scale.is_rehearsal else scale.device)
    threads = min(16, os.cpu_count() or 1)
    warm = [block(made.take(slice(0, scale.size(2_000, 200))), measure)]
    all_pairs(warm, search)  # compiles what is compiled
    start = time.perf_counter()
    rows = min(_BLOCK, -(-questions // 4))
    ready = [block(piece, measure) for piece in blocks(made, rows)]
    prepared = time.perf_counter()
    nearest, _ = all_pairs(ready, search, threads)
    spent = time.perf_counter() - prepared
    reached = 2.0 * questions**2 * made.vectors.shape[1] / spent
    return {
        "seconds": spent,
        "seconds_to_prepare": prepared - start,
        "on": "gpu" if is_on_gpu else "cpu",
        "host_threads": threads,
        "tflops": reached / 1e12,
        "share_of_gemm_peak": reached / peak,
        "recall_at_10": recall(made, np.concatenate([one.others for one in nearest]), measure),
    }


def recall(made: Embeddings, found: np.ndarray, measure: Measure) -> float:
    """Against exact scores of some questions with all others."""
    chosen = np.random.default_rng(1).choice(len(made.keys), min(20, len(made.keys)), replace=False)
    hits = 0
    for query in chosen.tolist():
        scores = np.concatenate([_scores(made, query, piece, measure) for piece in blocks(made, 1 << 16)])
        scores[query] = -np.inf
        best = np.lexsort((made.keys, -scores))[:K]
        hits += len(np.intersect1d(best, found[query]))
    return hits / (K * len(chosen))


def _scores(made: Embeddings, query: int, others: Embeddings, measure: Measure) -> np.ndarray:
    return pair_scores(measure, made.take(np.full(len(others.keys), query)), others)
