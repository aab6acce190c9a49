"""What the neighbours stage takes on a run's own embeddings: of vectors alone, and with bags of words.

    python benchmarks/searches.py --run RUN [--rounds 3] [--json FILE]

- `hybrid_vs_dense`: seconds of the exact search by the encoder's measure, over those by the cosine of its vectors.
- `recall_at_10`: against a float64 sort for 300 questions.

Medians; the stage as a job runs it, with Ray, from tables to tables.
"""

import argparse
import functools
import json
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from dupq import storage
from dupq.archive import Shard
from dupq.encoders.saved import read_measure
from dupq.job import cluster
from dupq.job.run import Run
from dupq.job.table import Streamed, Table
from dupq.job.tasks import Report
from dupq.neighbours.candidates import nearest_in
from dupq.neighbours.embeddings import Embeddings, Measure, embeddings_of, gathered
from dupq.runs.reader import open_run
from dupq.settings.sections import NeighbourSettings
from dupq.stages.search.blocks import SearchRequest
from dupq.stages.search.everything import NearestTables, files_in_scope, find_nearest
from dupq.tables import EMBEDDED
from dupq.text.keys import Sites

K, CHECKED = 10, 300


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--run", required=True, help="a finished run")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", metavar="FILE", help="where the figures go")
    options = parser.parse_args()
    cluster.connect("local")
    run = open_run(options.run)
    measure = read_measure(run.encoder_uri)
    with tempfile.TemporaryDirectory() as folder:
        stage = functools.partial(searched, run.uri, Path(folder))
        stage(measure)  # what is compiled is compiled now
        exact = [stage(measure) for _ in range(options.rounds)]
        dense = [stage(Measure(measure.kind)) for _ in range(options.rounds)]
        recall = of_exact(run.uri, exact[-1][1], measure)
    seconds, of_vectors = (statistics.median(taken for taken, *_ in runs) for runs in (exact, dense))
    figures = {
        "questions": exact[-1][2].rows_in,
        "hybrid_vs_dense": round(seconds / of_vectors, 2),
        "recall_at_10": recall,
        "seconds": {"exact": round(seconds, 1), "vectors": round(of_vectors, 1)},
        "peak_memory_mb": round(exact[-1][2].peak_memory_mb),
    }
    print(json.dumps(figures, indent=1))
    if options.json:
        Path(options.json).write_text(json.dumps(figures, indent=1) + "\n")


def searched(run: str, folder: Path, measure: Measure) -> tuple[float, NearestTables, Report]:
    """Seconds, tables and report of the stage in a new folder that has the run's embeddings."""
    work = Path(tempfile.mkdtemp(dir=folder))
    (work / "embeddings").symlink_to(Path(run).resolve() / "embeddings")
    shards = [Shard(int(Path(uri).stem[-5:]), "", "") for uri in embedding_files(run)]
    embedded = Table(str(work / "embeddings"), EMBEDDED, len(shards))
    request = SearchRequest(sites_of(run), NeighbourSettings(k=K), measure, 2)
    start = time.perf_counter()
    steps = Run(str(work), "neighbours")
    found = find_nearest(steps, files_in_scope(embedded, shards, request), request, embedded)
    return time.perf_counter() - start, found, steps.report


def of_exact(run: str, tables: NearestTables, measure: Measure) -> float:
    """The share of the ten best scores of some questions that the exact search has, by float64 products."""
    archive = embeddings_in(run)
    chosen = np.random.default_rng(0).choice(len(archive.keys), min(CHECKED, len(archive.keys)), replace=False)
    scores = measure.dense * unit(archive.vectors)[chosen] @ unit(archive.vectors).T
    if archive.words is not None and measure.lexical:
        bags = archive.words.astype(np.float64)
        lengths = np.sqrt(np.asarray(bags.multiply(bags).sum(axis=1)).ravel())
        shares = (bags[chosen] @ bags.T).toarray() / np.maximum(lengths[chosen, None] * lengths, 1e-30)
        scores += measure.lexical * shares
    scores[np.arange(len(chosen)), chosen] = -np.inf
    best = -np.sort(-scores, axis=1)[:, :K]
    found: dict[int, np.ndarray] = {}
    for table in Streamed(tables.nearest):
        keys, nearest = nearest_in(table, K)
        found.update(zip(keys.tolist(), nearest.scores, strict=True))
    pairs = [(found[int(archive.keys[row])], wanted) for row, wanted in zip(chosen, best, strict=True)]
    return round(float(np.mean([np.abs(ours - wanted) < 1e-9 for ours, wanted in pairs])), 4)


def embeddings_in(run: str) -> Embeddings:
    return gathered([embeddings_of(pq.read_table(uri), Sites(sites_of(run)), uri) for uri in embedding_files(run)])


@functools.cache
def sites_of(run: str) -> list[str]:
    return sorted({site for uri in embedding_files(run) for site in pq.read_table(uri)["site"].unique().to_pylist()})


def embedding_files(run: str) -> list[str]:
    return [file.uri for file in storage.list_files(storage.join(run, "embeddings"), ".parquet")]


def unit(vectors: np.ndarray) -> np.ndarray:
    exact = vectors.astype(np.float64)
    return exact / np.maximum(np.linalg.norm(exact, axis=1), 1e-30)[:, None]


if __name__ == "__main__":
    main()
