"""Divergence from randomness (Amati and van Rijsbergen 2002) as in Lucene's DFRSimilarity.

One of the baselines of dos Santos et al. (2015, section 3.2), which does not say which of its models it is.

    score(q, d)  = sum over the terms t of q of n_q(t) information(tfn) gain / (1 + tfn)
    tfn          = n_d(t) log2(1 + c mean / |d|)            the length normalisation H2
    gain         = 1 (L: Laplace) or (F_t + 2) / (N_t + 1) (B: two Bernoulli processes)
    information  = tfn log2((N + 1) / (N_t + 1/2))          In: inverse document frequency
                   tfn log2((N + 1) / (ne + 1/2))           Ine: the expected one, ne = N (1 - (1 - 1/N)^F_t)
                   tfn log2(1 + (N + 1) / (F_t + 1/2))      IF: inverse term frequency
                   log2(1 + r) + tfn log2((1 + r) / r)      G: geometric, r = (F_t + 1) / (N + F_t + 1)
"""

import itertools
from typing import Literal

import numpy as np

from dupq_papers.systems.term_counts import Occurrences, TermCounts
from dupq_papers.systems.term_ranker import TermRanker

Model = Literal["In", "Ine", "IF", "G"]
AfterEffect = Literal["L", "B"]
_MODELS: tuple[Model, ...] = ("In", "Ine", "IF", "G")
_AFTER_EFFECTS: tuple[AfterEffect, ...] = ("L", "B")

GRID = tuple(  # the default first
    {"model": model, "after_effect": after_effect, "c": c}
    for model, after_effect, c in itertools.product(_MODELS, _AFTER_EFFECTS, (1.0, 0.5, 2.0, 5.0))
)


def normalised(of: Occurrences, c: float) -> np.ndarray:
    """tfn: the counts as they would be in a question of mean length."""
    return of.counts * np.log2(1 + c * of.mean_length / of.lengths)


def weights(of: Occurrences, model: Model, after_effect: AfterEffect, c: float) -> np.ndarray:
    """What each occurrence adds to the score of a query that has its term once (float64, (m,))."""
    tfn = normalised(of, c)
    gain = 1.0 if after_effect == "L" else (of.totals + 2) / (of.questions_with + 1)
    return _information(of, model, tfn) * gain / (1 + tfn)


def _information(of: Occurrences, model: Model, tfn: np.ndarray) -> np.ndarray:
    if model == "In":
        return tfn * np.log2((of.questions + 1) / (of.questions_with + 0.5))
    if model == "Ine":
        expected = of.questions * (1 - (1 - 1 / of.questions) ** of.totals)
        return tfn * np.log2((of.questions + 1) / (expected + 0.5))
    if model == "IF":
        return tfn * np.log2(1 + (of.questions + 1) / (of.totals + 0.5))
    rate = (of.totals + 1) / (of.questions + of.totals + 1)
    return np.log2(1 + rate) + tfn * np.log2((1 + rate) / rate)


class DFR(TermRanker):
    """A Ranker by divergence from randomness."""

    def __init__(
        self, counts: TermCounts, *, model: Model = "In", after_effect: AfterEffect = "L", c: float = 1.0
    ) -> None:
        """The parts of the formula by the names above; `c` > 0: the higher, the less lengths matter."""
        super().__init__(counts, lambda of: weights(of, model, after_effect, c))
