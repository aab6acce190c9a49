"""A small archive, ingested, an encoder trained on it, and what an undisturbed run finds."""

import dataclasses
import functools
import hashlib
import json
import os
import pickle
import random
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import pytest
from disturbed import Ended, Job, Moment, attempt, latest, tables_of
from filelock import FileLock

from dupq.execution import nodes
from dupq.pipelines.dedup import DedupJob, dedup
from dupq.pipelines.ingest import IngestJob, ingest
from dupq.pipelines.train import TrainingJob, train
from dupq.sample.archive import write_sample

One = TypeVar("One")
TRAINED = (
    *("training.epochs=2", "word_vectors.dimensions=20", "word_vectors.epochs=1"),
    *("encoder.units=20", "training.development_pool=100"),
)


@dataclass(frozen=True)
class Small:
    """600 questions in three shards, their links and an encoder, once again in another version, and runs of them."""

    folder: Path  # with `inputs` and `others`
    dump: str  # of `inputs`
    tables: dict[str, bytes]  # of an undisturbed run, in `out`
    course: Ended  # of that run
    older: str  # a run with another setting
    older_tables: dict[str, bytes]

    def job(self, output: Path, inputs: Path | None = None) -> DedupJob:
        return job_of(inputs or self.folder / "inputs", output)

    def with_other(self, name: str) -> dict[str, bytes]:
        """The tables of an undisturbed run with one of the inputs in its other version."""
        mixed = self.folder / f"with-other-{name}"
        shutil.copytree(self.folder / "inputs", mixed)
        shutil.rmtree(mixed / name)
        shutil.copytree(self.folder / "others" / name, mixed / name)
        job = self.job(self.folder / f"out-{name}", mixed)
        undisturbed(functools.partial(dedup, job), self.folder)
        found = tables_of(latest(job.output))
        assert found != self.tables
        return found


def job_of(inputs: Path | str, output: Path | str) -> DedupJob:
    return DedupJob(f"{inputs}/questions", f"{inputs}/encoder", str(output), f"{inputs}/links")


def undisturbed(job: Job, folder: Path, output: Path | None = None) -> Ended:
    """Run a job in a process of its own; it must succeed. Counted are the changes of `output`."""
    ended = attempt(job, Moment(str(output or folder / "out"), 0, "none"), folder)
    assert ended.code == 0, ended.said
    return ended


def write_inputs(folder: Path, scratch: Path, seed: int) -> str:
    """An archive of the sample, and an encoder trained on it; returns the dump that it is of."""
    dump = str(write_sample(scratch, questions=600, seed=seed).archive)
    undisturbed(functools.partial(ingest, ingest_job(dump, folder)), scratch)
    shutil.rmtree(folder / "ingest")  # tables of other origin may be replaced file by file
    undisturbed(functools.partial(train, training_job(folder, folder / "encoder")), scratch)
    return dump


def ingest_job(dump: str, output: Path) -> IngestJob:
    return IngestJob((dump,), str(output), answers=True, assignments=("ingest.shard_rows=200",))


def training_job(inputs: Path, output: Path) -> TrainingJob:
    return TrainingJob(str(inputs / "questions"), str(inputs / "links"), str(output), "bogdanova-max", TRAINED)


@pytest.fixture(scope="session")
def small(of_all_processes: Path) -> Small:
    """One for all processes of a test session: the first that asks for it makes it."""
    folder = of_all_processes / "chaos"
    made = folder / "small.pickle"
    with FileLock(folder.with_suffix(".lock")):
        if not made.exists():
            shutil.rmtree(folder, ignore_errors=True)  # of a process that failed at it
            folder.mkdir()
            made.write_bytes(pickle.dumps(make_small(folder)))
    return pickle.loads(made.read_bytes())


def make_small(folder: Path) -> Small:
    dump, _ = (
        write_inputs(folder / name, folder / f"dump-of-{name}", n) for n, name in enumerate(("inputs", "others"))
    )
    job = job_of(folder / "inputs", folder / "out")
    course = undisturbed(functools.partial(dedup, job), folder)
    other = dataclasses.replace(job, output=str(folder / "older"), assignments=("neighbours.k=5",))
    undisturbed(functools.partial(dedup, other), folder)
    older = latest(other.output)
    return Small(folder, dump, tables_of(latest(job.output)), course, older, tables_of(older))


class Moments:
    """Which moments are tried: a few of each kind, or all, and then none that an earlier session got through."""

    def __init__(self, few: int, test: str, dice: random.Random, tally: Path | None) -> None:
        self.few = few  # 0: all
        self._test, self._dice, self._tally = test, dice, tally

    def of(self, them: Iterable[One], times: int = 1, most: int | None = None) -> Iterator[One]:
        """Some of them, `times` as many as usual; each is written to the tally when its turn is over.

        Where all are asked for, and there are more than `most`, so many of them.
        """
        there = list(them)
        if most is not None and not self.few:
            there = self._dice.sample(there, min(most, len(there)))
        for one in self._dice.sample(there, min(self.few * times, len(there))) if self.few else self._left(there):
            yield one
            if self._tally is not None:
                with self._tally.open("a") as lines:
                    lines.write(f"{self._test}\t{one}\n")

    def _left(self, there: list[One]) -> Iterator[One]:
        known = self._tally.read_text().splitlines() if self._tally is not None and self._tally.exists() else []
        done = set(known)
        return (one for one in there if f"{self._test}\t{one}" not in done)


@pytest.fixture
def moments(request: pytest.FixtureRequest, dice: random.Random) -> Moments:
    """As many as DUPQ_CHAOS says; 0: all (`make chaos`). Kept is a tally of this version of the code, if asked for."""
    folder = os.environ.get("DUPQ_CHAOS_TALLY")
    if folder is not None:
        Path(folder).mkdir(parents=True, exist_ok=True)
    version = hashlib.sha256(json.dumps(nodes.build()).encode()).hexdigest()[:12]
    tally = Path(folder, f"{version}.tsv") if folder is not None else None
    return Moments(int(os.environ.get("DUPQ_CHAOS", "1")), request.node.name, dice, tally)
