"""Bad input to every job: one line that says what is wrong and where, before any work, and nothing written or lost."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import ray
from _pytest.mark import ParameterSet
from cases import CASES, JOBS, Case
from world import build_world, files_of

from dupq.cli import main
from dupq.job import cluster

ROOT = Path(__file__).parents[2]
# as a user starts them: two scripts of jobs, and what is only a command of dupq
AS_PROCESSES = [next(case for case in CASES if case.job == job) for job in ("ingest", "dedup", "prune")]


@pytest.fixture(scope="session")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bad") / "world"
    build_world(folder)
    return folder


def damaged(case: Case, whole: Path, folder: Path) -> Path:
    """The world, or a damaged copy."""
    if case.damage is None:
        return whole
    shutil.copytree(whole, folder / "world")
    case.damage(folder / "world")
    return folder / "world"


def named(case: Case) -> str:
    return f"{case.job}: {case.name}".replace("\0", "0").encode("ascii", "replace").decode()


def command(case: Case, world: Path) -> list[str]:
    given = (case.arguments,) if isinstance(case.arguments, str) else case.arguments
    arguments = list(JOBS[case.job])
    if case.job == "ingest" and "--dump" in given:
        arguments = arguments[2:]  # may be repeated, so the last one does not take the place of the first
    if case.job == "from-dump" and "--dump" in given:
        arguments = arguments[2:]
    return [case.job, *(part.replace("{world}", str(world)) for part in (*arguments, *given))]


def assert_one_line(case: Case, code: int, told: str) -> None:
    assert code == case.code, told
    assert told.startswith("error: ")
    assert told.count("\n") == 1
    assert told.endswith("\n")
    for words in (case.said,) if isinstance(case.said, str) else case.said:
        assert words in told


def test_there_are_enough_of_them_and_none_is_there_twice() -> None:
    assert len({named(case) for case in CASES}) == len(CASES) >= 200
    assert {case.job for case in CASES} == set(JOBS)


def sample(cases: list[Case]) -> list[ParameterSet]:
    """Each fault of one job that it may happen to, and in turns of another job; of all others by make full."""
    by_name: dict[str, list[Case]] = {}
    for case in cases:
        by_name.setdefault(case.name, []).append(case)
    chosen = {named(same[number % len(same)]) for number, same in enumerate(by_name.values())}
    full = {named(case) for case in cases} - chosen
    return [
        pytest.param(case, id=named(case), marks=[pytest.mark.full] if named(case) in full else []) for case in cases
    ]


@pytest.mark.parametrize("case", sample(CASES))
def test_a_bad_input_is_one_line_before_any_work(
    case: Case, whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def begun(_: str) -> None:
        raise AssertionError("the bad input was not noticed before the work")

    monkeypatch.setattr(ray, "is_initialized", lambda: False)  # if it were, no address would be looked at
    monkeypatch.setattr(cluster, "_init", begun)
    world = damaged(case, whole, tmp_path)
    before = files_of(world)

    with pytest.raises(SystemExit) as ended:
        main(command(case, world))

    assert_one_line(case, int(str(ended.value.code)), capsys.readouterr().err)
    assert files_of(world) == before


@pytest.mark.parametrize("case", AS_PROCESSES, ids=named)
def test_a_bad_input_is_one_line_of_the_process_too(case: Case, whole: Path, tmp_path: Path) -> None:
    world = damaged(case, whole, tmp_path)
    before = files_of(world)
    job, *arguments = command(case, world)
    script = ROOT / "jobs" / f"{job.replace('-', '_')}.py"
    begin = [str(script)] if script.exists() else ["-c", "from dupq.cli import main; main()", job]
    environment = {name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"}

    ended = subprocess.run(
        [sys.executable, *begin, *arguments], capture_output=True, text=True, check=False, env=environment
    )

    assert_one_line(case, ended.returncode, ended.stderr)
    assert ended.stdout == ""
    assert files_of(world) == before
