"""Measures of rankings and of pairs, against their definitions; BM25 and shingles beside a sort of all scores."""

import itertools
import math
from typing import NoReturn

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracles.slow_rankings import slow_best, slow_bm25, slow_jaccard, stemmed

from dupq.clusters.components import are_together
from dupq.clusters.identity import Clustering
from dupq.evaluation import known_duplicates
from dupq.evaluation.known_duplicates import (
    Seen,
    balanced_pairs,
    labelled_pairs,
    measure_known,
    pair_thresholds,
    retrieval,
    split_by_use,
)
from dupq.evaluation.measures import (
    LinkMetrics,
    accuracy,
    best_accuracy,
    best_threshold,
    bootstrap_interval,
    calibration,
    not_measured,
    partners_changed,
    retrieval_measures,
    retrieval_table,
)
from dupq.evaluation.rankers import BM25, EncoderRanker, ShingleJaccard
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


class ByKey:
    """Ranks and scores by closeness of keys: duplicates in these tests have neighbouring keys."""

    def rank(self, queries: np.ndarray, k: int) -> list[list[int]]:
        keys = [[key for key in range(40) if key != query] for query in queries]
        return [sorted(of, key=lambda key: abs(key - query))[:k] for of, query in zip(keys, queries, strict=True)]

    def score(self, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        return -np.abs(left - right).astype(float)


def test_a_perfect_system_gets_full_marks_and_a_sample_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known_duplicates, "QUERIES", 6)
    links = np.array([(2 * i, 2 * i + 1) for i in range(10)])
    split = split_by_use(links, Seen(np.array([0]), np.array([2, 4]), links, None), config.load())
    known = retrieval({"oracle": ByKey()}, split, 20)
    assert (known["test_queries"], known["test_queries_available"]) == (6, 14)
    assert known["retrieval"]["oracle"]["map"] > 0.7
    systems = {"oracle": ByKey(), "given": ByKey()}
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
    found = labelled_pairs({"given": ByKey(), "bare": ByKey()}, {"given": -2.5}, pairs)
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
    for links, of_model, has_links, said in (
        ({"test_links": 2}, KNOWN, True, {}),
        ({"test_links": 2}, UNKNOWN | {"judged_pairs": 5}, True, {}),
        (None, KNOWN, False, {"links": "the run was given no links"}),
        (None, KNOWN, True, {"links": "no link is between two questions of the archive"}),
        ({"test_links": 2}, UNKNOWN, True, {"calibration": "of a prior, learned on 2 other sites"}),
    ):
        found = not_measured({"links": links, "calibration": of_model}, has_links)
        assert list(found) == list(said)
        assert all(reason in found[name] for name, reason in said.items())


KEYS = np.arange(40)
LINKS = np.array([(key, key + 1) for key in range(0, 40, 2)])
OTHERS = np.array([(key, key + 7) for key in range(20, 30, 2)])
SEEN = Seen(np.arange(6), np.arange(6, 10), np.array([(6, 7), (8, 9)]), -1.5)
SYSTEMS = ("encoder", "bm25", "shingle_jaccard_1")


def _never(*_: object) -> NoReturn:
    raise AssertionError("this was not asked for")


class OnlyRanks(ByKey):
    score = _never


class OnlyScores(ByKey):
    rank = _never


def measured(system: ByKey, seen: Seen | None = SEEN, others: np.ndarray | None = OTHERS, **asked: tuple) -> dict:
    rankers = {name: system for name in SYSTEMS if seen is not None or name != "encoder"}
    known = measure_known(rankers, KEYS, LINKS, seen, config.load(), others, **asked)
    assert known is not None
    return known


@pytest.mark.parametrize("seen", [SEEN, None])
@pytest.mark.parametrize("others", [OTHERS, None])
def test_each_table_alone_gives_its_part_and_costs_its_own_work(seen: Seen | None, others: np.ndarray | None) -> None:
    everything = measured(ByKey(), seen, others)
    retrieval = measured(OnlyRanks(), seen, others, tables=("retrieval",))
    pairs = measured(OnlyScores(), seen, others, tables=("pairs",))
    assert set(retrieval) & set(pairs) == {"left_out"}
    assert everything == {**retrieval, **pairs}
    assert ("labelled_pairs" in pairs) == (others is not None)


def test_a_table_of_rankings_names_the_cut_of_its_map() -> None:
    measures = {"map": 0.25, "map_cut": 7, "accuracy_at_1": 0.5}
    of_systems = {"encoder": measures, "bm25": measures}
    known: LinkMetrics = {"test_queries": 2, "archive_questions": 3, "retrieval": of_systems}
    _, heading, *rows = retrieval_table(known).split("\n")
    assert heading.split() == ["Acc@1", "MAP@7"]
    assert [row.split() for row in rows] == [["encoder", "50.0", "25.0"], ["bm25", "50.0", "25.0"]]
    assert retrieval_table({**known, "retrieval": {}}).split("\n")[2:] == []


