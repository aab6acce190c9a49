"""The command line: `dupq JOB …` once installed, and `jobs/JOB.py …`, which are the same.

A job's end is watched before anything is imported that takes time, and only the chosen job's modules are imported:
those of its check first, then Ray, which takes a second.
"""

import argparse
import contextlib
import importlib
import inspect
import itertools
import logging
import math
import sys
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, NoReturn, Protocol, TypeVar

from dupq import __version__
from dupq.errors import FAULT, ClusterError, DupqError, SettingError
from dupq.job import ends

Job = TypeVar("Job")
_log = logging.getLogger(__name__)
_MOST_GPUS = 10_000
_MOST_QUESTIONS = 1e12
PORT = 8321
_ALL = "all"
_ON_RAY = ("ingest", "train", "dedup", "evaluate", "from_dump")
_SHORT = ("training.epochs=1", "title_body.epochs=1", "word_vectors.epochs=1")


class _Formatter(argparse.ArgumentDefaultsHelpFormatter):
    """Shows defaults, where there is one to show."""

    def _get_help_string(self, action: argparse.Action) -> str | None:
        return action.help if action.default in (None, []) else super()._get_help_string(action)


class Parser(argparse.ArgumentParser):
    """Shows defaults, and takes no abbreviated options."""

    def __init__(self, **options: Any) -> None:
        """Take the options of argparse's parser."""
        super().__init__(formatter_class=_Formatter, allow_abbrev=False, **options)

    def error(self, message: str) -> NoReturn:
        """Raise one line, like all errors; argparse would put its usage in front."""
        raise SettingError(f"{' '.join(message.split())}; {self.prog} --help shows all arguments")

    def add_uri(self, name: str, about: str, required: bool = False, dest: str | None = None) -> None:
        """Add an option that names a file or folder; with `dest`, one that may be repeated, whose values are there."""
        repeated: dict[str, Any] = {"action": "append", "default": [], "dest": dest} if dest else {}
        self.add_argument(name, metavar="URI", type=uri, help=about, required=required, **repeated)


class _Checkable(Protocol):
    """A job of pipelines/arguments.py."""

    def check(self) -> object:
        """Raise DupqError for what is wrong, before any work."""


class Command(NamedTuple):
    """A job: its options, and what does it, whose docstring says what it is for."""

    add_options: Callable[[Parser], None]
    run: Callable[[argparse.Namespace], None]

    @property
    def about(self) -> str:
        """What the job is for, in one line."""
        return str(self.run.__doc__)


def command() -> None:
    """Run `dupq` with the arguments of the process, which it ends."""
    with ends.guarded(), ends.heeded():
        main()


