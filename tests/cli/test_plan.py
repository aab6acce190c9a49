"""The command `dupq plan`: the times of a run, extrapolated, and the runs that it refuses."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from fabricated_run import build_run

from dupq import storage
from dupq.commands import _named_after

ROOT = Path(__file__).parents[2]


Dupq = Callable[..., tuple[int, str, str]]


def of_size(folder: Path, questions: int, **stages: float) -> str:
    """A run of so many questions, with further stages of so many seconds."""
    run = build_run(str(folder))
    metrics, manifest = f"{run}/metrics.json", f"{run}/manifest.json"
    storage.write_json(metrics, storage.read_json(metrics) | {"questions": questions})
    written = storage.read_json(manifest)
    written["stages"] += [{"name": name, "seconds": seconds} for name, seconds in stages.items()]
    storage.write_json(manifest, written)
    return run


def test_stages_grow_as_they_were_measured_to(dupq: Dupq, tmp_path: Path) -> None:
    run = of_size(tmp_path, 50_000)  # its stages took 1.5 s, 3 s and so on
    code, out, error = dupq("plan", "--questions", "5e5", "--run", tmp_path / "runs", "--json")
    assert (code, error) == (0, "")
    plan = json.loads(out)
    assert (plan["run"], plan["based_on"], plan["run_questions"], plan["questions"]) == (run, "run", 50_000, 500_000)
    seconds = {stage["name"]: stage["seconds"] for stage in plan["stages"]}
    assert seconds["texts"] == pytest.approx(1.5 * 10)
    assert seconds["neighbours"] == pytest.approx(1.5 * 7 * 10**1.9)
    assert seconds["pairs"] == pytest.approx(1.5 * 8 * 10**1.2)
    assert plan["disk_bytes"] == 10 * sum(file.size for file in storage.list_files(run))


def test_a_small_run_is_planned_from_the_shipped_rates(dupq: Dupq, tmp_path: Path) -> None:
    of_size(tmp_path, 49_999, rerank=12.0)
    _, out, _ = dupq("plan", "--questions", "1e5", "--run", tmp_path / "runs", "--json")
    plan = json.loads(out)
    assert (plan["based_on"], plan["run_questions"]) == ("benchmark", 1_000_000)
    measured = json.loads((ROOT / "benchmarks/results/scale-1000000-2026-11-28.json").read_text())
    jobs = {stage["stage"]: stage for stage in measured["sizes"]["1000000"]["stages"] if stage["job"] == "dedup"}
    of_plan = {stage["name"]: stage for stage in plan["stages"] if stage["name"] != "rerank"}
    assert of_plan.keys() == jobs.keys()
    for name, stage in of_plan.items():
        assert stage["run_seconds"] == pytest.approx(jobs[name]["seconds"], abs=0.06)
        assert stage["run_task_mb"] == jobs[name]["task_mb"]
    smaller = json.loads((ROOT / "benchmarks/results/scale-100000-2026-11-27.json").read_text())
    took = sum(stage["seconds"] for stage in smaller["sizes"]["100000"]["stages"] if stage["job"] == "dedup")
    assert 0.5 * took < sum(stage["seconds"] for stage in of_plan.values()) < 1.5 * took
    _, text, _ = dupq("plan", "--questions", "1e5", "--run", tmp_path / "runs")
    assert "uses rates that dupq ships with" in text
    assert "rerank" in text


def test_the_table_has_a_line_a_stage_and_says_what_it_rests_on(dupq: Dupq, tmp_path: Path) -> None:
    code, out, _ = dupq("plan", "--questions", "4e6", "--run", of_size(tmp_path, 53_000))
    assert code == 0
    assert "4,000,000 questions, from the 53,000 of" in out
    assert [line.split()[0] for line in out.splitlines()[2:15]] == [
        *("stage", "texts", "signatures", "near_duplicates", "encode", "terms", "calibrate", "neighbours", "pairs"),
        *("partition", "clusters", "evaluate", "all"),
    ]
    assert "75 times that many questions" in out


@pytest.mark.parametrize(
    ("run", "questions", "previous", "said"),
    [
        (60_000, "6.1e6", None, "give a run of at least 61,000 questions"),
        (53, "2e8", None, "give a run of at least 2,000,000 questions"),
        (60_000, "1e6", "s3://runs/1", "builds on an earlier run"),
        *((60_000, wrong, None, "error: ") for wrong in ("0", "abc", "1e400")),
    ],
)
def test_what_cannot_be_planned_is_one_line(
    dupq: Dupq, tmp_path: Path, run: int, questions: str, previous: str | None, said: str
) -> None:
    place = f"{of_size(tmp_path, run)}/manifest.json"
    manifest = storage.read_json(place)
    storage.write_json(place, {**manifest, "inputs": manifest["inputs"] | {"previous": previous}})
    code, out, error = dupq("plan", "--questions", questions, "--run", tmp_path / "runs")
    assert (code, out, error.count("\n")) == (2, "", 1)
    assert said in error


@pytest.mark.parametrize(
    ("dump", "name"),
    [
        ("cs.meta.stackexchange.com.7z", "cs.meta"),
        ("/d/stackoverflow.com-Posts.7z", "stackoverflow"),
        ("travel.stackexchange.com/Posts.xml", "travel"),
        ("s3://b/dumps/faq.v2.csv.gz", "faq.v2"),
        ("Posts.xml", "here"),
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
