"""What `dupq` says of itself, and to somebody who mistypes."""

import os
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from dupq import __version__
from dupq.cli import _GROUPS, COMMANDS, _set_up
from dupq.options import Parser

Dupq = Callable[..., tuple[int, str, str]]


def test_the_overview_has_every_command_once_and_an_example(dupq: Dupq) -> None:
    assert sorted(name for names in _GROUPS.values() for name in names) == sorted(COMMANDS)
    code, alone, error = dupq("--help")
    assert (code, alone + error) == (0, "".join(dupq()[1:]))
    assert all(f"  dupq {name.replace('_', '-')} " in alone for name in COMMANDS)
    assert "Example: dupq from-dump faq.csv" in alone
    assert dupq("--version")[1].startswith(f"dupq {__version__}")


@pytest.mark.parametrize("name", COMMANDS)
def test_the_example_of_a_command_is_one(name: str) -> None:
    parser = Parser(prog="dupq")
    _set_up(parser, name)
    parser.parse_args(shlex.split(COMMANDS[name].example))


@pytest.mark.parametrize(
    ("line", "answers"), [("dupq re", {"report", "review"}), ("dupq export --run x --to k", {"keep-drop"})]
)
def test_a_shell_completes_commands_options_and_values(line: str, answers: set[str], tmp_path: Path) -> None:
    pytest.importorskip("argcomplete")
    asked = {"_ARGCOMPLETE": "1", "_ARGCOMPLETE_IFS": " ", "COMP_LINE": line, "COMP_POINT": str(len(line))}
    environment = os.environ | asked | {"_ARGCOMPLETE_STDOUT_FILENAME": str(tmp_path / "answers")}
    subprocess.run([sys.executable, "-m", "dupq.cli"], env=environment, check=True)
    assert set((tmp_path / "answers").read_text().split()) == answers


@pytest.mark.parametrize(
    ("words", "answer"),
    [("dedupe", "dupq dedupe: no such command; did you mean dedup?"), ("xyz", "dupq alone lists all commands")],
)
def test_a_mistyped_command_is_guessed(words: str, answer: str, dupq: Dupq) -> None:
    code, out, error = dupq(words)
    assert (code, out) == (2, "")
    assert answer in error
