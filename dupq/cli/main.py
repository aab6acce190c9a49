"""Running a job from the command line: its arguments, its errors in one line, and its exit code."""

import argparse
import contextlib
import importlib
import logging
import sys
from collections.abc import Sequence

from dupq import __version__
from dupq.cli.options import Parser
from dupq.errors import FAULT, ClusterError, DupqError
from dupq.execution import ends, guard, head
from dupq.extras import require
from dupq.runs import lease, log, progress, terminal

_SCRIPTS = ("ingest", "train", "dedup", "evaluate", "report", "export", "plan", "from_dump")
JOBS = (*_SCRIPTS, "runs", "prune", "status", "review", "serve", "warm")
_ON_RAY = ("ingest", "train", "dedup", "evaluate", "from_dump")
_log = logging.getLogger(__name__)


def main(arguments: Sequence[str] | None = None) -> None:
    """The command `dupq` with these arguments, by default those of the process; ends the process."""
    parser = Parser(prog="dupq", description="Find the duplicate questions of question-and-answer archives.")
    parser.add_argument("--version", action="version", version=__version__)
    commands = parser.add_subparsers(metavar="JOB", required=True)
    for name in JOBS:
        command = importlib.import_module(f"dupq.cli.{name}")
        made = commands.add_parser(name.replace("_", "-"), help=command.DESCRIPTION, description=command.DESCRIPTION)
        _set_up(made, name)
    _end(parser, arguments)


def job(name: str, script_version: str) -> None:
    """Run the job of a script in jobs/.

    `script_version` is the dupq that the script belongs to: `ray submit` copies only the script, so that script
    and installed package can drift apart.
    """
    if script_version != __version__:
        _log.error(
            f"this script belongs to dupq {script_version}, but {__version__} is installed here; "
            "refresh it with `ray up`"
        )
        sys.exit(DupqError.EXIT_CODE)
    parser = Parser(description=importlib.import_module(f"dupq.cli.{name}").DESCRIPTION)
    _set_up(parser, name)
    _end(parser)


def _set_up(parser: argparse.ArgumentParser, name: str) -> None:
    command = importlib.import_module(f"dupq.cli.{name}")
    command.add_options(parser)
    parser.set_defaults(do=command.run, job=name)


def _end(parser: Parser, given: Sequence[str] | None = None) -> None:
    """Do the job and end the process: 0 if all of it succeeded, else with the code of the error (errors.py)."""
    try:
        arguments = parser.parse_args(given)
    except DupqError as error:
        _log.error(str(error))
        sys.exit(error.exit_code)
    log.show_as(getattr(arguments, "log", "plain"))
    ends.at_end(lambda line: log.progress_line(_log, line), _cut_off)
    code = _done(arguments)
    ends.ended(code)
    if code:
        progress.end_as("failed")
    with contextlib.suppress(DupqError):  # the error too
        log.write_kept()
    if code == ClusterError.EXIT_CODE or head.lost.is_set():
        guard.leave(code)
    sys.exit(code)


def _done(arguments: argparse.Namespace) -> int:
    """The exit code of a job that is done; what was wrong is logged."""
    try:
        _do(arguments)
    except Exception as error:
        # Ray makes a SystemError of what a signal raises where it waits: that its head is lost
        known = error.__cause__ if isinstance(error, SystemError) else error
        if isinstance(known, DupqError):
            _log.error(str(known))
            return known.exit_code
        _log.error("this is a fault of dupq; please report it with the lines above", exc_info=True)
        return FAULT
    return 0


def _do(arguments: argparse.Namespace) -> None:
    """The job itself. When it has ended, a lost head must not end this process, which still tells of it."""
    if arguments.job in _ON_RAY:
        require("ray", f"dupq {arguments.job.replace('_', '-')}")
    head.if_stuck(lambda: progress.end_as("failed"))
    try:
        arguments.do(arguments)
    finally:
        terminal.clear()
        head.job_ended.set()


def _cut_off() -> None:
    """Let no reader wait for a job that a signal ends, and no other job."""
    progress.end_as("cut off")
    lease.give_up_all()
    with contextlib.suppress(DupqError):
        log.write_kept()
