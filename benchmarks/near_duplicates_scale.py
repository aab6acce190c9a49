"""How the near-duplicates stage grows: 10,000, 100,000 and a million made-up questions, on two cores with Ray.

    python benchmarks/near_duplicates_scale.py [--quick] [--json FILE]

The stage is what a run does from texts to representatives: exact copies, signatures, bands, candidates, exact
verification, components. Its archives are made by big_archive.py, ingested and tokenised beforehand (`texts_s` says
what the latter took). Each size runs in a process of its own with an own Ray, whose workers the second archive
has warmed. Memory is the highest resident memory: of the largest task while it works, and of the driver's process from
its start to its end; both hold about 260 MB of libraries before any question. A last archive holds 200,000 identical
short questions beside 100,000 others, and one 200,000 near copies of one another.

For 24 million questions the seconds grow by what each question between the two largest archives took. Memory does
not grow: shards and partitions bound what a task holds. What does grow is the task
that looks for repeated questions, and the last one, which joins the pairs of the whole archive: its bytes are given.
"""

import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from big_archive import SITE, write_archive

CORES = sorted(os.sched_getaffinity(0))[:2]
SIZES = (10_000, 100_000, 1_000_000)
TARGET = 24_000_000
BUCKET = 200_000
SHORT = "how do i install this package"
LONG = "how do i install this package on a machine without a network where there is no space left on the device " * 2


