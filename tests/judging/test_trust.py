"""What a judge's answers are worth, on made answers whose worth is known."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom

from dupq.judging.trust import fit_trust, least_share, with_answers

NONE = np.zeros(0)


class Made:
    """A site's pairs with probabilities that are right, and the answers of a judge that errs at known rates."""

    def __init__(self, misses: float, false_yes: float, pairs: int = 500, seed: int = 0, stated: float = 1.0) -> None:
        rng = np.random.default_rng(seed)
        self.p = rng.beta(0.4, 2.4, pairs)
        self.right = rng.random(pairs) < self.p
        self.p = np.clip(self.p * stated, 0, 0.99)
        yes = rng.random(pairs) < np.where(self.right, 1 - misses, false_yes)
        high = np.where(self.right, rng.beta(4, 2, pairs), rng.beta(2, 3, pairs))
        self.same = np.where(yes, 50 + 50 * high, 50 * rng.beta(1, 2, pairs)).round()
        self.copies, self.different = np.full(10, 98.0), np.full(10, 2.0)

    def fit(self, labels: np.ndarray | None = None) -> object:
        unknown = np.full(len(self.p), np.nan)
        return fit_trust(self.same, self.p, unknown if labels is None else labels, self.copies, self.different)


@pytest.mark.parametrize("false_yes", [0.015, 0.07])
def test_the_rate_of_false_yes_is_found_without_labels(false_yes: float) -> None:
    found = [Made(0.25, false_yes, seed=seed).fit().false_yes for seed in range(8)]
    assert np.mean(found) == pytest.approx(false_yes, abs=0.03)


@pytest.mark.parametrize("false_yes", [0.015, 0.07])
def test_probabilities_stay_right(false_yes: float) -> None:
    """Of 8 sites together, in bins: as many are right as is said, within what chance and the estimate leave."""
    after, right = [], []
    for seed in range(8):
        made = Made(0.25, false_yes, seed=seed)
        after.append(with_answers(made.p, made.fit().added(made.same)))
        right.append(made.right)
    p, is_right = np.concatenate(after), np.concatenate(right)
    for low, high in ((0, 0.1), (0.1, 0.4), (0.4, 0.7), (0.7, 0.9), (0.9, 1.01)):
        own = (p >= low) & (p < high)
        assert is_right[own].mean() == pytest.approx(p[own].mean(), abs=0.1)


@pytest.mark.parametrize("seed", range(4))
def test_a_judge_that_says_yes_to_a_third_is_not_used(seed: int) -> None:
    trust = Made(0.25, 0.3, seed=seed).fit()
    assert "it says yes to about" in trust.reason
    assert trust.added(np.array([0.0, 100.0])).tolist() == [0.0, 0.0]


@pytest.mark.parametrize("number", [0.0, 50.0, 100.0])
def test_nor_is_one_that_gives_one_answer_to_all(number: float) -> None:
    made = Made(0.25, 0.05)
    made.same[:], made.copies[:], made.different[:] = number, number, number
    assert made.fit().reason == "it gave one answer to all pairs"


def test_nor_one_that_does_not_know_a_copy_or_takes_strangers_for_the_same() -> None:
    made = Made(0.25, 0.05)
    made.copies[:3] = 10
    assert "3 of 10 times that a question and itself are different" in made.fit().reason
    made = Made(0.25, 0.05)
    made.different[:3] = 90
    assert "3 of 10 times that unrelated questions are the same" in made.fit().reason


def test_too_high_probabilities_are_found_out_by_the_answers() -> None:
    honest, boasting = Made(0.25, 0.02), Made(0.25, 0.02, stated=2.0)
    assert boasting.fit().shift < honest.fit().shift - 0.2


def test_verdicts_count_as_what_people_said() -> None:
    """Here the judge is right only where it says 80 and more, which nothing but verdicts tells."""
    made = Made(0.25, 0.07)
    labels = np.where(made.same >= 80, 1.0, 0.0)
    free, told = made.fit(), made.fit(labels)
    assert told.added(np.array([60.0]))[0] < free.added(np.array([60.0]))[0]


@given(st.lists(st.tuples(st.floats(0, 100), st.floats(1e-9, 1)), max_size=60))
def test_a_higher_answer_never_counts_for_less_and_a_missing_one_for_nothing(rows: list[tuple[float, float]]) -> None:
    same, p = (np.array(column, float) for column in (zip(*rows, strict=True) if rows else ((), ())))
    trust = fit_trust(same, p, np.full(len(same), np.nan), NONE, NONE)
    added = trust.added(np.append(np.arange(0, 101, 5.0), np.nan))
    assert (np.diff(added[:-1]) >= -1e-9).all()
    assert added[-1] == 0
    assert np.isfinite(added).all()


def test_without_usable_answers_nothing_is_said_of_the_judge() -> None:
    trust = fit_trust(np.full(3, np.nan), np.full(3, 0.2), np.full(3, np.nan), NONE, NONE)
    assert (trust.reason, trust.found, trust.false_yes) == ("none can be used", 0.0, 0.0)


@pytest.mark.parametrize(("right", "pairs"), [(0, 5), (1, 1), (8, 10), (50, 50)])
def test_the_bound_is_the_share_that_would_give_so_many_right_once_in_twenty(right: int, pairs: int) -> None:
    least = least_share(right, pairs)
    assert binom.sf(right - 1, pairs, least) == pytest.approx(0.05 if right else 1.0)
