"""Judging a worklist in a terminal: what is shown and saved, and that a killed process loses nothing."""

import io
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from explored_run import WORK, build_explored_run

from dupq import storage
from dupq.evaluation.verdicts import Verdict, last_verdicts
from dupq.review import review
from dupq.tables import QUESTIONS

JUDGED = [(*sorted(pair)[0], *sorted(pair)[1]) for pair in WORK]


@pytest.fixture
def run(tmp_path: Path) -> str:
    made = build_explored_run(str(tmp_path))
    storage.write_json(storage.join(made, "_SUCCESS"), {})
    return made


def given(run: str) -> list[Verdict]:
    target = Path(run).parent / "verdicts.tsv"
    return sorted(last_verdicts([str(target)])[0]) if target.exists() else []


def judge(run: str, typed: str, monkeypatch: pytest.MonkeyPatch, of_past: bool = False) -> list[Verdict]:
    monkeypatch.setattr(sys, "stdin", io.StringIO(typed))
    review(run, of_past=of_past)
    return given(run)


def test_each_pair_is_judged_once_and_back_gives_another_verdict(run: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert judge(run, "s\n\nb\nb\nd\nq\n", monkeypatch) == [Verdict(*JUDGED[0], "different")]
    expected = sorted([Verdict(*JUDGED[0], "different"), Verdict(*JUDGED[1], "unsure")])
    assert judge(run, "u\n", monkeypatch) == expected  # the first one is not asked again; then the input ends
    assert len(judge(run, "x\ns\ns\n", monkeypatch)) == 2  # one is left, and it is skipped


def test_a_verdict_is_taken_back_at_once_or_later(
    run: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert judge(run, "z\ns\nd\nz\nz\nz\nq\n", monkeypatch) == []  # at first there is nothing to take back
    shown = capsys.readouterr().out
    assert shown.count("3 of 3") == 1  # after two verdicts; then back at the second, and at the first
    assert shown.rstrip().endswith("reads " + str(Path(run).parent / "verdicts.tsv"))  # no verdict, no next command
    judge(run, "s\nd\nq\n", monkeypatch)
    expected = sorted(Verdict(*pair, "different") for pair in JUDGED[:2])
    assert judge(run, "z\nd\nq\n", monkeypatch, of_past=True) == expected
    capsys.readouterr()
    judge(run, "z\n\nz\nq\n", monkeypatch, of_past=True)
    assert "\n0 verdicts given, 2 taken back; the next" in capsys.readouterr().out
    assert judge(run, "", monkeypatch, of_past=True) == []
    assert capsys.readouterr().out == "no pair is judged yet\n"
    judge(run, "", monkeypatch)
    assert "1 of 3   probability" in capsys.readouterr().out  # it is asked again


def test_verdicts_are_compared_with_what_was_expected_and_the_next_command_is_whole(
    run: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    judge(run, "s\nu\nd\n", monkeypatch)
    told = [line for line in capsys.readouterr().out.splitlines() if "dupq expected" in line]
    assert told == ["1 of 1 same; dupq expected 0.5"] * 2  # an unsure one does not count
    judge(run, "", monkeypatch)
    assert capsys.readouterr().out == "no pair of the worklist is left to judge\n"
    judge(run, "\n\nz\n", monkeypatch, of_past=True)
    shown = capsys.readouterr().out
    assert "1 of 2 same; dupq expected 0.7" in shown
    judge(run, "s\n", monkeypatch)
    (command,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("next: ")]
    assert re.fullmatch(r"next: (\S*/)?dupq dedup .*", command)
    assert shlex.split(command)[-2:] == ["--output", str(Path(run).parent)]


def test_what_users_wrote_cannot_command_the_terminal(
    run: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for file in storage.list_files(f"{Path(run).parents[1]}/questions", ".parquet"):
        table = storage.read_table(file.uri, QUESTIONS)
        hostile = pa.array(["\x1b[2Jgone\u202e\x07 title\nnext"] * len(table))
        table = table.set_column(1, QUESTIONS.field("title"), hostile)
        storage.write_table(file.uri, table, QUESTIONS)
    judge(run, "", monkeypatch)
    shown = capsys.readouterr().out
    assert "[2Jgone" in shown
    assert not set("\x1b\u202e\x07") & set(shown)


def test_a_verdict_is_kept_before_the_next_pair_is_shown(run: str) -> None:
    command = [sys.executable, "-c", "from dupq.cli import main; main()", "review", "--run", run]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write("d\n")
        process.stdin.flush()
        while not process.stdout.readline().startswith("2 of 3"):
            assert process.poll() is None
        process.kill()
    assert given(run) == [Verdict(*JUDGED[0], "different")]
