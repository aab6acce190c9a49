"""Which question of a cluster stands for it.

The rule, in order: a question with an accepted answer before one without; the higher score; more views; the
smaller key, which on one site is the older question. What a question lacks counts as lowest.
"""

from typing import NamedTuple

import numpy as np


class Standing(NamedTuple):
    """What the rule looks at, one row a question."""

    keys: np.ndarray  # int64
    accepted: np.ndarray  # bool
    scores: np.ndarray  # int64, the smallest int64 where unknown
    views: np.ndarray  # int64, likewise


def canonical_questions(clusters: np.ndarray, standing: Standing) -> np.ndarray:
    """For each row the key (int64) of the canonical question of its cluster; `clusters` holds cluster numbers."""
    best_last = np.lexsort((-standing.keys, standing.views, standing.scores, standing.accepted, clusters))
    ordered = clusters[best_last]
    last = np.r_[ordered[1:] != ordered[:-1], True] if len(ordered) else np.zeros(0, bool)
    numbers, winners = ordered[last], standing.keys[best_last][last]
    return winners[np.searchsorted(numbers, clusters)]
