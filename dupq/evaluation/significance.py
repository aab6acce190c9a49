"""How sure a figure is: bootstrap intervals.

They read one value a query, float64 of shape (q,). The queries are a sample of those that might have been: that, and
nothing else, is what an interval allows for.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

_AT_ONCE = 1 << 22  # drawn numbers that are held


class Interval(NamedTuple):
    """A mean and the bounds of its interval."""

    mean: float
    low: float
    high: float


def bootstrap_interval(values: np.ndarray, seed: int, resamples: int = 10_000, confidence: float = 0.95) -> Interval:
    """The percentile interval of the mean of `values` (Efron and Tibshirani 1993, section 13.3).

    The bounds are quantiles of the means of as many values drawn with replacement. For two systems on the same
    queries, pass the differences. Raises ValueError without values. Memory: 64 MiB, or 16 bytes a value if more.
    """
    if not len(values):
        raise ValueError("no values to resample")
    generator = np.random.default_rng(seed)
    means = np.concatenate(
        [
            values[generator.integers(0, len(values), (rows, len(values)))].mean(axis=1)
            for rows in rows_at_once(resamples, len(values))
        ]
    )
    low, high = np.quantile(means, [(1 - confidence) / 2, (1 + confidence) / 2])
    return Interval(float(values.mean()), float(low), float(high))


def rows_at_once(resamples: int, columns: int) -> Iterator[int]:
    """`resamples` in parts, of as many rows as may be held."""
    most = max(1, _AT_ONCE // max(1, columns))
    for start in range(0, resamples, most):
        yield min(most, resamples - start)
