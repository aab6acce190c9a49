"""TFIDF as in Lucene's ClassicSimilarity, one of the baselines of dos Santos et al. (2015, section 3.2).

    score(q, d) = sum over the terms t of q of n_q(t) sqrt(n_d(t)) idf(t)^p / sqrt(|d|)
    idf(t)      = 1 + ln((N + 1) / (N_t + 1))

p is 2 in Lucene's documentation and, but for factors that are gone since (the coordination factor and the query's
norm, the latter the same for all texts), in the Lucene of the paper's time: query and text are both weighed, as in the
vector space model. Today's code multiplies with the idf once, p = 1.
"""

import numpy as np

from dupq_papers.systems.term_counts import Occurrences, TermCounts
from dupq_papers.systems.term_ranker import TermRanker

GRID: tuple[dict[str, float], ...] = ({"idf_power": 2.0}, {"idf_power": 1.0})  # the default first


def weights(of: Occurrences, idf_power: float) -> np.ndarray:
    """What each occurrence adds to the score of a query that has its term once (float64, (m,))."""
    idf = 1 + np.log((of.questions + 1) / (of.questions_with + 1))
    return np.sqrt(of.counts) * idf**idf_power / np.sqrt(of.lengths)


class TFIDF(TermRanker):
    """A Ranker by TFIDF."""

    def __init__(self, counts: TermCounts, *, idf_power: float = 2.0) -> None:
        """`idf_power` is the formula's p."""
        super().__init__(counts, lambda of: weights(of, idf_power))
