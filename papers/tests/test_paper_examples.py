"""The protocol of the papers' tables: parts that share no question, negatives that are none, and the same each time."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dupq import storage
from dupq.clusters.components import components
from dupq.errors import DupqError
from dupq.evaluation.known_duplicates import Labels, usable
from dupq.links import split_links
from dupq.settings.sections import TextSettings, TrainingSettings
from dupq.training.pairs import Pairs
from dupq_papers.data.example_files import read_experiment, write_experiment
from dupq_papers.data.examples import ExampleSettings, Experiment, experiment, official_experiment
from dupq_papers.data.pair_sets import PairSet, arabic
from dupq_papers.data.semeval_scores import Candidates
from dupq_papers.schemas import EXAMPLE_QUERIES
from dupq_papers.systems.collection import Collection

PAIR = st.tuples(st.integers(0, 59), st.integers(0, 59)).filter(lambda ends: ends[0] < ends[1])
KNOWN = st.lists(st.tuples(PAIR, st.booleans()), min_size=1, max_size=60)
NO_PAIRS = np.zeros((0, 2), np.int64)


def known(labels: Labels, questions: int = 60) -> PairSet:
    texts = pa.array([""] * questions, pa.string())
    collection = Collection(np.arange(questions), texts, texts, texts, ((),) * questions, "english")
    return PairSet(collection, labels)


def labelled(rows: list[tuple[tuple[int, int], bool]]) -> Labels:
    ends, labels = np.array([ends for ends, _ in rows], np.int64), np.array([label for _, label in rows], bool)
    return usable(ends, labels, np.arange(60))


def linked(links: np.ndarray) -> Labels:
    return Labels(links, NO_PAIRS, {})


def parts(found: Experiment) -> dict[str, Pairs]:
    return {"train": found.examples.training, "development": found.examples.development, "test": found.test}


def rows_of(pairs: Pairs, label: float) -> set[tuple[int, int]]:
    kept = pairs.labels == label
    return set(zip(pairs.left[kept].tolist(), pairs.right[kept].tolist(), strict=True))


def links_of_sets(count: int, size: int = 2) -> np.ndarray:
    """Chains of `size` questions each."""
    starts = size * np.arange(count)[:, None]
    left = (starts + np.arange(size - 1)).ravel()
    return np.stack([left, left + 1], axis=1)


def check(found: Experiment, labels: Labels) -> None:
    questions, sets = components(labels.duplicates)
    set_of = dict(zip(questions.tolist(), sets.tolist(), strict=True))
    members: dict[int, set[int]] = {}
    for key, own_set in set_of.items():
        members.setdefault(own_set, set()).add(key)
    seen: list[set[int]] = []
    for part, pairs in parts(found).items():
        queries = {"development": found.examples.development_queries, "test": found.test_queries}.get(part, {})
        for query, duplicates in queries.items():
            assert duplicates == members[set_of[query]] - {query} != set()
        for left, right in rows_of(pairs, 1.0):
            assert set_of[left] == set_of[right]
        for left, right in rows_of(pairs, 0.0):
            assert left != right
            assert set_of.get(left, -1) != set_of.get(right, -2)
        of_queries = {key for query, others in queries.items() for key in {query, *others}}
        own = set(np.concatenate([pairs.left, pairs.right]).tolist()) | of_queries
        assert not any(own & others for others in seen)
        seen.append(own)


@given(KNOWN, st.integers(0, 3), st.booleans())
def test_no_question_is_in_two_parts_of_labelled_pairs_and_none_is_lost_unsaid(
    rows: list[tuple[tuple[int, int], bool]], seed: int, closed: bool
) -> None:
    labels = labelled([*rows, ((0, 1), True), ((58, 59), False)])
    found = experiment(known(labels), ExampleSettings(seed=seed, closed=closed))
    check(found, labels)
    negatives = [rows_of(pairs, 0.0) for pairs in parts(found).values()]
    assert set().union(*negatives) <= set(map(tuple, labels.others.tolist()))
    assert sum(map(len, negatives)) + found.counts["pairs labelled 0 across parts"] == len(labels.others)
    positives = set().union(*(rows_of(pairs, 1.0) for pairs in parts(found).values()))
    assert positives >= set(map(tuple, labels.duplicates.tolist()))
    assert closed or len(positives) == len(labels.duplicates)


@given(st.lists(PAIR, min_size=1, max_size=20), st.integers(0, 3), st.booleans())
def test_links_get_as_many_random_negatives_of_their_own_part(
    links: list[tuple[int, int]], seed: int, closed: bool
) -> None:
    # a third of the questions has no duplicate, so that every part has negatives
    labels = linked(np.unique(np.array(links, np.int64), axis=0))
    found = experiment(known(labels, 200), ExampleSettings(seed=seed, closed=closed))
    check(found, labels)
    for pairs in parts(found).values():
        assert pairs.labels.sum() * 2 == len(pairs.labels)
    again = experiment(known(labels, 200), ExampleSettings(seed=seed, closed=closed))
    for one, other in zip(parts(found).values(), parts(again).values(), strict=True):
        assert all(np.array_equal(column, same) for column, same in zip(one, other, strict=True))


def test_both_questions_of_a_random_negative_are_from_the_whole_part() -> None:
    found = experiment(known(linked(links_of_sets(100)), 2_000), ExampleSettings())
    for pairs in parts(found).values():
        negatives = pairs.labels == 0
        for side in (pairs.left, pairs.right):
            assert np.mean(side[negatives] >= 200) > 0.5  # nine of ten questions have no known duplicate


def test_the_parts_are_those_of_dupqs_own_training() -> None:
    links = links_of_sets(50, 3)
    found = experiment(known(linked(links), 200), ExampleSettings())
    split = split_links(links, TrainingSettings())
    for part, pairs in parts(found).items():
        assert rows_of(pairs, 1.0) == set(map(tuple, split.links_of(part, links).tolist()))
    assert list(found.test_queries) == split.questions_of("test").tolist()
    assert rows_of(found.test, 0.0) != rows_of(experiment(known(linked(links), 200), ExampleSettings(seed=2)).test, 0.0)


def test_the_closure_has_every_pair_of_a_set() -> None:
    links = links_of_sets(50, 4)
    found = experiment(known(linked(links), 300), ExampleSettings(closed=True))
    for pairs in parts(found).values():
        sets = {left // 4 for left, _ in rows_of(pairs, 1.0)}
        assert len(rows_of(pairs, 1.0)) == 6 * len(sets)


def test_limits_are_kept_and_what_they_leave_out_is_counted() -> None:
    links = links_of_sets(100)
    found = experiment(known(linked(links), 300), ExampleSettings(training_pairs=10, measured_pairs=5, queries=7))
    assert [len(pairs.labels) for pairs in parts(found).values()] == [20, 10, 10]
    assert len(found.test_queries) == len(found.examples.development_queries) == 7
    left_out = {name: count for name, count in found.counts.items() if count}
    assert left_out == {
        "train: pairs over the limit": 50,
        "development: pairs over the limit": 15,
        "test: pairs over the limit": 15,
        "development: queries over the limit": 33,
        "test: queries over the limit": 33,
    }


def test_given_parts_are_kept_as_they_are() -> None:
    one = Candidates(0, np.array([1, 2]), np.array([True, False]))
    other = Candidates(3, np.array([4]), np.array([False]))
    found = official_experiment([one], [other], [one, other])
    assert rows_of(found.examples.training, 1.0) == {(0, 1)}
    assert (rows_of(found.test, 1.0), rows_of(found.test, 0.0)) == ({(0, 1)}, {(0, 2), (3, 4)})
    assert (found.examples.development_queries, found.test_queries) == ({}, {0: {1}})


def test_an_experiment_is_read_as_it_was_written(tmp_path: Path) -> None:
    found = experiment(known(linked(links_of_sets(40, 3)), 200), ExampleSettings(queries=5))
    write_experiment(str(tmp_path), found)
    again = read_experiment(str(tmp_path))
    assert (again.test_queries, again.counts) == (found.test_queries, found.counts)
    assert again.examples.development_queries == found.examples.development_queries
    assert list(again.test_queries) == list(found.test_queries)
    for one, other in zip(parts(found).values(), parts(again).values(), strict=True):
        assert all(column.dtype == same.dtype for column, same in zip(one, other, strict=True))
        assert all(np.array_equal(column, same) for column, same in zip(one, other, strict=True))
    strange = pa.Table.from_pylist([{"part": "exam", "key": 1, "duplicates": [2]}], EXAMPLE_QUERIES)
    storage.write_table(str(tmp_path / "queries.parquet"), strange, EXAMPLE_QUERIES)
    with pytest.raises(DupqError, match="part 'exam'"):
        read_experiment(str(tmp_path))


@pytest.mark.realdata
def test_real_labelled_pairs_share_no_question_between_parts(shared_data: Path) -> None:
    read = arabic(str(shared_data / "arabic" / "pairs.tsv"), TextSettings(language="arabic"))
    found = experiment(read, ExampleSettings())
    check(found, read.labels)
    assert [len(rows_of(pairs, 1.0)) for pairs in parts(found).values()] == [2560, 868, 845]
    assert [len(rows_of(pairs, 0.0)) for pairs in parts(found).values()] == [2224, 780, 882]
