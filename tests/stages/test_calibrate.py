"""The pairs that a run is calibrated on, from small lists and verdicts."""

import numpy as np
import pyarrow as pa
import pytest
from oracles.slow_evidence import Question, marked, words_of
from run_tables import terms_table

from dupq.clusters.decision import listed_rows, undirected
from dupq.encoders.saved import Fitness
from dupq.evaluation.sampling import Judged, judged
from dupq.evaluation.verdicts import Verdict
from dupq.links import sets_in
from dupq.neighbours.candidates import empty_nearest, nearest_table
from dupq.neighbours.embeddings import Measure
from dupq.settings.sections import CalibrationSettings
from dupq.stages.calibration import (
    Basis,
    SampledPairs,
    _weight,
    calibration,
    lists_of,
    lists_of_neighbours,
    sample_of,
    sampled_pairs,
    terms_of_lists,
    usual_scores,
)
from dupq.tables import KEY_PAIRS, KEYS, KNOWN_SETS, RARITIES, REPRESENTATIVES, SAMPLE
from dupq.text.keys import Sites
from dupq.text.marks import ASKING, SELF

SITE = "a.example.com"
K, POPULATION, COSINE = 3, 100, Measure("cosine", 1.0, 0.0)
LINKED, OTHERS = [1, 2], [20, 21]
SETS = [(1, 1, "development"), (2, 1, "development"), (5, 5, "test"), (6, 5, "test")]
KNOWN = pa.table([*map(list, zip(*SETS, strict=True))], schema=KNOWN_SETS)
LISTS = {
    1: {2: 0.9, 20: 0.5, 5: 0.3},
    2: {1: 0.9, 40: 0.4},
    20: {1: 0.5, 21: 0.45, 5: 0.2},
    21: {20: 0.45, 41: 0.1},
    30: {31: 0.6},
}
BACK = {5: {6: 0.95}, 31: {30: 0.6, 21: 0.2}, 40: {2: 0.4}, 41: {7: 0.8}}  # of their neighbours

Verdicts = dict[tuple[int, int], str]


def lists_table(lists: dict[int, dict[int, float]]) -> pa.Table:
    found = empty_nearest(len(lists), K)
    for row, key in enumerate(sorted(lists)):
        found.others[row, : len(lists[key])] = list(lists[key])
        found.scores[row, : len(lists[key])] = list(lists[key].values())
    return nearest_table(np.array(sorted(lists)), found)


def verdicts_on(said: Verdicts) -> Judged:
    rows = [Verdict(SITE, left, SITE, right, word) for (left, right), word in said.items()]
    return judged(rows, Sites([SITE]), "")


LISTED = listed_rows([lists_table(LISTS), lists_table(BACK)], K, COSINE)
CANDIDATES = undirected(LISTED)


SAMPLED = pa.Table.from_pylist([{"key": key, "is_linked": key in LINKED} for key in LINKED + OTHERS], SAMPLE)


def sampled(said: Verdicts | None = None) -> SampledPairs:
    return sampled_pairs(SAMPLED, POPULATION, sets_in(KNOWN), verdicts_on(said or {}), LISTED, CANDIDATES)


def pairs_of(found: SampledPairs) -> list[tuple[int, int]]:
    return [(row["left"], row["right"]) for row in CANDIDATES.take(found.rows).to_pylist()]


def scores_of(found: SampledPairs, rows: np.ndarray) -> list[float]:
    return CANDIDATES["similarity"].to_numpy()[found.rows[rows]].tolist()


def rows_of(found: SampledPairs, pair: tuple[int, int]) -> np.ndarray:
    return np.array([row for row, other in enumerate(pairs_of(found)) if other == pair])


OF_LINKED = [(1, 2), (1, 20), (1, 5), (1, 2), (2, 40)]  # pairs in the lists of linked questions, and of others
WITHOUT = [*OF_LINKED, (1, 20), (20, 21), (5, 20), (20, 21), (21, 41)]


