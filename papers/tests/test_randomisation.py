"""The randomisation test against scipy, closed forms, and what it promises."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from dupq_papers.pages.randomisation import randomisation_test

PAIRED = st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), min_size=2, max_size=8)


@given(PAIRED)
def test_of_few_queries_all_signs_are_tried_as_in_scipy(pairs: list[tuple[int, int]]) -> None:
    left, right = np.array(pairs, float).T / 8  # without rounding, which scipy does not allow for near 0
    expected = stats.permutation_test(
        (left, right),
        lambda one, other, axis: np.sum(one - other, axis=axis),
        permutation_type="samples",
        vectorized=True,
    )
    assert randomisation_test(left, right, seed=1) == pytest.approx(expected.pvalue)
    assert randomisation_test(right, left, seed=2) == pytest.approx(expected.pvalue)


def test_of_many_queries_drawn_signs_come_close_to_a_t_test() -> None:
    generator = np.random.default_rng(3)
    left = generator.random(500)
    for shift in (0.0, 0.03, 0.05):
        right = np.clip(left + generator.normal(shift, 0.3, 500), 0, 1)
        found = randomisation_test(left, right, seed=4)
        assert found == pytest.approx(stats.ttest_rel(left, right).pvalue, abs=0.015)
        assert found == randomisation_test(left, right, seed=4)


def test_a_drawn_p_value_is_never_zero_and_equal_systems_have_one() -> None:
    ones = np.ones(100)
    assert randomisation_test(ones, np.zeros(100), seed=1, resamples=999) == 1 / 1000
    assert randomisation_test(ones, ones, seed=1) == 1.0
    with pytest.raises(ValueError, match="same queries"):
        randomisation_test(ones, ones[1:], seed=1)


def test_p_values_are_even_where_there_is_no_difference() -> None:
    generator = np.random.default_rng(5)
    found = [randomisation_test(*generator.random((2, 30)), seed=seed, resamples=500) for seed in range(400)]
    assert stats.kstest(found, "uniform").pvalue > 0.01


@given(st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=15))
def test_calls_of_pairs_have_the_p_value_of_mcnemars_exact_test(calls: list[tuple[bool, bool]]) -> None:
    left, right = np.array(calls).T
    one, other = int((left & ~right).sum()), int((right & ~left).sum())
    tail = sum(math.comb(one + other, wins) for wins in range(min(one, other) + 1)) / 2 ** (one + other)
    found = randomisation_test(left.astype(float), right.astype(float), seed=1, resamples=2**15)
    assert found == pytest.approx(min(1.0, 2 * tail))
