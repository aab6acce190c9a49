"""Round tick values for the axes of charts."""

import math

import numpy as np


def round_step(span: float, most: int) -> float:
    """The least of 1, 2 and 5 times the powers of ten that cuts `span`, more than 0, into at most `most` steps."""
    power = 10.0 ** math.floor(math.log10(span / most))
    return next(step for step in (power, 2 * power, 5 * power, 10 * power, 20 * power) if span <= most * step)


def round_edges(low: float, high: float, most: int) -> np.ndarray:
    """The edges of at most `most` bins of one round width, from `low` or below to `high` or above."""
    step = round_step(high - low or 1.0, most - 1)
    first, last = math.floor(low / step), math.ceil(high / step)
    return np.arange(first, max(last, first + 1) + 1) * step


def ticks(low: float, high: float, most: int = 10) -> list[tuple[float, str]]:
    """The round places from `low` to `high`, and what is written there; about `most`."""
    step = round_step(high - low, most)
    decimals = max(0, math.ceil(-math.log10(step) - 1e-9))
    places = range(math.ceil(low / step - 1e-6), math.floor(high / step + 1e-6) + 1)
    return [(place * step, f"{place * step:.{decimals}f}") for place in places]
