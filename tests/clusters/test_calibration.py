"""The probability of a pair: its features, the likelihood, what the archive's own links change, and thresholds."""

import itertools
import json
import math
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import approx_fprime
from scipy.special import expit

from dupq.clusters.calibration import (
    FEATURES,
    Labelled,
    Model,
    Prior,
    designed,
    features_of,
    fit,
    negative_log_likelihood,
    own_share,
    places_of,
    threshold_for,
)
from dupq.clusters.evidence import UNLISTED, Listing, Shared
from dupq.clusters.prior import read_prior
from dupq.errors import DupqError

COUNT = len(FEATURES)
K = 10


def prior_of(coefficients: np.ndarray, spread: float, linked: tuple[float, float] = (3.0, 3.0)) -> Prior:
    random = np.random.default_rng(1)
    spreads = np.full(COUNT + 1, spread)
    return Prior(random.normal(size=COUNT), random.uniform(0.5, 2, COUNT), coefficients, spreads, linked)


def features_for(prior: Prior, rows: int, random: np.random.Generator) -> np.ndarray:
    """Scaled, they are standard normal."""
    return prior.centres + prior.scales * random.normal(size=(rows, COUNT))


def coefficients_of(slopes: dict[int, float], intercept: float) -> np.ndarray:
    found = np.zeros(COUNT + 1)
    found[list(slopes)] = list(slopes.values())
    found[-1] = intercept
    return found


TRUTH = coefficients_of({0: 2.5, 1: 1.0, 3: -1.0, 4: 0.5}, -3.0)
CONTRARY = coefficients_of({0: -2.0, 1: 2.0, 3: 1.5}, -4.0)


class Archive(NamedTuple):
    """A sample of pairs as a run draws them: all linked ones, and one of some others."""

    labelled: Labelled
    features: np.ndarray
    is_duplicate: np.ndarray


def archive(truth: np.ndarray, prior: Prior, rows: int, share: float, rate: float, seed: int) -> Archive:
    random = np.random.default_rng(seed)
    features = features_for(prior, rows, random)
    is_duplicate = random.random(rows) < expit(designed(features, prior.centres, prior.scales) @ truth)
    is_linked = is_duplicate & (random.random(rows) < share)
    drawn = is_linked | (random.random(rows) < rate)
    count = int(drawn.sum())
    nobody = np.zeros(count, bool)
    labelled = Labelled(features[drawn], is_linked[drawn], np.ones(count), nobody, np.full(count, -math.log(rate)))
    return Archive(labelled, features, is_duplicate)


def some_labelled(rows: int, seed: int) -> tuple[Labelled, np.ndarray]:
    """Judged and linked pairs with uneven weights and rates, and their design."""
    random = np.random.default_rng(seed)
    prior = prior_of(TRUTH, 1.0)
    features = features_for(prior, rows, random)
    columns = (random.random(rows) < 0.4, random.uniform(0.1, 3, rows), random.random(rows) < 0.3)
    return Labelled(features, *columns, random.normal(size=rows)), designed(features, prior.centres, prior.scales)


@pytest.mark.parametrize("seed", range(5))
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


def test_one_rate_for_all_pairs_may_be_a_number() -> None:
    labelled, design = some_labelled(20, 3)
    at = np.zeros(COUNT + 2)
    one = negative_log_likelihood(labelled._replace(log_rates=0.7), design, at)
    other = negative_log_likelihood(labelled._replace(log_rates=np.full(20, 0.7)), design, at)
    assert one[0] == other[0]
    assert np.array_equal(one[1], other[1])


def test_no_step_away_from_the_fit_is_better() -> None:
    prior = prior_of(TRUTH / 2, 0.5, (4.0, 2.0))
    labelled, design = some_labelled(300, 4)
    model = fit(labelled, prior)
    logit_share = math.log(model.linked_share / (1 - model.linked_share))

    def loss(moved: np.ndarray) -> float:
        far, share = (moved[:-1] - prior.coefficients) / prior.spreads, expit(moved[-1])
        beta = prior.linked[0] * math.log(share) + prior.linked[1] * math.log(1 - share)
        return negative_log_likelihood(labelled, design, moved)[0] + float(far @ far) / 2 - beta

    found = np.append(model.coefficients, logit_share)
    for step in np.concatenate([np.eye(len(found)), -np.eye(len(found))]) * 0.02:
        assert loss(found + step) > loss(found)


