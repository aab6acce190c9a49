"""The options of each command of `dupq`, and what their values may be.

A command's options import the modules that their defaults come from.
"""

import argparse
import difflib
import math
import re
import sys
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from dupq.commands import ALL
from dupq.errors import DupqError, SettingError

_MOST_GPUS = 10_000
_MOST_QUESTIONS = 1e12
_PORT = 8321
_OF_RUNS = "the folder of runs"
_LABELLED = (
    "lines of two questions (site/question_id, or with one site the id) and 1 (duplicates, also if it is missing) or "
    "0, with tabs between"
)
_COLUMNS = {  # of a table
    "title": "title or question",
    "text": "text or answer",
    "id": "id, a number or not; a table without one is numbered",
    "tags": "tags",
    "date": "date",
    "url": "web address, https only",
}


_WRONG_COMMAND = re.compile(r"argument JOB: invalid choice: '(.*?)'", re.DOTALL)


class _Formatter(argparse.ArgumentDefaultsHelpFormatter):
    """A help formatter that shows defaults, except None and []."""

    def _get_help_string(self, action: argparse.Action) -> str | None:
        return action.help if action.default in (None, []) else super()._get_help_string(action)


class Parser(argparse.ArgumentParser):
    """A parser that shows defaults, refuses abbreviated options, and raises SettingError."""

    commands: Sequence[str] = ()  # of a parser of `dupq`

    def __init__(self, **options: Any) -> None:
        """Pass `options` to argparse's parser."""
        super().__init__(formatter_class=_Formatter, allow_abbrev=False, **options)

    def error(self, message: str) -> NoReturn:
        """Raise SettingError with one line, as for all errors; argparse would print its usage first."""
        if wrong := _WRONG_COMMAND.match(message):
            near = difflib.get_close_matches(wrong[1], self.commands, 1)
            raise SettingError(
                f"dupq {wrong[1]}: no such command; "
                + (f"did you mean {near[0]}?" if near else "dupq alone lists all commands")
            )
        raise SettingError(f"{' '.join(message.split())}; {self.prog} --help shows all arguments")

    def add(
        self,
        name: str,
        metavar: str,
        about: str,
        kind: Callable[[str], object] = str,
        default: object = None,
        required: bool = False,
        dest: str | None = None,
    ) -> None:
        """Add an option with a value, which `kind` parses. If it changes a setting, `dest` is the setting's name."""
        self.add_argument(name, metavar=metavar, help=about, type=kind, default=default, required=required, dest=dest)

    def add_uri(self, name: str, about: str, required: bool = False) -> None:
        """Add an option that names a file or folder."""
        self.add(name, "URI", about, uri, required=required)

    def add_list(
        self, name: str, metavar: str, about: str, kind: Callable[[str], object] = str, dest: str | None = None
    ) -> None:
        """Add an option that may be repeated."""
        self.add_argument(name, metavar=metavar, help=about, type=kind, action="append", default=[], dest=dest)

    def add_flag(self, name: str, about: str) -> None:
        """Add an option without a value."""
        self.add_argument(name, action="store_true", help=about)


def ingest(parser: Parser) -> None:
    """Add the options of `dupq ingest`."""
    from dupq.settings.sections import IngestSettings

    about = "a site fails if more than this share of its rows is broken"
    _add_dumps(parser)
    parser.add("--scope", "COLUMN", "of a table: a column to keep, so that dedup --scope column compares within it")
    parser.add_uri("--output", "where the tables go", required=True)
    parser.add_flag("--answers", "write an answers table too")
    default = IngestSettings().maximum_reject_share
    parser.add("--max-reject-share", "SHARE", about, float, default, dest="ingest.maximum_reject_share")
    add_shared(parser)


