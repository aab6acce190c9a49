"""The probability of a pair: its features, the likelihood, and what the archive's own links change."""

import json
import math
from importlib.resources import files
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import approx_fprime, minimize_scalar
from scipy.special import expit, logit

from dupq.clusters.calibration import (
    FEATURES,
    NEAR,
    OF_TITLES,
    Labelled,
    Model,
    Prior,
    _fit_within,
    designed,
    fit,
    negative_log_likelihood,
    own_share,
    read_prior,
    score_log_odds,
)
from dupq.errors import DupqError

COUNT = len(FEATURES)


def prior_of(
    coefficients: np.ndarray, spread: float, linked: tuple[float, float] = (3.0, 3.0), slope_spread: float = 0.5
) -> Prior:
    random = np.random.default_rng(1)
    scaling = random.normal(size=COUNT), random.uniform(0.5, 2, COUNT)
    model = Model(*scaling, coefficients, linked[0] / sum(linked))
    return Prior(model, spread, slope_spread, 0.05, linked, 0.4, read_prior().reread)


def design_of(features: np.ndarray, prior: Prior) -> np.ndarray:
    return designed(features, prior.model.centres, prior.model.scales)


def features_for(prior: Prior, rows: int, random: np.random.Generator) -> np.ndarray:
    """Return features that are standard normal once scaled."""
    return prior.model.centres + prior.model.scales * random.normal(size=(rows, COUNT))


def coefficients_of(slopes: dict[int, float], intercept: float) -> np.ndarray:
    found = np.zeros(COUNT + 1)
    found[list(slopes)] = list(slopes.values())
    found[-1] = intercept
    return found


SLOPES = {0: 2.5, 1: 1.0, 3: -1.0, 4: 0.5}
TRUTH = coefficients_of(SLOPES, -3.0)
HALF = coefficients_of({place: slope / 2 for place, slope in SLOPES.items()}, -1.5)  # what may be known of it before


class Archive(NamedTuple):
    """Draw a sample as a run does: all linked pairs, and some of the others."""

    labelled: Labelled
    features: np.ndarray
    is_duplicate: np.ndarray


def archive(truth: np.ndarray, prior: Prior, rows: int, share: float, rate: float, seed: int) -> Archive:
    random = np.random.default_rng(seed)
    features = features_for(prior, rows, random)
    is_duplicate = random.random(rows) < expit(design_of(features, prior) @ truth)
    is_linked = is_duplicate & (random.random(rows) < share)
    drawn = is_linked | (random.random(rows) < rate)
    count = int(drawn.sum())
    nobody = np.zeros(count, bool)
    labelled = Labelled(features[drawn], is_linked[drawn], np.ones(count), nobody, np.full(count, -math.log(rate)))
    return Archive(labelled, features, is_duplicate)


def some_labelled(rows: int, seed: int) -> tuple[Labelled, np.ndarray]:
    """Return judged and linked pairs with uneven weights and rates, and their design."""
    random = np.random.default_rng(seed)
    prior = prior_of(TRUTH, 1.0)
    features = features_for(prior, rows, random)
    columns = (random.random(rows) < 0.4, random.uniform(0.1, 3, rows), random.random(rows) < 0.3)
    return Labelled(features, *columns, random.normal(size=rows)), design_of(features, prior)


@pytest.mark.parametrize("seed", range(2))
def test_the_gradient_is_that_of_the_value(seed: int) -> None:
    labelled, design = some_labelled(60, seed)
    at = np.random.default_rng(100 + seed).normal(size=COUNT + 2) / 2
    slow = approx_fprime(at, lambda moved: negative_log_likelihood(labelled, design, moved)[0], 1e-6)
    assert negative_log_likelihood(labelled, design, at)[1] == pytest.approx(slow, rel=1e-3, abs=1e-3)


def test_the_likelihood_is_the_chance_of_every_label() -> None:
    labelled, design = some_labelled(40, 9)
    at = np.random.default_rng(109).normal(size=COUNT + 2) / 3
    share, total = 1 / (1 + math.exp(-at[-1])), 0.0
    for row, label, weight, is_judged, log_rate in zip(design, *labelled[1:], strict=True):
        p = 1 / (1 + math.exp(-sum(row * at[:-1])))
        linked = p if is_judged else share * p
        in_sample = linked * math.exp(log_rate)
        chance = in_sample / (in_sample + 1 - linked)
        total -= weight * math.log(chance if label else 1 - chance)
    assert negative_log_likelihood(labelled, design, at)[0] == pytest.approx(total)


