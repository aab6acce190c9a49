"""From scores to decisions: the threshold of clusters and the probability of a pair."""

import numpy as np
from scipy.optimize import minimize

_PRIOR = 1.0  # strength of the pull towards a flat curve, so that a separable set has a finite answer


def best_f_threshold(similarities: np.ndarray, known: np.ndarray, missed: int, beta: float) -> float:
    """The similarity from which neighbours are called duplicates, with the best F-measure on known ones.

    `similarities` are those of neighbour pairs, `known` whether each is a known duplicate, and `missed` how
    many known duplicates are not among them at all. F = (1 + b^2) P R / (b^2 P + R) (van Rijsbergen 1979): a
    beta under 1 weighs precision more. Ties go to the higher threshold. Links are incomplete, so that the
    true precision is higher than the measured one.
    """
    order = np.argsort(-similarities, kind="stable")
    ordered, hits = similarities[order], np.cumsum(known[order])
    if not len(ordered) or hits[-1] == 0:
        return 1.0
    called = np.arange(1, len(ordered) + 1)
    measure = (1 + beta**2) * hits / (called + beta**2 * (hits[-1] + missed))
    last_of_value = np.r_[ordered[1:] != ordered[:-1], True]
    return float(ordered[int(np.argmax(np.where(last_of_value, measure, -1.0)))])


def fit_probability(similarities: np.ndarray, known: np.ndarray) -> tuple[float, float]:
    """Slope and intercept of probability = 1 / (1 + exp(-(slope * s + intercept))) (Platt 1999).

    Fitted by maximum likelihood with a weak Gaussian prior on the slope; never falling.
    """
    labels = known.astype(np.float64)

    def loss(parameters: np.ndarray) -> float:
        logits = parameters[0] * similarities + parameters[1]
        likelihood = np.logaddexp(0.0, logits) - labels * logits
        return float(likelihood.sum() + 0.5 * _PRIOR * (parameters[0] / 10.0) ** 2)

    start = np.array([1.0, 0.0])
    slope, intercept = minimize(loss, start, method="L-BFGS-B", bounds=[(0.0, None), (None, None)]).x
    return float(slope), float(intercept)
