"""The command line: `dupq JOB …`, and `jobs/JOB.py …`, which does the same from a checkout.

Signals are handled before anything slow is imported. Only the chosen job's modules are imported: those of its checks
first, then Ray, which takes a second.
"""

import argparse
import contextlib
import logging
import math
import os
import select
import sys
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, NoReturn

from dupq import __version__, commands
from dupq.errors import FAULT, ClusterError, DupqError, SettingError, StorageError
from dupq.job import supervisor

_log = logging.getLogger("dupq.cli")  # also as `python -m dupq.cli`
_MOST_GPUS = 10_000
_MOST_QUESTIONS = 1e12
PORT = 8321
_ON_RAY = ("ingest", "train", "dedup", "evaluate", "from_dump")


class _Formatter(argparse.ArgumentDefaultsHelpFormatter):
    """A help formatter that shows defaults, except None and []."""

    def _get_help_string(self, action: argparse.Action) -> str | None:
        return action.help if action.default in (None, []) else super()._get_help_string(action)


class Parser(argparse.ArgumentParser):
    """A parser that shows defaults, refuses abbreviated options, and raises SettingError."""

    def __init__(self, **options: Any) -> None:
        """Pass `options` to argparse's parser."""
        super().__init__(formatter_class=_Formatter, allow_abbrev=False, **options)

    def error(self, message: str) -> NoReturn:
        """Raise SettingError with one line, as for all errors; argparse would print its usage first."""
        raise SettingError(f"{' '.join(message.split())}; {self.prog} --help shows all arguments")

    def add_uri(self, name: str, about: str, required: bool = False, dest: str | None = None) -> None:
        """Add an option that names a file or folder. With `dest` it may be repeated, and gives a list."""
        repeated: dict[str, Any] = {"action": "append", "default": [], "dest": dest} if dest else {}
        self.add_argument(name, metavar="URI", type=uri, help=about, required=required, **repeated)


class Command(NamedTuple):
    """A command: its options, and the function that runs it, whose docstring is the command's help."""

    add_options: Callable[[Parser], None]
    run: Callable[[argparse.Namespace], None]

    @property
    def about(self) -> str:
        """The help of the command, in one line."""
        return str(self.run.__doc__)


