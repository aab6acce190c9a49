"""List the runs below an output."""

import argparse
from datetime import UTC, datetime

from dupq.cli.options import uri

DESCRIPTION = "List the runs below an output, with their size, age and state."


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    parser.add_argument("--output", required=True, metavar="URI", type=uri, help="the folder of runs")


def run(arguments: argparse.Namespace) -> None:
    """A line for each run, oldest first. Needs no Ray."""
    from dupq.errors import DupqError
    from dupq.runs.inventory import known_runs
    from dupq.runs.listing import line_of

    now = datetime.now(UTC)
    runs = known_runs(arguments.output, now)
    if not runs:
        raise DupqError(f"{arguments.output}: no runs here; give the --output of dupq dedup")
    for known in runs:
        print(line_of(known, now))
