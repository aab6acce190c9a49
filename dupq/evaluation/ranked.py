"""Measuring on an archive that does not fit into memory, in two passes.

First with systems that only note what they are asked (`Noted`). Then the archive is ranked shard by shard for these
questions alone (dupq/stages/evaluation/ranking.py), and what measures is run again with the answers (`Ranked`).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from dupq.evaluation.protocol import Ranker


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
        self.scored = np.zeros(0, np.int64)  # keys of the questions in pairs to be scored, sorted

    def rank(self, queries: np.ndarray, k: int) -> list[list[int]]:
        """Nothing is found."""
        self.queries, self.k = np.union1d(self.queries, queries), max(self.k, k)
        return [[] for _ in queries]

    def score(self, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        """All pairs have the score 0."""
        self.scored = np.union1d(self.scored, np.concatenate([left, right]))
        return np.zeros(len(left))


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
        """See Ranker; for questions that were asked for, as far as was asked."""
        found = self._others[np.searchsorted(self._queries, queries), :k]
        return [row[row >= 0].tolist() for row in found]
