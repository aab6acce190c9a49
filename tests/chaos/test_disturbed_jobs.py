"""Every job that is disturbed at any moment, or started twice at once: it ends as one that was left alone."""

import functools
import json
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
from disturbed import FAULTS, KILLED, Ended, Job, Moment, attempt, begin, contents, differing, latest, tables_of
from moments import Moments
from small_archive import Small, ingest_job, training_job, undisturbed

from dupq import storage
from dupq.encoders.description import FILES, encoder_at
from dupq.errors import LeaseError, StorageError
from dupq.pipelines.dedup import dedup
from dupq.pipelines.evaluate import EvaluationJob, evaluate
from dupq.pipelines.ingest import ingest
from dupq.pipelines.train import train


class Disturbed(NamedTuple):
    """A job that writes to a folder, and what it is for there."""

    to: Callable[[Small, Path], Job]
    made: Callable[[str], dict[str, bytes]]


def ingest_to(small: Small, output: Path) -> Job:
    return functools.partial(ingest, ingest_job(small.dump, output))


def tables_in(archive: str) -> dict[str, bytes]:
    return contents(archive, ("questions", "links", "answers", "rejects", "ingest"))


def train_to(small: Small, output: Path) -> Job:
    return functools.partial(train, training_job(small.folder / "inputs", output))


def encoder_in(output: str) -> dict[str, bytes]:
    made = contents(encoder_at(output), FILES)
    description = json.loads(made.pop("encoder.json"))
    kept = {name: description[name] for name in ("fingerprint", "settings")}
    return made | {"encoder.json": json.dumps(kept).encode()}


def evaluate_to(small: Small, output: Path) -> Job:
    inputs = small.folder / "inputs"
    uris = (str(inputs / "questions"), str(inputs / "links"), str(output), str(inputs / "encoder"))
    return functools.partial(evaluate, EvaluationJob(*uris, tables=("retrieval",)))


def measures_in(output: str) -> dict[str, bytes]:
    return contents(output, ("metrics.json",))


def dedup_to(small: Small, output: Path) -> Job:
    return functools.partial(dedup, small.job(output))


JOBS = {
    "ingest": Disturbed(ingest_to, tables_in),
    "train": Disturbed(train_to, encoder_in),
    "dedup": Disturbed(dedup_to, lambda output: tables_of(latest(output))),
    "evaluate": Disturbed(evaluate_to, measures_in),
}


@pytest.fixture(scope="module")
def courses(small: Small, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], tuple[Ended, dict[str, bytes]]]:
    """How a job goes that nothing disturbs, and what it makes."""

    @functools.cache
    def course(name: str) -> tuple[Ended, dict[str, bytes]]:
        output = tmp_path_factory.mktemp(name) / "undisturbed"
        ended = undisturbed(JOBS[name].to(small, output), output.parent, output)
        return ended, JOBS[name].made(str(output))

    return course


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("name", ["ingest", "train", "evaluate"])
def test_disturbed_at_any_change_of_its_output(
    name: str, fault: str, small: Small, courses: Callable, moments: Moments, tmp_path: Path
) -> None:
    course, made = courses(name)
    for number in moments.of(course.moments(fault)):
        output = tmp_path / str(number)
        first = attempt(JOBS[name].to(small, output), Moment(str(output), number, fault), tmp_path)
        assert first.code == (StorageError.EXIT_CODE if fault == "disk full" else KILLED), (number, first.said)
        finish(name, small, output, made)


@pytest.mark.parametrize("name", JOBS)
def test_the_same_job_twice_at_once(
    name: str, small: Small, courses: Callable, moments: Moments, dice: random.Random, tmp_path: Path
) -> None:
    """Each does the work, or says that the other is at it; the output is whole."""
    _, made = courses(name)
    for number in moments.of(range(10)):
        output, folders = tmp_path / str(number), [tmp_path / f"{number}-{which}" for which in "ab"]
        waits = []
        for folder in folders:
            folder.mkdir()
            waits.append(begin(JOBS[name].to(small, output), Moment(str(output), 0, "none"), folder))
            time.sleep(dice.random())
        ends = [wait() for wait in waits]
        assert {end.code for end in ends} <= {0, LeaseError.EXIT_CODE}, [end.said for end in ends]
        assert 0 in {end.code for end in ends}
        assert differing(JOBS[name].made(str(output)), made) == []
        finish(name, small, output, made)


def finish(name: str, small: Small, output: Path, made: dict[str, bytes]) -> None:
    """Run the job again: it succeeds, and leaves what an undisturbed one does."""
    ended = attempt(JOBS[name].to(small, output), Moment(str(output), 0, "none"), output.parent)
    assert ended.code == 0, ended.said
    assert differing(JOBS[name].made(str(output)), made) == []
    if name == "dedup":
        assert storage.exists(storage.join(latest(str(output)), "_SUCCESS"))
