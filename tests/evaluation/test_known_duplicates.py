"""Measuring all systems on known duplicates, from arrays: what is asked for is measured, and nothing else."""

from typing import NoReturn

import numpy as np
import pytest

from dupq.evaluation.known_duplicates import Seen, measure_known
from dupq.evaluation.measures import LinkMetrics, retrieval_table
from dupq.settings import config

KEYS = np.arange(40)
LINKS = np.array([(key, key + 1) for key in range(0, 40, 2)])
OTHERS = np.array([(key, key + 7) for key in range(20, 30, 2)])
SEEN = Seen(np.arange(6), np.arange(6, 10), np.array([(6, 7), (8, 9)]), -1.5)
SYSTEMS = ("encoder", "bm25", "shingle_jaccard_1")


class ByKey:
    """Duplicates have neighbouring keys here, so this system is nearly perfect."""

    def rank(self, queries: np.ndarray, k: int) -> list[list[int]]:
        found = [np.argsort(np.abs(KEYS - query), kind="stable") for query in queries]
        return [KEYS[order[KEYS[order] != query]][:k].tolist() for order, query in zip(found, queries, strict=True)]

    def score(self, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        return -np.abs(left - right).astype(float)


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
def test_each_table_alone_gives_its_part_of_all_and_costs_only_its_own_work(
    seen: Seen | None, others: np.ndarray | None
) -> None:
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


def test_only_links_that_the_encoder_never_saw_are_measured() -> None:
    known = measured(ByKey())
    assert known["left_out"] == {"train": 6, "development": 4, "labelled_pairs": 5}
    assert known["test_queries"] == 30
    assert known["balanced_pairs"]["pairs"] == 30
    assert (known["labelled_pairs"]["duplicates"], known["labelled_pairs"]["others"]) == (15, 5)
    assert known["balanced_pairs"]["encoder"] == 1  # links differ by 1, and its own threshold is 1.5


def test_without_links_in_the_archive_nothing_is_measured() -> None:
    assert measure_known({}, KEYS, LINKS + 100, None, config.load()) is None
