"""Jobs with a Ray of their own, as a user starts them, that a signal, a lost process of Ray or a fault ends.

Each says so in one line and leaves no process, and the same command again leaves what an undisturbed one does. Signals
to jobs without Ray, at any change of their output, are in test_disturbed_jobs.py and test_disturbed_dedup.py.
"""

import functools
import os
import shutil
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import psutil
import pytest
from disturbed import LINES, SIGNALS, differing, latest
from every_job import encoder_in, measures_in, run_in, tables_in
from moments import Moments
from small_archive import TRAINED, Small
from waiting import await_it

from dupq import storage

ROOT = Path(__file__).parents[2]
LIMIT_SECONDS = 300
DUPQ = "from dupq.cli import command; command()"


class Command(NamedTuple):
    """What is after `dupq`, where {output} and the small archive's {inputs}, {dump} and {run} are put in."""

    arguments: str
    made: Callable[[str], dict[str, bytes]]
    has_run: bool = False  # the output is a copy of a folder of two runs


def report_in(output: str) -> dict[str, bytes]:
    return {"report.html": storage.read_bytes(f"{latest(output)}/report.html").replace(output.encode(), b"")}


def files_in(output: str) -> dict[str, bytes]:
    return {file.relative: storage.read_bytes(file.uri) for file in storage.list_files(output)}


def runs_in(output: str) -> dict[str, bytes]:
    return {path.parent.name: b"" for path in Path(output).glob("*/_SUCCESS")}


SETTINGS = " ".join(f"--set {assignment}" for assignment in TRAINED)
READ = "--questions {inputs}/questions --links {inputs}/links --output {output}"
COMMANDS = {
    "ingest": Command("ingest --dump {dump} --answers --set ingest.shard_rows=200 --output {output}", tables_in),
    "train": Command(f"train {READ} --preset bogdanova-max {SETTINGS}", encoder_in),
    "train by two": Command(f"train {READ} --preset bogdanova-max --workers 2 {SETTINGS}", encoder_in),
    "dedup": Command(f"dedup {READ} --encoder {{inputs}}/encoder --reranker none", run_in),
    "evaluate": Command(f"evaluate {READ} --encoder {{inputs}}/encoder --table retrieval", measures_in),
    "from-dump": Command(
        f"from-dump --dump {{dump}} --output {{output}} --preset bogdanova-max --reranker none {SETTINGS}",
        lambda output: run_in(f"{output}/runs"),
    ),
    "report": Command("report --run {output}", report_in, True),
    "export": Command("export --run {run} --to csv --output {output}", files_in),
    "prune": Command("prune --output {output} --keep 1 --keep-monthly 1", runs_in, True),
}


