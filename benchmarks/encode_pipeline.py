"""How many questions a second Ray Data encodes, end to end, beside the bare encoder in one process a core.

    python benchmarks/encode_pipeline.py [--preset NAME …] [--questions N] [--rounds N] [--json FILE]

Both get the same files of texts, questions of travel.stackexchange.com again and again, 10,000 a file, on disk or on an
S3 server (moto, itself on the same cores). The bare encoder is a process a core that holds its share of the texts in
memory before the clock starts, and makes token ids and embeddings of them: nothing is read, copied or written. The
pipeline reads, tokenises, encodes and writes, and its time begins before its processes do. `share` is its questions a
second over the bare encoder's of the same round; `share_without_start` leaves out `start_seconds`, what it takes for a
question a core. The first and the last file are checked to have the bytes of one process, for any number of actors.

Networks are of the presets' sizes and not trained (see `encode.py`). Medians of several rounds. Needs the dumps of
DUPQ_SHARED_DATA (default: ../shared/data).
"""

import argparse
import dataclasses
import json
import multiprocessing
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from encode import dimensions_of, long_questions, vocabulary_of

sys.path.insert(0, str(Path(__file__).parents[1]))
from benchmarks.whole_job.server import s3
from dupq import storage
from dupq.encoders.encoding import build
from dupq.encoders.saved import Fitness, SavedEncoder, load, save
from dupq.job import cluster
from dupq.job.actors import Pool
from dupq.job.run import Run
from dupq.job.table import Table
from dupq.settings import config
from dupq.stages.embeddings import Embedder, encode_texts
from dupq.tables import TEXTS

SHARD = 10_000  # questions of a file
CORES = len(os.sched_getaffinity(0))


