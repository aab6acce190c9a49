"""What two questions have in common, compared with dictionaries of terms and loops over neighbours."""

import math
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracles.slow_evidence import Question, marked, slow_lead, slow_shared, words_of

from dupq.clusters.evidence import UNLISTED, Words, lifts_of, shared, title_context, title_cosines, title_leads
from dupq.text.marks import ASKING, CITED, SELF

TERMS = 12
SETS = st.dictionaries(st.integers(0, TERMS - 1), st.integers(1, 255), max_size=6)
TAGS = st.sets(st.integers(0, 4), max_size=3).map(lambda tags: dict.fromkeys(tags, 1))
MARKS = st.sets(st.tuples(st.integers(ASKING, CITED), st.integers(0, 3)), max_size=12)
OWN = st.integers(0, 3).map(lambda number: (SELF, number))
EVERY_MARK = st.builds(lambda marks, own: marked(*marks, own), MARKS, OWN)
QUESTIONS = st.lists(st.builds(Question, SETS, SETS, TAGS, EVERY_MARK), min_size=1, max_size=6)
RARITIES = st.lists(st.floats(0.0009765625, 16, width=32), min_size=TERMS, max_size=TERMS)


class Case(NamedTuple):
    questions: list[Question]
    rarities: np.ndarray
    left: np.ndarray
    right: np.ndarray

    @property
    def words(self) -> Words:
        return words_of(self.questions)


@st.composite
def cases(draw: st.DrawFn) -> Case:
    questions = draw(QUESTIONS)
    rows = st.integers(0, len(questions) - 1)
    pairs = np.array(draw(st.lists(st.tuples(rows, rows), max_size=8)), np.int64).reshape(-1, 2)
    return Case(questions, np.array(draw(RARITIES), np.float32), pairs[:, 0], pairs[:, 1])


@given(cases())
def test_what_pairs_share_is_what_their_dictionaries_share(case: Case) -> None:
    found = shared(case.words, case.left, case.right, case.rarities)
    expected = [
        slow_shared(case.questions[a], case.questions[b], case.rarities.tolist())
        for a, b in zip(case.left.tolist(), case.right.tolist(), strict=True)
    ]
    for name, column in found._asdict().items():
        assert column.dtype == np.float32
        wanted = [row[name] for row in expected]
        assert column.tolist() == pytest.approx(wanted, rel=1e-5, abs=1e-6, nan_ok=True), name
    alone = title_cosines(case.words.titles, case.left, case.right, case.rarities)
    assert alone.tolist() == found.title_cosine.tolist()


@st.composite
def score_lists(draw: st.DrawFn) -> tuple[np.ndarray, float]:
    k, highest = draw(st.integers(1, 5)), draw(st.sampled_from([1.0, 1.5]))
    rows = draw(st.lists(st.lists(st.floats(-0.5, highest, width=32), max_size=k), max_size=6))
    scores = np.full((len(rows), k), -np.inf)
    for place, row in enumerate(rows):
        scores[place, : len(row)] = sorted(row, reverse=True)
    return scores, highest


@given(score_lists())
def test_a_score_counts_beside_those_of_the_other_neighbours(made: tuple[np.ndarray, float]) -> None:
    scores, highest = made
    found = lifts_of(scores, highest)
    for query, row in enumerate(scores.tolist()):
        listed = [score for score in row if score > -math.inf]
        for place, score in enumerate(listed):
            others = listed[:place] + listed[place + 1 :]
            mean = sum(others) / len(others) if others else 0.0
            lift = (score - mean) / max(highest - mean, 1e-6)
            assert found[query, place] == pytest.approx(lift, rel=1e-4, abs=1e-6)
        assert not found[query, len(listed) :].any()
    assert found.dtype == np.float32


class Neighbourhood(NamedTuple):
    """The neighbours that questions list, and the cosines of all titles."""

    lists: list[list[int]]
    cosines: np.ndarray

    @property
    def rows(self) -> tuple[np.ndarray, np.ndarray]:
        """Return each question once per neighbour, and the neighbours."""
        flat = [(query, other) for query, listed in enumerate(self.lists) for other in listed]
        rows = np.array(flat, np.int64).reshape(-1, 2)
        return rows[:, 0], rows[:, 1]

    def title_context(self) -> pa.Table:
        queries, others = self.rows
        return title_context(queries, self.cosines[queries, others])

    def leads(self, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        """Return the leads as a run computes them, from TITLE_CONTEXT and the ranks of each pair."""
        ranks = self._ranks(left, right), self._ranks(right, left)
        columns = {"left": left, "right": right, "title_cosine": self.cosines[left, right]}
        pairs = pa.table(columns | {"rank_left": ranks[0], "rank_right": ranks[1]})
        return title_leads(pairs, self.title_context())

    def _ranks(self, queries: np.ndarray, others: np.ndarray) -> np.ndarray:
        pairs = zip(queries.tolist(), others.tolist(), strict=True)
        ranks = [self.lists[a].index(b) + 1 if b in self.lists[a] else UNLISTED for a, b in pairs]
        return np.array(ranks, np.int32)


@st.composite
def neighbourhoods(draw: st.DrawFn) -> Neighbourhood:
    count = draw(st.integers(2, 6))
    lists = [
        draw(st.lists(st.sampled_from([other for other in range(count) if other != one]), unique=True))
        for one in range(count)
    ]
    cosines, (left, right) = np.zeros((count, count), np.float32), np.triu_indices(count, 1)
    cosines[left, right] = draw(st.lists(st.floats(0, 1, width=32), min_size=len(left), max_size=len(left)))
    return Neighbourhood(lists, cosines + cosines.T)


@given(neighbourhoods())
def test_titles_lead_by_how_much_more_alike_they_are_than_those_of_the_other_neighbours(made: Neighbourhood) -> None:
    left, right = np.triu_indices(len(made.lists), 1)
    found = made.leads(left, right)
    expected = [
        slow_lead(one, other, lambda a, b: float(made.cosines[a, b]), made.lists)
        for one, other in zip(left.tolist(), right.tolist(), strict=True)
    ]
    assert found.tolist() == pytest.approx(expected, abs=2e-6)
    assert found.dtype == np.float32
    assert made.leads(right, left).tolist() == found.tolist()


def test_the_order_in_which_neighbours_are_added_makes_no_difference() -> None:
    """Nor does the number of parts: sums of floats would differ in their last digits."""
    random = np.random.default_rng(5)
    keys, cosines = random.integers(0, 3, 5_000), (10 ** random.uniform(-9, 0, 5_000)).astype(np.float32)
    mixed = random.permutation(5_000)
    assert cosines.cumsum(dtype=np.float64)[-1] != cosines[mixed].cumsum(dtype=np.float64)[-1]
    together = title_context(keys, cosines)
    for some in (np.arange(5_000)[::-1], mixed):
        assert title_context(keys[some], cosines[some]) == together
    pieces = pa.concat_tables(title_context(keys[some], cosines[some]) for some in np.array_split(mixed, 7))
    added = pieces.group_by("key").aggregate([("cosines", "sum"), ("listed", "sum")]).sort_by("key")
    assert [*zip(*added.to_pydict().values(), strict=True)] == [*zip(*together.to_pydict().values(), strict=True)]