def test_without_data_the_model_is_the_prior() -> None:
    prior, labelled = prior_of(TRUTH, 0.5, (3.0, 1.0)), some_labelled(20, 5)[0]
    nothing = Labelled(*(column[:0] for column in labelled))
    weightless = labelled._replace(weights=np.zeros(20))
    for model in (fit(nothing, prior), fit(weightless, prior)):
        assert model.coefficients == pytest.approx(prior.coefficients)
        assert model.linked_share == pytest.approx(0.75)
        assert own_share(model, prior, labelled.features) == pytest.approx(0, abs=1e-6)


@pytest.fixture(scope="module")
def well_known() -> tuple[Model, Archive, Prior]:
    prior = prior_of(coefficients_of({0: 1.0}, -2.0), 2.0)
    made = archive(TRUTH, prior, 200_000, share=0.6, rate=0.1, seed=6)
    return fit(made.labelled, prior), made, prior


def test_with_plenty_of_links_the_probabilities_are_those_of_the_archive(
    well_known: tuple[Model, Archive, Prior],
) -> None:
    model, made, prior = well_known
    p = model.probabilities(made.features)
    for low in np.arange(0, 1, 0.1):
        inside = (p >= low) & (p < low + 0.1)
        assert inside.sum() > 500
        assert p[inside].mean() == pytest.approx(made.is_duplicate[inside].mean(), abs=0.05)
    truth = expit(designed(made.features, prior.centres, prior.scales) @ TRUTH)
    assert np.abs(p - truth).mean() < 0.01


def test_and_so_is_the_share_of_the_duplicates_that_is_linked(well_known: tuple[Model, Archive, Prior]) -> None:
    assert well_known[0].linked_share == pytest.approx(0.6, abs=0.05)


def test_and_the_expected_precision_from_a_threshold_on_is_what_is_reached(
    well_known: tuple[Model, Archive, Prior],
) -> None:
    model, made, _ = well_known
    p = model.probabilities(made.features)
    for wanted in (0.5, 0.8, 0.95):
        threshold = threshold_for(wanted, p, np.ones(len(p)))
        assert p[p >= threshold].mean() >= wanted
        assert made.is_duplicate[p >= threshold].mean() == pytest.approx(wanted, abs=0.03)


def test_unlinked_pairs_are_no_proof_where_few_duplicates_are_linked() -> None:
    """Taken for the contrary, they would halve the probabilities of the surest pairs."""
    prior = prior_of(coefficients_of({0: 1.0}, -2.0), 2.0, (3.0, 7.0))
    made = archive(TRUTH, prior, 100_000, share=0.3, rate=0.1, seed=7)
    p = fit(made.labelled, prior).probabilities(made.features)
    surest = np.argsort(-p)[:2_000]
    assert made.is_duplicate[surest].mean() > 0.9
    assert p[surest].mean() == pytest.approx(made.is_duplicate[surest].mean(), abs=0.05)


def test_judged_pairs_that_are_no_duplicates_count_as_such() -> None:
    prior = prior_of(TRUTH, 1.0)
    features = features_for(prior, 200, np.random.default_rng(8))
    no, rest = np.zeros(200, bool), (np.ones(200), np.ones(200, bool))
    before = Model(*prior[:3], linked_share=0.5).probabilities(features).mean()
    refused, agreed = (fit(Labelled(features, labels, *rest), prior) for labels in (no, ~no))
    assert refused.probabilities(features).mean() < before / 2 < 2 * before < agreed.probabilities(features).mean()
    assert refused.linked_share == agreed.linked_share == pytest.approx(0.5)  # they say nothing of it


def with_links(count: int, prior: Prior) -> Labelled:
    """Of an archive where the prior is all wrong: so many linked pairs, and as large a share of the others."""
    made = archive(CONTRARY, prior, 60_000, share=0.6, rate=0.1, seed=10).labelled
    kept = np.arange(len(made.labels)) < np.flatnonzero(made.labels)[count - 1] + 1
    return Labelled(*(column[kept] for column in made))


