"""The script of every night, with a `ray` that notes how it was called; and the units that start it."""

import configparser
import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NoReturn

import pytest
from waiting import await_it

from dupq.errors import GateError, RejectsError, SettingError

CLUSTER = Path(__file__).parents[2] / "examples" / "cluster"
NIGHT = ["up", "exec", "ingest", "dedup", "prune", "rsync-down"]
FAILED = [*NIGHT[:4], NIGHT[5]]
REFUSED = [error.EXIT_CODE for error in (SettingError, RejectsError, GateError)]

# Notes how it was called, runs what `exec` gives the head here, and copies its file; like ray, it passes on no exit
# code. With WAITING, `ray up` waits until it is killed; with LOST, the head is lost before it begins.
RAY = """#!/bin/bash
echo "$1" >> "$HOME/calls"
case $1 in
    up) [[ ! ${WAITING:-} ]] || sleep 600 ;;
    exec) [[ ! ${LOST:-} ]] || exit 1; bash -c "$3" ;;
    rsync-down) cp "${3/#\\~/$HOME}" "$4" ;;
esac
"""
# The first FAILING calls of dedup end with CODE.
DUPQ = """#!/bin/bash
echo "$1" >> "$HOME/calls"
if [[ $1 == dedup ]] && (($(grep -c dedup "$HOME/calls") <= ${FAILING:-0})); then exit "$CODE"; fi
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout with the scripts, a false `ray` and a false `dupq`; their calls are in the file `calls`."""
    shutil.copytree(CLUSTER, tmp_path / "examples/cluster")
    (tmp_path / "dupq").symlink_to(tmp_path)  # as the head has it
    (tmp_path / ".venv/bin").mkdir(parents=True)
    for name, text in {"ray": RAY, "dupq": DUPQ}.items():
        program = tmp_path / ".venv/bin" / name
        program.write_text(text)
        program.chmod(0o755)
    return tmp_path


Start = Callable[..., subprocess.Popen[bytes]]


@pytest.fixture
def start(checkout: Path) -> Iterator[Start]:
    """Starts the script, as a process group of its own."""
    started: list[subprocess.Popen[bytes]] = []

    def begin(**variables: str) -> subprocess.Popen[bytes]:
        environment = {**os.environ, "HOME": str(checkout), "PAUSE": "0", **variables}
        command = [str(checkout / "examples/cluster/nightly.sh"), "s3://BUCKET"]
        with (checkout / "said").open("a") as said:
            started.append(subprocess.Popen(command, env=environment, stderr=said, start_new_session=True))
        return started[-1]

    yield begin
    for process in started:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def calls(checkout: Path) -> list[str]:
    place = checkout / "calls"
    return place.read_text().splitlines() if place.exists() else []


@pytest.mark.parametrize(
    ("variables", "code", "called", "said"),
    [
        ({}, 0, NIGHT, ""),
        ({"FAILING": "2", "CODE": "5"}, 0, [*FAILED * 2, *NIGHT], "attempt 2 of 3 failed (5)"),
        *(({"FAILING": "9", "CODE": str(code)}, code, FAILED * 3, "") for code in (1, 137)),
        *(({"FAILING": "9", "CODE": str(code)}, code, FAILED, "not tried again") for code in REFUSED),
        ({"LOST": "1"}, 1, ["up", "exec"] * 3, ""),
    ],
)
def test_what_fails_is_tried_again_unless_it_is_refused_and_no_machine_is_left(
    variables: dict[str, str], code: int, called: list[str], said: str, checkout: Path, start: Start
) -> None:
    assert start(**variables).wait(60) == code
    assert calls(checkout) == [*called, "down"]
    assert said in (checkout / "said").read_text()


def test_a_second_one_ends_at_once_and_takes_nothing_down(checkout: Path, start: Start) -> None:
    first = start(WAITING="1")
    assert await_it(lambda: calls(checkout))
    assert start().wait(60) == 7
    assert "another one is at work" in (checkout / "said").read_text()
    assert calls(checkout) == ["up"]
    assert first.poll() is None


def test_one_that_is_stopped_takes_the_machines_down(checkout: Path, start: Start) -> None:
    night = start(WAITING="1")
    assert await_it(lambda: calls(checkout))
    os.killpg(night.pid, signal.SIGTERM)  # as systemd does
    assert night.wait(60) != 0
    assert calls(checkout) == ["up", "down"]
    assert start().wait(60) == 0  # and the lock is free


@pytest.mark.parametrize("name", ["dupq-nightly.service", "dupq-nightly.timer"])
def test_systemd_knows_every_line_of_the_units(name: str, tmp_path: Path, lacking: Callable[[str], NoReturn]) -> None:
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        lacking("no systemd-analyze here (package systemd)")
    for file in CLUSTER.glob("dupq-nightly.*"):
        text = file.read_text().replace("/home/dupq/dupq/examples/cluster/", f"{CLUSTER}/").replace("User=dupq\n", "")
        (tmp_path / file.name).write_text(text)
    checked = subprocess.run(
        [analyze, "verify", "--man=no", tmp_path / name], capture_output=True, text=True, check=False
    )
    assert "dupq-nightly" not in checked.stderr, checked.stderr


def test_the_service_calls_the_script_that_is_there_and_lets_it_end_within_the_time_that_the_docs_say() -> None:
    service = configparser.ConfigParser(strict=False)
    service.optionxform = str  # type: ignore[assignment,method-assign]
    service.read(CLUSTER / "dupq-nightly.service")
    command = service["Service"]["ExecStart"].split()
    assert (CLUSTER.parents[1] / command[0].removeprefix("/home/dupq/dupq/")).is_file()
    assert service["Service"]["TimeoutStopSec"] == "15min"
    operations = (CLUSTER.parents[1] / "docs/operations.md").read_text()
    assert f"after {service['Service']['TimeoutStartSec'].removesuffix('h')} hours" in operations
