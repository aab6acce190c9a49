"""The charts of a run hold its own numbers."""

import json
from collections import defaultdict
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pyarrow.compute as pc
import pytest

import dupq
from dupq.api.plots import Plots
from dupq.api.runs import Run
from dupq.errors import DupqError
from dupq.report.where import LEAST
from dupq.runs.reader import ends_of


@pytest.fixture(scope="module")
def run(small_runs) -> Run:
    return dupq.open_run(small_runs.folder + "/runs")


def rows(chart: Any) -> list[dict]:
    """Return the values of a chart, or of its first layer."""
    held = json.loads(chart.to_json())
    return held.get("layer", [held])[0].get("data", held.get("data"))["values"]


def test_probabilities_are_counted_with_known_links_apart(run: Run) -> None:
    shown, pairs = rows(run.plot.probabilities()), run.pairs.arrow(filter=pc.field("source") == "encoder")
    for which, own in (("all", pairs), ("known links", pairs.filter(pc.fill_null(pairs["known_link"], False)))):
        counts, edges = np.histogram(own["probability"].to_numpy(), np.linspace(0, 1, 51))
        found = {round(row["from"], 2): row["pairs"] for row in shown if row["which"] == which}
        assert found == {
            round(low, 2): count for low, count in zip(edges.tolist(), counts.tolist(), strict=False) if count
        }


def test_pairs_above_a_threshold_are_those_of_the_table(run: Run) -> None:
    probabilities = run.pairs.arrow(["probability"], pc.field("source") == "encoder")["probability"].to_numpy()
    shown = [row for row in rows(run.plot.thresholds()) if row["which"] == "all"]
    assert shown
    assert all(row["pairs"] == (probabilities >= np.float32(row["threshold"])).sum() for row in shown)


def test_sizes_and_losses_are_those_of_the_tables(run: Run) -> None:
    sizes = run.cluster_stats.arrow(["size"], pc.field("size") > 1)["size"].to_pylist()
    assert {row["questions"]: row["clusters"] for row in rows(run.plot.sizes())} == {s: sizes.count(s) for s in sizes}
    with pytest.raises(DupqError, match="or their links joined them"):
        run.plot.lost()
    links = {"test_links": 40, "in_one_cluster": 0.9, "listed_apart": 0.1}
    lost = Plots(cast(Any, SimpleNamespace(metrics={"links": links}))).lost()
    assert [row["links"] for row in rows(lost)] == [36, 4, 0]


def test_where_duplicates_are_is_counted_from_the_tables(small_runs) -> None:
    run = dupq.open_run(small_runs.loose)
    best: dict[tuple[str, int], float] = {}
    pairs = [row for row in run.pairs.arrow().to_pylist() if row["joined"] or row["probability"] >= np.float32(LEAST)]
    for row in pairs:
        best |= {end: max(best.get(end, 0), row["probability"]) for end in ends_of(row)}
    tags, months, asked = defaultdict(list), defaultdict(list), {}
    for row in run.questions.arrow().to_pylist():
        key = row["site"], row["question_id"]
        asked[key] = row["creation_date"]
        for found, names in ((tags, row["tags"]), (months, [row["creation_date"].strftime("%Y-%m")])):
            for name in names:
                found[name].append(best.get(key, 0))
    for chart, found in ((run.plot.tags(), tags), (run.plot.months(), months)):
        shown = {row["name"]: (row["expected"], row["of"]) for row in rows(chart)}
        assert all(shown[name] == (pytest.approx(sum(found[name]), abs=1e-4), len(found[name])) for name in shown)
    assert len(rows(run.plot.tags())) == min(20, sum(sum(own) > 0 for own in tags.values()))
    assert [row["name"] for row in rows(run.plot.months())] == sorted(months)
    days = [abs((asked[one] - asked[other]).total_seconds()) / 86_400 for one, other in map(ends_of, pairs)]
    ages = [row["of"] for row in rows(run.plot.ages())]
    assert [ages[0], sum(ages[:2])] == [sum(day < limit for day in days) for limit in (1, 7)]
    assert sum(ages) == len(pairs)
    with pytest.raises(DupqError, match="no sites to count by"):
        run.plot.sites()


def test_calibration_needs_links_and_changes_an_earlier_run(run: Run) -> None:
    assert [row["linked"] for row in rows(run.plot.calibration())] == [0, 1]  # the line beside which points lie
    with pytest.raises(DupqError, match="made without --previous"):
        run.plot.changes()


def test_a_run_and_its_tables_say_what_they_hold(run: Run) -> None:
    headings = [line[:9].strip() for line in repr(run).splitlines() if line[0] != " "]
    assert headings == ["RUN", "FOUND", "MISSED", "TRUST"]
    assert "<th>Found</th>" in run._repr_html_()
    assert repr(run.pairs).startswith(f"{run.uri}/pairs, {len(run.pairs):,} rows: site_left, ")
    shown = run.worklist._repr_html_()
    assert shown.count("<tr>") == 11
    assert "<a href=" in shown