def test_ten_links_move_the_prior_a_little_and_a_thousand_decide() -> None:
    prior = prior_of(TRUTH, 0.3)
    features = features_for(prior, 2_000, np.random.default_rng(11))
    before = designed(features, prior.centres, prior.scales) @ prior.coefficients
    found = {count: fit(with_links(count, prior), prior) for count in (10, 100, 1_000)}
    moved = {count: np.abs(model.log_odds(features) - before).mean() for count, model in found.items()}
    shares = [own_share(model, prior, features) for model in found.values()]
    assert moved[10] < 0.3 * moved[1_000]
    assert moved[10] < moved[100] < moved[1_000]
    assert 0 < shares[0] < shares[1] < shares[2] < 1
    truth = designed(features, prior.centres, prior.scales) @ CONTRARY
    assert np.abs(found[1_000].log_odds(features) - truth).mean() < 0.5 * np.abs(before - truth).mean()


def test_ten_links_that_agree_with_the_prior_hardly_move_it() -> None:
    prior = prior_of(TRUTH, 0.3)
    made = archive(TRUTH, prior, 60_000, share=0.5, rate=0.1, seed=12).labelled
    kept = np.r_[np.flatnonzero(made.labels)[:10], np.flatnonzero(~made.labels)[:20]]
    labelled = Labelled(*(column[kept] for column in made))
    features = features_for(prior, 2_000, np.random.default_rng(13))
    model = fit(labelled, prior)
    before = Model(*prior[:3], linked_share=0.5).log_odds(features)
    assert np.abs(model.log_odds(features) - before).mean() < 0.5
    assert own_share(model, prior, features) < 0.5


def test_without_pairs_nothing_is_the_archives_own() -> None:
    prior = prior_of(TRUTH, 0.3)
    model = fit(with_links(100, prior), prior)
    assert own_share(model, prior, np.zeros((0, COUNT))) == 0


def test_a_model_is_the_same_after_a_json_file() -> None:
    prior = prior_of(TRUTH, 0.3)
    model = fit(with_links(50, prior), prior)
    features = features_for(prior, 50, np.random.default_rng(14))
    again = Model.from_dict(json.loads(json.dumps(model.to_dict())))
    assert np.array_equal(again.probabilities(features), model.probabilities(features))
    assert again.linked_share == model.linked_share


@given(st.lists(st.integers(-20, 20)), st.lists(st.integers(-20, 20)))
def test_a_place_is_the_log_odds_that_a_best_score_is_lower(scores: list[int], best: list[int]) -> None:
    found = places_of(np.array(scores, float), np.sort(np.array(best, float)))
    for score, place in zip(scores, found.tolist(), strict=True):
        lower = sum(other < score for other in best)
        assert place == pytest.approx(max(-6, math.log((lower + 1) / (len(best) - lower + 1))))


def test_a_score_counts_less_where_strangers_reach_it_and_never_less_than_a_bound() -> None:
    scores = np.array([0.2, 0.5, 0.9])
    small, large = (np.sort(np.random.default_rng(2).beta(a, 4, 5_000)) for a in (2, 5))
    assert (places_of(scores, large) < places_of(scores, small)).all()
    assert (np.diff(places_of(scores, small)) > 0).all()
    assert places_of(np.array([-1.0]), small).tolist() == [-6]


def some_pairs(seed: int) -> tuple[np.ndarray, Listing, Listing, Shared]:
    random, rows = np.random.default_rng(seed), 40

    def listing() -> Listing:
        ranks = random.integers(0, K + 1, rows).astype(np.int32)
        ranks[ranks == 0] = UNLISTED
        listed = ranks > 0
        return Listing(ranks, random.random(rows) * listed, random.random(rows) * listed)

    common = Shared(*random.random((len(Shared._fields), rows)))
    common.tags[:5] = np.nan
    return random.normal(size=rows), listing(), listing(), common


def test_the_features_are_the_same_whichever_question_is_the_left_one() -> None:
    places, left, right, common = some_pairs(1)
    one, other = features_of(places, left, right, common, K), features_of(places, right, left, common, K)
    assert np.array_equal(one, other)
    assert one.shape == (40, COUNT)
    assert one.dtype == np.float64
    assert np.isfinite(one).all()