def job(name: str, script_version: str) -> None:
    """Run the job of a script in jobs/, and end the process.

    `script_version` is the dupq that the script belongs to: `ray submit` copies only the script, so that script
    and installed package can drift apart.
    """
    with ends.guarded(), ends.heeded():
        if script_version != __version__:
            _log.error(
                f"this script belongs to dupq {script_version}, but {__version__} is installed here; "
                "refresh it with `ray up`"
            )
            sys.exit(DupqError.EXIT_CODE)
        parser = Parser(description=COMMANDS[name].about)
        _set_up(parser, name)
        _end(parser)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run `dupq` with these arguments, by default those of the process; ends the process."""
    given = sys.argv[1:] if arguments is None else list(arguments)
    parser = Parser(prog="dupq", description="Find the duplicate questions of question-and-answer archives.")
    parser.add_argument("--version", action="version", version=__version__)
    commands = parser.add_subparsers(metavar="JOB", required=True)
    for name, one in COMMANDS.items():
        made = commands.add_parser(name.replace("_", "-"), help=one.about, description=one.about)
        if name.replace("_", "-") in given:  # options import what they are of
            _set_up(made, name)
    if not given:
        parser.print_help()
        raise SystemExit(2)
    _end(parser, given)


def _set_up(parser: Parser, name: str) -> None:
    COMMANDS[name].add_options(parser)
    parser.set_defaults(do=COMMANDS[name].run, job=name)


def _end(parser: Parser, given: Sequence[str] | None = None) -> None:
    """Do the job and end the process: 0 if all of it succeeded, else with the code of the error (errors.py)."""
    from dupq.runs import progress

    try:
        arguments = parser.parse_args(given)
    except DupqError as error:
        _log.error(str(error))
        sys.exit(error.exit_code)
    progress.show_as(getattr(arguments, "log", "plain"))
    ends.at_end(_say, _leave)
    code = _done(arguments)
    ends.ended(code)
    if code:
        progress.end_as("failed")
    with contextlib.suppress(DupqError):  # the error too
        progress.write_kept()
    if code == ClusterError.EXIT_CODE:
        ends.leave(code)
    sys.exit(code)


def _done(arguments: argparse.Namespace) -> int:
    """Return the exit code of a job that is done; what was wrong is logged."""
    from dupq.runs import progress
    from dupq.system import require

    try:
        if arguments.job in _ON_RAY:
            require("ray", f"dupq {arguments.job.replace('_', '-')}")
        arguments.do(arguments)
    except DupqError as error:
        _log.error(str(error))
        return error.exit_code
    except Exception:
        _log.error("this is a fault of dupq; please report it with the lines above", exc_info=True)
        return FAULT
    finally:
        progress.clear()
    return 0


def _say(line: str, code: int) -> None:
    """Say what ends the job in its midst."""
    from dupq.runs import progress

    if code in ends.CODES.values():
        progress.progress_line(_log, line)
    else:
        _log.error(line)


def _leave(code: int) -> None:
    """Let no reader wait for a job that ends in its midst, and no other job."""
    from dupq.runs import lease, progress

    progress.end_as("cut off" if code in ends.CODES.values() else "failed")
    lease.give_up_all()
    with contextlib.suppress(DupqError):
        progress.write_kept()


def _made(kind: Callable[..., Job], arguments: argparse.Namespace, **more: object) -> Job:
    """Return the job of this kind (pipelines/arguments.py) with the options that have the names of its fields."""
    given = {name: tuple(value) if isinstance(value, list) else value for name, value in vars(arguments).items()}
    names = inspect.signature(kind).parameters
    return kind(**{name: value for name, value in {**given, **more}.items() if name in names})


def _do_on_ray(job: _Checkable, pipeline: str, address: str | None) -> object:
    """Check the job, connect to Ray and do it; what works with Ray is imported after the check."""
    checked = job.check()
    from dupq.job import cluster

    cluster.connect(address)
    module = "train" if pipeline == "from_dump" else pipeline
    return getattr(importlib.import_module(f"dupq.pipelines.{module}"), pipeline)(job, checked)


def _find(job: _Checkable, pipeline: str, address: str | None) -> None:
    """Do a job that makes a run, and say what was found and where the report is."""
    run = _do_on_ray(job, pipeline, address)
    from dupq.report.summary import summary
    from dupq.runs.writer import Run

    assert isinstance(run, Run)
    _log.info(summary(run.uri))


# What options share


def add_shared(parser: Parser) -> None:
    """Add the options of every job that runs on Ray."""
    parser.add_argument(
        "--ray",
        metavar="ADDRESS",
        default=None,
        help="the Ray cluster to join, 'auto' for the one running on this machine; 'local' starts one; 'none' does all "
        "in this process, for a small archive. Without it RAY_ADDRESS decides, else one is started",
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
        help="how lines are shown; json: each an object with time, level, run, stage and message",
    )


def _add_gpus(parser: Parser) -> None:
    parser.add_argument(
        "--gpus",
        metavar="auto|N|none",
        type=_gpus,
        default="auto",
        help="auto: those that the cluster has, if torch can use them; N: so many, which an autoscaling cluster "
        "starts; none: none is touched",
    )


def _add_teacher(parser: Parser) -> None:
    parser.add_argument(
        "--teacher",
        metavar="MODEL",
        help="a sentence-transformers model that reads the questions of likely pairs: its folder, an installed package "
        "that has one, or its name on the Hugging Face hub; its cosine is evidence like any other",
    )


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
    """Read an argument that names a file or folder; an empty one would be the folder that the job runs in."""
    from dupq import storage

    if not text.isprintable():
        encoding = sys.getfilesystemencoding()
        is_utf8 = encoding == "utf-8"
        remedy = "no file or folder of a job" if is_utf8 else f"names are read as {encoding} here: set PYTHONUTF8=1"
        raise argparse.ArgumentTypeError(f"{text!r} holds a character that cannot be shown; {remedy}")
    if text.strip().lower() in ("", "file://", "s3://"):
        raise argparse.ArgumentTypeError(f"'{text}' names no file or folder; use '.' for the current directory")
    try:
        return storage.absolute(text)
    except DupqError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def _gpus(text: str) -> int | None:
    """Read a number of GPUs: None for auto."""
    if text == "auto":
        return None
    if text != "none" and not (text.isascii() and text.isdecimal() and 0 < int(text[:6]) <= _MOST_GPUS):
        raise argparse.ArgumentTypeError(f"'{text}': auto, none, or a number from 1 to {_MOST_GPUS:,} expected")
    return 0 if text == "none" else int(text)


def _whole(least: int, most: int | None = None) -> Callable[[str], int]:
    """Return what reads a whole number of at least `least` and at most `most`."""
    kind = f"of at least {least}" if most is None else f"from {least} to {most}"

    def read(text: str) -> int:
        if not (text.isascii() and text.isdecimal()) or int(text) < least or (most is not None and int(text) > most):
            raise argparse.ArgumentTypeError(f"'{text}': a whole number {kind} expected")
        return int(text)

    return read


def _questions(text: str) -> int:
    """Read a number of questions, which may be written like 24e6."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 1 <= value <= _MOST_QUESTIONS or value != int(value):
        raise argparse.ArgumentTypeError(f"'{text}': a whole number of at least 1 expected, such as 24e6")
    return int(value)


