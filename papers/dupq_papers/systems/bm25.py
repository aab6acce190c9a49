"""BM25 with its two parameters, one of the baselines of dos Santos et al. (2015, section 3.2).

    score(q, d) = sum over the terms t of q of n_q(t) idf(t) n_d(t) / (k1 (1 - b + b |d| / mean) + n_d(t))
    idf(t)      = ln(1 + (N - N_t + 1/2) / (N_t + 1/2))

It is the formula of `dupq.evaluation.rankers`, over the counts that the other systems read.
"""

import itertools

import numpy as np

from dupq.evaluation.rankers import K1, B
from dupq_papers.systems.term_counts import Occurrences, TermCounts
from dupq_papers.systems.term_ranker import TermRanker

GRID = tuple(  # the default first
    {"k1": k1, "b": b} for k1, b in itertools.product((K1, 0.6, 0.9, 1.2, 2.0, 3.0), (B, 0.0, 0.25, 0.5, 1.0))
)


def weights(of: Occurrences, k1: float, b: float) -> np.ndarray:
    """What each occurrence adds to the score of a query that has its term once (float64, (m,))."""
    idf = np.log1p((of.questions - of.questions_with + 0.5) / (of.questions_with + 0.5))
    return idf * of.counts / (k1 * (1 - b + b * of.lengths / of.mean_length) + of.counts)


class BM25(TermRanker):
    """A Ranker by BM25."""

    def __init__(self, counts: TermCounts, *, k1: float = K1, b: float = B) -> None:
        """`k1` >= 0: how soon repeats stop to count; `b`, 0 to 1: how much lengths matter."""
        super().__init__(counts, lambda of: weights(of, k1, b))
