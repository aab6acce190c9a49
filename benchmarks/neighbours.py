"""How fast the exact all-pairs search is, beside the machine's matrix products and exact peers, in the same run.

    python benchmarks/neighbours.py [--quick] [--json FILE]

Embeddings are made: unit vectors of normal numbers, a fifth of them near another one (cosine about 0.9), as float16.
Speeds are counted as 2 N² d floating-point operations a second, as a search does that compares every question with
every other, whatever is really computed: scores are symmetric, so half of the products are enough. On two threads,
medians of three.

- `topk_…`: the 10 nearest of every question; `threshold_…`: all pairs with a cosine of 0.8 or more.
- `…_share_of_gemm_peak`: of what the fastest matrix product of this machine does, measured beside it: bfloat16 if the
  processor multiplies that. `…_share_of_float32_gemm_peak`: of a product of float32 numbers, which the peers use.
- `vs_faiss_flat`: faiss `IndexFlatIP`; `vs_torch_topk`: torch `matmul` and `topk`, 1,024 questions at a time. Both are
  given a twentieth of the questions at 200,000, all at 50,000; their time is that share of a whole search's.
- `recall_at_10`: against float64 products of 500 questions. `peak_memory_mb`: of the process during our searches, with
  all embeddings.
- `growth`: seconds of a top-10 search at 200,000 over those at 100,000, over 4. Smaller ones are printed beside them.
- `increment_share`: 1,000 new questions among 200,000, merged into the lists of the other 199,000, as a share of the
  whole search's time; the lists are compared with the whole search's. `stage_increment_share`: the same for the stage
  with Ray, from tables to tables.

The lowest of all sizes and dimensions is given where there are several; all are under `runs`. Needs `pip install
'.[bench]'`.
"""

import argparse
import itertools
import json
import os
import platform
import statistics
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import faiss
import numpy as np
import torch
from threadpoolctl import threadpool_limits

from dupq import storage
from dupq.archive import Shard
from dupq.job import cluster
from dupq.job.records import RunFiles
from dupq.job.run import Run
from dupq.job.table import Table
from dupq.job.tasks import peak_mb, reset_peak
from dupq.neighbours.candidates import Nearest, empty_nearest, merge, nearest_in
from dupq.neighbours.embeddings import Embeddings, Measure, blocks
from dupq.neighbours.products import Bfloat16Products, fastest_products
from dupq.neighbours.tiles import Block, Found, Pairs, Search, block, search_tile
from dupq.settings.sections import NeighbourSettings
from dupq.stages.embeddings import embeddings_table
from dupq.stages.search.blocks import SearchRequest, block_rows, bytes_per_question
from dupq.stages.search.search import search as search_stage
from dupq.tables import EMBEDDED, embeddings
from dupq.text.keys import Sites

THREADS = 2
ROUNDS = 3
K, THRESHOLD = 10, 0.8
COSINE = Measure()
TOP_K, ABOVE_FLOOR = Search(COSINE, K), Search(COSINE, 0, THRESHOLD)
NEW = 1_000