def command() -> None:
    """Run `dupq` with the arguments of the process, and end the process."""
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
        parser = Parser(description=COMMANDS[name].about)
        _set_up(parser, name)
        _end(parser)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run `dupq` with these arguments, by default those of the process, and end the process."""
    words = sys.argv[1:] if arguments is None else list(arguments)
    parser = Parser(prog="dupq", description="Find the duplicate questions of question-and-answer archives.")
    parser.add_argument("--version", action="version", version=__version__)
    commands = parser.add_subparsers(metavar="JOB", required=True)
    for name, command in COMMANDS.items():
        subparser = commands.add_parser(name.replace("_", "-"), help=command.about, description=command.about)
        if name.replace("_", "-") in words:  # options import the modules of their command
            _set_up(subparser, name)
    if not words:
        parser.print_help()
        raise SystemExit(2)
    _end(parser, words)


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
    from dupq.job import progress
    from dupq.system import require

    try:
        if arguments.job in _ON_RAY:
            require("ray", f"dupq {arguments.job.replace('_', '-')}")
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
    finally:
        progress.clear()
    return 0


def _say(line: str, code: int) -> None:
    """Log why the job ends early."""
    from dupq.job import progress

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


def add_shared(parser: Parser) -> None:
    """Add the options of every job that runs on Ray."""
    parser.add_argument(
        "--ray",
        metavar="ADDRESS",
        help="the Ray cluster to join; 'auto': the one running on this machine; 'local': start one; 'none': no Ray, "
        "all work in this process, for a small archive. Without it: RAY_ADDRESS if that is set, else start one",
    )
    parser.add_argument(
        "--set",
        dest="assignments",
        metavar="SECTION.NAME=VALUE",
        action="append",
        default=[],
        help="change a setting (docs/settings.md); may be repeated",
    )
    parser.add_argument(
        "--log",
        choices=["plain", "json"],
        default="plain",
        help="the format of lines; json: one object per line, with time, level, run, stage and message",
    )


def _add_gpus(parser: Parser) -> None:
    parser.add_argument(
        "--gpus",
        metavar="auto|N|none",
        type=_gpus,
        default="auto",
        help="auto: those of the cluster, if torch can use them; N: this many, which an autoscaling cluster starts; "
        "none: CPUs only",
    )


def _add_reranker(parser: Parser) -> None:
    parser.add_argument(
        "--reranker",
        metavar="MODEL|none",
        help="the sentence-transformers model that reads the questions of likely pairs: its folder, an installed "
        "package that has one, or its name on the Hugging Face hub; default: all-MiniLM-L6-v2 if it is installed",
    )
    parser.add_argument("--teacher", type=_renamed, help=argparse.SUPPRESS)


def _renamed(model: str) -> str:
    raise argparse.ArgumentTypeError(f"the option is --reranker {model} now; a teacher is what an encoder learns from")


def _add_preset(parser: Parser) -> None:
    from dupq.settings import config

    parser.add_argument(
        "--preset",
        default=config.DEFAULT_PRESET,
        metavar="NAME",
        help=f"the encoder's settings to start from: {', '.join(config.preset_names())}",
    )


def _add_truth(parser: Parser) -> None:
    parser.add_uri("--truth", "planted pairs of a made archive (.tsv), to measure what was found")


def _add_run(parser: Parser) -> None:
    parser.add_uri("--run", "a run's folder, or a folder of runs for the latest", required=True)


def uri(text: str) -> str:
    """Parse an argument that names a file or folder. An empty one is refused: it would mean the current directory."""
    from dupq import storage

    if not text.isprintable():
        encoding, remedy = sys.getfilesystemencoding(), "no file or folder of a job"
        if encoding != "utf-8":
            remedy = f"names are read as {encoding} here: set PYTHONUTF8=1"
        raise argparse.ArgumentTypeError(f"{text!r} holds a character that cannot be shown; {remedy}")
    if text.strip().lower() in ("", "file://"):
        raise argparse.ArgumentTypeError(f"'{text}' names no file or folder; use '.' for the current directory")
    try:
        return storage.absolute(text)
    except DupqError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def _gpus(text: str) -> int | None:
    """Parse a number of GPUs: None for auto, 0 for none."""
    if text == "auto":
        return None
    if text != "none" and not (text.isascii() and text.isdecimal() and 0 < int(text[:6]) <= _MOST_GPUS):
        raise argparse.ArgumentTypeError(f"'{text}': auto, none, or a number from 1 to {_MOST_GPUS:,} expected")
    return 0 if text == "none" else int(text)


def _whole(least: int, most: int | None = None) -> Callable[[str], int]:
    """Return a parser of whole numbers of at least `least` and at most `most`."""
    kind = f"of at least {least}" if most is None else f"from {least} to {most}"

    def parse(text: str) -> int:
        if not (text.isascii() and text.isdecimal()) or int(text) < least or (most is not None and int(text) > most):
            raise argparse.ArgumentTypeError(f"'{text}': a whole number {kind} expected")
        return int(text)

    return parse


def _questions(text: str) -> int:
    """Parse a number of questions, which may be written like 24e6."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 1 <= value <= _MOST_QUESTIONS or value != int(value):
        raise argparse.ArgumentTypeError(f"'{text}': a whole number of at least 1 expected, such as 24e6")
    return int(value)


def _add_dumps(parser: Parser) -> None:
    """Add the dumps or tables to read, and the options of tables."""
    parser.add_argument(
        "dumps",
        nargs="*",
        metavar="DUMP",
        type=uri,
        help="a .7z, a Posts.xml, a table (.csv, .tsv, .json, .jsonl, .parquet), all but .7z also compressed, GitHub "
        "issues as gh or the API gives them, or a folder of them",
    )
    parser.add_uri("--dump", "the same; may be repeated", dest="more_dumps")
    parser.add_argument(
        "--site", metavar="NAME", help="the site's name, for a single dump; default: from the file or folder"
    )
    for name, column in (
        ("title", "title or question"),
        ("text", "text or answer"),
        ("id", "id, a number or not; a table without one is numbered"),
        ("tags", "tags"),
        ("date", "date"),
    ):
        parser.add_argument(
            f"--{name}", metavar="COLUMN", help=f"of a table: its {column}; default: by the column's name"
        )
    parser.add_argument(
        "--format",
        choices=["auto", "html", "plain"],
        default="auto",
        help="of a table's text; docs/ingest.md has the rule",
    )


