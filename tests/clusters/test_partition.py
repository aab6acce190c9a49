"""Correlation clustering, compared with all set partitions; and properties where these are too many."""

from collections.abc import Iterator
from functools import cache
from itertools import combinations
from typing import NamedTuple

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dupq.clusters.partition import _joined, partition


class Graph(NamedTuple):
    count: int
    pairs: np.ndarray
    weights: np.ndarray
    absent: float


WEIGHTS = st.one_of(st.floats(-5, 5), st.integers(-3, 3).map(float))
ABSENT = st.one_of(st.just(0.0), st.sampled_from([-0.1, -1.0]), st.floats(-5, 0))


@st.composite
def small_graphs(draw: st.DrawFn) -> Graph:
    count = draw(st.integers(0, 9))
    pairs = sorted(draw(st.sets(st.sampled_from(list(combinations(range(count), 2)))))) if count > 1 else []
    weights = draw(st.lists(WEIGHTS, min_size=len(pairs), max_size=len(pairs)))
    return graph_of(count, dict(zip(pairs, weights, strict=True)), draw(ABSENT))


@st.composite
def larger_graphs(draw: st.DrawFn) -> Graph:
    """Return a graph with planted clusters; integer weights make ties."""
    random = np.random.default_rng(draw(st.integers(0, 1 << 32)))
    count, density = draw(st.integers(10, 40)), draw(st.floats(0.1, 1))
    planted = random.integers(0, draw(st.integers(1, 10)), count)
    noise, rounded = draw(st.floats(0.1, 3)), draw(st.booleans())
    weights = {}
    for left, right in combinations(range(count), 2):
        if random.random() < density:
            value = random.normal(1 if planted[left] == planted[right] else -1, noise)
            weights[left, right] = float(round(value)) if rounded else value
    return graph_of(count, weights, draw(ABSENT))


def graph_of(count: int, weights: dict[tuple[int, int], float], absent: float) -> Graph:
    pairs = np.array(list(weights), np.int64).reshape(-1, 2)
    return Graph(count, pairs, np.array(list(weights.values()), float), absent)


