"""Whether a system over vectors scores and ranks as a table of all scores says."""

import numpy as np
import pytest
import slow_systems
from made_collections import (
    all_pairs,
)

from dupq.evaluation.measures import Ranker
from dupq_papers.systems.collection import Collection


def check(system: Ranker, collection: Collection, scores: np.ndarray, is_there: np.ndarray, k: int = 7) -> None:
    """Scores (n, n) of all pairs, and lists that a sort of them gives."""
    number = len(collection.keys)
    assert system.score(*all_pairs(collection)) == pytest.approx(scores.ravel(), abs=1e-9)
    found = system.rank(collection.keys, k)
    own = system.score(*all_pairs(collection)).reshape(number, number)  # its last digits decide between copies
    there = np.flatnonzero(is_there).tolist()
    for query in range(number):
        expected = slow_systems.ranked(own[query], collection.keys.tolist(), query, k, there)
        assert found[query] == (expected if is_there[query] else [])


def cosines(rows: np.ndarray) -> np.ndarray:
    return np.array([[slow_systems.cosine(left, right) for right in rows] for left in rows])
