"""The script of every night, with a `ray` that notes how it was called; and the units that start it."""

import configparser
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NoReturn

import pytest

from dupq.errors import SettingError
from dupq.options import Parser
from dupq.pipelines.gates import Gates
from dupq.settings import config

CLUSTER = Path(__file__).parents[2] / "examples" / "cluster"
NIGHT = ["up", "submit jobs/ingest.py", "submit jobs/dedup.py", "exec"]

# Notes its arguments; the first `FAILING` calls of dedup say `SAYING` and fail as all of `ray submit` do, with 1, and
# with WAITING `ray up` waits until it is killed.
RAY = """#!/bin/bash
echo "$*" >> "$HOME/arguments"
case $1 in submit) what="submit $3" ;; *) what=$1 ;; esac
echo "$what" >> "$HOME/calls"
if [[ $what == up && ${WAITING:-} ]]; then sleep 600; fi
if [[ $what == "submit jobs/dedup.py" ]] && (($(grep -c dedup "$HOME/calls") <= ${FAILING:-0})); then
    printf '%s\\r\\n' "${SAYING:-}" "Error: SSH command failed."
    exit 1
fi
"""


def _refused(ask: Callable[[], object]) -> SettingError:
    """What dupq says of something wrong."""
    with pytest.raises(SettingError) as raised:
        ask()
    return raised.value


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout with the script and the false `ray`; its calls are in the file `calls`."""
    (tmp_path / "examples/cluster").mkdir(parents=True)
    shutil.copy(CLUSTER / "nightly.sh", tmp_path / "examples/cluster")
    ray = tmp_path / ".venv/bin/ray"
    ray.parent.mkdir(parents=True)
    ray.write_text(RAY)
    ray.chmod(0o755)
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


def test_a_night_ends_with_no_machine_left(checkout: Path, start: Start) -> None:
    assert start().wait(60) == 0
    assert calls(checkout) == [*NIGHT, "down"]


def test_what_fails_is_tried_again(checkout: Path, start: Start) -> None:
    assert start(FAILING="2").wait(60) == 0
    assert calls(checkout) == [*NIGHT[:3], *NIGHT[:3], *NIGHT, "down"]
    assert "attempt 2 of 3 failed" in (checkout / "said").read_text()


def test_what_fails_always_fails_the_night(checkout: Path, start: Start) -> None:
    assert start(FAILING="9").wait(60) == 1
    assert calls(checkout) == [*NIGHT[:3] * 3, "down"]


@pytest.mark.parametrize(
    "said",
    [
        str(_refused(lambda: Gates(min_rows_share=2).check(has_previous=True))),
        str(_refused(lambda: config.load(assignments=["neighbours.k=0"]))),
        str(_refused(lambda: config.load(assignments=["nowhere.k=0"]))),
        str(_refused(lambda: Parser(prog="dedup.py").parse_args(["--nothing"]))),
        "--max-change 0.2: 0.412 of the clustered questions changed cluster; the run is complete",
        "--max-reject-share: 2 of 3 sites have more broken rows than it allows:\n  a: 12 of 20 rows\n  b: 9 of 9 rows",
        "12 of 20 rows are broken, more than the share of 0.001 that --max-reject-share allows; see …",
    ],
)
def test_what_is_refused_is_not_tried_again(checkout: Path, start: Start, said: str) -> None:
    assert start(FAILING="9", SAYING=f"\r\033[Kpairs: 3/8, 2 s left\r\033[Kerror: {said}").wait(60) == 1
    assert calls(checkout) == [*NIGHT[:3], "down"]
    assert "not tried again" in (checkout / "said").read_text()


def test_a_log_that_cannot_be_written_fails_no_night(checkout: Path, start: Start) -> None:
    (checkout / ".dupq-nightly.log").mkdir()  # neither rm nor tee can replace it
    assert start().wait(60) == 0


def test_an_error_that_names_a_file_is_tried_again(checkout: Path, start: Start) -> None:
    said = "error: s3://BUCKET/runs: cannot be read: throttled; give --set less"
    assert start(FAILING="1", SAYING=said).wait(60) == 0
    assert calls(checkout) == [*NIGHT[:3], *NIGHT, "down"]


def await_call(checkout: Path) -> None:
    for _ in range(600):
        if calls(checkout):
            return
        time.sleep(0.1)
    raise AssertionError("the script did not begin")


def test_a_second_one_ends_at_once_and_takes_nothing_down(checkout: Path, start: Start) -> None:
    first = start(WAITING="1")
    await_call(checkout)
    assert start().wait(60) == 7
    assert "another one is at work" in (checkout / "said").read_text()
    assert calls(checkout) == ["up"]
    assert first.poll() is None


def test_one_that_is_stopped_takes_the_machines_down(checkout: Path, start: Start) -> None:
    night = start(WAITING="1")
    await_call(checkout)
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


@pytest.mark.parametrize(("value", "ending"), [("true", pytest.fail.Exception), ("", pytest.skip.Exception)])
def test_what_lacks_a_program_fails_in_ci_and_is_skipped_elsewhere(
    value: str, ending: type[BaseException], lacking: Callable[[str], NoReturn], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CI", value)
    with pytest.raises(ending, match="no such program"):
        lacking("no such program")
