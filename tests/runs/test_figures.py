"""The figures of runs: by one name in the text file, in `dupq runs` and in `dupq status`."""

import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest
from fabricated_run import build_run
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from dupq import storage
from dupq.runs.figures import FILE, figures_of, text_of, write

STAGES = 11


@pytest.fixture
def run(tmp_path: Path) -> str:
    """A finished run whose archive, links, earlier run and judge left figures."""
    run = build_run(str(tmp_path))
    named = f"{storage.parent(run)}/{7:016x}"
    Path(run).rename(named)
    storage.write_json(f"{tmp_path}/runs/latest.json", {"run_id": storage.name(named), "run": named})
    sites = {"a": {"questions": 40, "rejects": 3, "files": []}, "b": {"questions": 13, "link_rejects": 2}}
    storage.write_json(f"{tmp_path}/manifest.json", {"sites": sites})
    measured = {
        "links": {"in_one_cluster": 0.625},
        "drift": {"questions_of_clusters_changed": 0.25},
        "judge": {"dollars": 1.25, "tokens": 4_000},
    }
    storage.write_json(f"{named}/metrics.json", storage.read_json(f"{named}/metrics.json") | measured)
    return named


def told(run: str) -> dict[str, float]:
    """What Prometheus' own parser reads in the file of a run."""
    write(run)
    families = text_string_to_metric_families(storage.read_bytes(f"{storage.parent(run)}/{FILE}").decode())
    samples = [sample for family in families for sample in family.samples]
    return {
        sample.name + "/" * bool(sample.labels) + sample.labels.get("stage", ""): sample.value for sample in samples
    }


def test_the_text_file_is_openmetrics_and_has_what_an_alert_needs(run: str) -> None:
    found = told(run)
    assert found["dupq_last_success_timestamp_seconds"] == datetime(2026, 11, 21, 22, tzinfo=UTC).timestamp()
    assert (found["dupq_questions"], found["dupq_groups"], found["dupq_rejected_rows"]) == (53, 4, 5)
    assert (found["dupq_links_recall"], found["dupq_changed_share"]) == (0.625, 0.25)
    assert (found["dupq_judge_dollars"], found["dupq_judge_tokens"]) == (1.25, 4_000)
    assert found["dupq_stage_seconds/texts"] == 1.5
    assert sum(name.startswith("dupq_stage_seconds/") for name in found) == STAGES


def test_what_was_not_measured_is_left_out(tmp_path: Path) -> None:
    found = told(build_run(str(tmp_path)))
    missing = {"rejected_rows", "links_recall", "changed_share", "judge_dollars", "judge_tokens"}
    assert not {f"dupq_{name}" for name in missing} & found.keys()


def test_no_figure_lacks_a_line_of_help(run: str) -> None:
    figures = figures_of(run)
    assert text_of(figures).count("# HELP") == len(figures)


Dupq = Callable[..., tuple[int, str, str]]


def test_runs_has_a_heading_and_the_same_figures_as_json(run: str, dupq: Dupq) -> None:
    runs = storage.parent(run)
    storage.write_json(f"{runs}/{9:016x}/stages/texts.json", {})  # one that was cut off
    heading, first, second = dupq("runs", "--output", runs)[1].splitlines()
    assert heading.split("  ")[0] == "run"
    assert first.split() == ["0000000000000007", "latest", *first.split()[2:]]
    cells = ("2026-11-21 22:00", "53", "4", "90%", "25%")
    assert all(cell in first for cell in cells)
    assert second.split()[:2] == [f"{9:016x}", "unfinished"]
    listed = json.loads(dupq("runs", "--output", runs, "--json")[1])
    assert [each["state"] for each in listed] == ["latest", "unfinished"]
    assert figures_of(run).items() <= listed[0].items()


def test_status_as_json(run: str, dupq: Dupq) -> None:
    found = json.loads(dupq("status", "--run", run, "--json")[1])
    assert (found["run"], found["state"], found["groups"]) == (run, "latest", 4)
