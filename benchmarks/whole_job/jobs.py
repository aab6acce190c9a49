"""One of the three jobs over a dump, measured, in a process of its own, so that peaks of memory are its own.

    python -m benchmarks.whole_job.jobs --job dedup --dump DUMP --output FOLDER --measures FILE --truth FILE

Goes on where an earlier attempt stopped.
"""

import argparse
import time
from pathlib import Path

from benchmarks.whole_job import meter
from dupq import storage
from dupq.execution import cluster

_SETTLE_SECONDS = 3  # until Ray has started its first workers
_BLOCK_QUESTIONS = 81_920  # of a block on a machine with much memory, for d = 300
_PIECES = ("_QUESTIONS_PER_BUNDLE", "_HASHES_PER_PART", "_BAND_KEYS_PER_PART", "_BAND_KEYS_PER_TASK")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--job", choices=["ingest", "train", "dedup"], required=True)
    parser.add_argument("--dump", required=True)
    parser.add_argument("--output", required=True, help="a folder, or s3://…")
    parser.add_argument("--truth", required=True)
    parser.add_argument("--encoder", help="a trained one; without it, that of the output")
    parser.add_argument("--measures", required=True, type=Path, help="a file of JSON lines, appended to")
    parser.add_argument("--set", action="append", default=[])
    parser.add_argument("--cut", type=int, default=1, help="make all pieces of work so many times smaller")
    parser.add_argument("--s3-log", type=Path)
    options = parser.parse_args()
    cluster.connect("local")
    time.sleep(_SETTLE_SECONDS)
    if options.cut > 1:
        cut(options.cut)
        blocks = _BLOCK_QUESTIONS // options.cut
        options.set += [f"ingest.shard_rows={50_000 // options.cut}", f"neighbours.block_rows={blocks}"]
    {"ingest": ingest, "train": train, "dedup": dedup}[options.job](options)


def cut(times: int) -> None:
    """Make the pieces of work smaller, so that a small archive has as many as a large one."""
    import dupq.shards
    from dupq.stages.evaluation import compared
    from dupq.stages.near_duplicates import bundles

    compared._PAIRS_AT_ONCE //= times
    dupq.shards._QUESTIONS_PER_PARTITION //= times
    for name in (*_PIECES, "_QUESTIONS_PER_SLICE"):
        setattr(bundles, name, getattr(bundles, name) // times)


def listen(options: argparse.Namespace, folder: str) -> meter.Meter:
    """Measure from now on a job that writes below `folder`."""
    place = Path("/nowhere") if storage.is_s3(folder) else Path(folder)
    listening = meter.Meter(options.job, options.measures, place, options.s3_log)
    meter.listen(listening)
    return listening


def below(options: argparse.Namespace, *names: str) -> list[str]:
    return [storage.join(options.output, name) for name in names]


def assigned(options: argparse.Namespace) -> tuple[str, ...]:
    """The settings that are of this job."""
    from dupq.pipelines.from_dump import FromDumpJob

    return FromDumpJob((options.dump,), options.output, assignments=tuple(options.set)).settings_of(options.job)


def ingest(options: argparse.Namespace) -> None:
    listening = listen(options, options.output)
    from dupq.pipelines import ingest as pipeline

    peaks: list[float] = []
    inner = pipeline.ingest_sites
    pipeline.ingest_sites = lambda *arguments: peaks.append(inner(*arguments)) or peaks[-1]
    counts = pipeline.ingest(pipeline.IngestJob((options.dump,), options.output, assignments=assigned(options)))
    rows = sum(int(str(found["questions"])) for found in counts.values())
    listening.stage_ended("ingest", None, rows, peaks[0])


def train(options: argparse.Namespace) -> None:
    questions, links, encoder = below(options, "questions", "links", "encoder")
    listen(options, encoder)
    from dupq.pipelines.train import TrainingJob, train

    train(TrainingJob(questions, links, encoder, assignments=assigned(options)))


def dedup(options: argparse.Namespace) -> None:
    questions, links, encoder, runs = below(options, "questions", "links", "encoder", "runs")
    listen(options, runs)
    from dupq.pipelines.dedup import DedupJob, dedup

    encoder = options.encoder or encoder
    dedup(DedupJob(questions, encoder, runs, links, options.truth, assignments=assigned(options)))


if __name__ == "__main__":
    main()
