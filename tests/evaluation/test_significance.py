"""Intervals against closed forms, and what they promise."""

import math

import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

from dupq.evaluation.measures import bootstrap_interval

VALUES = st.lists(st.integers(0, 8).map(lambda part: part / 8), min_size=1, max_size=9)


def test_a_bootstrap_interval_is_that_of_the_normal_approximation() -> None:
    values = np.random.default_rng(1).beta(0.4, 0.6, 300)
    spread = 1.96 * values.std() / math.sqrt(len(values))
    assert bootstrap_interval(values, seed=7) == pytest.approx(
        (values.mean() - spread, values.mean() + spread), abs=0.003
    )


def test_a_bootstrap_interval_is_scipys() -> None:
    values = np.random.default_rng(3).random(999)
    options = {"n_resamples": 3000, "batch": (1 << 22) // 999, "method": "percentile"}
    expected = scipy.stats.bootstrap((values,), np.mean, rng=np.random.default_rng(7), **options)
    assert bootstrap_interval(values, 7, 3000) == pytest.approx(tuple(expected.confidence_interval), rel=1e-12)


def test_ninety_five_of_a_hundred_intervals_hold_the_true_mean() -> None:
    generator = np.random.default_rng(2)
    intervals = [bootstrap_interval(generator.random(100), seed, 1000) for seed in range(400)]
    share = np.mean([low <= 0.5 <= high for low, high in intervals])
    assert share == pytest.approx(0.945, abs=0.03)


@given(VALUES, st.integers(0, 5))
def test_an_interval_is_within_its_values_and_the_same_for_a_seed(values: list[float], seed: int) -> None:
    low, high = bootstrap_interval(np.array(values), seed, 1000)
    assert (low, high) == bootstrap_interval(np.array(values), seed, 1000)
    assert min(values) - 1e-12 <= low <= high <= max(values) + 1e-12
