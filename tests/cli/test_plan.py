"""The command `dupq plan`: what it takes, what it says, and that it asks for nothing else."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from dupq import storage
from dupq.cli import main
from tests.fabricated_run import build_run

SCRIPT = Path(__file__).parents[2] / "jobs" / "plan.py"


def ask(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as ended:
        main.main(["plan", *arguments])
    told = capsys.readouterr()
    return int(ended.value.code or 0), told.out, told.err


def test_a_plan_needs_no_ray_no_torch_and_nothing_that_is_heavy() -> None:
    code = (
        "import sys; from dupq.cli import main\n"
        "try: main.main(['plan', '--questions', '24e6', '--gpus', '8'])\n"
        "finally: print({'ray', 'torch', 'scipy', 'gensim', 'boto3'} & set(sys.modules))"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert told.splitlines()[-1] == "set()"
    assert "24,000,000 questions on" in told


def test_the_script_answers_too() -> None:
    told = subprocess.run([sys.executable, SCRIPT, "--questions", "1e6"], capture_output=True, text=True, check=True)
    assert "neighbours" in told.stdout


@pytest.mark.parametrize(
    "wrong",
    [
        *(("--questions", text) for text in ("0", "-1", "abc", "1.5", "nan", "1e400", "")),
        ("--questions", "10", "--gpus", "-1"),
        ("--questions", "10", "--cpus", "0"),
        ("--questions", "10", "--nodes", "0.5"),
        ("--questions", "10", "--price-per-hour", "-3"),
        ("--questions", "10", "--memory-gb", "inf"),
        ("--questions", "10", "--gpu", "B2000"),
        ("--questions", "10", "--job", "report"),
        (),
    ],
)
def test_a_wrong_argument_is_one_line(capsys: pytest.CaptureFixture[str], wrong: tuple[str, ...]) -> None:
    code, out, error = ask(capsys, *wrong)
    assert (code, out, error.count("\n")) == (2, "", 1)
    assert error.startswith("error: ")


def test_a_file_of_rates_that_is_none_is_one_line(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "rates.json").write_text("{}")
    code, _, error = ask(capsys, "--questions", "10", "--rates", str(tmp_path / "rates.json"))
    assert (code, error.count("\n")) == (1, 1)


def test_json_has_the_same_figures(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = ask(capsys, "--questions", "2e5", "--job", "dedup", "--json", "--price-per-hour", "1.5")
    found = json.loads(out)
    assert code == 0
    assert found["questions"] == 200_000
    assert found["seconds"] == pytest.approx(sum(stage["seconds"] for stage in found["stages"]))
    assert found["cost"] == pytest.approx(found["seconds"] / 3_600 * 1.5)
    assert {stage["job"] for stage in found["stages"]} == {"dedup"}


def test_the_help_is_complete(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = ask(capsys, "--help")
    assert code == 0
    for option in ("--questions", "--gpus", "--cpus", "--nodes", "--gpu", "--price-per-hour", "--rates", "--json"):
        assert option in out


def made_run(folder: Path, changed: dict[str, object], method: str = "exact", questions: int = 100_000) -> str:
    """A finished run that says that each of its stages took 100 seconds."""
    run = build_run(str(folder))
    manifest = storage.read_json(f"{run}/manifest.json")
    for stage in manifest["stages"]:
        stage.update(seconds=100.0, rows_in=questions)
    manifest["inputs"].update(changed)
    storage.write_json(f"{run}/manifest.json", manifest)
    config = storage.read_json(f"{run}/config.json")
    config["neighbours"]["method"] = method
    storage.write_json(f"{run}/config.json", config)
    return str(folder / "runs")


def planned(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[dict[str, float], str]:
    code, out, error = ask(capsys, "--job", "dedup", "--json", *arguments)
    assert (code, error) == (0, "")
    found = json.loads(out)
    return {stage["name"]: stage["seconds"] for stage in found["stages"]}, " ".join(found["notes"])


def test_a_run_tells_what_its_stages_take(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    runs = made_run(tmp_path, {})
    found, notes = planned(capsys, "--questions", "1e5", "--cpus", "4", "--run", runs)
    assert [found[name] for name in ("texts", "neighbours", "evaluate")] == pytest.approx([100.0] * 3)
    assert f"the run {tmp_path}/runs/fabricated (100,000 questions, 4 CPUs)" in notes
    wider, _ = planned(capsys, "--questions", "1e5", "--cpus", "4", "--run", runs, "--run-cpus", "2")
    assert wider["neighbours"] < 70  # two of the four worked then


def test_a_search_by_lists_tells_nothing_of_the_exact_one(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    found, notes = planned(capsys, "--questions", "1e5", "--run", made_run(tmp_path, {}, method="ivf"))
    assert found["texts"] == pytest.approx(100.0)
    assert found["neighbours"] != pytest.approx(100.0)
    assert "neighbours" not in notes.partition("times as long")[0].partition("corrected by")[2]


@pytest.mark.parametrize(
    ("changed", "questions", "said"),
    [({"previous": "s3://runs/1"}, 100_000, "builds on an earlier run"), ({}, 53, "at least 50,000")],
)
def test_a_run_that_tells_nothing_is_one_line(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, changed: dict[str, object], questions: int, said: str
) -> None:
    runs = made_run(tmp_path, changed, questions=questions)
    code, out, error = ask(capsys, "--questions", "1e6", "--run", runs)
    assert (code, out, error.count("\n")) == (2, "", 1)
    assert said in error


def test_a_place_without_a_run_is_one_line(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    code, out, error = ask(capsys, "--questions", "1e6", "--run", str(tmp_path))
    assert (code, out, error.count("\n")) == (1, "", 1)
    assert "no run is here" in error