def test_no_step_away_from_the_fit_is_better() -> None:
    """Try a step of each coefficient, of the intercept and of the linked share, at the cheapest shared slope."""
    prior = prior_of(HALF, 0.5, (4.0, 2.0))
    labelled, design = some_labelled(300, 4)
    counts = labelled.is_judged | (expit(design @ HALF) >= NEAR)
    labelled, design = Labelled(*(column[counts] for column in labelled)), design[counts]
    model = _fit_within(1, labelled, prior)[0]

    def loss(at: np.ndarray) -> float:
        def far(log_slope: float) -> float:
            own = (at[:-2] - HALF[:-1] * math.exp(log_slope)) / prior.coefficient_spread
            return (log_slope / prior.slope_spread) ** 2 / 2 + float(own @ own) / 2

        beta = prior.linked[0] * math.log(expit(at[-1])) + prior.linked[1] * math.log(expit(-at[-1]))
        own = minimize_scalar(far, (-1, 1), tol=1e-12).fun + ((at[-2] - HALF[-1]) / prior.intercept_spread) ** 2 / 2
        return float(negative_log_likelihood(labelled, design, at)[0] + own - beta)

    found = np.append(model.coefficients, math.log(model.linked_share / (1 - model.linked_share)))
    assert abs(found[:-1] - HALF).max() > 0.05
    assert approx_fprime(found, loss, 1e-6) == pytest.approx(np.zeros(len(found)), abs=0.02)
    for step in np.concatenate([np.eye(len(found)), -np.eye(len(found))]) * 0.02:
        assert loss(found + step) > loss(found)


def test_few_links_stay_near_the_prior_and_many_clear_ones_may_leave_it() -> None:
    """The truth is ten spreads away: a few pairs cannot show that, 1,000 linked ones can."""
    prior = prior_of(HALF, 0.05, slope_spread=0.1)
    made = archive(TRUTH, prior, 100_000, share=0.6, rate=0.1, seed=6)
    truth = expit(design_of(made.features, prior) @ TRUTH)

    def missed(model: Model) -> float:
        return float(np.abs(model.probabilities(made.features) - truth).mean())

    assert missed(fit(made.labelled, prior)) < missed(_fit_within(1, made.labelled, prior)[0]) / 2
    few = np.random.default_rng(0).permutation(len(made.labelled.labels))[:40]
    near = few[prior.model.probabilities(made.labelled.features[few]) >= NEAR]
    known = Labelled(*(column[near] for column in made.labelled))
    assert known.labels.any()
    assert fit(known, prior).coefficients.tolist() == _fit_within(1, known, prior)[0].coefficients.tolist()


def test_the_evidence_is_the_integral_of_the_likelihood() -> None:
    """One coefficient and an intercept, against a sum over a grid; a multiple of 1 costs nothing."""
    random = np.random.default_rng(3)
    one = prior_of(HALF, 0.5)._replace(model=Model(np.zeros(1), np.ones(1), np.array([1.0, -0.5]), 0.5))
    features = random.normal(size=(200, 1))
    labels = random.random(200) < expit(2 * features[:, 0])
    everybody = Labelled(features, labels, np.ones(200), np.ones(200, bool), np.zeros(200))
    wide, narrow = (_fit_within(1, everybody, one._replace(intercept_spread=spread))[1] for spread in (2.0, 0.5))

    def integral(spread: float) -> float:
        grid = np.linspace(-5, 5, 51)
        log_slope, move, units = np.meshgrid(grid, grid, grid, indexing="ij")
        slope = np.exp(one.slope_spread * log_slope) + one.coefficient_spread * move
        z = slope[..., None] * features[:, 0] - 0.5 + spread * units[..., None]
        likelihood = -np.logaddexp(0, np.where(labels, -z, z)).sum(axis=-1)
        return float(np.log(np.exp(likelihood - (log_slope**2 + move**2 + units**2) / 2 + 150).sum()))

    assert wide - narrow == pytest.approx(integral(2.0) - integral(0.5), abs=0.05)


def test_unjudged_pairs_that_the_prior_takes_for_others_count_for_nothing() -> None:
    """Whether they are linked or not, however many they are, and however wrong the prior is there."""
    prior, (labelled, design) = prior_of(HALF, 0.5), some_labelled(3_000, 5)
    far = expit(design @ HALF) < NEAR
    assert 30 < (far & ~labelled.is_judged).sum() < 2_500
    model = fit(labelled, prior)
    without = fit(Labelled(*(column[labelled.is_judged | ~far] for column in labelled)), prior)
    assert without.coefficients.tolist() == model.coefficients.tolist()
    unjudged = labelled._replace(is_judged=labelled.is_judged & ~far)
    assert fit(unjudged, prior).coefficients.tolist() != model.coefficients.tolist()
    nothing_near = Labelled(*(column[far] for column in labelled))._replace(is_judged=np.zeros(far.sum(), bool))
    assert fit(nothing_near, prior).coefficients.tolist() == HALF.tolist()


