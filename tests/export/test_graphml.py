"""GraphML, as networkx reads it."""

from pathlib import Path

import fabricated_run
import networkx as nx
import pytest
from fabricated_run import BAD_SITE, CLUSTERS, COPIES, CS, TITLES, TRIPLE, build_run, cluster_id

from dupq.api.runs import Run, open_run
from dupq.export.formats import export


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setitem(fabricated_run.TITLES, (CS, 7), "a bell \x07, a zero \x00, \ufffe and \r\n lines")
    return open_run(build_run(str(tmp_path)))


@pytest.fixture
def graph(run: Run, tmp_path: Path) -> nx.Graph:
    (written,) = export(run.uri, "graphml", str(tmp_path / "out"))
    assert written.note == "32 nodes, 29 edges"
    return nx.read_graphml(written.uri)


def label(key: tuple[str, int]) -> str:
    return f"{key[0]}/{key[1]}"


def test_the_components_are_the_clusters(graph: nx.Graph) -> None:
    found = {frozenset(component) for component in nx.connected_components(graph)}
    assert found == {frozenset(map(label, cluster)) for cluster in CLUSTERS}
    assert not graph.is_directed()


def test_titles_and_sites_stay_text(graph: nx.Graph) -> None:
    for key in [key for cluster in CLUSTERS for key in cluster if key != (CS, 7)]:
        node = graph.nodes[label(key)]
        title = TITLES.get(key, f"Question {key[1]} about {key[0].split('.')[0]}")
        assert (node["site"], node["question_id"], node["title"] or "") == (*key, title)
    assert graph.nodes[label((CS, 7))]["title"] == "a bell \ufffd, a zero \ufffd, \ufffd and \r\n lines"
    assert graph.nodes[label(COPIES[0])]["site"] == BAD_SITE
    assert "url" not in graph.nodes[label(COPIES[0])]


def test_nodes_and_edges_say_what_the_tables_say(run: Run, graph: nx.Graph) -> None:
    node = graph.nodes[label(TRIPLE[2])]
    assert (node["cluster_id"], node["cluster_size"], node["is_canonical"]) == (cluster_id(TRIPLE), 3, True)
    rows = run.pairs.arrow(filter=[("joined", "==", True)]).to_pylist()
    assert graph.number_of_edges() == len(rows)
    for row in rows:
        edge = graph.edges[
            f"{row['site_left']}/{row['question_id_left']}", f"{row['site_right']}/{row['question_id_right']}"
        ]
        for name in ("source", "probability", "similarity", "jaccard", "known_link"):
            expected = pytest.approx(row[name], rel=1e-6) if isinstance(row[name], float) else row[name]
            assert edge.get(name) == expected
