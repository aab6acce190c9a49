"""A desk's tickets, compared within their team and a window of days."""

import csv
import itertools
from pathlib import Path

import networkx as nx
from inline import without_ray

from dupq.api.runs import open_run
from dupq.dump.files import Columns
from dupq.pipelines.train import FromDumpJob, from_dump

TEAMS, THINGS, PLACES = (
    ("mail", "web", "app"),
    ("printer", "router", "invoice", "login", "camera"),
    ("cellar", "office"),
)
WINDOW = 30


def tickets() -> list[dict[str, str]]:
    """Each question in each team, again after 20 and after 90 days; some with another word."""
    rows = []
    for thing, place, days, team in itertools.product(THINGS, PLACES, (1, 21, 91), TEAMS):
        title = f"Why does the {thing} in the {place} fail {'again' if days == 91 else 'so often'} when it rains?"
        date = f"2026-{1 + days // 30:02}-{1 + days % 30:02}T00:00:00"
        rows.append({"id": str(len(rows) + 1), "title": title, "team": team, "date": date})
    return rows[::-1]  # the older a ticket is, the higher is its place


@without_ray()
def test_pairs_are_of_one_team_and_time_and_connect_the_clusters(tmp_path: Path) -> None:
    """Night after night, and as in runs of their own, they are found in tests/stages/test_scopes.py."""
    with (tmp_path / "desk.csv").open("w", newline="") as file:
        lines = csv.DictWriter(file, ("id", "title", "team", "date"))
        lines.writeheader()
        lines.writerows(tickets())
    scoped = "neighbours.scope=column", f"neighbours.window={WINDOW}", "clusters.earlier=true", "clusters.threshold=0.3"
    places = (str(tmp_path / "desk.csv"),), str(tmp_path / "out")
    job = FromDumpJob(*places, columns=Columns(scope="team"), assignments=scoped, reranker="none")
    run = open_run(from_dump(job).uri)
    asked = {row["id"]: row for row in tickets()}
    days = {id_: (int(row["date"][5:7]) - 1) * 30 + int(row["date"][8:10]) for id_, row in asked.items()}
    pairs, graph = run.pairs.arrow().to_pylist(), nx.Graph()
    for row in pairs:
        left, right = str(row["question_id_left"]), str(row["question_id_right"])
        assert asked[left]["team"] == asked[right]["team"]
        assert abs(days[left] - days[right]) <= WINDOW + 1  # of months with 30 days
        assert row["newer"] == (None if days[left] == days[right] else "left" if days[left] > days[right] else "right")
        if row["joined"]:
            graph.add_edge(left, right)
    assert {"exact", "encoder"} <= {row["source"] for row in pairs}
    clusters: dict[str, set[str]] = {}
    for row in run.clusters.arrow().to_pylist():
        clusters.setdefault(row["cluster_id"], set()).add(str(row["question_id"]))
        if row["cluster_size"] > 1 and row["is_canonical"]:
            assert row["canonical_reason"] in ("age", "key")
    shared = [members for members in clusters.values() if len(members) > 1]
    assert sorted(map(sorted, nx.connected_components(graph))) == sorted(map(sorted, shared))
    for row in run.clusters.arrow().to_pylist():
        members = clusters[row["cluster_id"]]
        assert days[str(row["canonical_id"])] == min(days[id_] for id_ in members)
