"""The command line: `dupq JOB …`, and `jobs/JOB.py …`, which does the same from a checkout.

Signals are handled before anything slow is imported. Only the chosen job's modules are imported: those of its checks
first, then Ray, which takes a second.
"""

import argparse
import contextlib
import logging
import os
import platform
import select
import shlex
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from dupq import __version__, commands, options
from dupq.errors import FAULT, ClusterError, DupqError, StorageError
from dupq.job import supervisor
from dupq.options import Parser

_log = logging.getLogger("dupq.cli")  # also as `python -m dupq.cli`
_ON_RAY = ("ingest", "train", "dedup", "judge", "evaluate", "from_dump")
_PHASES = {"from_dump": 7, "dedup": 5, "judge": 5}  # that the jobs go through


class Command(NamedTuple):
    """A command: its options, the function that runs it, whose docstring is the command's help, and an example."""

    add_options: Callable[[Parser], None]
    run: Callable[[argparse.Namespace], None]
    example: str  # its arguments

    @property
    def about(self) -> str:
        """The help of the command, in one line."""
        return str(self.run.__doc__)


def command() -> None:
    """Run `dupq` with the arguments of the process, and end the process."""
    if "_ARGCOMPLETE" in os.environ:  # a shell asks how a line may go on
        import argcomplete

        argcomplete.autocomplete(_parser(os.environ["COMP_LINE"].split()))
    with supervisor.guarded(), supervisor.handle_signals():
        main()


