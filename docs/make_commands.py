"""Writes docs/commands.md from the options of every job: `make docs`."""

import argparse
import os
from pathlib import Path

from dupq.cli import COMMANDS
from dupq.options import Parser, add_shared

PAGE = Path(__file__).with_name("commands.md")
_OPENING = """# Commands

Made by `make docs` from the options of `dupq`; a test holds it to them. `dupq JOB --help` shows the same. `jobs/` has
scripts for `ray submit` that do what `dupq JOB` does: dedup, evaluate, export, from_dump, ingest, plan, report, train.
"""
_CLOSING = """
URIs are local paths or `s3://…` ([S3](operations.md#s3)). `--set section.name=value` changes a [setting](settings.md).
Exit code 0 means that everything asked for is there, 2 a wrong argument or setting; the others are in
[operations](operations.md#exit-codes). A job that was interrupted continues when you call it again.
"""
_IN_A_TABLE = str.maketrans({"|": "\\|", "<": "&lt;", "\n": " "})


def page() -> str:
    """The whole page."""
    shared = _options(_parser(add_shared))
    parts = [_OPENING]
    for name, command in COMMANDS.items():
        options = _options(_parser(command.add_options))
        own = [option for option in options if option not in shared]
        more = "" if len(own) == len(options) else "\nAnd [what all jobs on Ray take](#what-all-jobs-on-ray-take).\n"
        parts.append(f"\n## dupq {name.replace('_', '-')}\n\n{command.about}\n\n{_table(own)}{more}")
    return "".join([*parts, f"\n## What all jobs on Ray take\n\n{_table(shared)}", _CLOSING])


def _parser(add_options: object) -> argparse.ArgumentParser:
    parser = Parser(prog="dupq", add_help=False)
    add_options(parser)  # type: ignore[operator]
    return parser


def _options(parser: argparse.ArgumentParser) -> list[tuple[str, str, str]]:
    """Of each option: how it is written, its default, and what it is for."""
    shown = [action for action in parser._actions if action.help != argparse.SUPPRESS]
    return [(_written(action), _default(action), str(action.help)) for action in shown]


def _written(action: argparse.Action) -> str:
    name = ", ".join(action.option_strings)
    if action.choices and not action.metavar:
        return f"`{name}` " + ", ".join(f"`{choice}`" for choice in action.choices)
    repeated = " …" if isinstance(action, argparse._AppendAction) else ""
    return f"`{name} {action.metavar}{repeated}`" if action.nargs != 0 else f"`{name}`"


def _default(action: argparse.Action) -> str:
    if action.required:
        return "needed"
    if action.default is None or action.default is False or action.default == []:
        return ""
    return Path(action.default).name if os.path.isabs(str(action.default)) else str(action.default)


def _table(options: list[tuple[str, str, str]]) -> str:
    lines = ["| option | default | |", "|---|---|---|"]
    lines += [f"| {written} | {default} | {about.translate(_IN_A_TABLE)} |" for written, default, about in options]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