def test_without_data_the_model_is_the_prior() -> None:
    prior, labelled = prior_of(TRUTH, 0.5, (3.0, 1.0)), some_labelled(20, 5)[0]
    nothing = Labelled(*(column[:0] for column in labelled))
    weightless = labelled._replace(weights=np.zeros(20))
    for model in (prior.model, fit(nothing, prior), fit(weightless, prior)):
        assert model.coefficients == pytest.approx(prior.model.coefficients)
        assert model.linked_share == pytest.approx(0.75)
        assert own_share(model, prior, labelled.features) == pytest.approx(0, abs=1e-6)
        assert own_share(model, prior, labelled.features[:0]) == 0


@pytest.mark.parametrize(("share", "linked"), [(0.6, (3.0, 3.0)), (0.3, (3.0, 7.0))])
def test_with_many_links_the_probabilities_are_those_of_the_archive(share: float, linked: tuple[float, float]) -> None:
    """Unlinked pairs are no proof: else the probabilities of the surest pairs would be too low by that share."""
    prior = prior_of(HALF, 2.0, linked, slope_spread=2.0)
    made = archive(TRUTH, prior, 100_000, share=share, rate=0.1, seed=6)
    model = fit(made.labelled, prior)
    p = model.probabilities(made.features)
    for low in np.arange(0, 1, 0.1):
        inside = (p >= low) & (p < low + 0.1)
        assert inside.sum() > 500
        assert p[inside].mean() == pytest.approx(made.is_duplicate[inside].mean(), abs=0.05)
    truth = expit(design_of(made.features, prior) @ TRUTH)
    assert np.abs(p - truth).mean() < 0.01
    assert model.linked_share == pytest.approx(share, abs=0.05)
    assert 0 < own_share(model, prior, made.features) < 1


@pytest.mark.parametrize(("uri", "moves"), [(OF_TITLES, 4.0), ("", 0.0)])
def test_titles_decide_pairs_that_are_not_far_from_open_where_texts_are_nothing_else(uri: str, moves: float) -> None:
    prior = read_prior(uri)
    features = features_for(prior, 300, np.random.default_rng(7))
    said = np.arange(300) % 2.0
    p = prior.model.probabilities(features)
    assert 0 < (p < 0.02).sum() < 300
    expected = np.where(p >= 0.02, expit(logit(p) + moves * said), p)
    weightless = Labelled(features, said > 0, np.zeros(300), said > 0, np.zeros(300))
    fitted = fit(weightless, prior)
    pairs = pa.table({"same_asking": said})
    for model in (prior.model, fitted, Model.from_dict(json.loads(json.dumps(prior.model.to_dict())))):
        assert model.probabilities_of(pairs, features) == pytest.approx(expected)
        assert expit(model.added(pairs, features).sum(axis=1)) == pytest.approx(expected)  # as a waterfall shows it


@given(st.lists(st.integers(-20, 20)), st.lists(st.integers(-20, 20)))
def test_a_score_counts_by_the_log_odds_that_a_best_score_is_lower(scores: list[int], best: list[int]) -> None:
    found = score_log_odds(np.array(scores, float), np.sort(np.array(best, float)))
    for score, place in zip(scores, found.tolist(), strict=True):
        lower = sum(other < score for other in best)
        assert place == pytest.approx(max(-6, math.log((lower + 1) / (len(best) - lower + 1))))
    assert score_log_odds(np.array([-1.0]), np.zeros(5_000)).tolist() == [-6]


def test_another_prior_is_read_from_where_it_lies_but_none_of_other_features(tmp_path: Path) -> None:
    ships, place = json.loads((files("dupq") / "clusters" / "prior.json").read_text()), tmp_path / "prior.json"
    place.write_text(json.dumps(ships | {"slope_spread": 0.25, "linked": [2, 7], "sites": ["x"]}))
    found, ours = read_prior(str(place)), read_prior()
    assert (found.slope_spread, found.linked, found.sites) == (0.25, (2, 7), ("x",))
    assert found.model.to_dict() == ours.model.to_dict() | {"linked_share": 2 / 9}
    assert found.intercept_spread == ours.intercept_spread
    place.write_text(json.dumps(ships | {"features": [*FEATURES[:3], "text_weight"]}))
    with pytest.raises(DupqError, match=r"prior\.json: made for other features"):
        read_prior(str(place))
