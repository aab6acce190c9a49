from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dupq.evaluation import sampling
from dupq.evaluation.verdicts import DIFFERENT, SAME, UNJUDGED, UNSURE
from dupq.text.keys import pairs_in

SEEDS = 100
SAMPLE = 200


class Population(NamedTuple):
    pairs: np.ndarray
    probabilities: np.ndarray
    joined: np.ndarray
    same: np.ndarray

    @property
    def precision(self) -> float:
        return float(self.same[self.joined].mean())

    @property
    def recall(self) -> float:
        return float((self.same & self.joined).sum() / self.same.sum())


def population(power: float, size: int = 40_000) -> Population:
    """Mostly unlikely pairs; a pair is a duplicate with its probability to the power of `power`."""
    random = np.random.default_rng(3)
    unlikely = size * 4 // 5
    probabilities = np.concatenate([random.beta(0.3, 6, unlikely), random.beta(4, 1.2, size - unlikely)])
    same = random.random(size) < probabilities**power
    keys = np.arange(size)
    return Population(np.stack([keys, keys + size], axis=1), probabilities, probabilities >= 0.6, same)


def planned(made: Population, sample: int = SAMPLE) -> tuple[sampling.Plan, np.ndarray]:
    plan = sampling.plan(sampling.histogram(made.probabilities, made.joined), sample)
    return plan, sampling.strata(made.probabilities, made.joined, plan)


def drawn(made: Population, sample: int = SAMPLE, seed: int = 0) -> pa.Table:
    plan, strata = planned(made, sample)
    return sampling.draw(made.pairs, strata, plan, seed)


def judged(made: Population, rows: pa.Table) -> np.ndarray:
    return made.same[rows["left"].to_numpy()].astype(np.int8)


def strata_of(rows: pa.Table) -> np.ndarray:
    return rows["stratum"].to_numpy()


# the truth is below, at and above the model's probabilities
@pytest.mark.parametrize("power", [1.5, pytest.param(1.0, marks=pytest.mark.full), 0.6])
def test_the_intervals_hold_the_truth_and_the_estimates_are_unbiased(power: float) -> None:
    made = population(power)
    plan, strata = planned(made)
    found = []
    for seed in range(SEEDS):
        rows = sampling.draw(made.pairs, strata, plan, seed)
        assert len(rows) == SAMPLE
        found.append(sampling.estimate(rows, judged(made, rows)))
    truth = {"precision": made.precision, "recall": made.recall, "duplicates": float(made.same.sum())}
    for measure, value in truth.items():
        intervals = np.array([getattr(estimate, measure) for estimate in found])
        holds = (intervals[:, 1] <= value) & (value <= intervals[:, 2])
        assert holds.sum() >= 90, measure
        error = intervals[:, 0].std() / np.sqrt(SEEDS)
        allowed = 0.02 * value if measure == "recall" else 0.0  # a ratio of estimates is slightly off
        assert abs(intervals[:, 0].mean() - value) < 3 * error + allowed, measure
        assert np.all((intervals[:, 1] <= intervals[:, 0]) & (intervals[:, 0] <= intervals[:, 2]))


def test_strata_are_those_of_the_plan() -> None:
    made = population(1.5, 20_000)
    plan, strata = planned(made)
    for stratum in range(len(plan.sizes)):
        rows = strata == stratum
        assert rows.sum() == plan.sizes[stratum]
        assert np.all(made.joined[rows] == plan.joined[stratum])
        assert made.probabilities[rows].mean() == pytest.approx(plan.probabilities[stratum], abs=1e-6)


def test_every_row_of_a_stratum_has_the_same_chance() -> None:
    probabilities = np.repeat([0.05, 0.5, 0.9], [30, 20, 10])
    joined = probabilities > 0.4
    plan = sampling.plan(sampling.histogram(probabilities, joined), 24)
    strata = sampling.strata(probabilities, joined, plan)
    pairs = np.stack([np.arange(60), np.full(60, 1 << 48)], axis=1)
    draws = 4_000
    times = np.zeros(60)
    for seed in range(draws):
        times[sampling.draw(pairs, strata, plan, seed)["left"].to_numpy()] += 1
    chance = (plan.drawn / plan.sizes)[strata]
    deviations = (times - draws * chance) / np.sqrt(draws * chance * (1 - chance) + 1e-9)
    assert np.abs(deviations).max() < 4.5
    assert 0.7 < (deviations**2).mean() < 1.2  # a little under 1, as the number drawn is fixed


def test_people_are_asked_about_each_stratum_in_turn() -> None:
    sizes, drawn, keys = np.array([40, 40, 40]), np.array([2, 5, 30]), np.arange(120)
    of_three = sampling.Plan(
        np.zeros((2, sampling.BINS), np.int64), np.array([True, True, False]), sizes, sizes / 80, drawn
    )
    rows = sampling.draw(np.stack([keys, keys + 200], axis=1), np.repeat(np.arange(3), sizes), of_three, 1)
    shown = strata_of(rows)[sampling.asking_order(rows)].tolist()
    assert [sorted(shown[start : start + 3]) for start in (0, 3)] == [[0, 1, 2]] * 2
    assert [sorted(shown[6 + start : 8 + start]) for start in (0, 2, 4)] == [[1, 2]] * 3
    assert shown[12:] == [2] * 25


