"""The language model with Jelinek-Mercer smoothing (Zhai and Lafferty 2004) as in Lucene's LMJelinekMercerSimilarity.

One of the baselines of dos Santos et al. (2015, section 3.2).

    score(q, d) = sum over the terms t of q of n_q(t) ln(1 + (1 - lambda) n_d(t) / (|d| lambda p(t)))
    p(t)        = (F_t + 1) / (sum of all |d| + 1)
"""

import numpy as np

from dupq_papers.systems.term_counts import Occurrences, TermCounts
from dupq_papers.systems.term_ranker import TermRanker

# The default first, which Lucene's documentation gives for long queries; 0.1 is for short ones
GRID = tuple({"smoothing": smoothing} for smoothing in (0.7, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.8, 0.9))


def weights(of: Occurrences, smoothing: float) -> np.ndarray:
    """What each occurrence adds to the score of a query that has its term once (float64, (m,))."""
    in_collection = (of.totals + 1) / (of.tokens + 1)
    return np.log1p((1 - smoothing) * of.counts / (of.lengths * smoothing * in_collection))


class LMJelinekMercer(TermRanker):
    """A Ranker by the language model with Jelinek-Mercer smoothing."""

    def __init__(self, counts: TermCounts, *, smoothing: float = 0.7) -> None:
        """`smoothing` is the formula's lambda, above 0 and below 1."""
        super().__init__(counts, lambda of: weights(of, smoothing))
