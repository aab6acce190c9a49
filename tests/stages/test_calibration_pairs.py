"""The pairs that a run is calibrated on, of lists and verdicts written by hand."""

from pathlib import Path

import numpy as np
import pytest
from oracles.slow_evidence import Question, words_of
from run_tables import write_rows

from dupq import storage
from dupq.evaluation.verdicts import Verdict, format_verdicts
from dupq.neighbours.lists import nearest_table
from dupq.neighbours.measure import Measure
from dupq.neighbours.nearest import empty_nearest
from dupq.neighbours.steps.blocks import SearchRequest
from dupq.runs.layout import CalibrationFiles, NeighbourFiles
from dupq.settings.dedup import NeighbourSettings
from dupq.stages.calibration.calibrate import _are_titles
from dupq.stages.calibration.sampled_pairs import SampledPairs, _weight, read_lists, sampled_pairs
from dupq.tables import KNOWN_SETS, NEAREST, SAMPLE

SITE = "a.example.com"
K, POPULATION = 3, 100
LINKED, OTHERS, SEARCHED_FOR_VERDICTS = [1, 2], [20, 21], [30]
SETS = {1: (1, "development"), 2: (1, "development"), 5: (5, "test"), 6: (5, "test")}
LISTS = {
    1: {2: 0.9, 20: 0.5, 5: 0.3},
    2: {1: 0.9, 40: 0.4},
    20: {1: 0.5, 21: 0.45, 5: 0.2},
    21: {20: 0.45, 41: 0.1},
    30: {31: 0.6},
}
BACK = {5: {6: 0.95}, 31: {30: 0.6, 21: 0.2}, 40: {2: 0.4}, 41: {7: 0.8}}  # of their neighbours

Judged = dict[tuple[int, int], str]


def write_lists(uri: str, lists: dict[int, dict[int, float]]) -> None:
    found = empty_nearest(len(lists), K)
    for row, key in enumerate(sorted(lists)):
        found.others[row, : len(lists[key])] = list(lists[key])
        found.scores[row, : len(lists[key])] = list(lists[key].values())
    storage.write_table(uri, nearest_table(np.array(sorted(lists)), found), NEAREST)


def sampled(folder: Path, judged: Judged | None = None) -> SampledPairs:
    run = str(folder)
    verdicts = None
    if judged is not None:
        verdicts = f"{run}/judged.tsv"
        rows = [Verdict(SITE, left, SITE, right, said) for (left, right), said in judged.items()]
        storage.write_bytes(verdicts, format_verdicts(rows).encode())
    files = CalibrationFiles(run, NeighbourFiles(run), "", "", "", None, verdicts)
    rows = [{"key": key, "is_linked": key in LINKED} for key in LINKED + OTHERS]
    write_rows(files.sample, rows, SAMPLE, {"rows_in": POPULATION})
    sets = [{"key": key, "duplicates": name, "part": part} for key, (name, part) in SETS.items()]
    write_rows(files.known, sets, KNOWN_SETS)
    write_lists(files.lists(1), LISTS)
    write_lists(files.lists(2), BACK)
    search_request = SearchRequest([SITE], NeighbourSettings(k=K), Measure("cosine", 1.0, 0.0), 1)
    return sampled_pairs(files, search_request, read_lists(files, search_request))


def pairs_of(found: SampledPairs) -> list[tuple[int, int]]:
    return list(zip(found.left.tolist(), found.right.tolist(), strict=True))


def rows_of(found: SampledPairs, pair: tuple[int, int]) -> np.ndarray:
    return np.array([row for row, other in enumerate(pairs_of(found)) if other == pair])


WITHOUT = [(1, 2), (1, 2), (1, 20), (20, 21), (5, 20), (20, 21), (21, 41)]  # linked both ways; others' lists


def test_of_linked_questions_only_the_linked_pairs_are_read_and_of_others_all(tmp_path: Path) -> None:
    found = sampled(tmp_path)
    assert sorted(pairs_of(found)) == sorted(WITHOUT)
    assert found.is_linked.tolist() == [pair == (1, 2) for pair in pairs_of(found)]
    assert found.labels.tolist() == found.is_linked.tolist()
    assert not found.is_judged.any()
    assert found.reference.tolist() == pytest.approx([0.45, 0.5])
    assert (found.sets, found.questions) == (1, 4)


