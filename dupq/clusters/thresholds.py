"""Choosing the threshold: the probability from which pairs may join, for a given precision."""

from typing import NamedTuple

import numpy as np
from typing_extensions import TypedDict

_STEPS = 1_000  # of probability


class Thresholds(TypedDict):
    """The probability from which pairs join, and those for other precisions, with what is expected of each."""

    chosen: dict[str, float]
    others: list[dict[str, float]]


class Spread(NamedTuple):
    """A histogram of the candidate pairs' probabilities in steps of .001, and their sum in each; shape (1000,)."""

    pairs: np.ndarray
    probabilities: np.ndarray  # float64

    def choose(self, precision: float) -> dict[str, float]:
        """The lowest threshold from which the expected precision is reached, 1 if there is none; see `above`."""
        right, pairs = (np.cumsum(column[::-1])[::-1] for column in (self.probabilities, self.pairs.astype(float)))
        reached = np.flatnonzero((self.pairs > 0) & (right >= precision * pairs))
        return {"precision": precision, **self.above(reached[0] / _STEPS if len(reached) else 1.0)}

    def above(self, threshold: float) -> dict[str, float]:
        """The number and expected precision of the pairs from a threshold on."""
        first = min(_STEPS, int(np.ceil(threshold * _STEPS - 1e-9)))
        pairs, right = float(self.pairs[first:].sum()), float(self.probabilities[first:].sum())
        expected = right / pairs if pairs else 1.0
        return {"threshold": float(threshold), "pairs": pairs, "expected_precision": expected}


def spread_of(probabilities: np.ndarray) -> Spread:
    """The spread of the probabilities of candidate pairs."""
    p = probabilities.astype(np.float64)
    steps = np.minimum((p * _STEPS).astype(np.int64), _STEPS - 1)
    return Spread(np.bincount(steps, minlength=_STEPS), np.bincount(steps, p, minlength=_STEPS))
