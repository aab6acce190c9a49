"""The gates that a run must pass to become the latest one."""

from pathlib import Path
from typing import Any

import fabricated_run
import pytest

from dupq import storage
from dupq.errors import DupqError, GateError, SettingError
from dupq.pipelines.gates import Gates, check_gates, check_rows

METRICS: dict[str, Any] = {
    "links": {"in_one_cluster": 0.625},
    "drift": {"questions_of_clusters_changed": 0.25},
    "largest_cluster": 1_200,
}
UNMEASURED = {**METRICS, "links": None, "drift": None}


def refusal(gates: Gates, metrics: dict[str, Any]) -> str:
    """Return why a run with these metrics is refused; "" if it passes."""
    try:
        check_gates(gates, metrics, "/runs/7")
    except DupqError as error:
        return str(error)
    return ""


@pytest.mark.parametrize(
    ("gates", "said"),
    [
        (Gates(), ""),
        (Gates(min_recall=0.625, max_cluster=1_200, max_change=0.25), ""),
        (Gates(min_recall=0, max_change=1), ""),
        (Gates(min_recall=0.63), "--min-recall 0.63: the recall of known duplicates in one cluster is 0.625"),
        (Gates(max_cluster=1_199), "--max-cluster 1199: the largest cluster has 1,200 questions"),
        (Gates(max_change=0), "--max-change 0: 0.250 of the clustered questions changed cluster"),
        (Gates(0.9, 1, 0.1), "--min-recall"),  # the first that is missed
        (Gates(0.6, 1, 0.1), "--max-cluster"),
    ],
)
def test_a_run_that_misses_a_gate_is_refused_with_what_it_reached(gates: Gates, said: str) -> None:
    found = refusal(gates, METRICS)
    assert found.startswith(said)
    assert found.endswith("; the run is complete but not marked as succeeded, see /runs/7/report.html" if said else "")
    assert bool(found) == bool(said)


def test_a_recall_that_nothing_could_be_measured_on_is_refused_and_others_need_none() -> None:
    said = "--min-recall 0.0: the recall of known duplicates in one cluster is not measured"
    assert refusal(Gates(min_recall=0.0), UNMEASURED).startswith(said)
    assert refusal(Gates(max_cluster=1_200, max_change=0.1), UNMEASURED) == ""


def test_an_archive_that_has_lost_more_questions_than_allowed_is_refused_with_both_numbers(tmp_path: Path) -> None:
    storage.write_json(f"{tmp_path}/metrics.json", {**fabricated_run.metrics(), "questions": 1_000})
    for share, questions in ((None, 0), (0.5, 500), (0.0, 0), (1.0, 1_000)):
        check_rows(Gates(min_rows_share=share), questions, str(tmp_path), "/runs/7")
    said = f"--min-rows-share 0.9: the archive has 499 questions, the earlier run {tmp_path} had 1,000;"
    with pytest.raises(GateError, match=said):
        check_rows(Gates(min_rows_share=0.9), 499, str(tmp_path), "/runs/7")


@pytest.mark.parametrize("gates", [Gates(max_change=0.1), Gates(min_rows_share=0.9)])
def test_a_gate_that_compares_needs_an_earlier_run(gates: Gates) -> None:
    with pytest.raises(SettingError, match="name it with --previous"):
        gates.check(has_previous=False)
    gates.check(has_previous=True)
