import networkx as nx
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dupq.clusters.components import components, forest, forest_of
from dupq.clusters.identity import canonical_questions
from dupq.stages.clusters import _EDGES, figures_of
from dupq.tables import MEMBERS

EDGES = st.lists(st.tuples(st.integers(0, 30), st.integers(31, 60)), max_size=40, unique=True)


@given(EDGES, st.randoms())
def test_components_equal_networkxs_whatever_the_order(edges: list[tuple[int, int]], order) -> None:
    shuffled = list(edges)
    order.shuffle(shuffled)
    members, smallest = components(np.array(shuffled, np.int64).reshape(-1, 2))
    expected = {member: min(group) for group in nx.connected_components(nx.Graph(edges)) for member in group}
    assert dict(zip(members.tolist(), smallest.tolist(), strict=True)) == expected


@given(st.lists(EDGES, max_size=5), st.integers(0, 20))
def test_a_forest_of_parts_has_the_components_of_all_edges(parts: list[list[tuple[int, int]]], held: int) -> None:
    arrays = [np.array(part, np.int64).reshape(-1, 2) for part in parts]
    expected = components(np.concatenate([np.zeros((0, 2), np.int64), *arrays]))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dupq.clusters.components._EDGES_HELD", held)
        found = forest_of(arrays)
    assert [column.tolist() for column in components(found)] == [column.tolist() for column in expected]
    assert len(forest(found)) == len(expected[0]) - len(set(expected[1].tolist()))
    assert len(found) <= max(held, 2 * len(forest(found)))


@given(EDGES, st.randoms())
def test_statistics_equal_networkxs_whatever_the_order(edges: list[tuple[int, int]], order) -> None:
    shuffled = list(edges)
    order.shuffle(shuffled)
    probabilities = dict(zip(edges, np.linspace(0.1, 0.9, len(edges)), strict=True))
    found = statistics_of(shuffled, [probabilities[edge] for edge in shuffled])
    groups = sorted(nx.connected_components(nx.Graph(edges)), key=min)
    assert found["cluster_id"].to_pylist() == [f"a/{min(group)}" for group in groups]
    for row, group in zip(found.to_pylist(), groups, strict=True):
        part = nx.Graph(edges).subgraph(group)
        own = [value for edge, value in probabilities.items() if edge[0] in group]
        assert (row["size"], row["edges"]) == (part.number_of_nodes(), part.number_of_edges())
        assert row["density"] == pytest.approx(nx.density(part))
        assert row["bridges"] == len(list(nx.bridges(part)))
        assert row["weakest_link"] == pytest.approx(min(own))
        assert row["mean_probability"] == pytest.approx(np.mean(own))
    assert found.equals(statistics_of(edges, [probabilities[edge] for edge in edges]))


def test_the_bridges_of_a_long_chain_are_found_without_recursion() -> None:
    chain = [(i, i + 1) for i in range(20_000)]
    found = statistics_of(chain, [0.5] * len(chain))
    assert (found["size"].to_pylist(), found["bridges"].to_pylist()) == ([20_001], [20_000])


def statistics_of(edges: list[tuple[int, int]], probabilities: list[float]) -> pa.Table:
    array = np.array(edges, np.int64).reshape(-1, 2)
    members, smallest = components(array)
    _, owners, sizes = np.unique(smallest, return_inverse=True, return_counts=True)
    columns = members, smallest, smallest, smallest, np.zeros(len(members), np.int8), sizes[owners]
    of_edges = smallest[np.searchsorted(members, array[:, 0])]
    return figures_of(
        pa.table([of_edges, *array.T, np.array(probabilities, np.float64)], schema=_EDGES),
        pa.table([*columns], schema=MEMBERS),
        ["a"],
    )


# Of each pair the first row wins, by the criterion that it is named by: whatever comes after it speaks against it.
def criteria_of(keys: list[int], rows: list[tuple]) -> tuple[np.ndarray, list[np.ndarray]]:
    """Return the keys, and the columns of criteria."""
    kinds = (np.int64, bool, np.int64, np.int64, np.int64, np.int64)
    columns = [np.array([row[place] for row in rows], kind) for place, kind in enumerate(kinds)]
    return np.array(keys, np.int64), [*columns, -np.array(keys, np.int64)]


@given(
    st.lists(
        st.tuples(st.integers(0, 3), st.integers(0, 1), st.booleans(), st.integers(-1, 1), *[st.integers(0, 1)] * 3),
        max_size=12,
    ),
    st.randoms(),
)
def test_canonical_questions_are_the_largest_by_the_criteria_whatever_the_order(rows: list[tuple], order) -> None:
    """The reason is the first criterion by which the second best is behind. Clusters have two questions or more."""
    rows = [row for row in rows if sum(other[0] == row[0] for other in rows) > 1]
    keyed = list(enumerate(rows, 10))
    order.shuffle(keyed)
    clusters = np.array([row[0] for _, row in keyed])
    winners, reasons = canonical_questions(
        clusters, *criteria_of([key for key, _ in keyed], [row[1:] for _, row in keyed])
    )
    for place, (_, row) in enumerate(keyed):
        ranked = sorted([(*other[1:], -key) for key, other in keyed if other[0] == row[0]], reverse=True)
        assert winners[place] == -ranked[0][-1]
        assert reasons[place] == next(i for i, (a, b) in enumerate(zip(*ranked[:2], strict=True)) if a != b)