def main() -> None:
    """Measure everything, print a table, write the JSON."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="20,000 questions: does it run?")
    parser.add_argument("--json", metavar="FILE", help="where the figures go")
    options = parser.parse_args()
    sizes = (20_000,) if options.quick else (50_000, 200_000)
    faiss.omp_set_num_threads(THREADS)
    warm_up()
    runs = [measure(count, dimensions) for count in sizes for dimensions in (300, 400)]
    figures: dict[str, Any] = {**worst(runs), **growth(sizes[-1]), **increment(sizes[-1], bool(options.quick))}
    for name, value in figures.items():
        print(f"{name:44} {value}")
    about = {"date": time.strftime("%Y-%m-%d"), "machine": f"{platform.machine()}, {os.cpu_count()} cores"}
    if options.json:
        Path(options.json).write_text(json.dumps({**figures, **about, "runs": runs}, indent=2) + "\n")


def made_up(count: int, dimensions: int) -> Embeddings:
    generator = np.random.default_rng(count + dimensions)
    vectors = generator.standard_normal((count, dimensions), np.float32)
    copies = generator.random(count) < 0.2
    noise = generator.standard_normal((int(copies.sum()), dimensions), np.float32)
    vectors[copies] = vectors[generator.integers(0, count, int(copies.sum()))] + 0.45 * noise
    vectors /= np.linalg.norm(vectors, axis=1)[:, None]
    return Embeddings(np.arange(count), vectors.astype(np.float16))


def warm_up() -> None:
    """Compile what is compiled when it is first called."""
    for search in (TOP_K, ABOVE_FLOOR):
        search_all(made_up(3_000, 300), search)


def search_all(archive: Embeddings, search: Search) -> tuple[list[Nearest], Pairs]:
    rows = block_rows(len(archive.keys), bytes_per_question(archive.vectors.shape[1], K, False), 8 << 30, THREADS)
    made = [block(piece, COSINE) for piece in blocks(archive, rows)]
    nearest, pairs, numbers = [empty_nearest(len(some.keys), search.k) for some in made], [], range(len(made))
    pool = ThreadPoolExecutor(THREADS, initializer=threadpool_limits, initargs=(1,))  # OpenMP's limits are by thread
    with threadpool_limits(1, "blas"), pool:
        # each block with itself first, as the job's waves do: this raises the bounds of the other tiles
        for tiles in ([(number, number) for number in numbers], [*itertools.combinations(numbers, 2)]):
            known = [own.scores[:, -1].copy() if search.k else None for own in nearest]
            calls = [(made[left], made[right], search, True, (known[left], known[right])) for left, right in tiles]
            for (left, right), (of_left, of_right, above, _) in zip(tiles, pool.map(_search, calls), strict=True):
                merge(nearest[left], of_left)
                if left != right:
                    merge(nearest[right], of_right)
                pairs.append(above)
    return nearest, Pairs(*(np.concatenate(columns) for columns in zip(*pairs, strict=True)))


def _search(call: tuple[Block, Block, Search, bool, tuple[Any, Any]]) -> Found:
    return search_tile(*call)


def seconds(work: Callable[[], Any], rounds: int = ROUNDS) -> float:
    taken = []
    for _ in range(rounds):
        start = time.perf_counter()
        work()
        taken.append(time.perf_counter() - start)
    return statistics.median(taken)


def measure(count: int, dimensions: int) -> dict[str, Any]:
    """All figures of one size."""
    archive = made_up(count, dimensions)
    operations = 2.0 * count * count * dimensions
    fastest = torch.bfloat16 if fastest_products() is Bfloat16Products else torch.float32
    peaks = {name: gemm_peak(dimensions, kind) for name, kind in (("", fastest), ("float32_", torch.float32))}
    found: list[list[Nearest]] = []
    reset_peak()
    topk = seconds(lambda: found.__setitem__(slice(None), [search_all(archive, TOP_K)[0]]))
    over = seconds(lambda: search_all(archive, ABOVE_FLOOR))
    memory = peak_mb()
    share = 1.0 if count <= 50_000 else 0.05
    faiss_seconds, torch_seconds = (seconds(lambda peer=peer: peer(archive, share)) / share for peer in PEERS)
    run = {
        "questions": count,
        "dimensions": dimensions,
        "topk_s": round(topk, 2),
        "threshold_s": round(over, 2),
        **{f"{name}gemm_peak_gflops": round(peak / 1e9) for name, peak in peaks.items()},
        **{f"topk_share_of_{name}gemm_peak": round(operations / topk / peak, 3) for name, peak in peaks.items()},
        **{f"threshold_share_of_{name}gemm_peak": round(operations / over / peak, 3) for name, peak in peaks.items()},
        "vs_faiss_flat": round(faiss_seconds / topk, 2),
        "vs_torch_topk": round(torch_seconds / topk, 2),
        "recall_at_10": recall(archive, np.concatenate([nearest.others for nearest in found[0]])),
        "peak_memory_mb": round(memory),
    }
    print(run, flush=True)
    return run


def gemm_peak(dimensions: int, kind: torch.dtype) -> float:
    """Floating-point operations a second of a product of two matrices of 8,192 rows."""
    torch.set_num_threads(THREADS)  # a search's own threads set it to 1 for all
    sides = [torch.randn(8_192, dimensions).to(kind) for _ in range(2)]
    result = torch.empty(8_192, 8_192, dtype=kind)
    torch.mm(sides[0], sides[1].T, out=result)
    return 2.0 * 8_192**2 * dimensions / seconds(lambda: torch.mm(sides[0], sides[1].T, out=result), 9)


def with_faiss(archive: Embeddings, share: float) -> None:
    vectors = archive.vectors.astype(np.float32)
    index = faiss.IndexFlatIP(vectors.shape[1])
    index.add(vectors)
    index.search(vectors[: int(share * len(vectors))], K + 1)


def with_torch(archive: Embeddings, share: float) -> None:
    torch.set_num_threads(THREADS)
    vectors = torch.from_numpy(archive.vectors.astype(np.float32))
    for start in range(0, int(share * len(vectors)), 1_024):
        torch.topk(vectors[start : start + 1_024] @ vectors.T, K + 1, dim=1)


PEERS = (with_faiss, with_torch)


def recall(archive: Embeddings, found: np.ndarray) -> float:
    queries = np.random.default_rng(1).choice(len(archive.keys), min(500, len(archive.keys)), replace=False)
    vectors = archive.vectors.astype(np.float64)
    vectors /= np.linalg.norm(vectors, axis=1)[:, None]
    hits = 0
    for query in queries.tolist():
        scores = vectors @ vectors[query]
        scores[query] = -np.inf
        hits += len(np.intersect1d(np.argpartition(-scores, K)[:K], found[query]))
    return hits / (K * len(queries))


def worst(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """The lowest of all runs; the highest memory."""
    names = [name for name in runs[0] if "share" in name or name.startswith("vs_") or name == "recall_at_10"]
    lowest = {name: min(run[name] for run in runs) for name in names}
    return {**lowest, "peak_memory_mb": max(run["peak_memory_mb"] for run in runs)}


def growth(largest: int) -> dict[str, Any]:
    sizes = [largest // 8, largest // 4, largest // 2, largest]
    archives = [made_up(size, 300) for size in sizes]
    taken = [
        seconds(lambda archive=archive: search_all(archive, TOP_K), 1 if size == largest else ROUNDS)
        for size, archive in zip(sizes, archives, strict=True)
    ]
    table = {str(size): round(value, 2) for size, value in zip(sizes, taken, strict=True)}
    return {"growth": round(taken[-1] / taken[-2] / 4, 3), "growth_s": table}


def increment(count: int, is_quick: bool) -> dict[str, Any]:
    archive = made_up(count, 300)
    new = np.random.default_rng(2).choice(count, NEW if not is_quick else NEW // 10, replace=False)
    is_new = np.isin(np.arange(count), new)
    old, added = archive.take(~is_new), archive.take(is_new)
    search = Search(COSINE, K, THRESHOLD)
    start = time.perf_counter()
    whole = np.concatenate([nearest.others for nearest in search_all(archive, search)[0]])
    taken = time.perf_counter() - start
    before = search_all(old, search)[0]
    lists: list[list[np.ndarray]] = []
    share = seconds(lambda: lists.append(incremented(old, added, before, search))) / taken
    assert (np.concatenate(lists[0]) == whole[np.concatenate([old.keys, added.keys])]).all()
    return {"increment_share": round(share, 4), "stage_increment_share": round(stage_share(archive, old), 4)}


def incremented(old: Embeddings, added: Embeddings, before: list[Nearest], search: Search) -> list[np.ndarray]:
    """The neighbours of the old questions, block by block, and of the added ones, from the old ones' lists."""
    ours = block(added, COSINE)
    own = search_tile(ours, ours, search)[0]

    def against(some: Embeddings, lists: Nearest) -> tuple[Nearest, Nearest]:
        among, back, *_ = search_tile(ours, block(some, COSINE), search, known=(own.scores[:, -1], lists.scores[:, -1]))
        merged = Nearest(*(column.copy() for column in lists))
        merge(merged, back)
        return among, merged

    with ThreadPoolExecutor(THREADS, initializer=torch.set_num_threads, initargs=(1,)) as pool:
        found = list(pool.map(against, blocks(old, len(before[0].others)), before))
    for among, _ in found:
        merge(own, among)
    return [*(merged.others for _, merged in found), own.others]


