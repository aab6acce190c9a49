"""When two questions count as duplicates. Apart from the networks, so that it needs no torch."""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Decision:
    """When two questions count as duplicates."""

    threshold: float  # score from which a pair joins a cluster
    pair_threshold: float  # score from which a pair of a balanced set is called a duplicate
    slope: float  # probability = 1 / (1 + exp(-(slope * score + intercept)))
    intercept: float

    def probability(self, similarity: np.ndarray) -> np.ndarray:
        """The calibrated probability (float64) that pairs of these scores are duplicates."""
        return 1.0 / (1.0 + np.exp(-(self.slope * similarity + self.intercept)))
