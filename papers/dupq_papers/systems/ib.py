"""Information-based retrieval (Clinchant and Gaussier 2010) as in Lucene's IBSimilarity.

One of the baselines of dos Santos et al. (2015, section 3.2), which does not say which of its distributions it is.

    score(q, d) = sum over the terms t of q of n_q(t) (-ln P(X >= tfn))
    P(X >= tfn) = r / (tfn + r)                             LL: log-logistic
                  (r^(tfn / (tfn + 1)) - r) / (1 - r)       SPL: smoothed power law
    tfn         = n_d(t) log2(1 + c mean / |d|)             the length normalisation H2
    r           = (N_t + 1) / (N + 1) (DF) or (F_t + 1) / (N + 1) (TTF)

SPL has no value at r = 1: as in Lucene the nearest float32 is taken, below 1 for DF and above for TTF.
"""

import itertools
from typing import Literal

import numpy as np

from dupq_papers.systems.dfr import normalised
from dupq_papers.systems.term_counts import Occurrences, TermCounts
from dupq_papers.systems.term_ranker import TermRanker

Distribution = Literal["LL", "SPL"]
Rate = Literal["DF", "TTF"]
_DISTRIBUTIONS: tuple[Distribution, ...] = ("LL", "SPL")
_RATES: tuple[Rate, ...] = ("DF", "TTF")

GRID = tuple(  # the default first
    {"distribution": distribution, "rate": rate, "c": c}
    for distribution, rate, c in itertools.product(_DISTRIBUTIONS, _RATES, (1.0, 0.5, 2.0, 5.0))
)


def weights(of: Occurrences, distribution: Distribution, rate: Rate, c: float) -> np.ndarray:
    """What each occurrence adds to the score of a query that has its term once (float64, (m,))."""
    tfn = normalised(of, c)
    rates = ((of.questions_with if rate == "DF" else of.totals) + 1) / (of.questions + 1)
    if distribution == "LL":
        return np.log1p(tfn / rates)
    beside = float(np.nextafter(np.float32(1), np.float32(0 if rate == "DF" else 2)))
    rates = np.where(rates == 1, beside, rates)
    return np.maximum(0.0, -np.log((rates ** (tfn / (tfn + 1)) - rates) / (1 - rates)))


class IB(TermRanker):
    """A Ranker by information-based weights."""

    def __init__(
        self, counts: TermCounts, *, distribution: Distribution = "LL", rate: Rate = "DF", c: float = 1.0
    ) -> None:
        """The parts of the formula by the names above; `c` > 0: the higher, the less lengths matter."""
        super().__init__(counts, lambda of: weights(of, distribution, rate, c))