def stage_share(archive: Embeddings, old: Embeddings) -> float:
    """The stage's seconds with an earlier run over its seconds without."""
    cluster.connect("local")
    asked = SearchRequest(["example.com"], NeighbourSettings(), COSINE, 1)
    with tempfile.TemporaryDirectory() as folder:
        runs = [
            written(some, RunFiles(f"{folder}/{name}"))
            for name, some in (("warm", old.take(slice(0, 9_000))), ("old", old), ("full", archive), ("new", archive))
        ]
        taken = []
        for place, (files, shards) in enumerate(runs):
            start = time.perf_counter()
            run = Run(files.uri)
            run.previous = runs[1][0].uri if place == len(runs) - 1 else None
            search_stage(run, Table(files.path("embeddings"), EMBEDDED, len(shards)), shards, asked)
            taken.append(time.perf_counter() - start)
        assert lists_of(runs[2][0]) == lists_of(runs[3][0])
    print(f"stage: {taken[2]:.1f} s for all, {taken[3]:.1f} s for what is new", flush=True)
    return taken[3] / taken[2]


def written(archive: Embeddings, files: RunFiles) -> tuple[RunFiles, list[Shard]]:
    shards = []
    for number, piece in enumerate(blocks(archive, 50_000)):
        shards.append(Shard(number, "", "example.com"))
        table = embeddings_table(piece, Sites(["example.com"]))
        storage.write_table(
            storage.join(files.path("embeddings"), shards[-1].file), table, embeddings(piece.vectors.shape[1], False)
        )
    return files, shards


def lists_of(files: RunFiles) -> dict[int, bytes]:
    found: dict[int, bytes] = {}
    for file in storage.list_files(files.nearest, ".parquet"):
        keys, nearest = nearest_in(storage.read_table(file.uri), K)
        found.update({key: others.tobytes() for key, others in zip(keys.tolist(), nearest.others, strict=True)})
    return found


if __name__ == "__main__":
    main()
