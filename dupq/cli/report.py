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
    from dupq.runs.reader import finished_run

    run = finished_run(arguments.run)
    from dupq.report.page import write  # with what draws: later than the check

    print(write(run.uri))
