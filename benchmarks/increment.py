"""A night after another: what a run with --previous takes, beside one from nothing, and whether their tables are alike.

    python benchmarks/increment.py --archive out/big --encoder out/big/encoder --work out/nights

The archive's questions are those of the second night. In the first, one in a hundred is not there yet, one in two
hundred says something else, and two in a thousand are there that are deleted later. Ray is started before, and the
first night is the warm-up. The tables but for the ids of clusters must have the same bytes.
"""

import argparse
import json
import shutil
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from dupq.archive import table_files
from dupq.job import cluster
from dupq.job.run import Run
from dupq.pipelines.dedup import DedupJob, dedup

_COMPARED = ("pairs", "embeddings")
_WITHOUT_IDS = ("clusters", "cluster_stats")


def first_night(archive: str, folder: Path) -> dict[str, int]:
    """Write the questions of the first night; returns how many are new, edited and deleted by the second."""
    counts = {"new": 0, "edited": 0, "deleted": 0}
    for file in table_files(f"{archive}/questions"):
        table, place = pq.ParquetFile(file.uri).read(), folder / file.relative
        ids = table["question_id"].to_numpy()
        chance = (ids.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15) >> np.uint64(40)).astype(np.float64) / (1 << 24)
        is_new, is_edited, is_deleted = chance < 0.01, (chance >= 0.01) & (chance < 0.015), chance > 0.998
        edited = pc.binary_join_element_wise(table["title"], "once more", " ")
        titles = pc.if_else(pa.array(is_edited), edited, table["title"])
        before = table.set_column(table.column_names.index("title"), "title", titles)
        gone = before.filter(pa.array(is_deleted))
        largest = 1_000_000_000 + len(ids)
        gone = gone.set_column(0, table.schema.field(0), pc.add(gone["question_id"], largest))
        place.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.concat_tables([before.filter(pa.array(~is_new)), gone.cast(before.schema)]), place)
        for name, rows in (("new", is_new), ("edited", is_edited), ("deleted", is_deleted)):
            counts[name] += int(rows.sum())
    return counts


def timed(job: DedupJob) -> tuple[Run, float]:
    """The run, and the seconds it took."""
    shutil.rmtree(job.output, ignore_errors=True)
    start = time.monotonic()
    return dedup(job), time.monotonic() - start


def are_alike(one: Run, other: Run) -> bool:
    """Whether the tables have the same bytes, and clusters the same rows but for their ids."""
    files = [sorted(Path(run.uri, name).rglob("*.parquet")) for run in (one, other) for name in _COMPARED]
    half = len(_COMPARED)
    same = [file.read_bytes() for part in files[:half] for file in part] == [
        file.read_bytes() for part in files[half:] for file in part
    ]
    return same and all(_rows(one, name) == _rows(other, name) for name in _WITHOUT_IDS)


def _rows(run: Run, name: str) -> list[dict]:
    table = pq.read_table(Path(run.uri, name))
    return sorted(table.drop_columns(["cluster_id"]).to_pylist(), key=str)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--archive", required=True, help="folder with questions/ and perhaps links/")
    parser.add_argument("--encoder", required=True)
    parser.add_argument("--work", required=True, type=Path, help="folder for the nights; emptied first")
    parser.add_argument("--times", type=int, default=3, help="runs of each kind, in turn")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    shutil.rmtree(options.work, ignore_errors=True)
    cluster.connect("local")
    changed = first_night(options.archive, options.work / "questions")
    links = f"{options.archive}/links" if Path(options.archive, "links").exists() else None

    def job(name: str, questions: str, previous: str | None = None) -> DedupJob:
        return DedupJob(questions, options.encoder, str(options.work / name), links, previous=previous)

    earlier, _ = timed(job("first", str(options.work / "questions")))
    now = f"{options.archive}/questions"
    jobs = {"full": job("full", now), "increment": job("increment", now, earlier.uri)}
    seconds: dict[str, list[float]] = {name: [] for name in jobs}
    stages: dict[str, dict[str, list[float]]] = {}
    alike = True
    for _ in range(options.times):
        runs = {}
        for name, one in jobs.items():
            runs[name], took = timed(one)
            seconds[name].append(took)
            for record in runs[name].records:
                stages.setdefault(record["name"], {}).setdefault(name, []).append(record["seconds"])
        alike = alike and are_alike(*runs.values())
    whole = {name: float(np.median(took)) for name, took in seconds.items()}
    print(f"{'stage':16} {'full s':>8} {'increment s':>12}")
    for stage, took in stages.items():
        print(f"{stage:16} {np.median(took['full']):8.2f} {np.median(took['increment']):12.2f}")
    print(f"{'all':16} {whole['full']:8.2f} {whole['increment']:12.2f}   {whole['increment'] / whole['full']:.1%}")
    print(f"{changed}; tables alike: {alike}")
    if options.json:
        medians = {stage: {name: float(np.median(of)) for name, of in took.items()} for stage, took in stages.items()}
        share = whole["increment"] / whole["full"]
        found = {"changed": changed, "seconds": whole, "share": share, "alike": alike, "stages": medians}
        options.json.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
