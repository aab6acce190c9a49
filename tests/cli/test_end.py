"""What is left of a job that failed: the process as a user starts it."""

import json
import subprocess
import sys
from pathlib import Path

JOB = """
import sys
from dupq.cli import main
from dupq.errors import GateError
from dupq.runs import progress

def job():
    with progress.of_stage(sys.argv[1], "report", {}):
        pass
    progress.end(sys.argv[1], "gate missed")
    raise GateError("--max-cluster 1: the largest cluster has 2 questions")

parser = main.Parser()
parser.set_defaults(do=lambda _: job(), job="dedup", on_failure="/nowhere/command")
main._end(parser, [])
"""


def test_a_missed_gate_and_a_hook_that_failed_are_in_the_log_of_the_run(tmp_path: Path) -> None:
    run = tmp_path / "run"
    ended = subprocess.run([sys.executable, "-c", JOB, str(run)], capture_output=True, text=True, check=False)
    assert ended.returncode == 4, ended.stderr
    lines = [json.loads(line) for line in (run / "run.log").read_text().splitlines()]
    assert [line["level"] for line in lines] == ["error", "warning"]
    assert lines[0]["message"] == "--max-cluster 1: the largest cluster has 2 questions"
    assert lines[0]["run"] == "run"
    assert json.loads((run / "progress.json").read_text())["state"] == "gate missed"


INTERRUPTED = """
from dupq.cli import main

def job():
    raise KeyboardInterrupt

parser = main.Parser()
parser.set_defaults(do=lambda _: job(), job="dedup", log="json")
main._end(parser, [])
"""


def test_that_a_job_was_interrupted_is_a_line_of_the_log() -> None:
    ended = subprocess.run([sys.executable, "-c", INTERRUPTED], capture_output=True, text=True, check=False)
    assert ended.returncode == 130
    assert json.loads(ended.stderr)["message"] == "interrupted; run the same command again to go on"
