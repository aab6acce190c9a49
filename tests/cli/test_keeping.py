"""`dupq runs`, `dupq prune` and `dupq status`, as the command line calls them."""

import contextlib
import io
import os
from pathlib import Path
from typing import NamedTuple

import pytest

from dupq import storage
from dupq.cli import main

SUCCESS = {"outputs": {}, "finished": "1970-01-01T00:00:00+00:00"}


class Ended(NamedTuple):
    code: int
    stdout: str
    stderr: str


def dupq(*arguments: str) -> Ended:
    said, complained = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(complained):
        try:
            main(list(arguments))
            code = 0
        except SystemExit as ended:
            code = int(ended.code or 0)
    return Ended(code, said.getvalue(), complained.getvalue())


@pytest.fixture
def runs(tmp_path: Path) -> str:
    """Write three finished runs and the pointer to the last."""
    for number in (1, 2, 3):
        run = f"{tmp_path}/{number:016x}"
        storage.write_bytes(f"{run}/stages/texts.json", b"{}")
        storage.write_json(f"{run}/_SUCCESS", SUCCESS)
        os.utime(f"{run}/_SUCCESS", (number * 86_400, number * 86_400))
    storage.write_json(f"{tmp_path}/latest.json", {"run_id": f"{3:016x}"})
    return str(tmp_path)


def files_of(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_runs_are_listed_with_state_age_and_size(runs: str) -> None:
    heading, *lines = dupq("runs", "--output", runs).stdout.splitlines()
    assert heading.split()[:2] == ["run", "state"]
    assert [line.split()[:2] for line in lines] == [
        [f"{1:016x}", "finished"],
        [f"{2:016x}", "finished"],
        [f"{3:016x}", "latest"],
    ]
    size = len(storage.json_bytes(SUCCESS)) + len("{}")
    assert all(line.endswith(f"{size} B") for line in lines)


def test_what_would_be_pruned_is_what_is_pruned(runs: str) -> None:
    arguments = ("prune", "--output", runs, "--keep", "1", "--keep-monthly", "0")
    said = dupq(*arguments, "--dry-run").stdout
    assert len(dupq("runs", "--output", runs).stdout.splitlines()) == 1 + 3
    assert dupq(*arguments).stdout == said.replace("would remove", "removed")
    assert len(dupq("runs", "--output", runs).stdout.splitlines()) == 1 + 1


def test_the_status_is_that_of_the_newest_run(runs: str) -> None:
    assert dupq("status", "--run", runs).stdout.splitlines()[1] == "state      latest"


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("prune", "--output", "{runs}", "--encoder", "{runs}/no"), 1, "error: {runs}/no: no such folder; give the"),
        (("prune", "--output", "{runs}", "--encoder", "{runs}/latest.json"), 1, "latest.json: no such folder"),
        (
            ("prune", "--output", "{runs}", "--encoder", f"{{runs}}/{1:016x}"),
            1,
            ": neither an encoder nor a training is here",
        ),
    ],
)
def test_what_is_wrong_is_one_line(arguments: tuple[str, ...], code: int, said: str, runs: str) -> None:
    there = files_of(Path(runs))
    ended = dupq(*(argument.format(runs=runs) for argument in arguments))
    assert ended.code == code
    assert said.format(runs=runs) in ended.stderr
    assert ended.stderr.count("\n") == 1
    assert files_of(Path(runs)) == there
