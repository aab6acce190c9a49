"""What a failed job leaves, as a process that a user starts."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

DUPQ = [sys.executable, "-c", "from dupq.cli import command; command()"]
JOB = """
import sys
from dupq import cli, options
from dupq.errors import GateError
from dupq.job import progress

def job():
    with progress.of_stage(sys.argv[1], "report", {}):
        pass
    progress.end(sys.argv[1], "gate missed")
    raise GateError("--max-cluster 1: the largest cluster has 2 questions")

parser = options.Parser()
parser.set_defaults(do=lambda _: job(), job="dedup", verbose=False)
cli._end(parser, [])
"""


def ended(code: str, *words: object, stdout: Any = subprocess.PIPE) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", code, *map(str, words)]
    return subprocess.run(command, stdout=stdout, stderr=subprocess.PIPE, text=True, check=False)


def test_a_missed_gate_is_in_the_log_of_the_run(tmp_path: Path) -> None:
    run = tmp_path / "run"
    assert ended(JOB, run).returncode == 4
    [line] = [json.loads(line) for line in (run / "run.log").read_text().splitlines()]
    message = "--max-cluster 1: the largest cluster has 2 questions"
    assert (line["level"], line["message"], line["run"]) == ("error", message, "run")
    assert json.loads((run / "progress.json").read_text())["state"] == "gate missed"


def test_a_job_without_room_for_a_process_of_its_own_still_hears_signals() -> None:
    """As where a container may have so many processes and no more."""
    code = "import os, signal\nfrom dupq.job import supervisor\ndef fork(): raise BlockingIOError\nos.fork = fork\n"
    code += "with supervisor.guarded():\n    os.kill(os.getpid(), signal.SIGTERM)\n    print('not heard')\n"
    found = ended(code)
    assert (found.returncode, found.stdout) == (-signal.SIGTERM, "")


def unread_pipe() -> int:
    """Return the end of a pipe for a process to write to, whose reader has ended."""
    reads, writes = os.pipe()
    os.close(reads)
    return writes


def test_a_command_whose_reader_has_enough_ends_without_a_line_and_another_broken_pipe_is_a_fault() -> None:
    prints = JOB.replace("do=lambda _: job()", "do=lambda _: print('x' * 100_000)")
    with open(unread_pipe(), "w") as lines:
        found = ended(prints, stdout=lines)
    assert (found.returncode, found.stderr) == (5, "")
    fails = "do=lambda _: (_ for _ in ()).throw(BrokenPipeError('of a worker'))"
    found = ended(JOB.replace("do=lambda _: job()", fails))
    assert found.returncode == 70
    assert "BrokenPipeError: of a worker" in found.stderr


@pytest.mark.parametrize("target", ["/dev/full", "a pipe that nobody reads"])
def test_a_job_whose_lines_nobody_can_read_ends_well(target: str, tmp_path: Path) -> None:
    (tmp_path / "faq.csv").write_text("title\nHow do I bake bread?\nHow do I clean a carpet?\n")
    job = [*DUPQ, "ingest", f"{tmp_path}/faq.csv", "--output", f"{tmp_path}/out", "--ray", "none"]
    with open(target if target.startswith("/") else unread_pipe(), "w") as lines:
        found = subprocess.run(job, stdout=lines, stderr=subprocess.PIPE, text=True, check=False)
    assert (found.returncode, found.stderr) == (0, "")


def test_a_killed_job_is_not_run_again_by_its_parent(tmp_path: Path) -> None:
    code = (
        "import os, signal\nfrom dupq.job import supervisor\nwith supervisor.guarded():\n"
        f"    print('begun', file=open({str(tmp_path / 'log')!r}, 'a'), flush=True)\n"
        "    if supervisor._pipe: os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    with open("/dev/full", "w") as full:
        found = subprocess.run([sys.executable, "-c", code], stderr=full, check=False)
    assert found.returncode != 0
    assert (tmp_path / "log").read_text() == "begun\n"


SIGNALLED = """
import atexit, contextlib, os, signal, sys, time
from dupq import cli, options
from dupq.errors import GateError
from dupq.job import lease, progress, supervisor

supervisor._PATIENCE_SECONDS = 1
run, number, where = sys.argv[1], int(sys.argv[2]), sys.argv[3]

def send():
    os.kill(os.getpid(), number)

def work():
    if where == "while it works":
        send()
    elif where == "that it does not hear":
        signal.signal(number, signal.SIG_IGN)
        os.kill(os.getppid(), number)
        time.sleep(300)
    elif where == "again while it ends":
        try:
            send()
        finally:
            for again in (signal.SIGINT, signal.SIGTERM):
                os.kill(os.getpid(), again)
            raise RuntimeError("of something that ended first")
    elif where == "when it has failed":
        atexit.register(send)
        raise GateError("--max-cluster 1: the largest cluster has 2 questions")

def job():
    with lease.held(run), progress.of_stage(run, "report", {}):
        work()

parser = options.Parser()
parser.set_defaults(do=lambda _: job(), job="dedup", log="json", verbose=False)
with supervisor.guarded() if "does not hear" in where else contextlib.nullcontext(), supervisor.handle_signals():
    cli._end(parser, [])
"""


LINE = "ended by {}; what is finished is kept, run the same command again to go on"


@pytest.mark.parametrize(
    ("where", "number", "code", "line", "state"),
    [
        ("while it works", signal.SIGTERM, 143, LINE.format("SIGTERM"), "cut off"),
        ("again while it ends", signal.SIGINT, 130, LINE.format("Ctrl-C"), "cut off"),
        ("when it has failed", signal.SIGTERM, 4, "--max-cluster 1: the largest cluster has 2 questions", "failed"),
    ],
)
def test_a_signal_ends_a_job_with_one_line_and_its_code_but_one_that_has_failed(
    where: str, number: signal.Signals, code: int, line: str, state: str, tmp_path: Path
) -> None:
    found = ended(SIGNALLED, tmp_path, int(number), where)
    assert (found.returncode, found.stderr.count("\n")) == (code, 1), found.stderr
    assert json.loads(found.stderr)["message"] == line
    assert found.stderr in (tmp_path / "run.log").read_text()
    assert json.loads((tmp_path / "progress.json").read_text())["state"] == state
    [held] = (tmp_path / "leases").iterdir()
    assert json.loads(held.read_text())["is_over"]


def test_a_job_that_does_not_hear_a_signal_is_killed(tmp_path: Path) -> None:
    found = ended(SIGNALLED, tmp_path / "run", int(signal.SIGTERM), "that it does not hear")
    assert (found.returncode, found.stderr) == (143, LINE.format("SIGTERM") + "\n")