def train(parser: Parser) -> None:
    """Add the options of `dupq train`."""
    workers = "training workers, one CPU each, and one GPU each if --gpus are enough"
    _add_questions(parser)
    parser.add_uri(
        "--links", "the links table; optional with --pairs, and for presets that learn from titles and bodies"
    )
    parser.add_list("--pairs", "URI", f"more known pairs: {_LABELLED}; may be repeated", uri)
    parser.add_uri("--output", "the encoder's folder", required=True)
    _add_preset(parser)
    parser.add("--workers", "N", workers, int, default=1)
    add_gpus(parser)
    add_shared(parser)


def dedup(parser: Parser) -> None:
    """Add the options of `dupq dedup`."""
    from dupq.settings.sections import ClusterSettings

    _add_questions(parser)
    parser.add_uri("--encoder", "a trained encoder's folder", required=True)
    parser.add_uri("--output", "the folder of runs; the run gets one of its own in it", required=True)
    _add_known(parser)
    parser.add_argument(
        "--known-links",
        choices=("use", "ignore", "check"),
        help="use: known duplicates join their questions; check: they are for calibration and measures only; ignore: "
        "as if there were none",
        default=ClusterSettings().known_links,
        dest="clusters.known_links",
    )
    parser.add_list(
        "--skip-shard",
        "PATH",
        "leave out a file of the questions table, by its path below --questions (site=NAME/FILE); may be repeated; "
        "manifest and report say so",
        dest="skipped",
    )
    about = "compare only questions with a common value: site, tags, owner, or column, which ingest --scope named"
    parser.add("--scope", "NAME", about, dest="neighbours.scope")
    _add_times(parser)
    _add_gates(parser)
    _add_reranker(parser)
    _add_judge(parser)
    add_gpus(parser)
    add_shared(parser)


def judge(parser: Parser) -> None:
    """Add the options of `dupq judge`."""
    add_run(parser)
    _add_judge(parser)
    add_gpus(parser)
    add_shared(parser)


def evaluate(parser: Parser) -> None:
    """Add the options of `dupq evaluate`."""
    from dupq.evaluation.measures import TABLES

    general = " and ".join(sorted(TABLES))
    _add_questions(parser)
    parser.add_uri("--links", f"the links table, or a file of labelled pairs: {_LABELLED}", required=True)
    parser.add_uri("--output", "where metrics.json and papers/ go", required=True)
    parser.add_uri(
        "--encoder",
        f"a trained encoder's folder; without it only the baselines. It and --set are for {general}: the papers' "
        "systems have their own settings",
    )
    parser.add_argument(
        "--table",
        metavar="NAME",
        help=f"what to measure; may be repeated; default: {general}. Tables of the papers (papers/README.md), such as "
        "bogdanova-2, are measured on the sites of the archive and each --pair-set. "
        f"{ALL}: all tables of both kinds",
        action="append",
    )
    parser.add_list(
        "--pair-set",
        "URI",
        "a folder with one more data set for tables of the papers: pairs.tsv, or that and questions.tsv, or files of "
        "SemEval-2016 Task 3 (docs/papers.md); may be repeated",
        uri,
    )
    parser.add_flag("--quick", "tables of the papers with fewer pairs, epochs and questions, for a look")
    add_gpus(parser)
    add_shared(parser)


def export(parser: Parser) -> None:
    """Add the options of `dupq export`."""
    formats = ("csv", "jsonl", "keep-drop", "graphml", "embedding-atlas", "digest")
    add_run(parser)
    parser.add_argument("--to", choices=formats, help="the format (docs/export.md)", required=True)
    parser.add_uri("--output", "the new folder; it must not exist yet", required=True)
    parser.add_uri("--since", "of a digest: the earlier run to compare with; default: the run that it builds on")


def plan(parser: Parser) -> None:
    """Add the options of `dupq plan`."""
    parser.add("--questions", "N", "how many, such as 24e6", _questions, required=True)
    add_run(parser)
    parser.add_flag("--json", "a JSON object instead of the table")