def _ingest_options(parser: Parser) -> None:
    from dupq.settings.sections import IngestSettings

    _add_dumps(parser)
    parser.add_uri("--output", "where the tables go", required=True)
    parser.add_argument("--answers", action="store_true", help="write an answers table too")
    parser.add_argument(
        "--max-reject-share",
        metavar="SHARE",
        type=float,
        default=IngestSettings().maximum_reject_share,
        help="a site fails if more than this share of its rows is broken",
    )
    add_shared(parser)


def _train_options(parser: Parser) -> None:
    parser.add_uri("--questions", "the questions table", required=True)
    parser.add_uri(
        "--links", "the links table; optional with --pairs, and for presets that learn from titles and bodies"
    )
    parser.add_uri(
        "--pairs",
        "more known pairs: lines of two questions (site/question_id, or with one site the id) and 1 (duplicates, "
        "also if it is missing) or 0, with tabs between; may be repeated",
        dest="pairs",
    )
    parser.add_uri("--output", "the encoder's folder", required=True)
    _add_preset(parser)
    parser.add_argument(
        "--workers",
        type=int,
        default=1,
        metavar="N",
        help="training workers, one CPU each, and one GPU each if --gpus are enough",
    )
    _add_gpus(parser)
    add_shared(parser)


def _dedup_options(parser: Parser) -> None:
    from dupq.settings.sections import CalibrationSettings, ClusterSettings

    parser.add_uri("--questions", "the questions table", required=True)
    parser.add_uri("--encoder", "a trained encoder's folder", required=True)
    parser.add_uri("--output", "the folder of runs; the run gets one of its own in it", required=True)
    parser.add_uri(
        "--links", "known duplicates: some calibrate the probabilities, others measure quality; linked pairs are marked"
    )
    _add_truth(parser)
    parser.add_uri(
        "--previous",
        "an earlier run, or the folder of runs for the latest: only new questions are searched, clusters that live on "
        "keep their ids, and changes/ says what became of the others",
    )
    parser.add_argument(
        "--precision",
        type=float,
        metavar="P",
        default=CalibrationSettings().precision,
        help="the share of the joined pairs that should be duplicates",
    )
    parser.add_argument(
        "--known-links",
        choices=["use", "ignore", "check"],
        default=ClusterSettings().known_links,
        help="use: known duplicates join their questions; check: they are for calibration and measures only; ignore: "
        "as if there were none",
    )
    parser.add_uri(
        "--verdicts",
        "a run's worklist.tsv or review.tsv, filled in; verdicts.tsv in --output is always read. Pairs judged the same "
        "are joined, those judged different never are, and both calibrate. A review.tsv also measures its run's "
        "precision and recall",
    )
    parser.add_argument(
        "--skip-shard",
        dest="skipped",
        action="append",
        default=[],
        metavar="PATH",
        help="leave out a file of the questions table, by its path below --questions (site=NAME/FILE); may be "
        "repeated; manifest and report say so",
    )
    parser.add_argument(
        "--min-recall",
        type=float,
        metavar="R",
        help="fail if less than this share of the known duplicates is in one cluster",
    )
    parser.add_argument("--max-cluster", type=int, metavar="N", help="fail if a cluster has more questions")
    parser.add_argument(
        "--max-change",
        type=float,
        metavar="SHARE",
        help="fail if more than this share of the clustered questions changed cluster since the --previous run",
    )
    parser.add_argument(
        "--min-rows-share",
        metavar="SHARE",
        type=float,
        help="fail, before anything is searched, if the archive has fewer than this share of the --previous run's "
        "questions",
    )
    _add_reranker(parser)
    _add_gpus(parser)
    add_shared(parser)


