"""Commands that the page tells its reader, with the addresses of the run that it shows."""

import shlex

from dupq import storage
from dupq.runs.reader import Run


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
