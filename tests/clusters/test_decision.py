"""From pairs to clusters in one process: which pairs are scored, and what joins."""

import numpy as np
import pytest

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
