"""Intervals against closed forms, and what they promise."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dupq.evaluation.measures import bootstrap_interval

VALUES = st.lists(st.integers(0, 8).map(lambda part: part / 8), min_size=1, max_size=9)


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