def from_dump(parser: Parser) -> None:
    """Add the options of `dupq from-dump`."""
    _add_dumps(parser)
    parser.add_uri("--output", "where the tables, the encoder and the runs go; default: out/ and the dump's name")
    _add_preset(parser)
    _add_known(parser)
    about = "compare only questions with a common value: of site, tags, owner, or of a column of the table"
    parser.add("--scope", "COLUMN", about)
    _add_times(parser)
    _add_reranker(parser)
    _add_judge(parser)
    add_gpus(parser)
    add_shared(parser)


def review(parser: Parser) -> None:
    """Add the options of `dupq review`."""
    add_run(parser)
    parser.add_flag("--judge", "offer the 50 pairs on which a judge and dupq differ most, not the worklist")
    parser.add_flag("--past", "go through the pairs that are judged already, to change a verdict or take it back")


def runs(parser: Parser) -> None:
    """Add the options of `dupq runs`."""
    parser.add_uri("--output", _OF_RUNS, required=True)
    parser.add_flag("--json", "a JSON list instead of the table")


def prune(parser: Parser) -> None:
    """Add the options of `dupq prune`."""
    others = "an encoder's folder: also remove what its other trainings left there; may be repeated"
    parser.add_uri("--output", _OF_RUNS, required=True)
    parser.add_list("--encoder", "URI", others, uri)
    parser.add("--keep", "N", "finished runs to keep, the newest ones; at least 1", _whole(1), default=7)
    parser.add("--keep-monthly", "N", "also keep the newest run of each of N months", _whole(0), default=12)
    parser.add_flag("--dry-run", "remove nothing, only say what would be removed")


def status(parser: Parser) -> None:
    """Add the options of `dupq status`."""
    parser.add_uri("--run", "a run's folder, or a folder of runs for the newest", required=True)
    parser.add_flag("--json", "a JSON object instead of the lines")


def serve(parser: Parser) -> None:
    """Add the options of `dupq serve`."""
    add_run(parser)
    about = "the address to listen at; if other machines reach it, each request must give the token in DUPQ_TOKEN"
    parser.add("--host", "ADDRESS", about, default="127.0.0.1")
    parser.add("--port", "N", "its port; 0: any free one", _whole(0, 65_535), default=_PORT)


def add_run(parser: Parser) -> None:
    """Add the finished run that a command reads."""
    parser.add_uri("--run", "a run's folder, or a folder of runs for the latest", required=True)


def add_gpus(parser: Parser) -> None:
    """Add the number of GPUs."""
    about = (
        "auto: those of the cluster, if torch can use them; N: this many, which an autoscaling cluster starts; none: "
        "CPUs only"
    )
    parser.add("--gpus", "auto|N|none", about, _gpus, default="auto")


def add_shared(parser: Parser) -> None:
    """Add the options of every job that runs on Ray."""
    parser.add(
        "--ray",
        "ADDRESS",
        "the Ray cluster to join; 'auto': the one running on this machine; 'local': start one; 'none': no Ray, all "
        "work in this process, for a small archive. Without it: RAY_ADDRESS if that is set, else start one",
    )
    changed = "change a setting (docs/settings.md); may be repeated"
    parser.add_list("--set", "SECTION.NAME=VALUE", changed, dest="assignments")
    lines = "the format of lines; json: one object per line, with time, level, run, stage and message"
    parser.add_argument("--log", choices=("plain", "json"), help=lines, default="plain")
    parser.add_flag("--verbose", "show a line per stage on a terminal too, as elsewhere and in run.log")


def _add_dumps(parser: Parser) -> None:
    """Add the dumps or tables to read, and the options of tables."""
    parser.add_argument(
        "dumps",
        metavar="DUMP",
        help="a .7z, a Posts.xml, a table (.csv, .tsv, .json, .jsonl, .parquet), all but .7z also compressed, GitHub "
        "issues as gh or the API gives them, or a folder of them",
        type=uri,
        nargs="*",
    )
    parser.add_list("--dump", "URI", "the same; may be repeated", uri, dest="more_dumps")
    parser.add("--site", "NAME", "the site's name, for a single dump; default: from the file or folder")
    for name, column in _COLUMNS.items():
        parser.add(f"--{name}", "COLUMN", f"of a table: its {column}; default: by the column's name")
    rule = "of a table's text, or table: a plain table, whatever its columns are called; docs/ingest.md has the rules"
    parser.add_argument("--format", choices=("auto", "html", "plain", "table"), help=rule, default="auto")


