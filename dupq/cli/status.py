"""Say how far a run is."""

import argparse
from datetime import UTC, datetime

from dupq.cli.options import uri

DESCRIPTION = "Say how far a run is."


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    parser.add_argument(
        "--run", required=True, metavar="URI", type=uri, help="a run's folder, or a folder of runs for the newest"
    )


def run(arguments: argparse.Namespace) -> None:
    """Some lines. Needs no Ray."""
    from dupq.runs.listing import status

    print(status(arguments.run, datetime.now(UTC)))