# The jobs


def _add_table(parser: Parser) -> None:
    """Add what to read, and the options of tables of questions that are no dump."""
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
    for name, what in (
        ("title", "title or question"),
        ("text", "text or answer"),
        ("id", "id, a number or not; a table without one is numbered"),
        ("tags", "tags"),
        ("date", "date"),
    ):
        parser.add_argument(
            f"--{name}", metavar="COLUMN", help=f"of a table: its {what}; default: by the column's name"
        )
    parser.add_argument(
        "--format",
        choices=["auto", "html", "plain"],
        default="auto",
        help="of a table's text; docs/ingest.md has the rule",
    )


def _read_by(arguments: argparse.Namespace) -> dict[str, object]:
    """Return what `_add_table` was given, by the names of a job's fields. Raises SettingError if nothing is named."""
    from dupq.dump.files import Columns

    dumps = (*arguments.dumps, *arguments.more_dumps)
    if not dumps:
        raise SettingError("which dump or table? Give its file or folder: dupq from-dump faq.csv")
    columns = Columns(*(getattr(arguments, name) for name in ("title", "text", "id", "tags", "date", "format")))
    return {"dumps": dumps, "columns": columns}


def _ingest_options(parser: Parser) -> None:
    from dupq.settings.sections import IngestSettings

    _add_table(parser)
    parser.add_uri("--output", "where the tables go", required=True)
    parser.add_argument("--answers", action="store_true", help="write an answers table too")
    parser.add_argument(
        "--max-reject-share",
        metavar="SHARE",
        type=float,
        default=IngestSettings().maximum_reject_share,
        help="more broken rows than this share of all fail a site",
    )
    add_shared(parser)


def _ingest(arguments: argparse.Namespace) -> None:
    """Turn Stack Exchange dumps, or other tables of questions, into the tables of an archive."""
    from dupq.pipelines.arguments import IngestJob

    settings = (f"ingest.maximum_reject_share={arguments.max_reject_share}", *arguments.assignments)
    _do_on_ray(_made(IngestJob, arguments, assignments=settings, **_read_by(arguments)), "ingest", arguments.ray)


