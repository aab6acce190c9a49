"""The language model with Dirichlet smoothing (Zhai and Lafferty 2004) as in Lucene's LMDirichletSimilarity.

One of the baselines of dos Santos et al. (2015, section 3.2).

    score(q, d) = sum over the terms t that q and d have of n_q(t) weight(t, d)
    weight      = max(0, ln(1 + n_d(t) / (mu p(t))) + ln(mu / (|d| + mu)))
    p(t)        = (F_t + 1) / (sum of all |d| + 1)

The language model itself adds ln(mu / (|d| + mu)) for the terms that d has not, too, and lets a term of d that is rarer
there than in the collection count against it; Lucene does neither.
"""

import numpy as np

from dupq_papers.systems.term_counts import Occurrences, TermCounts
from dupq_papers.systems.term_ranker import TermRanker

# The default first, which is Lucene's, for documents longer than questions are
GRID = tuple({"mu": mu} for mu in (2000.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0, 5000.0))


def weights(of: Occurrences, mu: float) -> np.ndarray:
    """What each occurrence adds to the score of a query that has its term once (float64, (m,))."""
    expected = of.counts * (of.tokens + 1) / (of.totals + 1)  # n_d(t) / p(t): |d| if t is as frequent in d as anywhere
    return np.maximum(0.0, np.log((mu + expected) / (of.lengths + mu)))  # one logarithm: exactly 0 then


class LMDirichlet(TermRanker):
    """A Ranker by the language model with Dirichlet smoothing."""

    def __init__(self, counts: TermCounts, *, mu: float = 2000.0) -> None:
        """`mu` > 0: how many terms of the collection's a question's own are mixed with."""
        super().__init__(counts, lambda of: weights(of, mu))