def _evaluate_options(parser: Parser) -> None:
    from dupq.evaluation.measures import TABLES

    general = " and ".join(sorted(TABLES))
    parser.add_uri("--questions", "the questions table", required=True)
    parser.add_uri(
        "--links",
        "the links table, or a file of labelled pairs: lines of two questions (site/question_id, or with one site "
        "the id) and 1 (duplicates, also if it is missing) or 0, with tabs between",
        required=True,
    )
    parser.add_uri("--output", "where metrics.json and papers/ go", required=True)
    parser.add_uri(
        "--encoder",
        f"a trained encoder's folder; without it only the baselines. It and --set are for {general}: the papers' "
        "systems have their own settings",
    )
    parser.add_argument(
        "--table",
        action="append",
        metavar="NAME",
        help=f"what to measure; may be repeated; default: {general}. Tables of the papers (papers/README.md), such as "
        "bogdanova-2, are measured on the sites of the archive and each --pair-set. "
        f"{commands.ALL}: all tables of both kinds",
    )
    parser.add_uri(
        "--pair-set",
        "a folder with one more data set for tables of the papers: pairs.tsv, or that and questions.tsv, or files "
        "of SemEval-2016 Task 3 (docs/papers.md); may be repeated",
        dest="pair_set",
    )
    parser.add_argument(
        "--quick", action="store_true", help="tables of the papers with fewer pairs, epochs and questions, for a look"
    )
    _add_gpus(parser)
    add_shared(parser)


def _export_options(parser: Parser) -> None:
    _add_run(parser)
    formats = ("csv", "jsonl", "keep-drop", "graphml", "embedding-atlas")
    parser.add_argument("--to", required=True, choices=formats, help="the format (docs/export.md)")
    parser.add_uri("--output", "the new folder; it must not exist yet", required=True)


def _plan_options(parser: Parser) -> None:
    parser.add_argument("--questions", required=True, metavar="N", type=_questions, help="how many, such as 24e6")
    _add_run(parser)
    parser.add_argument("--json", action="store_true", help="a JSON object instead of the table")


def _from_dump_options(parser: Parser) -> None:
    _add_dumps(parser)
    parser.add_uri("--output", "where the tables, the encoder and the runs go; default: out/ and the dump's name")
    _add_preset(parser)
    _add_truth(parser)
    _add_reranker(parser)
    _add_gpus(parser)
    add_shared(parser)


def _runs_options(parser: Parser) -> None:
    parser.add_uri("--output", "the folder of runs", required=True)


def _prune_options(parser: Parser) -> None:
    parser.add_uri("--output", "the folder of runs", required=True)
    parser.add_uri(
        "--encoder",
        "an encoder's folder: also remove what its other trainings left there; may be repeated",
        dest="encoder",
    )
    parser.add_argument(
        "--keep", type=_whole(1), default=7, metavar="N", help="finished runs to keep, the newest ones; at least 1"
    )
    parser.add_argument(
        "--keep-monthly", type=_whole(0), default=12, metavar="N", help="also keep the newest run of each of N months"
    )
    parser.add_argument("--dry-run", action="store_true", help="remove nothing, only say what would be removed")


def _status_options(parser: Parser) -> None:
    parser.add_uri("--run", "a run's folder, or a folder of runs for the newest", required=True)


def _serve_options(parser: Parser) -> None:
    _add_run(parser)
    parser.add_argument(
        "--port", type=_whole(0, 65_535), default=PORT, metavar="N", help="the port on 127.0.0.1; 0: any free one"
    )


COMMANDS = {
    "ingest": Command(_ingest_options, commands.ingest),
    "train": Command(_train_options, commands.train),
    "dedup": Command(_dedup_options, commands.dedup),
    "evaluate": Command(_evaluate_options, commands.evaluate),
    "report": Command(_add_run, commands.report),
    "export": Command(_export_options, commands.export),
    "plan": Command(_plan_options, commands.plan),
    "from_dump": Command(_from_dump_options, commands.from_dump),
    "runs": Command(_runs_options, commands.runs),
    "prune": Command(_prune_options, commands.prune),
    "status": Command(_status_options, commands.status),
    "review": Command(_add_run, commands.review),
    "serve": Command(_serve_options, commands.serve),
    "warm": Command(_add_gpus, commands.warm),
}


if __name__ == "__main__":
    command()