def test_each_feature_is_in_the_column_of_its_name() -> None:
    places, left, right, common = some_pairs(2)
    for at, row in enumerate(features_of(places, left, right, common, K).tolist()):
        ranks = [rank if rank > 0 else K + 1 for rank in (int(left.ranks[at]), int(right.ranks[at]))]
        expected = {name: float(getattr(common, name)[at]) for name in Shared._fields if name in FEATURES} | {
            "place": places[at],
            "lift": max(left.lifts[at], right.lifts[at]),
            "rank": math.log(max(ranks)),
            "tags": 0.4 if at < 5 else common.tags[at],
            "title_swap": common.title_swap[at] * common.title_cosine[at],
        }
        assert dict(zip(FEATURES, row, strict=True)) == pytest.approx(expected)


# Binary fractions, so that sums of them are exact.
STEPS = st.integers(0, 64).map(lambda step: step / 64)


def slow_threshold(precision: float, probabilities: list[float], counts: list[int]) -> float:
    pairs = list(zip(probabilities, counts, strict=True))
    reached = []
    for threshold in {p for p, count in pairs if count}:
        above = [(p * count, count) for p, count in pairs if p >= threshold]
        if sum(right for right, _ in above) / sum(count for _, count in above) >= precision:
            reached.append(threshold)
    return min(reached, default=1.0)


@given(STEPS, st.lists(st.tuples(STEPS, st.integers(0, 8))))
def test_the_threshold_is_the_lowest_that_is_precise_enough(precision: float, pairs: list[tuple[float, int]]) -> None:
    p, counts = ([pair[side] for pair in pairs] for side in (0, 1))
    found = threshold_for(precision, np.array(p, float), np.array(counts, float))
    assert found == slow_threshold(precision, p, counts)


def test_pairs_of_one_probability_are_all_above_a_threshold_or_none_is() -> None:
    p = [0.75, 0.5, 0.5]
    assert threshold_for(0.625, np.array(p), np.ones(3)) == slow_threshold(0.625, p, [1, 1, 1]) == 0.75


def test_no_threshold_is_precise_enough_where_no_pair_is() -> None:
    assert threshold_for(0.9, np.array([0.8, 0.5]), np.ones(2)) == 1.0
    assert threshold_for(0.9, np.zeros(0), np.zeros(0)) == 1.0


def test_the_prior_that_ships_is_of_these_features() -> None:
    prior = read_prior()
    assert prior.centres.shape == prior.scales.shape == (COUNT,)
    assert prior.coefficients.shape == prior.spreads.shape == (COUNT + 1,)
    assert all(np.isfinite(column).all() for column in prior[:4])
    assert (prior.scales > 0).all()
    assert (prior.spreads > 0).all()
    assert min(prior.linked) > 0
    assert prior.sites


def test_by_the_prior_that_ships_a_pair_with_all_evidence_is_likelier_than_one_with_none() -> None:
    prior = read_prior()
    one, none = np.array([1], np.int32), np.array([UNLISTED], np.int32)
    nothing, all_of_it = np.zeros(1), np.ones(1)
    alike = Shared(*[all_of_it] * 7, np.array([100.0]), all_of_it, nothing, nothing)
    apart = Shared(*[nothing] * 6, all_of_it, np.array([100.0]), nothing, nothing, nothing)
    best, worst = Listing(one, all_of_it / 2, all_of_it / 2), Listing(none, nothing, nothing)
    features = [
        features_of(np.array([6.0]), best, best, alike, K),
        features_of(np.array([-6.0]), worst, worst, apart, K),
    ]
    model = Model(*prior[:3], linked_share=0.5)
    likely, unlikely = (model.probabilities(row)[0] for row in features)
    assert likely > 0.5 > 0.05 > unlikely


def test_a_prior_of_other_features_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = {"features": list(itertools.islice(FEATURES, 3))}
    (tmp_path / "prior.json").write_text(json.dumps(other))
    monkeypatch.setenv("DUPQ_PRIOR", str(tmp_path / "prior.json"))
    with pytest.raises(DupqError, match=r"prior\.json: made for other features"):
        read_prior.__wrapped__()
