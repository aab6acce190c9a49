"""Measures of clusters against slow twins: sets and loops over questions, pairs and bins."""

import itertools
import math

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dupq.clusters.components import are_together
from dupq.clusters.identity import Clustering
from dupq.evaluation.measures import calibration, partners_changed

KEYS = st.integers(-(2**62), 2**62) | st.integers(0, 12)  # packed keys are large
LABELS = st.integers(-(2**62), 2**62) | st.integers(0, 3)
ASSIGNMENTS = st.dictionaries(KEYS, LABELS, max_size=14)
# sums of float64 in another order; numbers to 1 are off by less than a few hundred of 2^-53
CLOSE = 1e-12

Assignment = dict[int, int]
Pair = tuple[int, int]


def arrays(assignment: Assignment) -> tuple[np.ndarray, np.ndarray]:
    """Keys, sorted, and their labels."""
    rows = sorted(assignment.items())
    return np.array([key for key, _ in rows], np.int64), np.array([label for _, label in rows], np.int64)


def as_links(pairs: list[Pair]) -> np.ndarray:
    return np.array(pairs, np.int64).reshape(-1, 2)


def together(left: int, right: int, assignment: Assignment) -> bool:
    return left == right or (left in assignment and assignment[left] == assignment.get(right))


@st.composite
def links_and_clusters(draw: st.DrawFn) -> tuple[list[Pair], Assignment]:
    clusters = draw(ASSIGNMENTS)
    key = st.sampled_from(sorted(clusters)) | KEYS if clusters else KEYS
    return draw(st.lists(st.tuples(key, key), max_size=20)), clusters


@given(links_and_clusters())
def test_a_link_is_joined_if_both_of_its_questions_are_in_one_cluster(drawn: tuple[list[Pair], Assignment]) -> None:
    links, clusters = drawn
    smallest = {label: min(key for key in clusters if clusters[key] == label) for label in clusters.values()}
    keys, labels = arrays({key: smallest[label] for key, label in clusters.items()})
    found = are_together(as_links(links), pa.table({"key": keys, "cluster": labels}))
    assert found.tolist() == [together(*link, clusters) for link in links]


TENTHS = tuple(edge / 10 for edge in range(11))
PROBABILITIES = st.floats(0, 1) | st.sampled_from([0.0, 0.1, 0.3, 0.7, 0.9, 1.0])
PAIRS = st.lists(st.tuples(PROBABILITIES, st.booleans()), max_size=30)


@given(PAIRS, st.sampled_from([TENTHS, (0.0, 1.0), (0.0, 0.5, 0.9, 1.0)]))
def test_calibration_is_a_mean_over_bins(rows: list[tuple[float, bool]], edges: tuple[float, ...]) -> None:
    expected = []
    for lower, upper in itertools.pairwise(edges):
        own = [row for row in rows if lower <= row[0] < upper or (upper == 1 and row[0] == 1)]
        if own:
            said, right = (math.fsum(column) / len(own) for column in zip(*own, strict=True))
            expected.append((lower, upper, len(own), said, right))
    found = calibration(np.array([row[0] for row in rows]), np.array([row[1] for row in rows], bool), edges)
    assert len(found["pairs"]) == len(expected)
    for row, wanted in zip(zip(*found.values(), strict=True), expected, strict=True):
        assert row == pytest.approx(wanted, abs=CLOSE)


@given(ASSIGNMENTS, ASSIGNMENTS)
def test_a_question_changed_if_it_is_not_in_the_cluster_of_one_id_both_times(now: Assignment, then: Assignment) -> None:
    either = now.keys() | then.keys()
    changed = sum(now.get(key) != then.get(key) for key in either)
    found = partners_changed(Clustering(*arrays(now)), Clustering(*arrays(then)))
    assert found == (pytest.approx(changed / len(either)) if either else 0)
    assert found == partners_changed(Clustering(*arrays(then)), Clustering(*arrays(now)))
