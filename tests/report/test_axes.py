import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dupq.report.charts import round_step, ticks


@given(st.floats(1e-6, 1e6), st.integers(1, 60))
def test_a_step_is_the_least_round_number_that_is_large_enough(span: float, most: int) -> None:
    step = round_step(span, most)
    assert span <= most * step
    round_numbers = sorted(head * 10.0**power for power in range(-10, 9) for head in (1, 2, 5))
    smaller = max(number for number in round_numbers if number < step * 0.99)
    assert span >= most * smaller * (1 - 1e-9)
    assert min(abs(step / number - 1) for number in round_numbers) < 1e-9


@pytest.mark.parametrize(
    ("low", "high", "labels"),
    [
        (0, 1, "0.0 0.1 0.2 0.3 0.4 0.5 0.6 0.7 0.8 0.9 1.0"),
        (0.15, 1.8, "0.2 0.4 0.6 0.8 1.0 1.2 1.4 1.6 1.8"),
        (-1, 1, "-1.0 -0.8 -0.6 -0.4 -0.2 0.0 0.2 0.4 0.6 0.8 1.0"),
        (0.96, 1, "0.960 0.965 0.970 0.975 0.980 0.985 0.990 0.995 1.000"),
        (0, 40, "0 5 10 15 20 25 30 35 40"),
    ],
)
def test_ticks_are_round_and_have_as_many_digits_as_they_need(low: float, high: float, labels: str) -> None:
    found = ticks(low, high)
    assert " ".join(label for _, label in found) == labels
    assert all(math.isclose(place, float(label), abs_tol=1e-9) for place, label in found)
