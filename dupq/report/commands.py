"""Commands that the page tells its reader, with the addresses of the run that it shows."""

import shlex
import shutil
import sys
from pathlib import Path

from dupq import storage
from dupq.runs.reader import Run


def program() -> str:
    """How dupq is called in this terminal: by its path where only its own environment has it."""
    beside = Path(sys.executable).with_name("dupq")
    return shlex.quote(str(beside)) if shutil.which("dupq") is None and beside.exists() else "dupq"


def review(run: Run) -> str:
    """The command that judges the worklist of `run` in a terminal."""
    return shlex.join(["dupq", "review", "--run", run.uri])


def with_verdicts(run: Run) -> str:
    """The job that reads verdicts on the sample of `run`."""
    inputs = run.manifest["inputs"]
    given = [
        ("--questions", inputs["questions"]),
        ("--links", inputs.get("links")),
        ("--encoder", inputs.get("encoder")),
        ("--output", storage.parent(run.uri)),
        ("--verdicts", f"review-{run.manifest['run_id']}.tsv"),
    ]
    words = [word for name, value in given if value is not None for word in (name, value)]
    return shlex.join(["dupq", "dedup", *words])
