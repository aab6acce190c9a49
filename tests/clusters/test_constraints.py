"""Constraints by verdicts and links: which joins they allow, and that clusters obey them; which pairs decide."""

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dupq.clusters.components import constraints, joinable
from dupq.clusters.decision import decide

Pair = tuple[int, int]
ENDS = st.tuples(st.integers(1, 14), st.integers(1, 13)).map(lambda pair: (pair[0], pair[1] + (pair[1] >= pair[0])))
PAIRS = st.lists(ENDS.map(lambda ends: (min(ends), max(ends))), max_size=40)


def array(pairs: list[Pair]) -> np.ndarray:
    return np.array(pairs, np.int64).reshape(-1, 2)


def slowly_joinable(edges: list[Pair], apart: list[Pair]) -> list[bool]:
    """Try each edge on a copy of the graph."""
    graph, answers = nx.Graph(), []
    graph.add_nodes_from(range(15))
    for edge in edges:
        tried = nx.Graph(graph)
        tried.add_edge(*edge)
        answers.append(not any(nx.has_path(tried, *pair) for pair in apart))
        if answers[-1]:
            graph = tried
    return answers


@given(PAIRS, PAIRS)
def test_edges_join_as_long_as_nothing_gets_together_that_must_not(edges: list[Pair], apart: list[Pair]) -> None:
    assert joinable(array(edges), array(apart)).tolist() == slowly_joinable(edges, apart)


@given(PAIRS, PAIRS, PAIRS, PAIRS, st.integers(0, 1 << 32))
def test_clusters_hold_what_must_join_and_nothing_that_must_not(
    same: list[Pair], links: list[Pair], apart: list[Pair], candidates: list[Pair], seed: int
) -> None:
    """Also where questions are represented by others, and whatever the probabilities."""
    found = constraints(
        array(same), array(links), array(apart), np.arange(15), lambda keys: np.where(keys == 14, 3, keys)
    )
    pairs = np.unique(array(candidates), axis=0)
    p = np.random.default_rng(seed).random(len(pairs)).astype(np.float32)
    keys, clusters = decide(pairs, p, found.joined, 0.3, lambda some: np.full(len(some), 0.9, np.float32), found.apart)
    cluster = {**{key: key for key in range(15)}, **dict(zip(keys.tolist(), clusters.tolist(), strict=True))}
    assert all(cluster[one] == cluster[other] for one, other in found.joined.tolist())
    assert not any(cluster[one] == cluster[other] for one, other in found.apart.tolist())


def test_different_wins_over_same_and_same_over_links() -> None:
    same, links, apart = [(1, 2), (2, 3), (7, 8)], [(3, 4), (1, 4), (7, 8)], [(1, 3), (4, 2)]
    found = constraints(array(same), array(links), array(apart), np.arange(9), lambda keys: keys)
    assert dict(zip(map(tuple, found.joined.tolist()), found.is_verdict.tolist(), strict=True)) == {
        (1, 2): True,
        (7, 8): True,
        (3, 4): False,
    }
    assert found.contradicting == 1
    assert found.apart.tolist() == [[1, 3], [2, 4]]


NO_LINKS = np.zeros((0, 2), np.int64)


def groups(keys: np.ndarray, labels: np.ndarray) -> set[frozenset[int]]:
    return {frozenset(keys[labels == label].tolist()) for label in np.unique(labels)}


@pytest.mark.parametrize(("unlisted", "expected"), [(0.9, {frozenset((10, 20, 30))}), (0.001, {frozenset((10, 20))})])
def test_a_pair_that_no_question_lists_decides_too(unlisted: float, expected: set) -> None:
    asked = []

    def score(pairs: np.ndarray) -> np.ndarray:
        asked.append(pairs.tolist())
        return np.full(len(pairs), unlisted, np.float32)

    pairs, p = np.array([[10, 20], [20, 30], [40, 50]]), np.array([0.9, 0.6, 0.2], np.float32)
    found = groups(*decide(pairs, p, NO_LINKS, 0.5, score))
    assert asked == [[[10, 30]]]
    assert {group for group in found if len(group) > 1} == expected


def test_pairs_that_no_question_lists_join_nothing_by_themselves() -> None:
    """The table of pairs lacks them, so a cluster that only they hold together would have no pair to show."""
    pairs = np.array([[1, 2], [1, 4], [2, 3], [2, 4], [3, 4]])
    p = np.array([0.55, 0.001, 0.001, 0.9, 0.55], np.float32)
    found = groups(*decide(pairs, p, NO_LINKS, 0.5, lambda missing: np.full(len(missing), 0.99, np.float32)))
    assert {group for group in found if len(group) > 1} == {frozenset((2, 4))}
