"""Options that jobs share."""

import argparse
import sys
from typing import Any, NoReturn

from dupq import storage
from dupq.dump.columns import Columns
from dupq.errors import DupqError, SettingError
from dupq.settings import config

_MOST_GPUS = 10_000


class _Formatter(argparse.ArgumentDefaultsHelpFormatter):
    """Shows defaults, where there is one to show."""

    def _get_help_string(self, action: argparse.Action) -> str | None:
        return action.help if action.default in (None, []) else super()._get_help_string(action)


class Parser(argparse.ArgumentParser):
    """Shows defaults, and takes no abbreviated options."""

    def __init__(self, **options: Any) -> None:
        """The options of argparse's parser."""
        super().__init__(formatter_class=_Formatter, allow_abbrev=False, **options)

    def error(self, message: str) -> NoReturn:
        """One line, like all errors; argparse would put its usage in front."""
        raise SettingError(f"{' '.join(message.split())}; {self.prog} --help shows all arguments")


def add_shared(parser: argparse.ArgumentParser) -> None:
    """The options of every job that runs on Ray."""
    parser.add_argument(
        "--ray",
        metavar="ADDRESS",
        default=None,
        help="the Ray cluster to join, 'auto' for the one running on this machine; 'local' starts one. Without it "
        "RAY_ADDRESS decides, else one is started",
    )
    parser.add_argument(
        "--set",
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


def add_table(parser: argparse.ArgumentParser) -> None:
    """What to read, and the options of tables of questions that are no dump."""
    parser.add_argument(
        "--dump",
        required=True,
        action="append",
        metavar="URI",
        type=uri,
        help="a .7z, a Posts.xml, a table (.csv, .tsv, .json, .jsonl, .parquet), all but .7z also compressed, GitHub "
        "issues as gh or the API gives them, or a folder of them; may be repeated",
    )
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


def columns_of(arguments: argparse.Namespace) -> Columns:
    """What `add_table` was given of columns."""
    return Columns(*(getattr(arguments, name) for name in ("title", "text", "id", "tags", "date", "format")))


def add_gpus(parser: argparse.ArgumentParser) -> None:
    """The option of jobs that compute with encoders."""
    parser.add_argument(
        "--gpus",
        metavar="auto|N|none",
        type=_gpus,
        default="auto",
        help="auto: those that the cluster has, if torch can use them; N: so many, which an autoscaling cluster "
        "starts; none: none is touched",
    )


def add_teacher(parser: argparse.ArgumentParser) -> None:
    """The option of jobs that look for duplicates."""
    parser.add_argument(
        "--teacher",
        metavar="MODEL",
        help="a sentence-transformers model that reads the questions of likely pairs: its folder, an installed package "
        "that has one, or its name on the Hugging Face hub; its cosine is evidence like any other",
    )


def _gpus(text: str) -> int | None:
    """The type of a number of GPUs: None for auto."""
    if text == "auto":
        return None
    if text != "none" and not (text.isascii() and text.isdecimal() and 0 < int(text[:6]) <= _MOST_GPUS):
        raise argparse.ArgumentTypeError(f"'{text}': auto, none, or a number from 1 to {_MOST_GPUS:,} expected")
    return 0 if text == "none" else int(text)


def add_preset(parser: argparse.ArgumentParser) -> None:
    """The settings that training starts from."""
    parser.add_argument(
        "--preset",
        default=config.DEFAULT_PRESET,
        metavar="NAME",
        help=f"the encoder's settings to start from: {', '.join(config.preset_names())}",
    )


def uri(text: str) -> str:
    """The type of an argument that names a file or folder; an empty one would be the folder that the job runs in."""
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