def job(name: str, script_version: str) -> None:
    """Run the job of a script in jobs/, and end the process.

    `script_version` is the version of dupq that the script belongs to: `ray submit` copies only the script, so the
    package installed on the cluster may have another version.
    """
    with supervisor.guarded(), supervisor.handle_signals():
        if script_version != __version__:
            from dupq.job import progress

            progress.show_as("plain")  # its handler marks the line as an error
            _log.error(
                f"this script belongs to dupq {script_version}, but {__version__} is installed here; "
                "refresh it with `ray up`"
            )
            sys.exit(DupqError.EXIT_CODE)
        parser = Parser(description=COMMANDS[name].about, epilog=_example(name))
        _set_up(parser, name)
        _end(parser)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run `dupq` with these arguments, by default those of the process, and end the process."""
    words = sys.argv[1:] if arguments is None else list(arguments)
    if not words or words[0] in ("-h", "--help"):
        print(_overview())
        raise SystemExit(0 if words else 2)
    if words[0] == "--version":
        print(f"dupq {__version__}{_commit()}, Python {platform.python_version()}")
        raise SystemExit(0)
    _end(_parser(words), words)


def _parser(words: Sequence[str]) -> Parser:
    """Return the parser of `dupq`, with the options of the commands among `words`."""
    parser = Parser(prog="dupq")
    parser.commands = [name.replace("_", "-") for name in COMMANDS]
    commands = parser.add_subparsers(metavar="JOB", required=True)
    for name, command in COMMANDS.items():
        subparser = commands.add_parser(name.replace("_", "-"), description=command.about, epilog=_example(name))
        if name.replace("_", "-") in words:  # options import the modules of their command
            _set_up(subparser, name)
    return parser


def _overview() -> str:
    """Return the help of `dupq` alone."""
    lines = ["Find the duplicate questions of question-and-answer archives."]
    for heading, names in _GROUPS.items():
        lines += ["", heading, *(f"  dupq {name.replace('_', '-'):10} {COMMANDS[name].about}" for name in names)]
    return "\n".join([*lines, "", _example("from_dump"), "dupq JOB --help shows all arguments; dupq --version"])


def _example(name: str) -> str:
    return f"Example: dupq {name.replace('_', '-')} {COMMANDS[name].example}"


def _commit() -> str:
    """Return the commit of a checkout, in words; "" elsewhere."""
    folder = Path(__file__).resolve().parents[1]
    if not (folder / ".git").exists():
        return ""
    with contextlib.suppress(OSError):
        command = ["git", "-C", str(folder), "rev-parse", "--short=10", "HEAD"]
        commit = subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
        return f" (commit {commit})" if commit else ""
    return ""


def _set_up(parser: Parser, name: str) -> None:
    COMMANDS[name].add_options(parser)
    parser.set_defaults(do=COMMANDS[name].run, job=name)


def _end(parser: Parser, words: Sequence[str] | None = None) -> None:
    """Run the job and end the process, with 0 if all of it succeeded, else with the code of the error (errors.py)."""
    from dupq.job import progress

    try:
        arguments = parser.parse_args(words)
    except DupqError as error:
        _log.error(str(error))
        sys.exit(error.exit_code)
    arguments.command = shlex.join(["dupq", *(words or [arguments.job.replace("_", "-"), *sys.argv[1:]])])
    progress.show_as(getattr(arguments, "log", "plain"))
    supervisor.on_end(_say, _leave)
    code = _run(arguments)
    supervisor.finish()
    if code:
        progress.end(progress.current.uri, "failed")
    with contextlib.suppress(DupqError):
        progress.write_run_log()
    if code == ClusterError.EXIT_CODE:
        supervisor.leave(code)
    sys.exit(code)


def _has_no_reader() -> bool:
    """Tell whether the reader of standard output has ended."""
    poll = select.poll()
    poll.register(sys.stdout.fileno(), 0)
    return bool(poll.poll(0))


def _run(arguments: argparse.Namespace) -> int:
    """Run the job, log its error, and return its exit code."""
    from dupq.system import require

    try:
        if arguments.job in _ON_RAY and getattr(arguments, "ray", None) != "none":
            require("ray", f"dupq {arguments.job.replace('_', '-')}")
        with _drawn(arguments):
            arguments.do(arguments)
    except DupqError as error:
        _log.error(str(error))
        return error.exit_code
    except Exception as error:
        if isinstance(error, BrokenPipeError) and _has_no_reader():  # it has enough, as `head` has
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # else Python's exit writes again
            return StorageError.EXIT_CODE
        _log.error("this is a fault of dupq; please report it with the lines above", exc_info=True)
        return FAULT
    return 0


def _drawn(arguments: argparse.Namespace) -> contextlib.AbstractContextManager[None]:
    """Return the context in which the line of a job on Ray is drawn on a terminal."""
    from dupq.job import progress

    if arguments.job not in _ON_RAY:
        return contextlib.nullcontext()
    told_at_end = ("dupq.pipelines.ingest", "dupq.pipelines.train") if arguments.job == "from_dump" else ()
    hidden = () if getattr(arguments, "verbose", False) else ("dupq.job", "dupq.stages", *told_at_end)
    return progress.drawn(_PHASES.get(arguments.job, 1), hidden)


def _say(line: str, code: int) -> None:
    """Log why the job ends early."""
    from dupq.job import progress

    progress.stop_drawing()
    if code in supervisor.CODES.values():
        progress.progress_line(_log, line)
    else:
        _log.error(line)


def _leave(code: int) -> None:
    """Write the state of a job that ends early, and give up its leases, so that no reader and no other job waits."""
    from dupq.job import lease, progress

    progress.end(progress.current.uri, "cut off" if code in supervisor.CODES.values() else "failed")
    lease.give_up_all()
    with contextlib.suppress(DupqError):
        progress.write_run_log()


_ARCHIVE = "--questions out/cs/questions --links out/cs/links"
_GROUPS = {
    "Start here": ("from_dump", "review", "serve", "export"),
    "Every night": ("ingest", "train", "dedup", "judge", "prune"),
    "Look after": ("runs", "status", "report", "plan", "evaluate", "warm"),
}
COMMANDS = {
    "ingest": Command(options.ingest, commands.ingest, "dumps/ --output s3://bucket/archive"),
    "train": Command(options.train, commands.train, f"{_ARCHIVE} --output out/cs/encoder"),
    "dedup": Command(options.dedup, commands.dedup, f"{_ARCHIVE} --encoder out/cs/encoder --output out/cs/runs"),
    "judge": Command(
        options.judge, commands.judge, "--run out/cs/runs --judge http://localhost:11434/v1 --judge-model qwen3:30b"
    ),
    "evaluate": Command(options.evaluate, commands.evaluate, f"{_ARCHIVE} --output out/cs/evaluation"),
    "report": Command(options.add_run, commands.report, "--run out/cs/runs"),
    "export": Command(options.export, commands.export, "--run out/cs/runs --to keep-drop --output lists"),
    "plan": Command(options.plan, commands.plan, "--run out/cs/runs --questions 24e6"),
    "from_dump": Command(
        options.from_dump, commands.from_dump, "faq.csv --id faq_id --title question --output out/faq --ray none"
    ),
    "runs": Command(options.runs, commands.runs, "--output out/cs/runs"),
    "prune": Command(options.prune, commands.prune, "--output out/cs/runs --keep 7 --dry-run"),
    "status": Command(options.status, commands.status, "--run out/cs/runs"),
    "review": Command(options.review, commands.review, "--run out/cs/runs"),
    "serve": Command(options.serve, commands.serve, "--run out/cs/runs"),
    "warm": Command(options.add_gpus, commands.warm, "--gpus none"),
}


if __name__ == "__main__":
    command()
