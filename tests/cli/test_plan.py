"""The command `dupq plan`: the times of a run, extrapolated, and the runs that it refuses."""

import json
from pathlib import Path

import pytest

from dupq import cli, storage
from dupq.commands import _named_after
from tests.fabricated_run import build_run


def ask(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as ended:
        cli.main(["plan", *map(str, arguments)])
    told = capsys.readouterr()
    return int(ended.value.code or 0), told.out, told.err


def test_stages_grow_as_they_were_measured_to(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    run = build_run(str(tmp_path))  # of 53 questions; its stages took 1.5 s, 3 s and so on
    code, out, error = ask(capsys, "--questions", "530", "--run", tmp_path / "runs", "--json")
    assert (code, error) == (0, "")
    plan = json.loads(out)
    assert (plan["run"], plan["run_questions"], plan["questions"]) == (run, 53, 530)
    seconds = {stage["name"]: stage["seconds"] for stage in plan["stages"]}
    assert seconds["texts"] == pytest.approx(1.5 * 10)
    assert seconds["neighbours"] == pytest.approx(1.5 * 7 * 10**1.9)
    assert seconds["pairs"] == pytest.approx(1.5 * 8 * 10**1.2)
    assert plan["disk_bytes"] == 10 * sum(file.size for file in storage.list_files(run))


def test_the_table_has_a_line_a_stage_and_says_what_it_rests_on(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    code, out, _ = ask(capsys, "--questions", "24e6", "--run", build_run(str(tmp_path)))
    assert code == 0
    assert "24,000,000 questions, from the 53 of" in out
    assert [line.split()[0] for line in out.splitlines()[2:15]] == [
        *("stage", "texts", "signatures", "near_duplicates", "encode", "terms", "calibrate", "neighbours", "pairs"),
        *("partition", "clusters", "evaluate", "all"),
    ]
    assert "fewer than 50,000 questions" in out
    assert "times the questions of that run" in out


@pytest.mark.parametrize("wrong", ["0", "-1", "abc", "1.5", "nan", "1e400", ""])
def test_a_wrong_number_is_one_line(capsys: pytest.CaptureFixture[str], wrong: str) -> None:
    code, out, error = ask(capsys, "--questions", wrong, "--run", "x")
    assert (code, out, error.count("\n")) == (2, "", 1)
    assert error.startswith("error: ")


def test_a_run_without_questions_is_one_line(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    metrics = f"{build_run(str(tmp_path))}/metrics.json"
    storage.write_json(metrics, storage.read_json(metrics) | {"questions": 0})
    code, out, error = ask(capsys, "--questions", "1e6", "--run", tmp_path / "runs")
    assert (code, out, error.count("\n")) == (2, "", 1)
    assert "has no questions to plan from" in error


@pytest.mark.parametrize(
    ("dump", "name"),
    [
        ("a/cs.stackexchange.com.7z", "cs"),
        ("cs.meta.stackexchange.com.7z", "cs.meta"),
        ("/d/stackoverflow.com-Posts.7z", "stackoverflow"),
        ("travel.stackexchange.com/Posts.xml", "travel"),
        ("s3://b/dumps/faq.v2.csv.gz", "faq.v2"),
        ("dumps/", "dumps"),
        ("Posts.xml", "here"),
        ("..", "above"),
        ("../Posts.xml", "above"),
        ("/", "dump"),
    ],
)
def test_an_output_is_named_after_the_dump(
    dump: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "above" / "here").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "above" / "here")
    assert _named_after(dump) == name


def test_a_run_that_builds_on_another_is_one_line(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    place = f"{build_run(str(tmp_path))}/manifest.json"
    manifest = storage.read_json(place)
    manifest["inputs"]["previous"] = "s3://runs/1"
    storage.write_json(place, manifest)
    code, out, error = ask(capsys, "--questions", "1e6", "--run", tmp_path / "runs")
    assert (code, out, error.count("\n")) == (2, "", 1)
    assert "builds on an earlier run" in error