def test_without_links_in_the_archive_nothing_is_measured() -> None:
    assert measure_known({}, KEYS, LINKS + 100, None, config.load()) is None


WORDS = ["bread", "breads", "rises", "flat", "the", "of", "sail", "sails", "blue"]
TEXTS = st.lists(st.lists(st.sampled_from(WORDS), max_size=8).map(" ".join), min_size=1, max_size=12)
CUTS = st.lists(st.integers(0, 12), max_size=3)


def keys_of(texts: list[str]) -> np.ndarray:
    return 10 * np.arange(1, len(texts) + 1)


def parts(texts: list[str], cuts: list[int]) -> list[pa.Table]:
    """The texts, the last first, in parts that end at `cuts`."""
    keys, bounds = keys_of(texts), [0, *sorted(min(cut, len(texts)) for cut in cuts), len(texts)]
    slices = [slice(*ends) for ends in itertools.pairwise(bounds)]
    return [pa.table({"key": keys[::-1][part], "text": pa.array(texts[::-1][part], pa.string())}) for part in slices]


def every_pair(texts: list[str]) -> list[np.ndarray]:
    return [keys_of(texts)[axis.ravel()] for axis in np.indices((len(texts), len(texts)))]


@given(TEXTS, CUTS, st.integers(1, 5))
def test_bm25_ranks_as_a_sort_of_all_scores_does(texts: list[str], cuts: list[int], k: int) -> None:
    terms, keys = [stemmed(text, "english") for text in texts], keys_of(texts).tolist()
    for query, found in enumerate(BM25(parts(texts, cuts), "english").rank(np.array(keys), k)):
        expected = slow_bm25(terms, query)
        best = slow_best(keys, [round(score, 5) for score in expected], query, k)  # scores are of float32
        assert [expected[key // 10 - 1] for key in found] == pytest.approx([expected[key // 10 - 1] for key in best])
        tied = [key for key in found if texts[key // 10 - 1] == texts[found[0] // 10 - 1]]
        assert tied == sorted(tied)


@given(TEXTS, CUTS)
def test_a_pair_scores_as_a_share_of_the_questions_score_for_itself(texts: list[str], cuts: list[int]) -> None:
    scores = BM25(parts(texts, cuts), "english").score(*every_pair(texts)).reshape(len(texts), len(texts))
    for query in range(len(texts)):
        expected = slow_bm25([stemmed(text, "english") for text in texts], query)
        assert scores[query] == pytest.approx([score / (expected[query] or 1.0) for score in expected], rel=1e-5)


def test_bm25_reads_the_language_of_the_archive() -> None:
    texts = ["die häuser mit garten", "das haus am see", "die segel mit rissen"]
    archive = parts(texts, [])
    assert BM25(archive, "german").rank(np.array([10]), 5) == [[20]]  # one stem in common; "die" and "mit" are no terms
    assert BM25(archive, "english").rank(np.array([10]), 5) == [[30]]


def test_what_has_nothing_in_common_with_a_question_is_not_ranked_for_it() -> None:
    texts = ["flat bread rises", "", "blue sails tear", "flat earth"]
    assert BM25(parts(texts, []), "english").rank(keys_of(texts), 4) == [[40], [], [], [10]]
    assert BM25(parts(["", ""], []), "english").rank(np.array([10]), 4) == [[]]


@given(TEXTS, CUTS, st.integers(1, 3))
def test_shingles_score_as_the_coefficient_of_two_sets(texts: list[str], cuts: list[int], size: int) -> None:
    scores = ShingleJaccard(parts(texts, cuts), size).score(*every_pair(texts)).reshape(len(texts), len(texts))
    for query in range(len(texts)):
        assert scores[query].tolist() == slow_jaccard(texts, query, size)


PACKED = st.integers(-(2**62), 2**62) | st.integers(0, 12)  # packed keys are large
NAMES = st.integers(-(2**62), 2**62) | st.integers(0, 3)
ASSIGNMENTS = st.dictionaries(PACKED, NAMES, max_size=14)
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
    key = st.sampled_from(sorted(clusters)) | PACKED if clusters else PACKED
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
JUDGED = st.lists(st.tuples(PROBABILITIES, st.booleans()), max_size=30)


@given(JUDGED, st.sampled_from([TENTHS, (0.0, 1.0), (0.0, 0.5, 0.9, 1.0)]))
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