def _train_options(parser: Parser) -> None:
    parser.add_uri("--questions", "the questions table", required=True)
    parser.add_uri(
        "--links",
        "the links table; not needed where there are --pairs, nor by presets that learn from titles and bodies",
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


def _train(arguments: argparse.Namespace) -> None:
    """Train an encoder on an archive's own text and duplicate links, with Ray Train."""
    from dupq.pipelines.arguments import TrainingJob

    _do_on_ray(_made(TrainingJob, arguments), "train", arguments.ray)


def _dedup_options(parser: Parser) -> None:
    from dupq.settings.sections import CalibrationSettings, ClusterSettings

    parser.add_uri("--questions", "the questions table", required=True)
    parser.add_uri("--encoder", "a trained encoder's folder", required=True)
    parser.add_uri("--output", "the folder of runs; the run gets one of its own in it", required=True)
    parser.add_uri(
        "--links",
        "known duplicates: a part calibrates probabilities, on another quality is measured, and they mark pairs",
    )
    _add_truth(parser)
    parser.add_uri(
        "--previous",
        "an earlier run, or the folder of runs for the latest: only what is new since then is searched, clusters "
        "that live on keep their ids, and changes/ tells what became of the others",
    )
    parser.add_argument(
        "--precision",
        type=float,
        metavar="P",
        default=CalibrationSettings().precision,
        help="the expected share of the pairs that may join questions that are duplicates",
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
        "a run's worklist.tsv or review.tsv, filled in; verdicts.tsv in --output is always read. What is the same "
        "joins, what is different never does, and both calibrate; of a review.tsv that run's precision and recall are "
        "estimated",
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
        "--min-recall", type=float, metavar="R", help="fail if fewer of the known duplicates are in one cluster"
    )
    parser.add_argument("--max-cluster", type=int, metavar="N", help="fail if a cluster has more questions")
    parser.add_argument(
        "--max-change",
        type=float,
        metavar="SHARE",
        help="fail if more of the questions of clusters have another cluster than in the --previous run",
    )
    parser.add_argument(
        "--min-rows-share",
        metavar="SHARE",
        type=float,
        help="fail, before anything is searched, if the archive has fewer than this share of the --previous run's "
        "questions",
    )
    _add_teacher(parser)
    _add_gpus(parser)
    add_shared(parser)


def _dedup(arguments: argparse.Namespace) -> None:
    """Find the duplicate questions of an archive."""
    from dupq.pipelines.arguments import DedupJob, Gates

    settings = f"calibration.precision={arguments.precision}", f"clusters.known_links={arguments.known_links}"
    below = f"{arguments.questions.rstrip('/')}/"
    job = _made(
        DedupJob,
        arguments,
        assignments=(*settings, *arguments.assignments),
        gates=Gates(arguments.min_recall, arguments.max_cluster, arguments.max_change, arguments.min_rows_share),
        skipped=tuple(sorted({path.removeprefix(below) for path in arguments.skipped})),
    )
    _find(job, "dedup", arguments.ray)


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
        f"bogdanova-2, are measured on the sites of the archive and each --pair-set. {_ALL}: all of these and those",
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


def _evaluate(arguments: argparse.Namespace) -> None:
    """Measure an encoder and the baselines on known duplicates, or run the papers' experiments on them."""
    from dupq import system
    from dupq.evaluation.measures import TABLES
    from dupq.pipelines.arguments import EvaluationJob

    names = arguments.table or sorted(TABLES)
    general = tuple(name for name in sorted(TABLES) if name in names or _ALL in names)
    of_papers = tuple(dict.fromkeys(name for name in names if name not in TABLES))
    if not general and (arguments.encoder or arguments.assignments):
        raise SettingError(
            f"--encoder and --set are for the tables {' and '.join(sorted(TABLES))}; name one of these with --table, "
            "or all. The papers' systems have their own settings"
        )
    if not of_papers and (arguments.pair_set or arguments.quick):
        raise SettingError("--pair-set and --quick are for the papers' tables; name one of these with --table, or all")
    job = _made(EvaluationJob, arguments, tables=general)
    checked = job.check() if general else None
    papers = _papers_job(arguments, of_papers) if of_papers else None
    sources = papers.check() if papers else None
    from dupq.job import cluster

    cluster.connect(arguments.ray)
    if general:
        from dupq.pipelines.evaluate import evaluate

        _log.info(evaluate(job, checked))
    if papers:
        [measuring] = system.papers("job")
        _log.info(measuring.measure_papers(papers, sources))


def _papers_job(arguments: argparse.Namespace, names: tuple[str, ...]) -> _Checkable:
    """Return the job of the papers' tables `names`. Raises SettingError if dupq_papers is not installed."""
    from dupq import system
    from dupq.evaluation.measures import TABLES

    for module in system.papers("arguments"):
        tables = tuple(module.TABLES) if _ALL in names else names
        archive = arguments.questions, arguments.links, arguments.output
        return module.PapersJob(*archive, tables, tuple(arguments.pair_set), arguments.quick)
    raise SettingError(
        f"--table {', '.join(names)}: not among {' and '.join(sorted(TABLES))}, and the papers' tables need the "
        "package dupq_papers, which is not installed (papers/README.md)"
    )


def _report(arguments: argparse.Namespace) -> None:
    """Write a run's report.html anew."""
    from dupq.runs.reader import finished_run

    run = finished_run(arguments.run)
    from dupq.report.page import write  # with what draws: later than the check

    print(write(run.uri))


def _export_options(parser: Parser) -> None:
    _add_run(parser)
    formats = ("csv", "jsonl", "keep-drop", "graphml", "embedding-atlas")
    parser.add_argument("--to", required=True, choices=formats, help="the format (docs/export.md)")
    parser.add_uri("--output", "the folder that is made; nothing may be there", required=True)


def _export(arguments: argparse.Namespace) -> None:
    """Write a finished run for another tool: plain files, what to keep and drop, a graph, a map."""
    from dupq.runs.reader import finished_run

    run = finished_run(arguments.run)
    from dupq.export import FORMATS, export  # with what lays a map out: later than the check

    for written in export(run.uri, arguments.to, arguments.output):
        rows = f"{written.rows:>12,} rows  " if written.rows else " " * 19
        print(f"{rows}{written.uri}" + (f"  ({written.note})" if written.note else ""))
    print(f"open it with: {FORMATS[arguments.to].opened_by.format(output=arguments.output)}")


def _plan_options(parser: Parser) -> None:
    parser.add_argument("--questions", required=True, metavar="N", type=_questions, help="of the archive, such as 24e6")
    _add_run(parser)
    parser.add_argument("--json", action="store_true", help="a JSON object in place of the table")


def _plan(arguments: argparse.Namespace) -> None:
    """Say what dedup would take for another number of questions, from what the stages of a finished run took."""
    from dupq.plan import as_json, as_text, plan_from

    plan = plan_from(arguments.run, arguments.questions)
    print((as_json if arguments.json else as_text)(plan))


def _from_dump_options(parser: Parser) -> None:
    _add_table(parser)
    parser.add_uri("--output", "where the tables, the encoder and the runs go; default: out/ and the dump's name")
    _add_preset(parser)
    _add_truth(parser)
    _add_teacher(parser)
    _add_gpus(parser)
    add_shared(parser)


def _from_dump(arguments: argparse.Namespace) -> None:
    """Ingest dumps or tables of questions, train an encoder on them, and find their duplicates."""
    from dupq.pipelines.arguments import FromDumpJob

    read = _read_by(arguments)
    first: str = [*arguments.dumps, *arguments.more_dumps][0]
    output = arguments.output or f"out/{first.rstrip('/').rpartition('/')[2].split('.', 1)[0]}"
    _find(_made(FromDumpJob, arguments, output=output, **read), "from_dump", arguments.ray)


def _runs_options(parser: Parser) -> None:
    parser.add_uri("--output", "the folder of runs", required=True)


def _runs(arguments: argparse.Namespace) -> None:
    """List the runs below an output, with their size, age and state."""
    from dupq.runs.inventory import lines

    for line in lines(arguments.output):
        print(line)


def _prune_options(parser: Parser) -> None:
    parser.add_uri("--output", "the folder of runs", required=True)
    parser.add_uri(
        "--encoder",
        "also remove what trainings that did not make the encoder left in its folder; may be repeated",
        dest="encoder",
    )
    parser.add_argument(
        "--keep", type=_whole(1), default=7, metavar="N", help="finished runs to keep, the newest ones; at least 1"
    )
    parser.add_argument(
        "--keep-monthly", type=_whole(0), default=12, metavar="N", help="months of which the newest run is kept"
    )
    parser.add_argument("--dry-run", action="store_true", help="remove nothing, and say what would be")


def _prune(arguments: argparse.Namespace) -> None:
    """Remove runs that nothing needs, and what they and trainings left behind."""
    from datetime import UTC, datetime

    from dupq.runs.inventory import Keep, prune

    keep = Keep(arguments.keep, arguments.keep_monthly)
    for line in prune(arguments.output, arguments.encoder, keep, datetime.now(UTC), arguments.dry_run):
        print(line, flush=True)


def _status_options(parser: Parser) -> None:
    parser.add_uri("--run", "a run's folder, or a folder of runs for the newest", required=True)


def _status(arguments: argparse.Namespace) -> None:
    """Say how far a run is."""
    from datetime import UTC, datetime

    from dupq.runs.inventory import status

    print(status(arguments.run, datetime.now(UTC)))


def _review(arguments: argparse.Namespace) -> None:
    """Judge a run's worklist in a terminal: are the two questions of a pair the same?"""
    from dupq.review import review

    review(arguments.run)


def _serve_options(parser: Parser) -> None:
    _add_run(parser)
    parser.add_argument(
        "--port", type=_whole(0, 65_535), default=PORT, metavar="N", help="the port on 127.0.0.1; 0: any free one"
    )


def _serve(arguments: argparse.Namespace) -> None:
    """Show all clusters of a run in a browser, from a server on this machine that only it can reach."""
    from dupq.runs.reader import finished_run

    run = finished_run(arguments.run)
    from dupq.serve import ADDRESS, Server, serve  # with what draws: later than the check

    def ready(server: Server) -> None:
        print(f"open http://{ADDRESS}:{server.server_port}/ in a browser; Ctrl-C ends it", flush=True)

    serve(run, arguments.port, ready)


def _warm(arguments: argparse.Namespace) -> None:
    """Compile what jobs call and keep it, so that no run waits for it."""
    # GPU kernels too where there is a GPU: by find_duplicates and, if Ray is installed, the jobs on a small archive
    import time

    from dupq import find_duplicates
    from dupq.kernel_cache import compile_seconds
    from dupq.system import is_installed

    start = time.monotonic()
    logging.getLogger("dupq").setLevel(logging.WARNING)
    find_duplicates(["How do I bake bread?", "How do I bake some bread?", "Where is my bicycle?"])
    if is_installed("ray"):
        _do_the_jobs(arguments.gpus)
    logging.getLogger("dupq").setLevel(logging.INFO)
    _log.info(
        f"compiled: {time.monotonic() - start:.0f} s, of which numba took {compile_seconds():.0f} s; a run finds what "
        "was kept"
    )


def _do_the_jobs(gpus: int | None) -> None:
    import tempfile

    from dupq.job import cluster
    from dupq.job.gpus import gpus_for
    from dupq.pipelines.arguments import FromDumpJob
    from dupq.pipelines.train import from_dump

    cluster.connect("local")
    gpus = gpus_for(gpus).now()  # a number: `auto` would leave so few questions to CPUs
    with tempfile.TemporaryDirectory(prefix="dupq-warm-") as folder:
        dump = _write_small_dump(folder)
        for language in ("english", "german"):  # whose word vectors are learned from nothing
            assignments = (*_SHORT, f"text.language={language}")
            job = FromDumpJob((dump,), f"{folder}/{language}", "dupq", None, assignments, gpus)
            from_dump(job, job.check())


def _write_small_dump(folder: str) -> str:
    """Write a dump of 300 questions into a local folder and return its URI: each is there twice, half are linked."""
    from dupq import storage

    verbs, places = ("bake", "clean", "dry", "fold", "paint"), ("in a small kitchen", "on a balcony", "in the winter")
    things = ("bread", "shirts", "carpets", "bicycles", "mirrors", "windows", "chairs", "roses", "pans", "boots")
    titles = ("How do I {} {} {}?", "What is the best way to {} {} {}?")
    row = '<row Id="{}" PostTypeId="1" CreationDate="2024-01-01T00:00:00.000" Score="1" Title="{}" Body="{}" Tags="" />'
    link = '<row Id="{0}" CreationDate="2024-01-02T00:00:00.000" PostId="{0}" RelatedPostId="{1}" LinkTypeId="3" />'
    posts: list[str] = []
    links: list[str] = []
    for words in itertools.product(verbs, things, places):
        body = "&lt;p&gt;I tried to {} {} {}, and it did not go well. What do I need for it?&lt;/p&gt;".format(*words)
        for title in titles:
            posts.append(row.format(len(posts) + 1, title.format(*words), body))
        if len(posts) % 4:
            links.append(link.format(len(posts), len(posts) - 1))
    for file, root, rows in (("Posts.xml", "posts", posts), ("PostLinks.xml", "postlinks", links)):
        lines = "\r\n".join(['<?xml version="1.0" encoding="utf-8"?>', f"<{root}>", *rows, f"</{root}>"])
        storage.write_bytes(f"{folder}/warm.example.com/{file}", lines.encode())
    return f"{folder}/warm.example.com"


COMMANDS = {
    "ingest": Command(_ingest_options, _ingest),
    "train": Command(_train_options, _train),
    "dedup": Command(_dedup_options, _dedup),
    "evaluate": Command(_evaluate_options, _evaluate),
    "report": Command(_add_run, _report),
    "export": Command(_export_options, _export),
    "plan": Command(_plan_options, _plan),
    "from_dump": Command(_from_dump_options, _from_dump),
    "runs": Command(_runs_options, _runs),
    "prune": Command(_prune_options, _prune),
    "status": Command(_status_options, _status),
    "review": Command(_add_run, _review),
    "serve": Command(_serve_options, _serve),
    "warm": Command(_add_gpus, _warm),
}
