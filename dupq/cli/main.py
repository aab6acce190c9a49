"""Running a job from the command line: its arguments, its errors in one line, and its exit code."""

import argparse
import importlib
import sys
import traceback
from collections.abc import Callable

from dupq import __version__
from dupq.cli.options import Parser
from dupq.errors import DupqError

JOBS = ("ingest", "train", "dedup", "evaluate", "report", "from_dump")


def main() -> None:
    """The command `dupq`."""
    parser = Parser(prog="dupq", description="Find the duplicate questions of question-and-answer archives.")
    parser.add_argument("--version", action="version", version=__version__)
    commands = parser.add_subparsers(metavar="JOB", required=True)
    for name in JOBS:
        command = importlib.import_module(f"dupq.cli.{name}")
        made = commands.add_parser(name.replace("_", "-"), help=command.DESCRIPTION, description=command.DESCRIPTION)
        _set_up(made, name)
    arguments = parser.parse_args()
    _end(lambda: arguments.do(arguments))


def job(name: str, script_version: str) -> None:
    """Run the job of a script in jobs/.

    `script_version` is the dupq that the script belongs to: `ray submit` copies only the script, so that script
    and installed package can drift apart.
    """

    def run() -> None:
        if script_version != __version__:
            raise DupqError(
                f"this script belongs to dupq {script_version}, but {__version__} is installed here; "
                "refresh it with `ray up`"
            )
        parser = Parser(description=importlib.import_module(f"dupq.cli.{name}").DESCRIPTION)
        _set_up(parser, name)
        arguments = parser.parse_args()
        arguments.do(arguments)

    _end(run)


def _set_up(parser: argparse.ArgumentParser, name: str) -> None:
    command = importlib.import_module(f"dupq.cli.{name}")
    command.add_options(parser)
    parser.set_defaults(do=command.run)


def _end(work: Callable[[], None]) -> None:
    """Do `work` and end the process: 0 if all of it succeeded, 2 for wrong arguments, else 1."""
    try:
        work()
    except DupqError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        print("interrupted; run the same command again to go on", file=sys.stderr)
        sys.exit(130)
    except Exception:
        traceback.print_exc()
        print("error: this is a fault of dupq; please report it with the lines above", file=sys.stderr)
        sys.exit(1)
    sys.exit(0)