def test_all_pairs_of_the_sampled_questions_are_read_and_count_less_where_more_of_their_kind_are_drawn() -> None:
    found = sampled()
    assert sorted(pairs_of(found)) == sorted(WITHOUT)
    assert found.is_linked.tolist() == [pair == (1, 2) for pair in pairs_of(found)]
    assert found.labels.tolist() == found.is_linked.tolist()
    assert not found.is_judged.any()
    # each sampled question without known duplicates represents 48 of 96, each linked one 2 of 4; a pair counts once
    for pair, total in {(1, 2): 2, (20, 21): 48, (1, 20): 25, (5, 20): 48, (21, 41): 48, (2, 40): 1}.items():
        assert found.counts[rows_of(found, pair)].sum() == pytest.approx(total), pair
    assert found.log_rates.tolist() == pytest.approx([np.log((2 / 4) / (2 / 96))] * len(WITHOUT))
    drawn_more = [pair != (1, 2) and row < len(OF_LINKED) for row, pair in enumerate(WITHOUT)]
    are_mutual = [pair in {(1, 2), (1, 20), (20, 21), (2, 40)} for pair in WITHOUT]
    expected = [
        (0.5 if both else 1.0) * ((2 / 96) / (2 / 4) if more else 1.0)
        for both, more in zip(are_mutual, drawn_more, strict=True)
    ]
    assert sorted(found.weights.tolist()) == pytest.approx(sorted(expected))


def test_an_archive_of_known_duplicates_alone_is_not_taken_for_one_of_duplicates_only() -> None:
    sample = pa.table([LINKED, [True] * len(LINKED)], schema=SAMPLE)
    found = sampled_pairs(sample, len(KNOWN), sets_in(KNOWN), verdicts_on({}), LISTED, CANDIDATES)
    assert found.labels.tolist() == [pair == (1, 2) for pair in pairs_of(found)]
    assert (~found.labels).sum() == 3
    assert found.log_rates.tolist() == [0.0] * len(OF_LINKED)  # all are drawn alike


@pytest.mark.parametrize(("pairs", "weight"), [([2], 1), ([1, 2], 1), ([12], 2 / 12), ([2, 12, 1], 5 / 15), ([], 1)])
def test_linked_pairs_weigh_as_if_each_set_were_one_pair_and_others_as_much(pairs: list[int], weight: float) -> None:
    sets = np.repeat([*range(len(pairs)), -1], [*pairs, 7])
    assert _weight(sets, sets >= 0) == pytest.approx(weight)


@pytest.mark.parametrize(
    ("questions", "usual"),
    [({1: True, 20: False}, [0.5]), ({1: True, 20: True}, [0.5, 0.9]), ({1: True, 99: False}, [0.9]), ({}, [])],
)
def test_usual_scores_are_of_questions_without_known_duplicates_if_any(
    questions: dict[int, bool], usual: list[float]
) -> None:
    sample = pa.table([list(questions), list(questions.values())], schema=SAMPLE)
    assert usual_scores(LISTED, sample).tolist() == pytest.approx(usual)


@pytest.mark.parametrize("said", ["same", "different"])
@pytest.mark.parametrize("pair", [(1, 2), (20, 21), (1, 20), (21, 41)])
def test_a_verdict_takes_the_place_of_what_was_assumed(pair: tuple[int, int], said: str) -> None:
    found = sampled({pair: said})
    assert sorted(pairs_of(found)) == sorted([*(other for other in WITHOUT if other != pair), pair])
    (row,) = rows_of(found, pair)
    assert found.is_judged.tolist() == [other == row for other in range(len(found.rows))]
    assert found.labels[row] == (said == "same")
    assert not found.is_linked[row]
    assert (found.weights[row], found.log_rates[row], found.counts[row]) == (1, 0, 0)
    assert scores_of(found, [row]) == pytest.approx([LISTS[pair[0] if pair != (1, 20) else 20].get(pair[1], 0.5)])


def test_a_judged_pair_outside_the_sample_is_read_too_whichever_side_lists_it() -> None:
    found = sampled({(30, 31): "same", (21, 31): "different"})
    assert sorted(pairs_of(found)) == sorted([*WITHOUT, (30, 31), (21, 31)])
    assert found.labels[rows_of(found, (30, 31))].tolist() == [True]
    assert found.labels[rows_of(found, (21, 31))].tolist() == [False]
    assert scores_of(found, rows_of(found, (21, 31))) == pytest.approx([0.2])


@pytest.mark.parametrize("said", [{(7, 90): "same"}, {(2, 30): "different"}, {(20, 21): "unsure"}, {}])
def test_verdicts_that_are_unsure_or_on_pairs_that_neither_lists_change_nothing(said: Verdicts) -> None:
    found = sampled(said)
    assert sorted(pairs_of(found)) == sorted(WITHOUT)
    assert not found.is_judged.any()


