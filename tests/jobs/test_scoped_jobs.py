"""A desk's tickets, compared within their team and a window of days: pairs, clusters, nights, separate runs."""

import csv
import itertools
from pathlib import Path

import networkx as nx
import pytest
from inline import without_ray

from dupq.api.runs import Run, open_run
from dupq.dump.files import Columns
from dupq.pipelines.dedup import DedupJob, dedup
from dupq.pipelines.ingest import IngestJob, ingest
from dupq.pipelines.train import FromDumpJob, from_dump

TEAMS, THINGS, PLACES = (
    ("mail", "web", "app"),
    ("printer", "router", "invoice", "login", "camera"),
    ("cellar", "office"),
)
WINDOW, JOINING = 30, ("clusters.threshold=0.3",)
Ends = tuple[str, str]


def tickets() -> list[dict[str, str]]:
    """Each question in each team, again after 20 and after 90 days; some with another word."""
    rows = []
    for thing, place, days, team in itertools.product(THINGS, PLACES, (1, 21, 91), TEAMS):
        title = f"Why does the {thing} in the {place} fail {'again' if days == 91 else 'so often'} when it rains?"
        date = f"2026-{1 + days // 30:02}-{1 + days % 30:02}T00:00:00"
        rows.append({"id": str(len(rows) + 1), "title": title, "team": team, "date": date})
    return rows[::-1]  # the older a ticket is, the higher is its place


def write(folder: Path, rows: list[dict[str, str]]) -> str:
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "desk.csv").open("w", newline="") as file:
        lines = csv.DictWriter(file, rows[0].keys())
        lines.writeheader()
        lines.writerows(rows)
    return str(folder / "desk.csv")


def found_in(folder: Path, rows: list[dict[str, str]], encoder: str, previous: str | None = None, *set_: str) -> Run:
    """A run over a table of its own."""
    ingest(IngestJob((write(folder, rows),), str(folder / "out"), columns=Columns(scope="team")))
    inputs = f"{folder}/out/questions", encoder, f"{folder}/runs"
    return open_run(dedup(DedupJob(*inputs, previous=previous, assignments=(*JOINING, *set_), reranker="none")).uri)


def rows_of(run: Run, *names: str) -> set[tuple]:
    table = run.pairs.arrow().select([*names]).to_pylist()
    return {tuple(row.values()) for row in table}


def ends(row: dict) -> Ends:
    return str(row["question_id_left"]), str(row["question_id_right"])


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Run]:
    folder = tmp_path_factory.mktemp("desk")
    scoped = ("neighbours.scope=column", f"neighbours.window={WINDOW}", "clusters.earlier=true")
    dumps, output = (write(folder, tickets()),), str(folder / "out")
    job = FromDumpJob(dumps, output, columns=Columns(scope="team"), assignments=(*JOINING, *scoped), reranker="none")
    with without_ray():
        return folder, open_run(from_dump(job).uri)


def test_pairs_are_of_one_team_and_time_and_connect_the_clusters(desk: tuple[Path, Run]) -> None:
    asked = {row["id"]: row for row in tickets()}
    days = {id_: (int(row["date"][5:7]) - 1) * 30 + int(row["date"][8:10]) for id_, row in asked.items()}
    pairs, graph = desk[1].pairs.arrow().to_pylist(), nx.Graph()
    for row in pairs:
        left, right = ends(row)
        assert asked[left]["team"] == asked[right]["team"]
        assert abs(days[left] - days[right]) <= WINDOW + 1  # of months with 30 days
        assert row["newer"] == (None if days[left] == days[right] else "left" if days[left] > days[right] else "right")
        if row["joined"]:
            graph.add_edge(left, right)
    assert {"exact", "encoder"} <= {row["source"] for row in pairs}
    clusters: dict[str, set[str]] = {}
    for row in desk[1].clusters.arrow().to_pylist():
        clusters.setdefault(row["cluster_id"], set()).add(str(row["question_id"]))
        if row["cluster_size"] > 1 and row["is_canonical"]:
            assert row["canonical_reason"] in ("age", "key")
    shared = [members for members in clusters.values() if len(members) > 1]
    assert sorted(map(sorted, nx.connected_components(graph))) == sorted(map(sorted, shared))
    for row in desk[1].clusters.arrow().to_pylist():
        members = clusters[row["cluster_id"]]
        assert days[str(row["canonical_id"])] == min(days[id_] for id_ in members)


@without_ray()
def test_teams_are_found_as_in_runs_of_their_own_and_night_after_night(desk: tuple[Path, Run], tmp_path: Path) -> None:
    encoder, rows = str(desk[0] / "out" / "encoder"), tickets()
    listed = ("question_id_left", "question_id_right", "source", "jaccard", "similarity", "rank_left", "rank_right")
    together = found_in(tmp_path / "all", rows, encoder, None, "neighbours.scope=column")
    alone = [found_in(tmp_path / team, [row for row in rows if row["team"] == team], encoder) for team in TEAMS]
    assert rows_of(together, *listed) == set().union(*(rows_of(run, *listed) for run in alone))

    scoped = "neighbours.scope=column", f"neighbours.window={WINDOW}"
    first = found_in(tmp_path / "nights", rows[4:], encoder, None, *scoped)
    moved = [{**row, "team": "web"} if row["id"] == "50" else row for row in rows]
    later = found_in(tmp_path / "nights", moved, encoder, first.uri, *scoped)
    whole = found_in(tmp_path / "whole", moved, encoder, None, *scoped)
    assert later.manifest["inputs"]["previous"] == first.uri
    assert rows_of(later, *later.pairs.arrow().column_names) == rows_of(whole, *whole.pairs.arrow().column_names)
