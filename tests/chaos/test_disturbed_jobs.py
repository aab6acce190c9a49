"""Every job that is disturbed at any moment, or started twice at once: it ends as one that was left alone."""

import functools
from collections.abc import Callable
from pathlib import Path

import pytest
from disturbed import FAULTS, LEASES, Ended, Moment, attempt, begin, differing
from every_job import JOBS, Given
from moments import Moments
from small_archive import Small, undisturbed
from waiting import await_it

from dupq.errors import LeaseError

DISTURBED = ("ingest", "train", "evaluate")  # and dedup, in test_disturbed_dedup.py


@pytest.fixture(scope="module")
def given(small: Small) -> Given:
    return Given(str(small.folder / "inputs"), small.dump)


@pytest.fixture(scope="module")
def courses(given: Given, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], tuple[Ended, dict[str, bytes]]]:
    """How a job goes that nothing disturbs, and what it makes."""

    @functools.cache
    def course(name: str) -> tuple[Ended, dict[str, bytes]]:
        output = tmp_path_factory.mktemp(name) / "undisturbed"
        ended = undisturbed(JOBS[name].to(given, str(output)), output.parent, output)
        return ended, JOBS[name].made(str(output))

    return course


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("name", DISTURBED)
def test_disturbed_at_any_change_of_its_output(
    name: str, fault: str, given: Given, courses: Callable, moments: Moments, tmp_path: Path
) -> None:
    if moments.few == 1 and (FAULTS.index(fault) - DISTURBED.index(name)) % len(DISTURBED):
        pytest.skip("each fault of one job, but in `make chaos`")
    course, made = courses(name)
    for number in moments.of(course.moments(fault)):
        output = tmp_path / str(number)
        first = attempt(JOBS[name].to(given, str(output)), Moment(str(output), number, fault), tmp_path)
        first.check_disturbed(fault)
        finish(name, given, output, made)


@pytest.mark.parametrize("name", JOBS)
def test_the_same_job_twice_at_once(
    name: str, given: Given, courses: Callable, moments: Moments, tmp_path: Path
) -> None:
    """The second says that the first is at it, which is held in the midst of its work until then."""
    if moments.few == 1 and name in ("train", "evaluate"):
        pytest.skip("they have the lease of a run, as dedup has, but in `make chaos`")
    course, made = courses(name)
    for number in moments.of(while_leased(course), most=10):
        output, folders = tmp_path / str(number), [tmp_path / f"{number}-{which}" for which in "ab"]
        for folder in folders:
            folder.mkdir()
        held, free = tmp_path / f"{number}-held", tmp_path / f"{number}-free"
        moment = Moment(str(output), number, "none", functools.partial(hold, held, free))
        wait = begin(JOBS[name].to(given, str(output)), moment, folders[0])
        try:
            assert await_it(held.exists), "the first job never came to its moment"
            second = attempt(JOBS[name].to(given, str(output)), Moment(str(output), 0, "none"), folders[1])
        finally:
            free.touch()
            first = wait()
        assert second.code == LeaseError.EXIT_CODE, second.said
        assert "is at work on it since" in second.said
        assert first.code == 0, first.said
        assert differing(JOBS[name].made(str(output)), made) == []
        finish(name, given, output, made)


def while_leased(course: Ended) -> range:
    """The changes from that which takes the job's lease to that which gives it up, or before it the success.

    Of a run that has succeeded another job says no more than that it is finished.
    """
    numbers = [number for number, path in enumerate(course.changes, 1) if any(part in path for part in LEASES)]
    ends = [number for number, path in enumerate(course.changes, 1) if path.endswith("_SUCCESS")]
    return range(numbers[0] + 1, min([numbers[-1], *ends]) + 1)


def hold(held: Path, free: Path) -> None:
    """Wait in one process until another one says go on."""
    held.touch()
    assert await_it(free.exists)


def finish(name: str, given: Given, output: Path, made: dict[str, bytes]) -> None:
    """Run the job again: it succeeds, and leaves what an undisturbed one does."""
    ended = attempt(JOBS[name].to(given, str(output)), Moment(str(output), 0, "none"), output.parent)
    assert ended.code == 0, ended.said
    assert differing(JOBS[name].made(str(output)), made) == []