def main() -> None:
    """Make the archives, measure, print a table, write the JSON."""
    options = arguments()
    folder = Path(options.folder or tempfile.mkdtemp(prefix="dupq-benchmark-"))
    try:
        figures = measure(folder, SIZES[:2] if options.quick else SIZES)
    finally:
        if not options.folder:
            shutil.rmtree(folder)
    show(figures)
    if options.json:
        Path(options.json).write_text(json.dumps(figures, indent=2) + "\n")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="10,000 and 100,000 questions only, and small buckets")
    parser.add_argument("--json", metavar="FILE", help="where the figures go")
    parser.add_argument(
        "--folder", help="keeps the archives, and takes those that are there (default: a temporary one)"
    )
    parser.add_argument("--child", nargs=3, metavar=("TASK", "FOLDER", "NAME"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        child(*options.child)
        sys.exit()
    return options


def measure(folder: Path, sizes: tuple[int, ...]) -> dict:
    """All figures."""
    made = {size: make_texts(folder, size) for size in sizes}
    runs = {size: run_child("stage", folder, str(size)) for size in sizes}
    bucket = BUCKET if sizes == SIZES else BUCKET // 10
    add_bucket(folder, sizes[1], "copies", [SHORT] * bucket)
    add_bucket(folder, sizes[1], "near-copies", [f"{LONG}{number}" for number in range(bucket)])
    buckets = {name: run_child("stage", folder, name) for name in ("copies", "near-copies")}
    figures = {
        "stage_s": runs[sizes[-1]]["seconds"],
        "task_peak_mb": max(run["task_peak_mb"] for run in runs.values()),
        "driver_peak_mb": max(run["driver_peak_mb"] for run in runs.values()),
        "growth": growth(runs, sizes),
        "bucket_of_copies_s": buckets["copies"]["seconds"],
        "bucket_of_copies_task_peak_mb": buckets["copies"]["task_peak_mb"],
        "bucket_of_near_copies_s": buckets["near-copies"]["seconds"],
        "bucket_of_near_copies_task_peak_mb": buckets["near-copies"]["task_peak_mb"],
        "bucket": bucket,
        **arithmetic(runs, sizes),
    }
    for size in sizes:
        figures |= {f"{name}_{size}": value for name, value in (made[size] | runs[size]).items()}
    return figures | {
        "cores": len(CORES),
        "date": time.strftime("%Y-%m-%d"),
        "machine": f"{platform.machine()}, Python {platform.python_version()}",
    }


def growth(runs: dict[int, dict], sizes: tuple[int, ...]) -> float:
    """Seconds a question of the largest archive over those of the one before: 1 is linear, less is fixed costs."""
    before, largest = sizes[-2], sizes[-1]
    return round(runs[largest]["seconds"] / largest / (runs[before]["seconds"] / before), 3)


def arithmetic(runs: dict[int, dict], sizes: tuple[int, ...]) -> dict:
    """What 24 million questions would take on the same two cores."""
    before, largest = sizes[-2], sizes[-1]
    per_question = (runs[largest]["seconds"] - runs[before]["seconds"]) / (largest - before)
    factor = TARGET / largest
    return {
        "microseconds_per_question": round(per_question * 1e6, 2),
        "target_questions": TARGET,
        "target_s": round(runs[largest]["seconds"] + per_question * (TARGET - largest)),
        "target_exchange_gb": round(runs[largest]["exchange_mb"] * factor / 1000, 1),
        "target_last_task_mb": round(runs[largest]["joined"] * factor * 64 / 1e6),
    }


def make_texts(folder: Path, size: int) -> dict:
    """A dump of `size` questions, its tables and its texts, made once."""
    note = folder / f"made-{size}.json"
    if not note.exists():
        say(f"making {size:,} questions")
        dump, archive = folder / f"dump-{size}", folder / f"archive-{size}"
        for old in (dump, archive, work_of(folder, str(size)).parent):
            shutil.rmtree(old, ignore_errors=True)
        write_archive(dump, questions=size, seed=1, site=SITE, with_answers=False)
        note.write_text(json.dumps(run_child("texts", folder, str(size))))
        shutil.rmtree(dump)
        shutil.rmtree(archive)
    return json.loads(note.read_text())


def add_bucket(folder: Path, size: int, name: str, added: list[str]) -> None:
    """The texts of `size` questions and those `added`, which have no title, in a random order."""
    from dupq.text.questions import content_hashes

    keys, texts = pa.array(np.arange(len(added)) + 10**9), pa.array(added)
    nothing = pa.array([""] * len(added))
    columns = {
        "texts": [keys, nothing, texts],
        "contents": [keys, *map(pa.array, content_hashes(nothing, texts).T), nothing],
    }
    source, made = work_of(folder, str(size)), work_of(folder, name)
    for kind, extra in columns.items():
        output = made / kind
        shutil.rmtree(output, ignore_errors=True)
        output.mkdir(parents=True)
        table = pq.read_table(source / kind).select(range(len(extra)))
        both = pa.concat_tables([table, pa.table(extra, schema=table.schema)])
        both = both.take(pa.array(np.random.default_rng(1).permutation(len(both))))
        for start in range(0, len(both), 50_000):
            pq.write_table(both.slice(start, 50_000), output / f"part-{start // 50_000:05d}.parquet")
    shutil.copytree(source / "terms", made / "terms", dirs_exist_ok=True)


def work_of(folder: Path, name: str) -> Path:
    """Where the texts of an archive are, what they say, and their terms."""
    return folder / f"made-{name}" / "work"


def run_child(task: str, folder: Path, name: str) -> dict:
    """What `child` prints, in a process of its own with an own Ray."""
    say(f"{task}: {name}")
    command = [sys.executable, __file__, "--child", task, str(folder), name]
    ended = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return json.loads(ended.stdout.splitlines()[-1])


def child(task: str, folder: str, name: str) -> None:
    """Tokenise an archive, or do the stage on its texts; prints the figures as JSON."""
    os.sched_setaffinity(0, set(CORES))
    from dupq.job import cluster

    cluster.connect("local")
    print(json.dumps({"texts": tokenised, "stage": staged}[task](Path(folder), name)))


def tokenised(folder: Path, name: str) -> dict:
    from dupq.archive import question_shards
    from dupq.job.run import Run
    from dupq.job.table import Shards
    from dupq.pipelines.ingest import IngestJob, ingest
    from dupq.settings.sections import TextSettings
    from dupq.stages.terms import make_terms
    from dupq.stages.texts import AT_ONCE
    from dupq.stages.texts import make_texts as tokenise
    from dupq.tables import QUESTIONS

    archive, made = folder / f"archive-{name}", str(work_of(folder, name).parent)
    ingest(IngestJob((str(folder / f"dump-{name}"),), str(archive)))
    shards, sites = question_shards(str(archive / "questions"))
    questions = Shards(tuple(shards), tuple(sites.names), QUESTIONS, batch_rows=AT_ONCE)
    steps, start = Run(made, "texts"), time.monotonic()
    texts = tokenise.function(steps, questions, TextSettings())
    seconds = round(time.monotonic() - start, 2)
    make_terms.function(Run(made, "terms"), texts, 1)
    return {"texts_s": seconds, "texts_task_peak_mb": round(steps.report.peak_memory_mb)}


def staged(folder: Path, name: str) -> dict:
    with tempfile.TemporaryDirectory(dir=folder) as output:
        find(folder, str(SIZES[1]), f"{output}/warm")  # two shards, for two workers
        start = time.monotonic()
        figures = find(folder, name, f"{output}/run")
        figures["seconds"] = round(time.monotonic() - start, 2)
        exchanged = sum(file.stat().st_size for file in Path(output, "run").rglob("*.arrow"))
    own = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM:"))
    driver = {"driver_peak_mb": round(int(own.split()[1]) / 1024)}
    return {**figures, **driver, "exchange_mb": round(exchanged / 1e6, 1)}


def find(folder: Path, name: str, output: str) -> dict:
    """The stage, from texts to representatives."""
    from dupq.archive import partitions
    from dupq.job.run import Run
    from dupq.job.table import Streamed, Table
    from dupq.settings.sections import NearDuplicateSettings
    from dupq.stages.near_duplicates import find_near_duplicates, make_signatures
    from dupq.stages.texts import TextTables
    from dupq.tables import CONTENTS, RARITIES, TEXTS
    from dupq.text.keys import Sites

    work, settings = work_of(folder, name), NearDuplicateSettings()
    shards = len(list((work / "texts").glob("*.parquet")))
    said, texts = Table(str(work / "contents"), CONTENTS, shards), Table(str(work / "texts"), TEXTS, shards)
    questions = sum(map(len, Streamed(texts.only("key"))))
    made = TextTables(replace(texts, rows=questions), said, (SITE,))
    first, second = (Run(output, "near_duplicates") for _ in range(2))
    signed = make_signatures.function(first, made, settings, Sites([SITE]), partitions(questions))
    rarities = Table(str(work / "terms" / "rarities"), RARITIES, 1)
    found = find_near_duplicates.function(second, made, signed, rarities, settings, "english")
    return {
        "task_peak_mb": round(max(first.report.peak_memory_mb, second.report.peak_memory_mb)),
        "tasks": first.report.tasks + second.report.tasks,
        "exact_copies": first.report.counts["exact copies"],
        "verified_pairs": found.verified.rows,
        "under_the_threshold": second.report.counts["candidates under the threshold"],
        "oversized_buckets": sum(second.report.caps.values()),
        "joined": found.representatives.rows,
    }


def show(figures: dict) -> None:
    """The figures as a table."""
    width = max(map(len, figures))
    for name, value in figures.items():
        print(f"{name:{width}}  {value}")


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
