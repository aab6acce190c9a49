"""The papers' tables, which dupq_papers measures: what is refused; papers/tests measures one."""

import argparse
from pathlib import Path

import pytest
from trained import TrainedSample

from dupq import system
from dupq.cli import COMMANDS
from dupq.errors import SettingError
from dupq.options import Parser
from dupq.settings import config

TABLE = "othman-figures-8-9"


def arguments(questions: str, links: str, output: Path, *more: str) -> argparse.Namespace:
    parser = Parser()
    COMMANDS["evaluate"].add_options(parser)
    return parser.parse_args([f"--questions={questions}", f"--links={links}", f"--output={output}", *more])


@pytest.mark.parametrize("names", [(TABLE,), ("all",), ("pairs", "pears")])
def test_without_their_package_a_table_is_refused_in_one_line(
    names: tuple[str, ...], small_sample: TrainedSample, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(system, "is_installed", lambda module: module != "dupq_papers")
    assert "dupq" in config.preset_names()
    assert "bogdanova-max" not in config.preset_names()
    given = arguments(small_sample.questions, small_sample.links, tmp_path, *(f"--table={name}" for name in names))
    with pytest.raises(SettingError, match=f"^--table {names[-1]}: .* need the package dupq-papers[^\\n]*$"):
        COMMANDS["evaluate"].run(given)


@pytest.mark.parametrize("option", [("--set", "encode.batch_tokens=1000"), ("--encoder", "somewhere")])
def test_options_of_other_tables_are_refused(option: tuple[str, str], tmp_path: Path) -> None:
    parser = Parser()
    COMMANDS["evaluate"].add_options(parser)
    given = ["--questions=q", "--links=l", f"--output={tmp_path}", "--table=othman-2", *option]
    with pytest.raises(SettingError, match="--encoder and --set are for the tables pairs and retrieval"):
        COMMANDS["evaluate"].run(parser.parse_args(given))
