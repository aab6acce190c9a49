"""Lists of the nearest questions, as a search leaves them, and how they are merged.

They are apart from the search so that a process that only reads lists does not import torch, which takes seconds.
"""

from typing import NamedTuple

import numpy as np

from dupq.neighbours.candidates import merge_nearest


class Nearest(NamedTuple):
    """The k best of each question of a block, the best first, ties by key.

    `others` (n, k) int64 keys, -1 after the last; `scores` (n, k) float64, by which they are ordered;
    `above` (n,) int64: how many questions score above the threshold.
    """

    others: np.ndarray
    scores: np.ndarray
    above: np.ndarray

    @property
    def worst(self) -> np.ndarray | None:
        """The score of the k-th best of each question, -inf if there are not so many; None without k."""
        return self.scores[:, -1] if self.scores.shape[1] else None


def empty_nearest(questions: int, k: int) -> Nearest:
    """Lists without neighbours."""
    return Nearest(np.full((questions, k), -1), np.full((questions, k), -np.inf), np.zeros(questions, np.int64))


def merge(nearest: Nearest, more: Nearest) -> None:
    """Merge lists of the same questions, found among other questions, into `nearest`."""
    merge_nearest(nearest.others, nearest.scores, more.others, more.scores)
    nearest.above[:] += more.above


def merge_rows(nearest: Nearest, rows: np.ndarray, more: Nearest) -> None:
    """Merge lists of the questions in `rows` (int64, distinct) into `nearest`."""
    mine = Nearest(*(column[rows] for column in nearest))
    merge(mine, more)
    for column, values in zip(nearest, mine, strict=True):
        column[rows] = values
