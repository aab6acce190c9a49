"""What two questions have in common, against dictionaries of their terms."""

import math
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dupq.clusters.evidence import Shared, Words, have_other_numbers, listing_of, shared
from dupq.text.terms import Terms

TERMS = 12
SETS = st.dictionaries(st.integers(0, TERMS - 1), st.integers(1, 255), max_size=6)
TAGS = st.sets(st.integers(0, 4), max_size=3).map(lambda tags: dict.fromkeys(tags, 1))
NOTHING = dict[int, int]()


class Question(NamedTuple):
    title: dict[int, int]
    text: dict[int, int]
    tags: dict[int, int]
    numbers: dict[int, int]


QUESTIONS = st.lists(st.builds(Question, SETS, SETS, TAGS, TAGS), min_size=1, max_size=6)
RARITIES = st.lists(st.floats(0.0009765625, 16, width=32), min_size=TERMS, max_size=TERMS)


class Case(NamedTuple):
    questions: list[Question]
    rarities: np.ndarray
    left: np.ndarray
    right: np.ndarray

    @property
    def words(self) -> Words:
        return Words(*(terms_of(column) for column in zip(*self.questions, strict=True)))


@st.composite
def cases(draw: st.DrawFn) -> Case:
    questions = draw(QUESTIONS)
    rows = st.integers(0, len(questions) - 1)
    pairs = np.array(draw(st.lists(st.tuples(rows, rows), max_size=8)), np.int64).reshape(-1, 2)
    return Case(questions, np.array(draw(RARITIES), np.float32), pairs[:, 0], pairs[:, 1])


def terms_of(texts: tuple[dict[int, int], ...]) -> Terms:
    ordered = [sorted(text.items()) for text in texts]
    flat = [pair for pairs in ordered for pair in pairs]
    offsets = np.concatenate([[0], np.cumsum([len(pairs) for pairs in ordered])]).astype(np.int64)
    return Terms(offsets, np.array([t for t, _ in flat], np.int32), np.array([c for _, c in flat], np.uint8))


def slow_overlap(one: dict[int, int], other: dict[int, int], rarity: list[float]) -> dict[str, float]:
    common = one.keys() & other.keys()
    weights = sorted(sum(rarity[term] for term in side) for side in (one, other))
    vectors = [{t: (1 + math.log(c)) * rarity[t] for t, c in side.items()} for side in (one, other)]
    lengths = [math.sqrt(sum(value**2 for value in vector.values())) for vector in vectors]
    shared_weight = sum(rarity[term] for term in common)
    return {
        "cosine": sum(vectors[0][t] * vectors[1][t] for t in common) / math.prod(lengths) if common else 0.0,
        "least": shared_weight / weights[1] if common else 0.0,
        "most": shared_weight / weights[0] if common else 0.0,
        "ratio": weights[0] / weights[1] if weights[1] else 1.0,
        "weight": weights[0],
    }


def slow_swap(one: dict[int, int], other: dict[int, int], rarity: list[float]) -> float:
    alone = [max((rarity[term] for term in a.keys() - b.keys()), default=0.0) for a, b in ((one, other), (other, one))]
    return min(alone) / max(rarity)


def slow_shared(one: Question, other: Question, rarity: list[float]) -> dict[str, float]:
    title, text = slow_overlap(one.title, other.title, rarity), slow_overlap(one.text, other.text, rarity)
    every = one.tags.keys() | other.tags.keys()
    return {
        **{f"title_{name}": title[name] for name in ("cosine", "least", "most")},
        **{f"text_{name}": text[name] for name in ("cosine", "least", "most", "ratio", "weight")},
        "tags": len(one.tags.keys() & other.tags.keys()) / len(every) if every else math.nan,
        "title_swap": slow_swap(one.title, other.title, rarity),
        "other_numbers": float(
            bool(one.numbers) and bool(other.numbers) and one.numbers.keys() != other.numbers.keys()
        ),
    }


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


@given(cases())
def test_it_is_the_same_whichever_question_is_the_left_one(case: Case) -> None:
    one, other = (
        shared(case.words, *sides, case.rarities) for sides in ((case.left, case.right), (case.right, case.left))
    )
    for name in Shared._fields:
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name), err_msg=name)


