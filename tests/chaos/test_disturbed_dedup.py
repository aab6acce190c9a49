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

import pyarrow.parquet as pq
import pytest
from disturbed import FAULTS, Ended, Moment, attempt, differing, latest, searched_again, tables_of
from moments import Moments
from small_archive import Small, undisturbed

from dupq.pipelines.dedup import DedupJob, dedup

Harm = Callable[[Path, Path], object]  # of a file, and of the one in its place in an older run


@pytest.mark.parametrize("fault", FAULTS)
def test_disturbed_at_any_change_of_its_output(
    fault: str, small: Small, dice: random.Random, moments: Moments, tmp_path: Path
) -> None:
    if moments.few == 1 and fault in ("killed after", "SIGINT"):
        pytest.skip("the next attempt meets what another fault leaves, too, but in `make chaos`")
    for number in moments.of(small.course.moments(fault)):
        job = small.job(tmp_path / str(number))
        first = attempt(functools.partial(dedup, job), Moment(job.output, number, fault), tmp_path)
        first.check_disturbed(fault)
        finish(job, small.tables, tmp_path, number)


def cut(file: Path, older: Path) -> None:
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def replace(file: Path, older: Path) -> None:
    file.write_bytes(older.read_bytes() if older.is_file() else b"of another run")


HARMED = {"deleted": "between attempts", "cut": "between attempts", "replaced": "when finished"}  # of a sample
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
    if moments.few == 1 and HARMED[harm] != when:
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


PAIRS = (
    *(("after one", "after none"), ("after none", "after one"), ("after one", "after another")),
    *(("with links", "without links"), ("without links", "with links")),
    *(("with links", "surer"), ("with links", "nearer")),
)
SAMPLE = (("after one", "after another"), ("with links", "without links"))


@dataclasses.dataclass(frozen=True)
class Course:
    """A job, and how it goes and what it finds where nothing disturbs it."""

    job: DedupJob  # its output is to be changed
    ended: Ended
    tables: dict[str, bytes]


@pytest.fixture(scope="module")
def courses(small: Small, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Course]:
    """By what it is called in PAIRS. The earlier runs each lack a few of the questions that there are now."""
    folder = tmp_path_factory.mktemp("courses")

    def earlier(lacking: int) -> str:
        inputs = folder / f"without-{lacking}"
        shutil.copytree(small.folder / "inputs", inputs)
        shard = sorted((inputs / "questions").rglob("*.parquet"))[lacking]
        pq.write_table(pq.ParquetFile(shard).read().slice(5), shard)
        return course_of(small.job(folder / f"earlier-{lacking}", inputs), folder).job.output

    @functools.cache
    def course(name: str) -> Course:
        job = small.job(folder / name)
        changes: dict[str, Callable[[], dict[str, object]]] = {
            "after none": dict,
            "after one": lambda: {"previous": earlier(0)},
            "after another": lambda: {"previous": earlier(1)},
            "with links": dict,
            "without links": lambda: {"links": None},
            "surer": lambda: {"assignments": ("calibration.precision=0.95",)},
            "nearer": lambda: {"assignments": ("near_duplicates.threshold=0.95",)},
        }
        found = course_of(dataclasses.replace(job, **changes[name]()), folder)
        assert found.job.previous is None or searched_again(latest(found.job.output))

        return found

    return course


def course_of(job: DedupJob, folder: Path) -> Course:
    ended = undisturbed(functools.partial(dedup, job), folder, Path(job.output))
    return Course(job, ended, tables_of(latest(job.output)))


@pytest.mark.parametrize(("first", "second"), PAIRS)
def test_the_arguments_that_are_changed_for_the_second_attempt(
    first: str, second: str, courses: Callable[[str], Course], moments: Moments, tmp_path: Path
) -> None:
    """Both are run over the same output: none takes what the other left for its own."""
    if moments.few == 1 and (first, second) not in SAMPLE:
        pytest.skip("of the same arguments in another order, or of a setting as another, but in `make chaos`")
    one, other = courses(first), courses(second)
    assert differing(one.tables, other.tables)
    for number in moments.of(one.ended.moments("killed before"), most=60):
        begun, changed = (dataclasses.replace(it.job, output=str(tmp_path / str(number))) for it in (one, other))
        killed = attempt(functools.partial(dedup, begun), Moment(begun.output, number, "killed before"), tmp_path)
        killed.check_disturbed("killed before")
        finish(changed, other.tables, tmp_path, number)
        finish(begun, one.tables, tmp_path, number)


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
