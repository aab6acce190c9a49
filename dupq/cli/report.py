"""Write a run's report.html anew."""

import argparse

from dupq.cli.options import uri

DESCRIPTION = "Write a run's report.html anew."


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of the job."""
    parser.add_argument(
        "--run",
        required=True,
        metavar="URI",
        type=uri,
        help="a run's folder, or a folder of runs for the latest",
    )


def run(arguments: argparse.Namespace) -> None:
    """Write the report, and say where it is. Needs no Ray."""
    from dupq.report.page import write
    from dupq.runs.reader import finished_run

    print(write(finished_run(arguments.run).uri))