def test_the_sample_is_of_development_links_and_of_questions_without_any() -> None:
    """Links count between representatives; those of training or to unsearched questions do not."""
    keys = [pa.table([some], schema=KEYS) for some in ([*range(40, 80)], [*range(1, 40)])]
    pairs = [(1, 2), (3, 4), (5, 90), (6, 91), (7, 92)]
    links = pa.Table.from_pylist([{"left": one, "right": other} for one, other in pairs], KEY_PAIRS)
    copies = pa.Table.from_pylist([{"key": 91, "representative": 8}], REPRESENTATIVES)
    seen = {"train": np.array([3]), "development": np.array([1, 6]), "test": np.array([], np.int64)}
    found = sample_of(iter(keys), links, copies, seen, CalibrationSettings(links=100, sample=10))
    rows = found.table.to_pylist()
    assert {row["key"] for row in rows if row["is_linked"]} == {1, 2, 6, 8}
    others = {row["key"] for row in rows if not row["is_linked"]}
    assert len(others) == 10
    assert others <= {*range(1, 80)} - {1, 2, 3, 4, 6, 8}
    assert (found.counts["rows_in"], found.counts["other questions sampled"]) == (79, 10)
    split = sets_in(found.second)
    assert dict(zip(split.questions.tolist(), split.parts.tolist(), strict=True)) == {
        1: "development", 2: "development", 3: "train", 4: "train", 6: "development", 8: "development",
    }  # fmt: skip


def test_lists_are_read_of_sampled_and_judged_questions_and_then_of_their_neighbours() -> None:
    every = lists_table(LISTS | BACK)
    sample = pa.Table.from_pylist([{"key": 1, "is_linked": True}, {"key": 20, "is_linked": False}], SAMPLE)
    own = lists_of(every, sample, verdicts_on({(30, 77): "same"}))
    assert own["key"].to_pylist() == [1, 20, 30]
    theirs = lists_of_neighbours(every, own)
    assert theirs["key"].to_pylist() == [2, 5, 21, 31]
    assert own["neighbours"].to_pylist()[0] == [2, 20, 5]
    terms = terms_table(pa.array([*range(1, 45)]), words_of([Question({1: 1}, {1: 1, 2: 1}, {}, {})] * 44))
    read = {row["key"]: row["text_terms"] for row in terms_of_lists(terms, own, theirs).to_pylist()}
    assert sorted(key for key, words in read.items() if words) == [1, 2, 5, 20, 21, 30, 31]
    assert sorted(key for key, words in read.items() if not words) == [6, 40, 41]  # only neighbours: 6 of 5, 41 of 21


@pytest.mark.parametrize("have_bodies", [False, True])
def test_pairs_that_titles_decide_are_kept_with_no_weight_and_move_nothing(have_bodies: bool) -> None:
    """So the model of a reranker, which is fitted to the table, does not count them either."""
    asks = {1: 7, 2: 7, 20: 8}  # questions 1 and 2 ask the same
    texts = [{1: 1, 2: 1, **({3: 1} if have_bodies else {})} for _ in range(44)]
    questions = [
        Question({1: 1, 2: 1}, text, {}, marked((ASKING, asks.get(key, 100 + key)), (SELF, key)))
        for key, text in enumerate(texts, 1)
    ]
    terms, rarities = terms_table(pa.array([*range(1, 45)]), words_of(questions)), np.full(4, 2.0, np.float32)
    given = pa.table([pa.array(rarities)], schema=RARITIES), SAMPLED, KNOWN
    words = Fitness(questions=44, unknown_words=0.0, bodies_found=None)
    basis = Basis(POPULATION, Sites([SITE]), verdicts_on({(20, 21): "same"}), words, COSINE, K, "")
    found = calibration(lists_table(LISTS), lists_table(BACK), terms, *given, basis)
    rows = found.second.to_pylist()
    assert found.table["titles_only"] is not have_bodies
    decided = [row["question_id_left"] == 1 and row["question_id_right"] == 2 for row in rows]
    assert sum(decided) == 2
    assert [row["weight"] == 0 for row in rows] == [each and not have_bodies for each in decided]
    assert [row["is_linked"] for row in rows] == decided
    assert sum(row["is_judged"] for row in rows) == 1
