"""Write a finished run in the format of another tool."""

import argparse

from dupq.cli.options import uri

DESCRIPTION = "Write a finished run for another tool: plain files, what to keep and drop, a graph, a map."
_FORMATS = ("csv", "jsonl", "keep-drop", "graphml", "embedding-atlas")


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of the job."""
    parser.add_argument(
        "--run", required=True, metavar="URI", type=uri, help="a run's folder, or a folder of runs for the latest"
    )
    parser.add_argument("--to", required=True, choices=_FORMATS, help="the format (docs/export.md)")
    parser.add_argument(
        "--output", required=True, metavar="URI", type=uri, help="the folder that is made; nothing may be there"
    )


def run(arguments: argparse.Namespace) -> None:
    """Write, and say what is where. Needs no Ray."""
    from dupq.runs.reader import finished_run

    run = finished_run(arguments.run)
    from dupq.export import FORMATS, export  # with what lays a map out: later than the check

    for written in export(run.uri, arguments.to, arguments.output):
        rows = f"{written.rows:>12,} rows  " if written.rows else " " * 19
        print(f"{rows}{written.uri}" + (f"  ({written.note})" if written.note else ""))
    print(f"open it with: {FORMATS[arguments.to].opened_by.format(output=arguments.output)}")
