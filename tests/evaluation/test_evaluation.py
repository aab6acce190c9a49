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
from dupq.evaluation.measures import accuracy, best_accuracy, best_threshold, retrieval_measures
from dupq.evaluation.rankers import EncoderRanker
from dupq.neighbours.embeddings import Embeddings, Measure
from dupq.settings import config
from dupq.text.keys import sample_by_hash
from dupq.training.pairs import Pairs

KEYS = np.array([10, 20, 30, 40, 50, 60])


@pytest.mark.parametrize(
    ("ranked", "relevant", "k", "expected"),
    [
        ([9, 1, 8, 2], {1, 2}, 10, (1 / 2 + 2 / 4) / 2),
        ([9, 1, 8], {1, 2}, 3, (1 / 2) / 2),
        ([], {1}, 10, 0),
        ([1], {1, 2, 3}, 1, 1 / 3),
    ],
)
def test_average_precision_by_hand(ranked: list[int], relevant: set[int], k: int, expected: float) -> None:
    assert retrieval_measures([ranked], [relevant], k)["map"] == pytest.approx(expected)


def test_retrieval_measures_by_hand() -> None:
    measures = retrieval_measures([[1, 2, 3, 4, 5, 6], [7, 8]], [{6}, {7}], 100)
    assert (measures["accuracy_at_1"], measures["accuracy_at_5"], measures["accuracy_at_10"]) == (0.5, 0.5, 1.0)
    assert measures["map"] == pytest.approx((1 / 6 + 1) / 2)


@given(
    st.lists(st.tuples(st.permutations(range(12)), st.sets(st.integers(0, 14), min_size=1)), min_size=1, max_size=5),
    st.integers(1, 12),
)
def test_recall_is_the_share_of_the_known_duplicates_that_are_found(
    queries: list[tuple[list[int], set[int]]], k: int
) -> None:
    measures = retrieval_measures([ranked[:k] for ranked, _ in queries], [wanted for _, wanted in queries], k)
    ranks = [n for n in (1, 5, 10, 100) if n <= k]
    assert [name for name in measures if name.startswith("recall")] == [f"recall_at_{n}" for n in ranks]
    for n in ranks:
        total = 0.0
        for ranked, wanted in queries:
            total += sum(question in ranked[:n] for question in wanted) / len(wanted)
        assert measures[f"recall_at_{n}"] == pytest.approx(total / len(queries))


@given(st.lists(st.tuples(st.integers(0, 8), st.booleans()), min_size=1, max_size=30))
def test_the_best_threshold_beats_every_other(rows: list[tuple[int, bool]]) -> None:
    scores, labels = np.array([float(s) for s, _ in rows]), np.array([float(label) for _, label in rows])
    threshold, found = best_accuracy(scores, labels)
    assert (threshold, found) == (best_threshold(scores, labels), accuracy(scores, labels, threshold))
    assert found == max(accuracy(scores, labels, value) for value in np.arange(-0.5, 9.5, 0.5))


def test_the_encoder_ranks_by_cosine_and_an_empty_text_gets_nothing() -> None:
    vectors = np.array([[1, 0], [1, 1], [0, 1], [-1, 0], [0, 0], [1, 0.1]], np.float16)
    ranker = EncoderRanker([Embeddings(KEYS, vectors)], Measure())
    assert ranker.rank(np.array([10, 50]), 3) == [[60, 20, 30], []]
    assert ranker.score(np.array([10, 10, 50]), np.array([20, 40, 10])) == pytest.approx([0.5**0.5, -1, 0], abs=1e-3)


def test_only_sets_that_training_never_touched_are_tested() -> None:
    links = np.array([(1, 2), (2, 3), (4, 5), (6, 7), (8, 9)])
    split = split_by_use(links, Seen(np.array([3]), np.array([4, 5]), links, None), config.load())
    assert split.questions_of("train").tolist() == [1, 2, 3]
    assert split.questions_of("development").tolist() == [4, 5]
    assert split.questions_of("test").tolist() == [6, 7, 8, 9]


class Oracle:
    """Ranks and scores by closeness of keys: duplicates in these tests have neighbouring keys."""

    def rank(self, queries: np.ndarray, k: int) -> list[list[int]]:
        return [
            sorted((key for key in range(20) if key != query), key=lambda key: abs(key - query))[:k]
            for query in queries
        ]

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
    assert found["systems"]["given"] == {"accuracy": 0.75, "average_precision": 1.0, "roc_auc": 1.0}
    assert found["systems"]["bare"] == {"average_precision": 1.0, "roc_auc": 1.0}
