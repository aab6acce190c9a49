"""Choosing the canonical question of each cluster, and the reason for the choice.

The rule, in order: more known links name it as the original; an accepted answer; the higher score; more answers; more
views; the older one; the smaller key. A missing value counts as the lowest.
"""

from typing import NamedTuple

import numpy as np

REASONS = ("known links", "accepted answer", "score", "answers", "views", "age", "key")


class CanonicalCriteria(NamedTuple):
    """The criteria of the rule, one row a question; the smallest int64 where a value is unknown."""

    keys: np.ndarray  # int64
    links: np.ndarray  # int64: known links that name it as the original
    accepted: np.ndarray  # bool
    scores: np.ndarray  # int64
    answers: np.ndarray  # int64
    views: np.ndarray  # int64
    ages: np.ndarray  # int64: minus the creation time, so that more is older


def canonical_questions(clusters: np.ndarray, standing: CanonicalCriteria) -> tuple[np.ndarray, np.ndarray]:
    """For each row the key (int64) of the canonical question of its cluster, and the index of the reason in REASONS.

    `clusters` holds cluster numbers. The reason is the first criterion by which it is ahead of the second best.
    """
    criteria = (*standing[1:], -standing.keys)
    best_last = np.lexsort((*reversed(criteria), clusters))
    ordered = clusters[best_last]
    last = np.r_[ordered[1:] != ordered[:-1], True] if len(ordered) else np.zeros(0, bool)
    winners = best_last[last]
    runners_up = best_last[np.maximum(np.flatnonzero(last) - 1, 0)]
    ahead = np.stack([column[winners] != column[runners_up] for column in criteria], axis=1)
    indices = np.searchsorted(clusters[winners], clusters)
    return standing.keys[winners][indices], ahead.argmax(axis=1)[indices]
