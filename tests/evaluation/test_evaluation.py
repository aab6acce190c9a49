"""Measures of rankings and of pairs, against their definitions and by systems that are nearly perfect."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dupq.evaluation import known_duplicates
from dupq.evaluation.known_duplicates import (
    Seen,
    balanced_pairs,
    labelled_pairs,
    pair_thresholds,
    retrieval,
    split_by_use,
)
from dupq.evaluation.measures import (
    accuracy,
    best_accuracy,
    best_threshold,
    bootstrap_interval,
    not_measured,
    retrieval_measures,
)
from dupq.evaluation.rankers import EncoderRanker
from dupq.neighbours.embeddings import Embeddings, Measure
from dupq.settings import config
from dupq.text.keys import sample_by_hash
from dupq.training.pairs import Pairs

QUERY = st.tuples(st.permutations(range(12)), st.sets(st.integers(0, 14), min_size=1))


@given(st.lists(QUERY, min_size=1, max_size=5), st.integers(1, 12))
def test_measures_of_rankings_are_their_definitions(queries: list[tuple[list[int], set[int]]], k: int) -> None:
    measures = retrieval_measures([ranked[:k] for ranked, _ in queries], [wanted for _, wanted in queries], k)
    hits = [[question in wanted for question in ranked[:k]] for ranked, wanted in queries]
    sizes = [len(wanted) for _, wanted in queries]
    precisions = [[sum(row[: at + 1]) / (at + 1) for at in range(k) if row[at]] for row in hits]
    expected = {f"accuracy_at_{n}": np.mean([any(row[:n]) for row in hits]) for n in (1, 5, 10)}
    expected |= {
        f"recall_at_{n}": np.mean([sum(row[:n]) / size for row, size in zip(hits, sizes, strict=True)])
        for n in (1, 5, 10, 100)
        if n <= k
    }
    mean = np.mean([sum(row) / size for row, size in zip(precisions, sizes, strict=True)])
    assert measures == pytest.approx({**expected, "map": mean, "map_cut": k})


@given(st.lists(st.tuples(st.integers(0, 8), st.booleans()), min_size=1, max_size=30))
def test_the_best_threshold_beats_every_other(rows: list[tuple[int, bool]]) -> None:
    scores, labels = np.array([float(s) for s, _ in rows]), np.array([float(label) for _, label in rows])
    threshold, found = best_accuracy(scores, labels)
    assert (threshold, found) == (best_threshold(scores, labels), accuracy(scores, labels, threshold))
    assert found == max(accuracy(scores, labels, value) for value in np.arange(-0.5, 9.5, 0.5))


def test_the_encoder_ranks_by_cosine_and_an_empty_text_gets_nothing() -> None:
    vectors = np.array([[1, 0], [1, 1], [0, 1], [-1, 0], [0, 0], [1, 0.1]], np.float16)
    ranker = EncoderRanker([Embeddings(np.arange(10, 70, 10), vectors)], Measure())
    assert ranker.rank(np.array([10, 50]), 3) == [[60, 20, 30], []]
    assert ranker.score(np.array([10, 10, 50]), np.array([20, 40, 10])) == pytest.approx([0.5**0.5, -1, 0], abs=1e-3)


def test_only_sets_that_training_never_touched_are_tested() -> None:
    links = np.array([(1, 2), (2, 3), (4, 5), (6, 7), (8, 9)])
    split = split_by_use(links, Seen(np.array([3]), np.array([4, 5]), links, None), config.load())
    parts = ("train", "development", "test")
    assert [split.questions_of(part).tolist() for part in parts] == [[1, 2, 3], [4, 5], [6, 7, 8, 9]]


class Oracle:
    """Ranks and scores by closeness of keys: duplicates in these tests have neighbouring keys."""

    def rank(self, queries: np.ndarray, k: int) -> list[list[int]]:
        keys = [[key for key in range(20) if key != query] for query in queries]
        return [sorted(of, key=lambda key: abs(key - query))[:k] for of, query in zip(keys, queries, strict=True)]

    def score(self, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        return -np.abs(left - right).astype(float)


def test_a_perfect_system_gets_full_marks_and_a_sample_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known_duplicates, "QUERIES", 6)
    links = np.array([(2 * i, 2 * i + 1) for i in range(10)])
    split = split_by_use(links, Seen(np.array([0]), np.array([2, 4]), links, None), config.load())
    known = retrieval({"oracle": Oracle()}, split, 20)
    assert (known["test_queries"], known["test_queries_available"]) == (6, 14)
    assert known["retrieval"]["oracle"]["map"] > 0.7
    systems = {"oracle": Oracle(), "given": Oracle()}
    thresholds = pair_thresholds(systems, {"given": -1.0}, split, links, np.arange(20))
    assert thresholds["given"] == -1.0
    measured = balanced_pairs(systems, thresholds, split, links, np.arange(20))
    assert measured["pairs"] == 14
    assert measured["given"] >= 13 / 14


def test_chosen_questions_do_not_depend_on_the_others() -> None:
    many = sample_by_hash(np.arange(1000), 50)
    assert len(many) == 50
    assert set(sample_by_hash(np.arange(0, 1000, 2), 50)) >= {key for key in many if key % 2 == 0}


def test_labelled_pairs_are_measured_with_and_without_a_threshold() -> None:
    pairs = Pairs(np.array([0, 2, 4, 6]), np.array([1, 3, 9, 8]), np.array([1, 1, 0, 0], np.float32))
    found = labelled_pairs({"given": Oracle(), "bare": Oracle()}, {"given": -2.5}, pairs)
    assert (found["duplicates"], found["others"]) == (2, 2)
    bare = {"average_precision": 1.0, "roc_auc": 1.0}
    assert found["systems"] == {"given": {"accuracy": 0.75, **bare}, "bare": bare}


@given(st.lists(st.integers(0, 8).map(lambda part: part / 8), min_size=1, max_size=9), st.integers(0, 5))
def test_an_interval_is_within_its_values_and_the_same_for_a_seed(values: list[float], seed: int) -> None:
    low, high = bootstrap_interval(np.array(values), seed, 1000)
    assert (low, high) == bootstrap_interval(np.array(values), seed, 1000)
    assert min(values) - 1e-12 <= low <= high <= max(values) + 1e-12


KNOWN, UNKNOWN = ({"development_sets": sets, "judged_pairs": 0, "prior_sites": ["a", "b"]} for sets in (4, 0))


def test_each_missing_measure_has_its_reason_and_what_was_measured_none() -> None:
    for links, calibration, has_links, said in (
        ({"test_links": 2}, KNOWN, True, {}),
        ({"test_links": 2}, UNKNOWN | {"judged_pairs": 5}, True, {}),
        (None, KNOWN, False, {"links": "the run was given no links"}),
        (None, KNOWN, True, {"links": "no link is between two questions of the archive"}),
        ({"test_links": 2}, UNKNOWN, True, {"calibration": "of a prior, learned on 2 other sites"}),
    ):
        found = not_measured({"links": links, "calibration": calibration}, has_links)
        assert list(found) == list(said)
        assert all(reason in found[name] for name, reason in said.items())