def main() -> None:
    """Measure, print, write the JSON."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--preset", nargs="+", default=["dupq", "bogdanova-sum"], choices=config.preset_names())
    parser.add_argument("--questions", type=int, default=200_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path, metavar="FILE", help="where the figures go")
    shared = os.environ.get("DUPQ_SHARED_DATA", Path(__file__).parents[2] / "shared" / "data")
    parser.add_argument("--data", default=shared, type=Path, help="the folder of dumps (default: %(default)s)")
    options = parser.parse_args()
    figures: dict[str, Any] = {"date": time.strftime("%Y-%m-%d"), "cores": CORES, "torch": torch.__version__}
    figures["questions"] = options.questions
    with tempfile.TemporaryDirectory() as folder, s3(Path(folder) / "log") as environment:
        os.environ.update({name: value for name, value in environment.items() if name.startswith("AWS_")})
        cluster.connect()
        for preset in options.preset:
            figures[preset] = measure(options, preset, Path(folder) / preset)
            print(preset, json.dumps(figures[preset], indent=1), flush=True)
    if options.json:
        options.json.write_text(json.dumps(figures, indent=2) + "\n")


def measure(options: argparse.Namespace, preset: str, folder: Path) -> dict[str, Any]:
    """The figures of one preset."""
    texts, tiny, embedder = prepared(options, preset, folder)
    there = copied(texts, f"s3://dupq/{preset}/texts")
    kinds = [(f"{actors} actors, disk", actors, texts, str(folder)) for actors in (1, CORES, 2 * CORES)]
    kinds.append((f"{CORES} actors, S3", CORES, there, f"s3://dupq/{preset}"))
    bare: list[float] = []
    start: list[float] = []
    seconds: dict[str, list[float]] = {name: [] for name, *_ in kinds}
    outputs = []
    for turn in range(options.rounds):
        bare.append(bare_seconds(embedder, texts.files))
        start.append(pipeline_seconds(embedder, tiny, f"{folder}/start {turn}", CORES))
        for name, actors, source, where in kinds:
            outputs.append(f"{where}/{name} {turn}")
            seconds[name].append(pipeline_seconds(embedder, source, outputs[-1], actors))
    check_bytes(embedder, texts, f"{folder}/alone", outputs)
    found: dict[str, Any] = {"bare_questions_per_second": round(options.questions / statistics.median(bare), 1)}
    found["start_seconds"] = round(statistics.median(start), 2)
    for name, taken in seconds.items():
        shares = [alone / all_ for alone, all_ in zip(bare, taken, strict=True)]
        without = [alone / (all_ - begin) for alone, all_, begin in zip(bare, taken, start, strict=True)]
        found[name] = {
            "seconds": round(statistics.median(taken), 2),
            "share": round(statistics.median(shares), 3),
            "share_without_start": round(statistics.median(without), 3),
        }
    return found


def prepared(options: argparse.Namespace, preset: str, folder: Path) -> tuple[Table, Table, Embedder]:
    """The texts, a question of each core, and an encoder."""
    settings, sample = config.load(preset), long_questions(options.data, 4_919)
    vocabulary = vocabulary_of(sample.texts.to_pylist(), settings)
    vectors = np.random.default_rng(1).normal(0, 0.1, (len(vocabulary), dimensions_of(settings))).astype(np.float32)
    encoder = str(folder / "encoder")
    network = build(settings.encoder, vectors, seed=1).eval()
    save(
        encoder,
        SavedEncoder(
            network, vocabulary, settings, None, Fitness(questions=0, unknown_words=0.0, bodies_found=None), {}
        ),
        "benchmark",
    )
    rows = np.arange(options.questions)
    shares = np.array_split(rows, -(-options.questions // SHARD))
    texts = written(f"{folder}/texts", sample.texts, shares)
    tiny = written(f"{folder}/start", sample.texts, [rows[core : core + 1] for core in range(CORES)])
    return texts, tiny, Embedder(encoder, settings.encode.batch_size, gpu=False)


def written(folder: str, texts: pa.Array, shares: list[np.ndarray]) -> Table:
    """A table of texts: those at the keys of each share, again and again."""
    made = Table(folder, TEXTS, len(shares))
    for uri, keys in zip(made.files, shares, strict=True):
        taken = texts.take(pa.array(keys % len(texts)))
        table = pa.table([pa.array(keys), pa.array([""] * len(keys)), taken], schema=TEXTS)
        storage.write_table(uri, table, TEXTS)
    return made


def copied(texts: Table, folder: str) -> Table:
    """The same table on S3."""
    there = dataclasses.replace(texts, folder=folder)
    for uri, copy in zip(texts.files, there.files, strict=True):
        storage.write_bytes(copy, storage.read_bytes(uri))
    return there


def bare_seconds(embedder: Embedder, places: list[str]) -> float:
    """The time of one process a core, from texts in memory to embeddings in memory."""
    context = multiprocessing.get_context("spawn")
    barrier, queue = context.Barrier(CORES + 1), context.Queue()
    processes = [
        context.Process(target=encode_alone, args=(embedder, places[core::CORES], barrier, queue))
        for core in range(CORES)
    ]
    for process in processes:
        process.start()
    barrier.wait()
    began = time.perf_counter()
    for _ in processes:
        queue.get()
    seconds = time.perf_counter() - began
    for process in processes:
        process.join()
    return seconds


def encode_alone(embedder: Embedder, places: list[str], barrier: Any, queue: Any) -> None:
    """A process of `bare_seconds`."""
    torch.set_num_threads(1)
    tables, reader = [storage.read_table(place, TEXTS) for place in places], load(embedder.encoder)
    reader.encode(tables[0].slice(0, 10))
    barrier.wait()
    for table in tables:
        reader.encode(table, embedder.batch_size)
    queue.put(None)


def pipeline_seconds(embedder: Embedder, texts: Table, output: str, actors: int) -> float:
    """The time of Ray Data, from its start to its last file."""
    began = time.perf_counter()
    encoded(embedder, texts, output, Pool(actors, 0.5 * min(1.0, CORES / actors), 0))
    return time.perf_counter() - began


def encoded(embedder: Embedder, texts: Table, output: str, pool: Pool | None) -> Table:
    """The embeddings, by actors or by one task after the other."""
    groups = [[number] for number in range(texts.partitions)]
    encode = Run(output, "encode").map("embeddings", encode_texts, publish=True, groups=groups, pool=pool)
    return encode(texts, None, None, embedder, ["a"], None)


def check_bytes(embedder: Embedder, texts: Table, alone: str, outputs: list[str]) -> None:
    """Stop with an error where a file is not that of one process that takes all steps."""
    expected = encoded(embedder, texts, alone, None)
    for number in (0, texts.partitions - 1):
        for output in outputs:
            uri = f"{output}/embeddings/part-{number:05d}.parquet"
            if storage.read_bytes(uri) != storage.read_bytes(expected.file(number)):
                raise SystemExit(f"{uri} differs from that of one process")


if __name__ == "__main__":
    main()
