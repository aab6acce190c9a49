"""A small archive, ingested, an encoder trained on it, and what undisturbed runs of it find.

Not in conftest.py: what is pickled must be found by its module's name, and many folders have a module of that one.
"""

import dataclasses
import functools
import shutil
from dataclasses import dataclass
from pathlib import Path

from disturbed import Ended, Job, Moment, attempt, latest, tables_of
from riddles.grammar import write_sample

from dupq.pipelines.dedup import DedupJob, dedup
from dupq.pipelines.ingest import IngestJob, ingest
from dupq.pipelines.train import TrainingJob, train

TRAINED = (
    *("training.epochs=2", "word_vectors.dimensions=20", "word_vectors.epochs=1"),
    *("encoder.units=20", "training.development_pool=100", "text.tokens=words"),  # punctuation would be cut in Python
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
    return DedupJob(f"{inputs}/questions", f"{inputs}/encoder", str(output), f"{inputs}/links", reranker="none")


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


def ingest_job(dump: str, output: Path | str) -> IngestJob:
    return IngestJob((dump,), str(output), answers=True, assignments=("ingest.shard_rows=200",))


def training_job(inputs: Path | str, output: Path | str) -> TrainingJob:
    return TrainingJob(f"{inputs}/questions", f"{inputs}/links", str(output), "bogdanova-max", TRAINED)


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
