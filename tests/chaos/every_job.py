"""Each job on the small archive, wherever that is, and what it is for."""

import functools
import json
from collections.abc import Callable
from typing import NamedTuple

from disturbed import Job, contents, latest, tables_of
from small_archive import ingest_job, job_of, training_job

from dupq import storage
from dupq.encoders.saved import FILES, encoder_at
from dupq.pipelines.dedup import dedup
from dupq.pipelines.evaluate import EvaluationJob, evaluate
from dupq.pipelines.ingest import ingest
from dupq.pipelines.train import train


class Given(NamedTuple):
    """URIs of what jobs read."""

    inputs: str  # a folder with questions, links and encoder
    dump: str  # that these were ingested from


class Tried(NamedTuple):
    """A job that writes to a folder, and what it is for there."""

    to: Callable[[Given, str], Job]
    made: Callable[[str], dict[str, bytes]]


def ingest_to(given: Given, output: str) -> Job:
    return functools.partial(ingest, ingest_job(given.dump, output))


def tables_in(archive: str) -> dict[str, bytes]:
    return contents(archive, ("questions", "links", "answers", "rejects", "ingest"))


def train_to(given: Given, output: str) -> Job:
    return functools.partial(train, training_job(given.inputs, output))


def encoder_in(output: str) -> dict[str, bytes]:
    made = contents(encoder_at(output), FILES)
    description = json.loads(made.pop("encoder.json"))
    kept = {name: description[name] for name in ("fingerprint", "settings")}
    return made | {"encoder.json": json.dumps(kept).encode()}


def evaluate_to(given: Given, output: str) -> Job:
    uris = (f"{given.inputs}/questions", f"{given.inputs}/links", output, f"{given.inputs}/encoder")
    return functools.partial(evaluate, EvaluationJob(*uris, tables=("retrieval",)))


def measures_in(output: str) -> dict[str, bytes]:
    return contents(output, ("metrics.json",))


def dedup_to(given: Given, output: str) -> Job:
    return functools.partial(dedup, job_of(given.inputs, output))


def run_in(output: str) -> dict[str, bytes]:
    run = latest(output)
    assert storage.exists(storage.join(run, "_SUCCESS"))
    return tables_of(run)


JOBS = {
    "ingest": Tried(ingest_to, tables_in),
    "train": Tried(train_to, encoder_in),
    "dedup": Tried(dedup_to, run_in),
    "evaluate": Tried(evaluate_to, measures_in),
}
