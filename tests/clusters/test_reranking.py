"""How a reranker's cosine makes a probability, and how the density of cosines tells an archive full of duplicates."""

import math

import numpy as np
import pyarrow as pa
import pytest
from scipy.special import expit, logit

from dupq.clusters import reranking
from dupq.clusters.calibration import FEATURES, KINDS, OF_TITLES, REREAD, Labelled, Model, read_prior
from dupq.clusters.reranking import (
    ALIKE,
    CENTRES,
    RELATED,
    SCALES,
    Density,
    Reread,
    cosines_of,
    density_of,
    excess_of,
    fit_reread,
    reread_of,
)
from dupq.neighbours.embeddings import Embeddings

PRIOR = read_prior()
NONE = Density(1_000, 0.0, 0.0)
PLAIN = Reread(PRIOR.reread["coefficients"], 0.5, PRIOR.reread["error"])
FLAGS = [FEATURES.index(name) for name in REREAD[2:]]
COEFFICIENTS = [1.5, 0.6, *np.linspace(-3.0, 0.7, len(FLAGS)).tolist()]
TELL_APART = ("other_date", "series", "other_asking", "other_negation", "other_order", "other_words")


def features_for(rows: int, seed: int, flagged: float = 0.3) -> np.ndarray:
    """Features near the prior's means, with the flags that a reranker's model reads in some rows."""
    random = np.random.default_rng(seed)
    found = PRIOR.model.centres + PRIOR.model.scales * random.normal(size=(rows, len(FEATURES)))
    found[:, FLAGS] = random.random((rows, len(FLAGS))) < flagged
    return found


def rows_of(same_asking: np.ndarray) -> pa.Table:
    """The column of COMPARED that the models read beside features."""
    return pa.table([pa.array(same_asking, pa.float32())], names=["same_asking"])


def labelled(features: np.ndarray, labels: np.ndarray) -> Labelled:
    """Pairs that people judged."""
    count = len(labels)
    return Labelled(features, labels, np.ones(count), np.ones(count, bool), np.zeros(count))


@pytest.mark.parametrize("first", [PRIOR.model, read_prior(OF_TITLES).model], ids=["texts", "titles"])
def test_the_log_odds_are_those_of_a_sum_pair_by_pair(first: Model) -> None:
    reread = Reread([*COEFFICIENTS, -2.2], 0.5, 0.3, factor=0.8, offset=0.1, excess=1.7)
    features, random = features_for(60, 1), np.random.default_rng(2)
    cosines, same_asking = random.uniform(-0.5, 1.0, 60), (random.random(60) < 0.5).astype(float)
    pairs = rows_of(same_asking)
    actual, plain = reread.log_odds(first, pairs, features, cosines), 0
    for row, cosine in enumerate(cosines.tolist()):
        as_default = 0.8 * cosine + 0.1
        before = float(first.log_odds(features[row : row + 1])[0])
        values = [(as_default - 0.6) / 0.1, (before + 3.0) / 2.0, *features[row, FLAGS].tolist()]
        terms = [max(-3.0, min(3.0, value)) for value in values]
        total = sum(value * one for value, one in zip(terms, reread.coefficients[:-1], strict=True)) - 2.2
        if not any(features[row, FEATURES.index(name)] for name in TELL_APART):
            total += 1.7 * (1 + 3.5 * (as_default - 0.75))
            plain += 1
        if same_asking[row] and 1 / (1 + math.exp(-before)) >= 0.02:
            total += first.same_asking
        assert actual[row] == pytest.approx(total)
    assert 5 < plain < 55


def test_what_each_kind_adds_is_what_its_features_change() -> None:
    """Of two pairs with one cosine that differ in a feature, the log-odds differ by what the kind of it adds."""
    reread = Reread([*COEFFICIENTS, -2.2], 0.5, 0.3)
    base = np.repeat(features_for(1, 6, 0.0), len(FEATURES), axis=0)
    other = base + 0.2 * np.diag(PRIOR.model.scales)
    before = np.concatenate([PRIOR.model.log_odds(rows) for rows in (base, other)])
    assert (np.abs((before - CENTRES[1]) / SCALES[1]) < 3).all()
    pairs, cosines = rows_of(np.zeros(len(FEATURES))), np.full(len(FEATURES), 0.7)
    changed = reread.log_odds(PRIOR.model, pairs, other, cosines) - reread.log_odds(PRIOR.model, pairs, base, cosines)
    added = reread.added(PRIOR.model, pairs, other) - reread.added(PRIOR.model, pairs, base)
    kinds = [next(kind for kind, names in enumerate(KINDS.values()) if name in names) for name in FEATURES]
    expected = np.zeros_like(added)
    expected[np.arange(len(FEATURES)), kinds] = changed
    assert added == pytest.approx(expected, abs=1e-9)


