"""One of the three jobs over a dump, measured, in a process of its own, so that peaks of memory are its own.

    python -m benchmarks.whole_job.jobs --job dedup --dump DUMP --output FOLDER --measures FILE --truth FILE

Goes on where an earlier attempt stopped.
"""

import argparse
import logging
import time
from pathlib import Path

from benchmarks.whole_job import meter
from dupq import storage
from dupq.job import cluster

_SETTLE_SECONDS = 3  # until Ray has started its first workers


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--job", choices=["ingest", "train", "dedup"], required=True)
    parser.add_argument("--dump", required=True)
    parser.add_argument("--output", required=True, help="a folder")
    parser.add_argument("--truth", required=True)
    parser.add_argument("--encoder", help="a trained one; without it, that of the output")
    parser.add_argument("--measures", required=True, type=Path, help="a file of JSON lines, appended to")
    parser.add_argument("--set", action="append", default=[])
    options = parser.parse_args()
    cluster.connect("local")
    time.sleep(_SETTLE_SECONDS)
    {"ingest": ingest, "train": train, "dedup": dedup}[options.job](options)


def listen(options: argparse.Namespace, folder: str) -> meter.Meter:
    """Measure from now on a job that writes below `folder`."""
    listening = meter.Meter(options.job, options.measures, Path(folder))
    logging.getLogger("dupq").addHandler(listening)
    return listening


def below(options: argparse.Namespace, *names: str) -> list[str]:
    return [storage.join(options.output, name) for name in names]


def assigned(options: argparse.Namespace) -> tuple[str, ...]:
    """The settings that are of this job."""
    from dupq.pipelines.train import FromDumpJob

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
