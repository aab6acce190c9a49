"""Lists of the nearest questions, as a search leaves them, and how they are put together.

Apart from the search, so that who only reads lists need not import torch: it takes three seconds.
"""

from typing import NamedTuple

import numpy as np

from dupq.neighbours.candidates import merge_nearest


class Nearest(NamedTuple):
    """The k best of each question of a block, the best first, ties by key.

    `others` (n, k) int64 keys, -1 where there are no more; `scores` (n, k) float64, by which they are ordered;
    `over` (n,) int64: how many questions are over the threshold.
    """

    others: np.ndarray
    scores: np.ndarray
    over: np.ndarray

    @property
    def worst(self) -> np.ndarray | None:
        """The score of the k-th best of each question, -inf if there are not so many; None without k."""
        return self.scores[:, -1] if self.scores.shape[1] else None


def nobody(questions: int, k: int) -> Nearest:
    """No neighbours yet."""
    return Nearest(np.full((questions, k), -1), np.full((questions, k), -np.inf), np.zeros(questions, np.int64))


def merge(nearest: Nearest, more: Nearest) -> None:
    """Put the neighbours of the same questions among other ones into `nearest`."""
    merge_nearest(nearest.others, nearest.scores, more.others, more.scores)
    nearest.over[:] += more.over


def merge_rows(nearest: Nearest, rows: np.ndarray, more: Nearest) -> None:
    """Put the neighbours of the questions in `rows` (int64, no repeats) among other ones into `nearest`."""
    mine = Nearest(*(column[rows] for column in nearest))
    merge(mine, more)
    for column, values in zip(nearest, mine, strict=True):
        column[rows] = values
