"""The protocols of the systems that are compared: score pairs, and rank an archive."""

from typing import Protocol, runtime_checkable

import numpy as np


class Scorer(Protocol):
    """A system that scores pairs."""

    def score(self, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        """Score the questions of each pair of keys (float64, shape (m,)); more alike is higher."""
        ...


@runtime_checkable
class Ranker(Scorer, Protocol):
    """A system that ranks an archive too."""

    def rank(self, queries: np.ndarray, k: int) -> list[list[int]]:
        """Return for each query (a key of the archive) the keys of its k best questions, best first, ties by key.

        Fewer than k where fewer have anything in common with it.
        """
        ...