def value(graph: Graph, labels: np.ndarray) -> float:
    """Return the sum of the weights of all pairs inside clusters, listed or not."""
    inside = labels[graph.pairs[:, 0]] == labels[graph.pairs[:, 1]]
    sizes = np.unique(labels, return_counts=True)[1]
    absent_pairs = (sizes * (sizes - 1) // 2).sum() - inside.sum()
    return float(graph.weights[inside].sum() + graph.absent * absent_pairs)


def all_partitions(count: int) -> Iterator[list[int]]:
    """Return the labels of all partitions: a node joins an earlier cluster or begins its own."""
    if count == 0:
        yield []
        return
    for labels in all_partitions(count - 1):
        for label in {*labels, count - 1}:
            yield [*labels, label]


@cache
def partitions(count: int) -> np.ndarray:
    return np.array(list(all_partitions(count)))


@cache
def inside(count: int) -> np.ndarray:
    """Return a matrix (partitions, pairs): 1 where the pair is inside a cluster."""
    left, right = np.triu_indices(count, 1)
    return (partitions(count)[:, left] == partitions(count)[:, right]).astype(float)


def matrix(graph: Graph) -> np.ndarray:
    weights = np.full((graph.count, graph.count), graph.absent)
    weights[graph.pairs[:, 0], graph.pairs[:, 1]] = weights[graph.pairs[:, 1], graph.pairs[:, 0]] = graph.weights
    np.fill_diagonal(weights, 0)
    return weights


def test_the_oracle_tries_every_set_partition() -> None:
    bell = [1, 2, 5, 15, 52, 203, 877, 4140, 21147]
    assert [len(np.unique(partitions(count), axis=0)) for count in range(1, 10)] == bell


def with_forbidden(graph: Graph, seed: int, share: float = 0.2) -> tuple[Graph, Graph]:
    """Return the graph with some of its pairs forbidden, and one where these cost more than all others together."""
    is_forbidden = np.random.default_rng(seed).random(len(graph.pairs)) < share
    return tuple(graph._replace(weights=np.where(is_forbidden, much, graph.weights)) for much in (-np.inf, -1e6))


@pytest.mark.parametrize("share", [0, 0.2])
@settings(max_examples=20)
@given(small_graphs(), st.integers(0, 1 << 32))
def test_a_small_component_gets_the_best_of_all_allowed_partitions(share: float, graph: Graph, seed: int) -> None:
    forbidding, dear = with_forbidden(graph, seed, share)
    optimum = (inside(dear.count) @ matrix(dear)[np.triu_indices(dear.count, 1)]).max()
    assert value(dear, partition(*forbidding)) == pytest.approx(optimum, abs=1e-6)


@given(larger_graphs(), st.integers(0, 1 << 32))
def test_a_forbidden_pair_is_never_in_one_cluster_and_otherwise_only_dear(graph: Graph, seed: int) -> None:
    forbidding, dear = with_forbidden(graph, seed)
    labels = partition(*forbidding)
    assert labels.tolist() == partition(*dear).tolist()
    forbidden = forbidding.pairs[np.isneginf(forbidding.weights)]
    assert (labels[forbidden[:, 0]] != labels[forbidden[:, 1]]).all()


@given(larger_graphs())
def test_no_move_of_a_node_and_no_join_of_two_clusters_improves_the_answer(graph: Graph) -> None:
    names, clusters = np.unique(partition(*graph), return_inverse=True)
    members = np.eye(len(names))[clusters]
    towards = matrix(graph) @ members
    now = towards[np.arange(graph.count), clusters] + 1e-6
    assert (now >= 0).all()  # alone
    assert (towards <= now[:, None]).all()
    joined = members.T @ towards
    assert (joined[~np.eye(len(names), dtype=bool)] <= 1e-6).all()


@given(st.integers(5, 80), st.floats(0.05, 1), ABSENT, st.integers(0, 1 << 32))
def test_contraction_joins_what_a_slow_greedy_joins(count: int, density: float, absent: float, seed: int) -> None:
    random = np.random.default_rng(seed)
    pairs = [pair for pair in combinations(range(count), 2) if random.random() < density]
    graph = graph_of(count, dict(zip(pairs, random.normal(0.3, 1, len(pairs)), strict=True)), absent)
    found = _joined(np.arange(count), graph.pairs, graph.weights - absent, absent)
    slow = slow_contraction(graph)
    assert ((found[:, None] == found) == (slow[:, None] == slow)).all()


def slow_contraction(graph: Graph) -> np.ndarray:
    """Join by adding rows and columns of a dense matrix; joined and equal nodes never have the largest gain."""
    gains, labels = matrix(graph), np.arange(graph.count)
    np.fill_diagonal(gains, -np.inf)
    while gains.max() > 1e-9:
        kept, lost = sorted(np.unravel_index(gains.argmax(), gains.shape))
        gains[kept] += gains[lost]
        gains[:, kept] = gains[kept]
        gains[lost] = gains[:, lost] = gains[kept, kept] = -np.inf
        labels[labels == lost] = kept
    return labels


def positive(graph: Graph) -> nx.Graph:
    found = nx.Graph(graph.pairs[graph.weights > 0].tolist())
    found.add_nodes_from(range(graph.count))
    return found


@given(st.one_of(small_graphs(), larger_graphs()))
def test_clusters_are_connected_by_pairs_of_positive_weight_and_named_by_their_smallest_node(graph: Graph) -> None:
    labels, joined = partition(*graph), positive(graph)
    assert (labels.dtype, labels.shape) == (np.int64, (graph.count,))
    for label in np.unique(labels):
        members = np.flatnonzero(labels == label).tolist()
        assert members[0] == label
        assert nx.is_connected(joined.subgraph(members))


@given(st.one_of(small_graphs(), larger_graphs()), st.integers(0, 1 << 32))
def test_neither_the_order_of_the_pairs_nor_their_orientation_changes_the_answer(graph: Graph, seed: int) -> None:
    random = np.random.default_rng(seed)
    order = random.permutation(len(graph.pairs))
    turned = random.random(len(graph.pairs)) < 0.5
    pairs = np.where(turned[:, None], graph.pairs[:, ::-1], graph.pairs)[order]
    changed = partition(graph.count, pairs, graph.weights[order], graph.absent)
    assert changed.tolist() == partition(*graph).tolist()


@given(larger_graphs(), st.one_of(small_graphs(), larger_graphs()))
def test_components_together_get_the_answer_of_each_alone(one: Graph, two: Graph) -> None:
    two = two._replace(absent=one.absent)
    pairs = np.concatenate([one.pairs, two.pairs + one.count])
    together = partition(one.count + two.count, pairs, np.r_[one.weights, two.weights], one.absent)
    assert together.tolist() == [*partition(*one).tolist(), *(partition(*two) + one.count).tolist()]


@pytest.mark.parametrize("absent", [-0.5, -9.0])
def test_a_long_chain_of_uneven_pairs_comes_apart_into_small_groups(absent: float) -> None:
    chain = np.stack([np.arange(9_999), np.arange(1, 10_000)], axis=1)
    labels = partition(10_000, chain, np.random.default_rng(7).uniform(0.1, 2, 9_999), absent)
    assert np.unique(labels, return_counts=True)[1].max() <= 8


@pytest.mark.parametrize("size", [5, 8, 100])
def test_two_cliques_with_one_doubtful_pair_between_them_come_apart(size: int) -> None:
    clique = np.stack(np.triu_indices(size, 1), axis=1)
    pairs = np.concatenate([clique, clique + size, [[size - 1, size]]])
    weights = np.r_[np.full(2 * len(clique), 2.0), 0.3]
    labels = partition(2 * size, pairs, weights, -1.0)
    assert labels.tolist() == [0] * size + [size] * size


def test_a_hub_keeps_only_as_many_as_gain() -> None:
    star = np.stack([np.zeros(2_000, np.int64), np.arange(1, 2_001)], axis=1)
    labels = partition(2_001, star, np.ones(2_000), -0.1)
    assert np.unique(labels, return_counts=True)[1].max() == 11
