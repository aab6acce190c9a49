"""Measuring on an archive that does not fit into memory, in two passes.

The first uses systems that only record their queries (`Noted`). Then the archive is ranked shard by shard for these
queries alone (dupq/stages/evaluation/ranking.py), and the measures are computed again with the answers (`Ranked`).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from dupq.evaluation.protocol import Ranker
from dupq.near_duplicates.pairing import distinct_pairs
from dupq.text.keys import distinct, pair_numbers


@dataclass(frozen=True)
class Archive:
    """The keys of an archive's questions (int64, sorted), and the systems that rank it by their names."""

    keys: np.ndarray
    rankers: Mapping[str, Ranker]


# What is measured of an archive, as JSON has it. It is called twice, and asks the same both times.
Measuring = Callable[[Archive], Mapping[str, object]]


class Noted:
    """A system that only records its queries, so that they are known before an archive is ranked."""

    def __init__(self) -> None:
        """No query is recorded yet."""
        self.queries = np.zeros(0, np.int64)  # keys of the questions to be ranked for, sorted
        self.k = 0  # how far
        self.pairs = np.zeros((0, 2), np.int64)  # keys of the questions of pairs to be scored, sorted, each pair once

    def rank(self, queries: np.ndarray, k: int) -> list[list[int]]:
        """Nothing is found."""
        self.queries, self.k = distinct(np.concatenate([self.queries, queries])), max(self.k, k)
        return [[] for _ in queries]

    def score(self, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        """All pairs have the score 0."""
        self.pairs = distinct_pairs(np.concatenate([self.pairs, np.stack([left, right], axis=1)]))
        return np.zeros(len(left))


class Scored:
    """The scores of recorded pairs."""

    def __init__(self, pairs: np.ndarray, scores: np.ndarray) -> None:
        """`pairs` (int64, (m, 2), sorted, each once) have `scores` (float64, (m,))."""
        self._keys, self._scores = distinct(pairs), scores
        self._numbers = pair_numbers(self._keys, pairs)

    def __call__(self, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        """The scores of pairs, all of which were recorded."""
        numbers = pair_numbers(self._keys, np.stack([left, right], axis=1))
        found: np.ndarray = self._scores[np.searchsorted(self._numbers, numbers)]
        return found


class Ranked:
    """A system whose answers to the recorded queries are known."""

    def __init__(
        self,
        queries: np.ndarray,
        others: np.ndarray,
        score: Callable[[np.ndarray, np.ndarray], np.ndarray],
    ) -> None:
        """`others` ((q, k) int64 keys, -1 where there are no more) are the best of `queries` (keys, sorted)."""
        self._queries, self._others = queries, others
        self.score = score

    def rank(self, queries: np.ndarray, k: int) -> list[list[int]]:
        """See Ranker; for recorded queries, and no more questions of each than were wanted."""
        found = self._others[np.searchsorted(self._queries, queries), :k]
        return [row[row >= 0].tolist() for row in found]