def test_cosines_are_those_of_numpy_and_there_are_none_without_vectors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reranking, "_PAIRS_AT_ONCE", 1_000)
    random = np.random.default_rng(5)
    keys, vectors = np.arange(0, 90, 3), random.normal(size=(30, 8)).astype(np.float16)
    pairs = random.choice(np.arange(90), (40_000, 2))
    actual = cosines_of(Embeddings(keys[:20], vectors[:20]), pairs)
    has_both = ((pairs % 3 == 0) & (pairs < 60)).all(axis=1)
    assert actual.dtype == np.float32
    assert (np.isnan(actual) == ~has_both).all()
    exact = np.einsum("ij,ij->i", *(vectors[pairs[has_both, side] // 3].astype(np.float64) for side in (0, 1)))
    assert actual[has_both] == pytest.approx(exact, abs=1e-5)
    assert np.isnan(cosines_of(Embeddings(keys[:0], vectors[:0]), pairs)).all()
    assert cosines_of(Embeddings(keys, vectors), pairs[:0]).shape == (0,)


def made_vectors(questions: int, copies: int, seed: int) -> np.ndarray:
    """Unit vectors round forty themes, so that pairs are related, and so many noisy copies of the first ones."""
    random = np.random.default_rng(seed)
    themes = random.normal(size=(40, 24))
    vectors = themes[random.integers(0, 40, questions)] + 0.8 * random.normal(size=(questions, 24))
    vectors[questions - copies :] = vectors[:copies] + 0.15 * random.normal(size=(copies, 24))
    return np.asarray(vectors / np.linalg.norm(vectors, axis=1, keepdims=True))


@pytest.mark.parametrize("kind", [np.float32, np.float16])
@pytest.mark.parametrize("questions", [0, 1, 2, 300])
def test_the_density_counts_each_pair_once(questions: int, kind: type) -> None:
    vectors = made_vectors(questions, questions // 10, 7).astype(kind)
    cosines = [
        float(np.dot(vectors[one].astype(np.float64), vectors[other].astype(np.float64)))
        for one in range(questions)
        for other in range(one)
    ]
    edges = np.array([ALIKE, *RELATED])
    assert all(np.abs(edges - cosine).min() > 1e-7 for cosine in cosines)
    alike = sum(cosine >= ALIKE for cosine in cosines)
    related = sum(RELATED[0] <= cosine < RELATED[1] for cosine in cosines)
    assert density_of(vectors) == (questions, alike, related)
    assert questions < 300 or min(alike, related) > 30


def test_an_archive_like_the_priors_has_no_excess_and_others_the_more_alike_pairs_the_more() -> None:
    tail, share = PRIOR.reread["tail"], PRIOR.reread["share"]
    assert excess_of(NONE, PRIOR.reread) == 0.0
    usual = 1_000 * tail / (1 - share)  # so many alike pairs have the prior's share of duplicates
    assert excess_of(Density(1_000, 0.9 * usual, 1_000), PRIOR.reread) == 0.0
    found = [excess_of(Density(1_000, usual * times, 1_000), PRIOR.reread) for times in (1.2, 2, 4, 8, 16)]
    assert found == sorted(found)
    assert found[0] > 0
    share_of_eight = 1 - (1 - share) / 8  # what is no duplicate stays as it is
    assert excess_of(Density(1_000, usual * 8e6, 1e9), PRIOR.reread) == pytest.approx(
        logit(share_of_eight) - logit(share), abs=1e-4
    )
    assert excess_of(Density(1_000, 1e9, 1_000), PRIOR.reread) == 4.0
    few = excess_of(Density(1_000, 3, 2), PRIOR.reread)
    assert few < excess_of(Density(1_000, 300, 200), PRIOR.reread)  # three pairs say little
    chosen = [excess_of(Density(questions, 300.0, 600.0), PRIOR.reread) for questions in (0, 49, 50, 1_000)]
    assert chosen[:2] == [0, 0] < chosen[2:] == [chosen[3]] * 2  # somebody chose a handful of questions


def test_alike_templates_are_no_sign_of_duplicates() -> None:
    features = features_for(40, 10, 0.0)
    cosines, density = np.where(np.arange(40) < 20, 0.9, 0.6), Density(1_000, 90.0, 1_000.0)
    without = reread_of(PRIOR, features, cosines, density, True)
    features[:10, FEATURES.index("other_date")] = 1.0
    features[5:15, FEATURES.index("series")] = 0.9
    features[20:, FEATURES.index("series")] = 0.9  # of pairs that are not alike
    quarter = reread_of(PRIOR, features, cosines, density, True)
    features[:20, FEATURES.index("series")] = 0.9
    none = reread_of(PRIOR, features, cosines, density, True)
    assert without.excess == excess_of(density, PRIOR.reread)
    assert quarter.excess == pytest.approx(excess_of(Density(1_000, 22.5, 1_000.0), PRIOR.reread))
    assert without.excess > quarter.excess > none.excess == 0.0
    assert without == PLAIN._replace(linked_share=PRIOR.model.linked_share, excess=without.excess)


def test_cosines_of_an_unknown_model_are_read_at_the_prior_s_mean_and_spread() -> None:
    cosines = np.random.default_rng(11).normal(0.85, 0.03, 500)
    found = reread_of(PRIOR, features_for(500, 12), cosines, Density(1_000, 1e6, 10.0), False)
    scaled = found.factor * cosines + found.offset
    assert (scaled.mean(), scaled.std()) == pytest.approx((PRIOR.reread["mean"], PRIOR.reread["spread"]))
    assert found.excess == 0.0
    for few in (np.zeros(0), np.full(3, 0.7)):  # nothing to scale by
        found = reread_of(PRIOR, features_for(len(few), 13), few, NONE, False)
        assert np.isfinite(found[2:]).all()
        assert found.factor * few + found.offset == pytest.approx([PRIOR.reread["mean"]] * len(few))


def test_where_nothing_was_read_the_prior_decides() -> None:
    features = features_for(4, 14)
    nothing = np.full(4, np.nan, np.float32)
    for is_default in (True, False):
        model = fit_reread(labelled(features, np.zeros(4, bool)), nothing, PRIOR.model, PRIOR, NONE, is_default)
        assert model == PLAIN._replace(linked_share=PRIOR.model.linked_share)


def test_verdicts_move_the_model_their_way_and_an_unknown_model_s_further() -> None:
    random = np.random.default_rng(15)
    features, cosines = features_for(60, 16), random.normal(PRIOR.reread["mean"], PRIOR.reread["spread"], 60)
    pairs, found = rows_of(np.zeros(60)), {}
    for is_default in (True, False):
        start = reread_of(PRIOR, features, cosines, NONE, is_default)
        usual = start.log_odds(PRIOR.model, pairs, features, cosines)
        for said in (False, True):
            given = labelled(features, np.full(60, said)), cosines.astype(np.float32), PRIOR.model, PRIOR, NONE
            moved = fit_reread(*given, is_default).log_odds(PRIOR.model, pairs, features, cosines) - usual
            assert (moved > 0).all() if said else (moved < 0).all()
            found[is_default, said] = np.abs(moved).mean()
    assert found[False, False] > found[True, False]
    assert found[False, True] > found[True, True]


def test_labels_that_agree_with_the_excess_do_not_move_the_model() -> None:
    """An archive is full of duplicates, as its density tells. Its verdicts tell the same, and not once more of it."""
    features, random = features_for(600, 21, 0.0), np.random.default_rng(22)
    cosines, pairs, density = random.normal(0.6, 0.13, 600), rows_of(np.zeros(600)), Density(1_000, 500.0, 1_000.0)
    start = reread_of(PRIOR, features, cosines, density, True)
    assert start.excess > 3
    expected = expit(start.log_odds(PRIOR.model, pairs, features, cosines))
    labels = random.random(600) < expected
    model = fit_reread(labelled(features, labels), cosines, PRIOR.model, PRIOR, density, True)
    actual = expit(model.log_odds(PRIOR.model, pairs, features, cosines))
    assert labels.sum() > 150
    assert actual.sum() == pytest.approx(labels.sum(), rel=0.05)
    assert np.abs(actual - expected).mean() < 0.03


def test_many_labels_by_the_other_evidence_make_it_count_more_and_a_few_do_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of labels that the cosine says nothing of; beside a model that may not trust that evidence more than the rest."""
    weights: dict[int, list[float]] = {6: [], 400: []}
    for trust in (reranking._TRUST, 1.0):
        monkeypatch.setattr(reranking, "_TRUST", trust)
        for count, found in weights.items():
            features, cosines = features_for(count, 24, 0.0), np.random.default_rng(25).normal(0.7, 0.12, count)
            p = expit(2 * PRIOR.model.log_odds(features) + 4)
            given = labelled(features, np.random.default_rng(3).random(count) < p), cosines
            found.append(fit_reread(*given, PRIOR.model, PRIOR, NONE, True).coefficients[1])
    assert weights[6][0] == weights[6][1]
    assert weights[400][0] > weights[400][1] + 0.5


def test_pairs_that_were_not_read_do_not_count() -> None:
    features, cosines = features_for(80, 17), np.random.default_rng(18).uniform(0.3, 0.9, 80).astype(np.float32)
    labels = np.arange(80) % 3 == 0
    cosines[50:] = np.nan
    some = fit_reread(labelled(features, labels), cosines, PRIOR.model, PRIOR, NONE, True)
    alone = fit_reread(labelled(features[:50], labels[:50]), cosines[:50], PRIOR.model, PRIOR, NONE, True)
    assert some == alone
    assert some.coefficients != PLAIN.coefficients
