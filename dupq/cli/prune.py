"""Remove the runs below an output that nothing needs."""

import argparse
from collections.abc import Callable
from datetime import UTC, datetime

from dupq.cli.options import uri

DESCRIPTION = "Remove runs that nothing needs, and what they and trainings left behind."


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    parser.add_argument("--output", required=True, metavar="URI", type=uri, help="the folder of runs")
    parser.add_argument(
        "--encoder",
        action="append",
        default=[],
        metavar="URI",
        type=uri,
        help="also remove what trainings that did not make the encoder left in its folder; may be repeated",
    )
    parser.add_argument(
        "--keep", type=_count(1), default=7, metavar="N", help="finished runs to keep, the newest ones; at least 1"
    )
    parser.add_argument(
        "--keep-monthly", type=_count(0), default=12, metavar="N", help="months of which the newest run is kept"
    )
    parser.add_argument("--dry-run", action="store_true", help="remove nothing, and say what would be")


def _count(least: int) -> Callable[[str], int]:
    """The type of an argument that is a whole number of at least `least`."""

    def count(text: str) -> int:
        if not text.isdecimal() or int(text) < least:
            raise argparse.ArgumentTypeError(f"'{text}': a whole number of at least {least} expected")
        return int(text)

    return count


def run(arguments: argparse.Namespace) -> None:
    """Remove, and say what and how much. Needs no Ray."""
    from dupq.runs.pruning import prune
    from dupq.runs.retention import Keep

    keep = Keep(arguments.keep, arguments.keep_monthly)
    for line in prune(arguments.output, arguments.encoder, keep, datetime.now(UTC), arguments.dry_run):
        print(line, flush=True)