@given(cases())
def test_shares_are_between_nothing_and_all(case: Case) -> None:
    found = shared(case.words, case.left, case.right, case.rarities)
    for name in ("title_cosine", "title_least", "title_most", "text_cosine", "text_least", "text_most", "text_ratio"):
        assert ((getattr(found, name) >= 0) & (getattr(found, name) <= 1 + 1e-5)).all(), name
    assert (found.title_least <= found.title_most).all()
    assert (found.text_least <= found.text_most).all()
    assert ((found.title_swap >= 0) & (found.title_swap <= 1)).all()


def one_pair(one: Question, other: Question, rarity: list[float] | None = None) -> dict[str, float]:
    case = Case([one, other], np.array(rarity or [2.0] * TERMS, np.float32), np.array([0]), np.array([1]))
    return {name: float(column[0]) for name, column in shared(case.words, *case[2:], case.rarities)._asdict().items()}


def test_a_question_and_its_copy_share_everything() -> None:
    question = Question({1: 2, 3: 1}, {1: 5, 2: 1, 3: 9}, {0: 1}, {3: 1})
    found = one_pair(question, question)
    assert {name for name, value in found.items() if value == pytest.approx(1)} == {*found} - {
        "text_weight",
        "title_swap",
        "other_numbers",
    }
    assert (found["text_weight"], found["title_swap"], found["other_numbers"]) == (6.0, 0.0, 0.0)


def test_without_tags_on_either_side_nothing_is_said_of_tags() -> None:
    tagged, plain = Question(NOTHING, NOTHING, {1: 1}, NOTHING), Question(NOTHING, NOTHING, NOTHING, NOTHING)
    assert math.isnan(one_pair(plain, plain)["tags"])
    assert one_pair(plain, tagged)["tags"] == 0


def test_titles_that_differ_in_one_telling_word_each_swap_it() -> None:
    rarity = [1.0] * TERMS
    rarity[5], rarity[6], rarity[7] = 8.0, 6.0, 4.0
    one, other = Question({1: 1, 6: 1}, *[NOTHING] * 3), Question({1: 1, 7: 1, 2: 1}, *[NOTHING] * 3)
    assert one_pair(one, other, rarity)["title_swap"] == 4 / 8
    longer = Question({1: 1, 6: 1, 7: 1}, *[NOTHING] * 3)
    assert one_pair(one, longer, rarity)["title_swap"] == 0  # one title has all that the other has


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [({1, 2}, {1, 2}, 0), ({1}, {2}, 1), ({1}, {1, 2}, 1), (set(), {1}, 0), (set(), set(), 0)],
)
def test_only_two_titles_with_numbers_can_have_other_ones(one: set[int], other: set[int], expected: int) -> None:
    numbers = terms_of((dict.fromkeys(one, 1), dict.fromkeys(other, 2)))
    assert have_other_numbers(numbers, np.array([0, 1]), np.array([1, 0])).tolist() == [expected] * 2


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
    found = listing_of(scores, highest)
    for query, row in enumerate(scores.tolist()):
        listed = [score for score in row if score > -math.inf]
        for place, score in enumerate(listed):
            others = listed[:place] + listed[place + 1 :]
            mean = sum(others) / len(others) if others else 0.0
            assert found.ranks[query, place] == place + 1
            lead = (score - max(others, default=0.0)) / highest
            assert found.leads[query, place] == pytest.approx(lead, rel=1e-5, abs=1e-6)
            lift = (score - mean) / max(highest - mean, 1e-6)
            assert found.lifts[query, place] == pytest.approx(lift, rel=1e-4, abs=1e-6)
        assert not found.leads[query, len(listed) :].any()
        assert not found.lifts[query, len(listed) :].any()
    assert found.leads.dtype == found.lifts.dtype == np.float32


def test_the_scale_of_scores_is_of_no_account() -> None:
    scores = np.sort(np.random.default_rng(3).random((20, 7)))[:, ::-1]
    one, other = listing_of(scores, 1.0), listing_of(scores * 8, 8.0)
    assert all(np.allclose(a, b, atol=1e-6) for a, b in zip(one, other, strict=True))


def test_only_the_best_neighbour_can_lead() -> None:
    found = listing_of(np.sort(np.random.default_rng(4).random((50, 6)))[:, ::-1], 1.0)
    assert (found.leads[:, 0] >= 0).all()
    assert (found.leads[:, 1:] <= 0).all()
