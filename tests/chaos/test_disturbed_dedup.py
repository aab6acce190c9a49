"""A run of dedup that is disturbed at any moment, and finished by running it again, has the bytes of one that was not.

A sample of the moments, drawn by the seed of the session, unless all are asked for (`make chaos`).
"""

import dataclasses
import functools
import random
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from disturbed import FAULTS, Moment, attempt, differing, latest, tables_of
from moments import Moments
from small_archive import Small

from dupq.pipelines.dedup import DedupJob, dedup

Harm = Callable[[Path, Path], object]  # of a file, and of the one in its place in an older run


@pytest.mark.parametrize("fault", FAULTS)
def test_disturbed_at_any_change_of_its_output(
    fault: str, small: Small, dice: random.Random, moments: Moments, tmp_path: Path
) -> None:
    if moments.few == 1 and fault not in ("killed before", "disk full while written"):
        pytest.skip("other jobs meet the others (test_disturbed_jobs.py), but in `make chaos`")
    for number in moments.of(small.course.moments(fault)):
        job = small.job(tmp_path / str(number))
        first = attempt(functools.partial(dedup, job), Moment(job.output, number, fault), tmp_path)
        first.check_disturbed(fault)
        finish(job, small.tables, tmp_path, number)


def cut(file: Path, older: Path) -> None:
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def replace(file: Path, older: Path) -> None:
    file.write_bytes(older.read_bytes() if older.is_file() else b"of another run")


HARMED = {"deleted": "between attempts", "replaced": "when finished"}  # of a sample
HARMS: dict[str, Harm] = {"deleted": lambda file, older: file.unlink(), "cut": cut, "replaced": replace}


@pytest.mark.parametrize("harm", HARMS)
def test_a_file_that_is_lost_between_two_attempts(
    harm: str, small: Small, dice: random.Random, moments: Moments, tmp_path: Path
) -> None:
    """Of a run that was killed: any file that it left, its records and marks too."""
    skip_unless_sampled(harm, "between attempts", moments)
    older = Path(small.older)
    for number in moments.of(small.course.moments("killed after")):
        job = small.job(tmp_path / str(number))
        attempt(functools.partial(dedup, job), Moment(job.output, number, "killed after"), tmp_path)
        if files := left_by(job):
            file = dice.choice(files)
            HARMS[harm](file, older / path_in_run(file))
            finish(job, small.tables, tmp_path, (number, file))


@pytest.mark.parametrize("harm", HARMS)
def test_a_file_that_is_lost_from_a_finished_run(
    harm: str, small: Small, dice: random.Random, moments: Moments, tmp_path: Path
) -> None:
    skip_unless_sampled(harm, "when finished", moments)
    older, whole = Path(small.older), Path(latest(small.job(small.folder / "out").output))
    files = [file.relative_to(whole) for file in left_by(small.job(small.folder / "out")) if "work" not in file.parts]
    for path in moments.of(files):
        job = small.job(tmp_path / path.name)
        shutil.copytree(small.folder / "out", job.output)
        HARMS[harm](Path(latest(job.output)) / path, older / path)
        finish(job, small.tables, tmp_path, path)
        shutil.rmtree(job.output)


def skip_unless_sampled(harm: str, when: str, moments: Moments) -> None:
    if moments.few == 1 and HARMED.get(harm) != when:
        pytest.skip("files are known by the same checksums, whenever they are harmed, but in `make chaos`")


@pytest.mark.parametrize("name", ["questions", "links", "encoder"])
def test_an_input_that_is_replaced_in_the_midst(
    name: str, small: Small, dice: random.Random, moments: Moments, tmp_path: Path
) -> None:
    """The run is of the old input, or it stops; the next one is of the new. Never of both."""
    if moments.few == 1 and name == "links":
        pytest.skip("links are copied as the encoder is; but in `make chaos`")
    others = small.with_other(name)
    for number in moments.of(small.course.moments("killed before")):
        folder = tmp_path / str(number)
        shutil.copytree(small.folder / "inputs", folder / "inputs")
        job = small.job(folder / "runs", folder / "inputs")
        swap = functools.partial(replace_folder, folder / "inputs" / name, small.folder / "others" / name)
        first = attempt(functools.partial(dedup, job), Moment(job.output, number, "none", swap), tmp_path)
        assert first.code in (0, 1), (number, first.said)
        if first.code == 0:
            assert tables_of(latest(job.output)) == small.tables, number
        else:
            assert re.search("(has changed|is gone) since this run was opened", first.said)
        finish(job, others, tmp_path, number)


def test_the_settings_that_are_changed_for_the_second_attempt(
    small: Small, dice: random.Random, moments: Moments, tmp_path: Path
) -> None:
    """Another answer is another run; how the work is cut is not."""
    for number in moments.of(small.course.moments("killed before")):
        job = small.job(tmp_path / str(number))
        attempt(functools.partial(dedup, job), Moment(job.output, number, "killed before"), tmp_path)
        finish(dataclasses.replace(job, assignments=("neighbours.k=5",)), small.older_tables, tmp_path, number)
        finish(dataclasses.replace(job, assignments=("neighbours.block_rows=300",)), small.tables, tmp_path, number)


def replace_folder(folder: Path, other: Path) -> None:
    shutil.rmtree(folder)
    shutil.copytree(other, folder)


def left_by(job: DedupJob) -> list[Path]:
    """The files of a run, but for those that people or every attempt may change."""
    files = [file for file in Path(job.output).rglob("*") if file.is_file() and not file.name.endswith(".tmp")]
    aside = {"review.tsv", "worklist.tsv", "report.html", "run.log", "progress.json", "latest.json", "dupq.prom"}
    return sorted(file for file in files if file.name not in aside)


def path_in_run(file: Path) -> Path:
    run = next(folder for folder in file.parents if re.fullmatch("[0-9a-f]{16}", folder.name))
    return file.relative_to(run)


def finish(job: DedupJob, tables: dict[str, bytes], folder: Path, what: object) -> None:
    """Run the job again: it succeeds, and its tables are those of an undisturbed run."""
    ended = attempt(functools.partial(dedup_and_tell, job, folder / "run"), Moment(job.output, 0, "none"), folder)
    assert ended.code == 0, (what, ended.said)
    assert Path(latest(job.output), "_SUCCESS").is_file(), what
    assert differing(tables_of((folder / "run").read_text()), tables) == [], what


def dedup_and_tell(job: DedupJob, place: Path) -> None:
    place.write_text(dedup(job).uri)