def _add_questions(parser: Parser) -> None:
    parser.add_uri("--questions", "the questions table", required=True)


def _add_preset(parser: Parser) -> None:
    from dupq.settings import config

    about = f"the encoder's settings to start from: {', '.join(config.preset_names())}"
    parser.add("--preset", "NAME", about, default=config.DEFAULT_PRESET)


def _add_known(parser: Parser) -> None:
    """Add what is known of an archive's duplicates, and how sure a pair must be that joins."""
    from dupq.settings.sections import CalibrationSettings

    about = "the share of the joined pairs that should be duplicates: 0.8 is 8 of 10"
    parser.add_uri(
        "--links", "known duplicates: some calibrate the probabilities, others measure quality; linked pairs are marked"
    )
    parser.add_uri("--truth", "planted pairs of a made archive (.tsv), to measure what was found")
    parser.add_uri(
        "--previous",
        "an earlier run, or the folder of runs for the latest: only new questions are searched, clusters that live on "
        "keep their ids, and changes/ says what became of the others",
    )
    parser.add("--precision", "P", about, float, CalibrationSettings().precision, dest="calibration.precision")
    parser.add_uri(
        "--verdicts",
        "a run's worklist.tsv or review.tsv, filled in; verdicts.tsv in the folder of runs is always read. Pairs "
        "judged the same are joined, those judged different never are, and both calibrate. A review.tsv also measures "
        "its run's precision and recall",
    )


def _add_times(parser: Parser) -> None:
    about = "compare only questions that were asked at most so many days apart"
    parser.add("--window", "DAYS", about, _whole(1), dest="neighbours.window")
    about = "keep the question of a cluster that was asked first; newer says which of a pair was asked later"
    parser.add_argument("--earlier", action="store_true", default=None, help=about, dest="clusters.earlier")


def _add_gates(parser: Parser) -> None:
    recall = "fail if less than this share of the known duplicates is in one cluster"
    change = "fail if more than this share of the clustered questions changed cluster since the --previous run"
    rows = (
        "fail, before anything is searched, if the archive has fewer than this share of the --previous run's questions"
    )
    parser.add("--min-recall", "R", recall, float)
    parser.add("--max-cluster", "N", "fail if a cluster has more questions", int)
    parser.add("--max-change", "SHARE", change, float)
    parser.add("--min-rows-share", "SHARE", rows, float)


def _add_reranker(parser: Parser) -> None:
    parser.add(
        "--reranker",
        "MODEL|none",
        "the sentence-transformers model that reads the questions of likely pairs: its folder, an installed package "
        "that has one, or its name on the Hugging Face hub; default: all-MiniLM-L6-v2 if it is installed",
    )


def _add_judge(parser: Parser) -> None:
    """Add the options of a judge."""
    about = (
        "a language model reads the likeliest pairs: the address of an OpenAI-compatible endpoint, like "
        "http://localhost:11434/v1; titles and 80 words of the texts are sent there, and nothing without this option"
    )
    budget = "dollars that calls may cost, by the settings judge.price_in and judge.price_out"
    pairs = "pairs of each site that it reads, at most; default: 500"
    parser.add("--judge", "URL", about, dest="judge.url")
    parser.add("--judge-model", "NAME", "the model that is asked, by its name there", dest="judge.model")
    parser.add("--judge-pairs", "N", pairs, _whole(1), dest="judge.pairs")
    parser.add("--judge-budget", "DOLLARS", budget, float, dest="judge.dollars")
    tokens = "tokens that calls may take, read and written"
    parser.add("--judge-tokens", "N", tokens, _whole(1), dest="judge.tokens")
    parser.add_flag(
        "--judge-required",
        "fail if the judge fails, or gives no usable answer; without it the run goes on and says so",
    )


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