def test_a_pair_that_comes_up_twice_counts_once(tmp_path: Path) -> None:
    """Each of the others stands for 48 of the 96 without known duplicates, each linked one for 2 of 4."""
    found = sampled(tmp_path)
    for pair, total in {(1, 2): 2, (20, 21): 48, (1, 20): 24, (5, 20): 48, (21, 41): 48}.items():
        assert found.counts[rows_of(found, pair)].sum() == pytest.approx(total), pair
    assert found.log_rates.tolist() == pytest.approx([np.log((2 / 4) / (2 / 96))] * len(WITHOUT))
    list_each_other = [(1, 2), (1, 20), (20, 21)]
    assert found.weights.tolist() == [0.5 if pair in list_each_other else 1 for pair in pairs_of(found)]


@pytest.mark.parametrize(("pairs", "weight"), [([2], 1), ([1, 2], 1), ([12], 2 / 12), ([2, 12, 1], 5 / 15), ([], 1)])
def test_linked_pairs_weigh_together_as_if_each_set_were_one_pair_and_others_as_much(
    pairs: list[int], weight: float
) -> None:
    sets = np.repeat([*range(len(pairs)), -1], [*pairs, 7])
    assert _weight(sets, sets >= 0) == pytest.approx(weight)


def test_both_sides_know_how_they_list_each_other(tmp_path: Path) -> None:
    found = sampled(tmp_path)
    row = rows_of(found, (1, 20))[0]
    assert (found.listing_left.ranks[row], found.listing_right.ranks[row]) == (2, 1)
    row = rows_of(found, (5, 20))[0]
    assert (found.listing_left.ranks[row] > 0, found.listing_right.ranks[row]) == (False, 3)


@pytest.mark.parametrize("said", ["same", "different"])
@pytest.mark.parametrize("pair", [(1, 2), (20, 21), (1, 20), (21, 41)])
def test_a_verdict_takes_the_place_of_what_was_assumed(pair: tuple[int, int], said: str, tmp_path: Path) -> None:
    found = sampled(tmp_path, {pair: said})
    assert sorted(pairs_of(found)) == sorted([*(other for other in WITHOUT if other != pair), pair])
    (row,) = rows_of(found, pair)
    assert found.is_judged.tolist() == [other == row for other in range(len(found.left))]
    assert found.labels[row] == (said == "same")
    assert not found.is_linked[row]
    assert (found.weights[row], found.log_rates[row], found.counts[row]) == (1, 0, 0)
    assert found.scores[row] == pytest.approx(LISTS[pair[0] if pair != (1, 20) else 20].get(pair[1], 0.5))


def test_a_verdict_changes_no_other_pair(tmp_path: Path) -> None:
    before, after = sampled(tmp_path / "before"), sampled(tmp_path / "after", {(20, 21): "same"})
    kept = [row for row, pair in enumerate(pairs_of(before)) if pair != (20, 21)]
    for name in ("left", "right", "scores", "is_linked", "labels", "weights", "log_rates", "counts"):
        one, other = getattr(before, name)[kept], getattr(after, name)[:-1]
        assert one.tolist() == other.tolist(), name


def test_a_judged_pair_outside_the_sample_is_read_too_whichever_side_lists_it(tmp_path: Path) -> None:
    found = sampled(tmp_path, {(30, 31): "same", (21, 31): "different"})
    assert sorted(pairs_of(found)) == sorted([*WITHOUT, (30, 31), (21, 31)])
    assert found.labels[rows_of(found, (30, 31))].tolist() == [True]
    assert found.labels[rows_of(found, (21, 31))].tolist() == [False]
    assert found.scores[rows_of(found, (21, 31))] == pytest.approx([0.2])


@pytest.mark.parametrize("judged", [{(7, 90): "same"}, {(2, 30): "different"}, {(20, 21): "unsure"}, {}])
def test_verdicts_that_are_unsure_or_on_pairs_that_neither_lists_change_nothing(judged: Judged, tmp_path: Path) -> None:
    found = sampled(tmp_path, judged)
    assert sorted(pairs_of(found)) == sorted(WITHOUT)
    assert not found.is_judged.any()


@pytest.mark.parametrize(
    ("rows", "are_titles"), [([0, 1], True), ([0, 1, 2], False), ([1], True), ([2], False), ([], False)]
)
def test_an_archive_has_titles_alone_where_no_text_says_more(rows: list[int], are_titles: bool) -> None:
    words = words_of(
        [Question({1: 1}, {1: 1}, {}, {}), Question({}, {}, {5: 1}, {}), Question({1: 2}, {1: 2, 4: 1}, {}, {})]
    )
    assert _are_titles(words, np.array(rows, np.int64)) == are_titles
