"""Intervals against scipy, closed forms, and what they promise."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from dupq.evaluation.measures import bootstrap_interval

VALUES = st.lists(st.integers(0, 8).map(lambda part: part / 8), min_size=1, max_size=9)


def test_a_bootstrap_interval_is_that_of_scipy() -> None:
    values = np.random.default_rng(1).beta(0.4, 0.6, 300)
    found = bootstrap_interval(values, seed=7)
    given = {"method": "percentile", "n_resamples": 10_000, "rng": np.random.default_rng(8)}
    low, high = stats.bootstrap((values,), np.mean, **given).confidence_interval
    assert found.mean == values.mean()
    assert (found.low, found.high) == pytest.approx((low, high), abs=0.002)  # the width is 0.08
    spread = 1.96 * values.std() / math.sqrt(len(values))
    assert (found.low, found.high) == pytest.approx((values.mean() - spread, values.mean() + spread), abs=0.003)


def test_ninety_five_of_a_hundred_intervals_hold_the_true_mean() -> None:
    generator = np.random.default_rng(2)
    intervals = [bootstrap_interval(generator.random(100), seed, 1000) for seed in range(400)]
    share = np.mean([one.low <= 0.5 <= one.high for one in intervals])
    assert share == pytest.approx(0.945, abs=0.03)


@given(VALUES, st.integers(0, 5))
def test_an_interval_holds_its_mean_and_is_the_same_for_a_seed(values: list[float], seed: int) -> None:
    found = bootstrap_interval(np.array(values), seed, 1000)
    assert found == bootstrap_interval(np.array(values), seed, 1000)
    assert min(values) - 1e-12 <= found.low <= found.high <= max(values) + 1e-12
    narrow = bootstrap_interval(np.array(values), seed, 1000, confidence=0.5)
    assert found.low <= narrow.low <= narrow.high <= found.high


def test_an_interval_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="no values"):
        bootstrap_interval(np.zeros(0), 1)
