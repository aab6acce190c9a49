"""Another decision from a finished run is what a new run would decide."""

import json
import shutil
from itertools import combinations
from pathlib import Path

import pyarrow.compute as pc
import pytest

import dupq
from dupq.errors import DupqError
from dupq.runs.views import TableView


def groups(clusters: TableView) -> set[frozenset[tuple[str, int]]]:
    """Return the clusters of two and more questions."""
    rows = clusters.arrow(filter=pc.field("cluster_size") > 1).to_pylist()
    ids = {row["cluster_id"] for row in rows}
    return {frozenset((row["site"], row["question_id"]) for row in rows if row["cluster_id"] == one) for one in ids}


def test_at_its_own_threshold_a_run_has_its_own_clusters(small_runs) -> None:
    for uri in (small_runs.strict, small_runs.loose):
        run = dupq.open_run(uri)
        decision = run.at(run.threshold)
        assert decision.is_complete
        assert len(decision.changes) == 0
        assert groups(decision.clusters) == groups(run.clusters)
        own = run.clusters.arrow(["site", "question_id", "cluster_id", "cluster_size"], pc.field("cluster_size") > 1)
        order = [("site", "ascending"), ("question_id", "ascending")]
        assert decision.clusters.arrow().sort_by(order).to_pylist() == own.sort_by(order).to_pylist()


def test_at_another_threshold_a_run_has_the_clusters_of_a_new_run(small_runs) -> None:
    strict, loose = dupq.open_run(small_runs.strict), dupq.open_run(small_runs.loose)
    assert groups(strict.clusters) != groups(loose.clusters)
    assert groups(strict.at(small_runs.LOW).clusters) == groups(loose.clusters)
    assert groups(loose.at(small_runs.HIGH).clusters) == groups(strict.clusters)


def test_for_a_precision_the_threshold_is_the_one_that_the_run_would_choose(small_runs) -> None:
    run = dupq.open_run(small_runs.strict)
    for known in run.metrics["thresholds"][1:]:
        decision = run.at(precision=known["precision"])
        assert decision.threshold == known["threshold"]
        assert decision.pairs == known["pairs"]
        assert decision.expected_precision == pytest.approx(known["expected_precision"])


def test_without_its_work_folder_a_run_says_that_unlisted_pairs_were_not_scored(small_runs, tmp_path: Path) -> None:
    shutil.copytree(small_runs.strict, tmp_path / "run", ignore=shutil.ignore_patterns("work"))
    whole, bare = dupq.open_run(small_runs.strict), dupq.open_run(str(tmp_path / "run"))
    decisions = [run.at(small_runs.LOW) for run in (whole, bare)]
    assert [decision.is_complete for decision in decisions] == [True, False]
    together = [{pair for one in groups(d.clusters) for pair in combinations(sorted(one), 2)} for d in decisions]
    assert together[1] <= together[0]


def test_a_run_of_a_version_that_weighed_other_evidence_is_read_but_its_pairs_are_not_weighed(
    small_runs, tmp_path: Path
) -> None:
    shutil.copytree(small_runs.strict, tmp_path / "run")
    calibration = tmp_path / "run" / "work" / "calibration" / "calibration.json"
    values = json.loads(calibration.read_text())
    model = values["model"]
    model["features"], model["coefficients"] = model["features"][1:], model["coefficients"][1:]
    calibration.write_text(json.dumps(values))
    run = dupq.open_run(str(tmp_path / "run"))
    assert not run.at(small_runs.LOW).is_complete
    pair = run.pairs.pandas(filter=[("source", "=", "encoder")]).iloc[0]
    sides = ((pair[f"site_{side}"], int(pair[f"question_id_{side}"])) for side in ("left", "right"))
    with pytest.raises(DupqError, match="or of another version of dupq; run its job again"):
        run.explain(*sides).evidence  # noqa: B018
