"""How a teacher's cosine moves a probability."""

import numpy as np
import pytest
from scipy.special import expit, logit

from dupq.clusters.calibration import Labelled, TeacherModel, fit_teacher, read_prior


def labelled(labels: np.ndarray) -> Labelled:
    """Return pairs that people judged."""
    count = len(labels)
    return Labelled(np.zeros((count, 0)), labels, np.ones(count), np.ones(count, bool), np.zeros(count))


def test_a_cosine_counts_in_standard_deviations() -> None:
    model = TeacherModel(0.4, 0.2, 2.7, 1.5, -0.3)
    p, cosines = np.array([0.1, 0.5, 0.9]), np.array([0.4, 0.8, 0.0])
    expected = expit(2.7 * logit(p) / 3 + 1.5 * np.array([0.0, 2.0, -2.0]) - 0.3)
    assert model.probabilities(p, cosines) == pytest.approx(expected)
    far = model.probabilities(p, np.array([9.0, -9.0, np.nan]))
    assert far == pytest.approx([*expit(2.7 * logit(p[:2]) / 3 + 1.5 * np.array([3.0, -3.0]) - 0.3), 0.9])


def test_verdicts_on_likely_pairs_move_the_model_their_way() -> None:
    random = np.random.default_rng(3)
    p, cosines = random.uniform(0.1, 0.6, 400), random.normal(0.5, 0.1, 400)
    prior = read_prior()
    none, every = (fit_teacher(labelled(np.full(400, said)), p, cosines, prior) for said in (False, True))
    assert (every.mean, every.spread) == (none.mean, none.spread) == pytest.approx((cosines.mean(), cosines.std()))
    low, prior_s, high = (
        model.probabilities(p, cosines)
        for model in (none, TeacherModel(every.mean, every.spread, *prior.teacher), every)
    )
    assert (low < prior_s).all()
    assert (prior_s < high).all()


def test_where_nothing_was_read_the_prior_decides() -> None:
    model = fit_teacher(labelled(np.zeros(4, bool)), np.full(4, 0.3), np.full(4, np.nan), read_prior())
    assert model[2:] == tuple(read_prior().teacher)
    assert model.probabilities(np.full(2, 0.3), np.full(2, np.nan)).tolist() == [0.3, 0.3]


def test_likelier_by_a_higher_cosine_and_by_other_evidence() -> None:
    log_odds, cosine, _ = read_prior().teacher
    assert log_odds > 0 < cosine
