import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dupq.clusters.canonical import Standing, canonical_questions
from dupq.clusters.components import components
from dupq.clusters.statistics import cluster_statistics

EDGES = st.lists(st.tuples(st.integers(0, 30), st.integers(31, 60)), max_size=40, unique=True)


@given(EDGES, st.randoms())
def test_components_equal_networkxs_whatever_the_order(edges: list[tuple[int, int]], order) -> None:
    shuffled = list(edges)
    order.shuffle(shuffled)
    members, smallest = components(np.array(shuffled, np.int64).reshape(-1, 2))
    expected = {member: min(group) for group in nx.connected_components(nx.Graph(edges)) for member in group}
    assert dict(zip(members.tolist(), smallest.tolist(), strict=True)) == expected


@given(EDGES)
def test_statistics_equal_networkxs(edges: list[tuple[int, int]]) -> None:
    array = np.array(edges, np.int64).reshape(-1, 2)
    members, smallest = components(array)
    of_edges = smallest[np.searchsorted(members, array[:, 0])] if edges else np.zeros(0, np.int64)
    probabilities = np.linspace(0.1, 0.9, len(edges))
    found = {row.cluster: row for row in cluster_statistics(of_edges, array, probabilities)}
    graph = nx.Graph(edges)
    for group in nx.connected_components(graph):
        part, row = graph.subgraph(group), found[min(group)]
        assert (row.size, row.edges) == (part.number_of_nodes(), part.number_of_edges())
        assert row.density == pytest.approx(nx.density(part))
        assert row.bridges == len(list(nx.bridges(part)))
        inside = [probabilities[i] for i, edge in enumerate(edges) if edge[0] in group]
        assert row.weakest_link == pytest.approx(min(inside))


def test_the_canonical_question_is_answered_then_scored_then_seen_then_older() -> None:
    clusters = np.array([7, 7, 7, 8, 8, 9, 9, 9])
    standing = Standing(
        keys=np.array([1, 2, 3, 4, 5, 6, 10, 11]),
        accepted=np.array([False, True, False, True, True, False, False, False]),
        scores=np.array([90, 1, 5, 3, 4, 2, 2, 2]),
        views=np.array([0, 0, 0, 0, 0, 5, 9, 9]),
    )
    assert canonical_questions(clusters, standing).tolist() == [2, 2, 2, 5, 5, 10, 10, 10]
    order = np.array([5, 2, 7, 0, 4, 1, 6, 3])
    shuffled = Standing(*(column[order] for column in standing))
    assert canonical_questions(clusters[order], shuffled).tolist() == [10, 2, 10, 2, 5, 2, 10, 5]