class Started:
    """A job as a process of its own, with all that it starts."""

    def __init__(self, *arguments: str, code: str = DUPQ, ray: str = "local") -> None:
        self._mark = uuid.uuid4().hex
        self.process = subprocess.Popen(
            [sys.executable, "-c", code, *arguments],
            env={**os.environ, "ENDS_MARK": self._mark, "RAY_ADDRESS": ray},
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def all(self) -> list[psutil.Process]:
        """Its processes, itself as the last: Ray's hear of a signal to all before it does."""
        found = []
        for process in psutil.process_iter():
            try:
                if process.environ().get("ENDS_MARK") == self._mark and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
            except psutil.Error:
                continue
        return sorted(found, key=lambda process: process.pid == self.process.pid)

    def heeds_signals(self) -> bool:
        """Whether it has come so far, which is some hundredths of a second."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        caught = int(status.partition("SigCgt:")[2].split()[0], 16)
        return bool(caught & 1 << signal.SIGTERM - 1)

    def end(self) -> tuple[int, str, str]:
        """Its exit code and what it said on stdout and stderr; then none of its processes is there."""
        said = self.process.communicate(timeout=LIMIT_SECONDS)
        assert await_it(lambda: not self.all()), self.all()
        return self.process.returncode, *said


def started(name: str, small: Small, output: Path, ray: str = "local") -> Started:
    command = COMMANDS[name]
    if command.has_run and not output.exists():
        shutil.copytree(small.folder / "out", output)
        shutil.copytree(small.older, output / Path(small.older).name)
    run = latest(str(small.folder / "out"))
    there = {"inputs": small.folder / "inputs", "dump": small.dump, "run": run, "output": output}
    return Started(*(part.format(**there) for part in command.arguments.split()), ray=ray)


@pytest.fixture(scope="module")
def wholes(small: Small, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], tuple[float, dict[str, bytes]]]:
    """How many seconds a command takes, and what it makes."""

    @functools.cache
    def whole(name: str) -> tuple[float, dict[str, bytes]]:
        output = tmp_path_factory.mktemp("ends") / "whole"
        begun = time.monotonic()
        code, _, said = started(name, small, output).end()
        assert code == 0, said
        return time.monotonic() - begun, COMMANDS[name].made(str(output))

    return whole


@pytest.mark.parametrize("fault", SIGNALS)
@pytest.mark.parametrize("name", COMMANDS)
def test_a_signal_at_some_time(
    name: str, fault: str, small: Small, wholes: Callable, moments: Moments, tmp_path: Path
) -> None:
    """In every other try to all processes at once, as systemd and Slurm send SIGTERM."""
    if moments.few == 1 and (name, fault) != ("ingest", "SIGTERM"):
        pytest.skip("one with Ray, as tests/cli/test_end.py has some without, but in `make chaos`")
    seconds, made = wholes(name)
    for tenth in moments.of(range(1, 11)):
        output = tmp_path / str(tenth)
        job = started(name, small, output)
        assert await_it(job.heeds_signals)
        time.sleep(seconds * tenth / 11)
        for process in job.all() if tenth % 2 else [psutil.Process(job.process.pid)]:
            process.send_signal(signal.Signals[fault])
        code, _, said = job.end()
        if code:  # else it had ended
            assert (code, said.splitlines()[-1:]) == (SIGNALS[fault], [LINES[fault]]), (tenth, said)
        assert not any(sign in said for sign in ("***", "Traceback", "error:")), (tenth, said)
        if code and not (name == "export" and output.exists()):  # an export is there whole, or not at all
            code, _, said = started(name, small, output, "local" if name == "train by two" else "none").end()
            assert code == 0, (tenth, said)
        assert differing(COMMANDS[name].made(str(output)), made) == [], tenth


IN_A_STAGE = """
import sys, time
from dupq import cli, options
from dupq.job import cluster, supervisor, tasks

def started(file):
    open(file, "w").close()
    time.sleep(300)

def job():
    cluster.connect("local")
    tasks.run_tasks("texts", started, [(sys.argv[1],)])

parser = options.Parser()
parser.set_defaults(do=lambda _: job(), job="dedup")
with supervisor.guarded(), supervisor.handle_signals():
    cli._end(parser, [])
"""


@pytest.mark.parametrize("lost", ["raylet", "gcs_server"])
def test_a_process_of_ray_that_is_lost(lost: str, moments: Moments, tmp_path: Path) -> None:
    if moments.few == 1 and lost == "gcs_server":
        pytest.skip("waits for it for half a minute; tests/job/test_cluster.py has less patience")
    job = Started(str(tmp_path / "is-at-work"), code=IN_A_STAGE)
    assert await_it((tmp_path / "is-at-work").exists)
    [process] = [process for process in job.all() if process.name() == lost]
    process.kill()
    code, shown, said = job.end()
    assert (code, shown, said.count("\n")) == (6, "", 1), (shown, said)
    assert said.startswith("error: ")
    assert said.endswith("; run the same command again to go on\n")


FAULT = """
import os, sys
from dupq.job import supervisor

with supervisor.guarded():
    os.write(2, b"task_manager.cc:1329: Check failed: it != submissible_tasks_.end()\\n")
    print("of Python", file=sys.stderr)
    os.kill(os.getpid(), int(sys.argv[1])) if len(sys.argv) > 1 else sys.exit(3)
"""


@pytest.mark.parametrize("number", [signal.SIGABRT, signal.SIGKILL])
def test_a_fault_in_compiled_code_is_one_line_that_names_the_others(number: int) -> None:
    code, _, said = Started(str(int(number)), code=FAULT).end()
    assert code == -number
    first, line = said.splitlines()
    assert first == "of Python"
    kept = Path(line.removeprefix("error: killed, or ended by a fault in compiled code (").partition(" ")[0])
    assert line.endswith(" has what it said); run the same command again to go on")
    assert kept.read_text().startswith("task_manager.cc:1329: Check failed")
    kept.unlink()


def test_an_end_with_a_word_is_no_fault() -> None:
    assert Started(code=FAULT).end() == (3, "", "of Python\n")