def test_a_turn_does_not_begin_with_the_largest_stratum() -> None:
    """Its hashes are the smallest of very many, so people would learn which pairs the run joined."""
    sizes, drawn = np.array([20, 20_000]), np.array([20, 20])
    bins = np.zeros((2, sampling.BINS), np.int64)
    plan = sampling.Plan(bins, np.array([True, False]), sizes, sizes / 40_000, drawn)
    keys = np.arange(20_020)
    rows = sampling.draw(np.stack([keys, keys + (1 << 48)], axis=1), np.repeat([0, 1], sizes), plan, 1)
    first_of_turns = strata_of(rows)[sampling.asking_order(rows)][::2]
    assert 4 <= first_of_turns.sum() <= 16


COUNTS = st.lists(st.integers(0, 10**9) | st.integers(0, 3), min_size=100, max_size=100)


@given(COUNTS, COUNTS, st.integers(4, 1_000))
def test_a_plan_draws_as_many_as_wanted_of_every_stratum(others: list[int], joined: list[int], sample: int) -> None:
    counts = np.array([others, joined])
    middles = np.arange(5_000, 1_000_000, 10_000)
    plan = sampling.plan(np.stack([counts, counts * middles]), sample)
    assert plan.drawn.sum() == min(sample, counts.sum())
    assert np.all(plan.drawn >= np.minimum(plan.sizes, 2))
    assert np.all(plan.drawn <= plan.sizes)
    assert plan.sizes.sum() == counts.sum()
    assert np.array_equal(plan.cells >= 0, counts > 0)
    assert len(plan.sizes) <= 12


def slow_estimates(rows: pa.Table, verdicts: np.ndarray) -> tuple[float, float, float]:
    """Precision, recall and duplicates, a stratum and a verdict at a time."""
    sizes, answers, decisions = {}, {}, {}
    for row, verdict in zip(rows.to_pylist(), verdicts.tolist(), strict=True):
        stratum = row["stratum"]
        sizes[stratum], decisions[stratum] = row["pairs"], row["joined"]
        if verdict >= 0:
            answers.setdefault(stratum, []).append(verdict)
    hits = {stratum: sizes[stratum] * sum(given) / len(given) for stratum, given in answers.items()}
    joined = sum(count for stratum, count in hits.items() if decisions[stratum])
    pairs = sum(size for stratum, size in sizes.items() if decisions[stratum])
    return joined / pairs, joined / sum(hits.values()), sum(hits.values())


def test_the_estimates_are_those_of_a_slow_twin() -> None:
    made = population(1.5, 20_000)
    for seed in range(10):
        rows = drawn(made, seed=seed)
        verdicts = judged(made, rows)
        random = np.random.default_rng(seed)
        later = random.permutation(SAMPLE) > 60
        later[np.unique(strata_of(rows), return_index=True)[1]] = True  # one verdict at least in each stratum
        verdicts[~later] = random.choice([UNSURE, UNJUDGED], (~later).sum())
        found = sampling.estimate(rows, verdicts)
        expected = slow_estimates(rows, verdicts)
        values = found.precision.value, found.recall.value, found.duplicates.value
        assert values == pytest.approx(expected)
        assert found.judged == later.sum()
        assert (found.unsure, found.unjudged) == ((verdicts == UNSURE).sum(), (verdicts == UNJUDGED).sum())
        assert found == sampling.estimate(rows, verdicts)


def test_a_population_judged_to_its_last_pair_is_certain() -> None:
    made = population(1.5, 300)
    rows = drawn(made, 300)
    found = sampling.estimate(rows, judged(made, rows))
    assert found.precision == pytest.approx((made.precision,) * 3)
    assert found.recall == pytest.approx((made.recall,) * 3)
    assert found.duplicates == (made.same.sum(),) * 3


def test_twenty_verdicts_all_alike_are_not_certain() -> None:
    probabilities = np.full(10_000, 0.99)
    rows = drawn(Population(np.arange(20_000).reshape(-1, 2), probabilities, probabilities > 0, probabilities > 0), 20)
    precision = sampling.estimate(rows, np.full(20, SAME, np.int8)).precision
    assert precision.value == precision.upper == 1.0
    assert 0.75 < precision.lower < 0.95


def test_a_measure_without_verdicts_is_none() -> None:
    made = population(1.5, 20_000)
    rows = drawn(made)
    truth = judged(made, rows)
    nothing = sampling.estimate(rows, np.full(SAMPLE, UNJUDGED, np.int8))
    assert (nothing.precision, nothing.recall, nothing.duplicates, nothing.judged) == (None, None, None, 0)
    only_joined = sampling.estimate(rows, np.where(rows["joined"].to_numpy(), truth, UNSURE))
    assert only_joined.precision is not None
    assert (only_joined.recall, only_joined.duplicates) == (None, None)
    no_duplicate = sampling.estimate(rows, np.full(SAMPLE, DIFFERENT, np.int8))
    assert no_duplicate.precision.value == no_duplicate.duplicates.value == 0
    assert no_duplicate.recall is None
    empty = drawn(Population(np.zeros((0, 2), int), np.zeros(0), np.zeros(0, bool), np.zeros(0, bool)))
    assert sampling.estimate(empty, np.zeros(0, np.int8)).precision is None


def test_verdicts_meet_their_rows() -> None:
    rows = drawn(population(1.5, 20_000))
    picked = np.array([150, 3, 77])
    pairs = np.concatenate([pairs_in(rows)[picked], [[5, 6]]])
    people = sampling.Judged(pairs, np.array([SAME, UNSURE, DIFFERENT, SAME], np.int8))
    verdicts, others = sampling.verdicts_of(rows, people)
    assert others == 1
    assert verdicts[picked].tolist() == [SAME, UNSURE, DIFFERENT]
    assert (verdicts == UNJUDGED).sum() == SAMPLE - 3
