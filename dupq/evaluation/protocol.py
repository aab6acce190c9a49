"""The protocol of the systems that are compared: rank an archive, and score pairs."""

from typing import Protocol

import numpy as np


class Ranker(Protocol):
    """A system under comparison."""

    def rank(self, queries: np.ndarray, k: int) -> list[list[int]]:
        """For each query (a key of the archive) the keys of its k best questions, best first, ties by key.

        Fewer than k where fewer have anything in common with it.
        """
        ...

    def score(self, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        """How alike the questions of each pair of keys are (float64, shape (m,)); higher is more."""
        ...
