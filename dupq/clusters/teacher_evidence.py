"""A teacher's cosine as evidence: it moves the log-odds that all other evidence gives a pair.

A logistic model over two features, learned on other sites (prior.json) and moved by this archive's known duplicates and
verdicts as the first one is (calibration.py). Cosines of models differ in mean and spread, and so do archives; so a
cosine counts in standard deviations over the pairs that a run is calibrated on.
"""

from typing import NamedTuple

import numpy as np
from scipy.special import expit, logit

from dupq.clusters.calibration import Labelled, Prior, designed, fit

SCALES = np.array([3.0, 1.0])  # of log-odds and scaled cosine, which `designed` clips at three: certain is 9
_CENTRES, _LEAST_SPREAD = np.zeros(2), 1e-3


class TeacherModel(NamedTuple):
    """How much a teacher's cosine says in this archive."""

    mean: float  # of its cosines
    spread: float  # their standard deviation
    log_odds: float  # coefficient of those by all other evidence, divided by SCALES
    cosine: float  # coefficient of the scaled one
    intercept: float

    def probabilities(self, p: np.ndarray, cosines: np.ndarray) -> np.ndarray:
        """The probability (float64) of pairs that have `p` by all other evidence; the same where a cosine is NaN."""
        is_read = np.isfinite(cosines)
        features = teacher_features(p[is_read], cosines[is_read], self.mean, self.spread)
        found = p.astype(np.float64)
        found[is_read] = expit(designed(features, _CENTRES, SCALES) @ [self.log_odds, self.cosine, self.intercept])
        return found


def teacher_features(p: np.ndarray, cosines: np.ndarray, mean: float, spread: float) -> np.ndarray:
    """Log-odds and scaled cosines (float64, (n, 2)) of pairs."""
    return np.stack([logit(np.clip(p.astype(np.float64), 1e-9, 1 - 1e-9)), (cosines - mean) / spread], axis=1)


def teacher_prior(prior: Prior) -> Prior:
    """The prior of the two features."""
    return prior._replace(centres=_CENTRES, scales=SCALES, coefficients=prior.teacher)


def fit_teacher(labelled: Labelled, p: np.ndarray, cosines: np.ndarray, prior: Prior) -> TeacherModel:
    """The model of this archive, from the pairs of its calibration: labels, `p` by all other evidence, cosines.

    Pairs whose cosine is NaN tell nothing; without any other the model is the prior's.
    """
    rows = np.flatnonzero(np.isfinite(cosines))
    if not len(rows):
        return TeacherModel(0.0, 1.0, *prior.teacher.tolist())
    p, cosines = p[rows], cosines[rows].astype(np.float64)
    mean, spread = float(cosines.mean()), max(float(cosines.std()), _LEAST_SPREAD)
    read = Labelled(teacher_features(p, cosines, mean, spread), *(column[rows] for column in labelled[1:]))
    return TeacherModel(mean, spread, *fit(read, teacher_prior(prior)).coefficients.tolist())
