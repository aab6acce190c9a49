"""From pairs to clusters in one process: which pairs are scored, and what joins."""

from itertools import combinations

import numpy as np
import pytest

from dupq.clusters.components import components
from dupq.clusters.decision import decide

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


def test_links_join_whatever_speaks_against_them() -> None:
    pairs, p = np.array([[1, 2], [2, 3]]), np.array([0.9, 0.01], np.float32)
    found = groups(*decide(pairs, p, np.array([[2, 3], [7, 9]]), 0.5, lambda missing: np.zeros(len(missing))))
    assert frozenset((7, 9)) in found
    assert any({2, 3} <= group for group in found)


def test_the_answer_does_not_depend_on_the_order_of_the_pairs() -> None:
    generator = np.random.default_rng(5)
    pairs = np.array(list(combinations(range(30), 2)))
    pairs = pairs[generator.random(len(pairs)) < 0.2]
    p = generator.random(len(pairs)).astype(np.float32)
    order = generator.permutation(len(pairs))

    def score(missing: np.ndarray) -> np.ndarray:
        return ((missing[:, 0] * 7 + missing[:, 1]) % 10 / 20).astype(np.float32)

    one, other = (decide(pairs[rows], p[rows], NO_LINKS, 0.6, score) for rows in (np.arange(len(pairs)), order))
    np.testing.assert_array_equal(one, other)
    sure = components(pairs[p >= np.float32(0.6)])
    for group in groups(*one):
        assert len(np.unique(sure[1][np.isin(sure[0], list(group))])) == 1


def test_nothing_sure_makes_no_clusters() -> None:
    keys, labels = decide(np.array([[1, 2]]), np.array([0.1], np.float32), NO_LINKS, 0.5, lambda pairs: pairs)
    assert len(keys) == len(labels) == 0
