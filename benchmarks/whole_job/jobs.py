"""Ingest, training and dedup of a dump, each measured: run as a process of its own, so that a driver's peak is its own.

    python -m benchmarks.whole_job.jobs --dump DUMP --output FOLDER --measures FILE [--set …] [--cut N] [--s3-log FILE]

Goes on where an earlier attempt stopped.
"""

import argparse
import json
import time
from pathlib import Path

from benchmarks.whole_job import meter
from dupq import storage
from dupq.execution import cluster

_SETTLE_SECONDS = 3  # until Ray has started its first workers


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--dump", required=True)
    parser.add_argument("--output", required=True, help="a folder, or s3://…")
    parser.add_argument("--truth", required=True)
    parser.add_argument("--encoder", help="a trained one; without it one is trained on the archive")
    parser.add_argument("--measures", required=True, type=Path, help="a file of JSON lines, appended to")
    parser.add_argument("--set", action="append", default=[])
    parser.add_argument("--cut", type=int, default=1, help="make all pieces of work so many times smaller")
    parser.add_argument("--s3-log", type=Path)
    options = parser.parse_args()
    cluster.connect("local")
    time.sleep(_SETTLE_SECONDS)
    if options.cut > 1:
        cut(options.cut)
        options.set += [f"ingest.shard_rows={50_000 // options.cut}", f"neighbours.block_rows={_BLOCK // options.cut}"]
    measured(options)


_BLOCK = 81_920  # questions of a block on a machine of 4 GiB a core


def cut(times: int) -> None:
    """Make the pieces of work smaller, so that a small archive has as many as a large one."""
    import dupq.shards
    from dupq.stages.near_duplicates import bundles

    dupq.shards._QUESTIONS_PER_PARTITION //= times
    for name in ("_QUESTIONS_PER_BUNDLE", "_HASHES_PER_PART", "_BAND_KEYS_PER_PART", "_QUESTIONS_PER_SLICE"):
        setattr(bundles, name, getattr(bundles, name) // times)
    bundles._BAND_KEYS_PER_TASK //= times


def measured(options: argparse.Namespace) -> None:
    """The three jobs, one after the other."""

    def listen(job: str, folder: str) -> meter.Meter:
        place = Path("/nowhere") if storage.is_s3(folder) else Path(folder)
        listening = meter.Meter(job, options.measures, place, options.s3_log)
        meter.listen(listening)
        return listening

    listening = listen("ingest", options.output)
    from dupq.pipelines import ingest as pipeline
    from dupq.pipelines.from_dump import FromDumpJob

    whole = FromDumpJob((options.dump,), options.output, truth=options.truth, assignments=tuple(options.set))
    peaks = []
    inner = pipeline.ingest_sites
    pipeline.ingest_sites = lambda *arguments: peaks.append(inner(*arguments)) or peaks[-1]
    counts = pipeline.ingest(whole.ingest_job())
    rows = sum(int(found["questions"]) for found in counts.values())
    listening.stage_ended("ingest", None, rows, peaks[0])
    questions, links, own, runs = (
        storage.join(options.output, name) for name in ("questions", "links", "encoder", "runs")
    )
    encoder = options.encoder or own
    if not options.encoder:
        listen("train", encoder)
        from dupq.pipelines.train import TrainingJob, train
        from dupq.runs import log

        train(TrainingJob(questions, links, encoder, whole.preset, whole.settings_of("train")))
        log.leave()
    listen("dedup", runs)
    from dupq.pipelines.dedup import DedupJob, dedup

    run = dedup(DedupJob(questions, encoder, runs, links, options.truth, assignments=whole.settings_of("dedup")))
    print(json.dumps({"run": run.uri, "metrics": storage.read_json(run.path("metrics.json"))}), flush=True)


if __name__ == "__main__":
    main()
