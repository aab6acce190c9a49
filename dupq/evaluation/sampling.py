"""Samples pairs for people to judge, and estimates a run's precision and recall from their verdicts.

The population is all candidate pairs of a run, some of which were joined. They are stratified by the decision and the
model's probability; more pairs are drawn where a verdict tells more, and each verdict counts for the pairs that it was
drawn from. This follows OASIS (Marchant and Rubinstein 2017) without its rounds: a run writes all pairs to judge at
once. It takes two passes over the pairs, in any number of files: one counts (`histogram`, `plan`), one draws (`strata`,
`draw`, `merge`).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from scipy.special import expit, logit

from dupq.evaluation.verdicts import COLUMNS, DIFFERENT, SAME, UNJUDGED, UNSURE, VERDICTS, Verdict, last_verdicts
from dupq.tables import PAIRS, REVIEW
from dupq.text.keys import Sites, pair_indices, pairs_in

BINS = 100  # of the probability, equally wide
_MILLION = 1_000_000  # probabilities are summed in millionths, so that sums do not depend on the order of files
_STRATA = 6  # at most, of the joined pairs and of the others
_LEAST = 2  # pairs drawn per stratum, if it has them
_SMALLEST_SAMPLE = 4
_TINY = np.finfo(float).tiny
_PRECISION_SHARE, _RECALL_SHARE = 0.6, 0.3  # of the sample; the rest goes to all strata alike
_SUREST = 0.1  # least error rate that is assumed for joined pairs, as the model may be wrong

_DRAWS = 4_000  # from the posterior
_DRAW_SEED = 2017
_QUANTILES = (0.025, 0.975)
_PRIOR_WEIGHT = 4.0  # verdicts per stratum that the curve counts for
_SCATTER = 1.0  # of the strata about the curve, standard deviation in logits
_CURVE_MEAN, _CURVE_DEVIATION = np.array([0.0, 1.0]), np.array([2.0, 0.5])  # prior of intercept and slope
_LAST_STEP = 1e-8  # size of a step of the fit that ends it
_NEAREST = 1e-4  # least distance of a probability from 0 and 1 for the curve


def histogram(probabilities: np.ndarray, joined: np.ndarray) -> np.ndarray:
    """Count pairs with `probabilities` (float, (n,), 0 to 1), of which `joined` (bool, (n,)) were joined.

    Return int64 of shape (2, 2, BINS): first the numbers of pairs, then the sums of their probabilities in millionths,
    each by decision (row 0: not joined, row 1: joined) and probability. Histograms of files add up.
    """
    cells = _cells(probabilities, joined)
    millionths = np.rint(np.asarray(probabilities, np.float64) * _MILLION)
    counted = [np.bincount(cells, weights, 2 * BINS) for weights in (None, millionths)]  # exact below 2^53
    return np.stack(counted).astype(np.int64).reshape(2, 2, BINS)


def _cells(probabilities: np.ndarray, joined: np.ndarray) -> np.ndarray:
    """Return the cells of pairs in a flat histogram."""
    bins = (np.asarray(probabilities, np.float64) * BINS).astype(np.int64)
    return np.minimum(bins, BINS - 1) + BINS * np.asarray(joined, np.int64)


@dataclass(frozen=True)
class Plan:
    """Strata of candidate pairs, and how many pairs to draw from each."""

    cells: np.ndarray  # int64, shape (2, BINS): the stratum of each cell of the histogram, -1 for an empty one
    joined: np.ndarray  # bool, (strata,)
    sizes: np.ndarray  # int64, (strata,): pairs in the stratum, at least one
    probabilities: np.ndarray  # float64, (strata,): the model's mean
    drawn: np.ndarray  # int64, (strata,)


def plan(population: np.ndarray, sample: int) -> Plan:
    """Distribute `sample` pairs, at least _SMALLEST_SAMPLE if there are so many, over the strata of a `population`.

    The population is given as its `histogram`.

    The strata of each decision follow the rule of Dalenius and Hodges (1959): equal steps of the cumulated square root
    of the counts. For a stratum of N pairs with mean probability p, the best number for precision is proportional to
    N sqrt(p (1 - p)) among the joined (Neyman 1934). For recall R it is that times 1 - R among the joined and times R
    among the others, which are the derivatives of R by the duplicates on either side. A share of the sample goes to
    each of the two aims, and the rest to all strata alike, so that pairs that the model is sure of are judged too
    (Hesterberg 1995 on such defensive mixtures).
    """
    sample = max(sample, _SMALLEST_SAMPLE)
    most = min(_STRATA, max(1, sample // (4 * _LEAST)))
    counts, cells = population[0], np.full((2, BINS), -1, np.int64)
    for decision in (0, 1):
        steps = np.cumsum(np.sqrt(counts[decision]))
        occupied = counts[decision] > 0
        if occupied.any():
            strata_of_bins = np.ceil(steps[occupied] / steps[-1] * most - 1e-9)
            cells[decision, occupied] = np.unique(strata_of_bins, return_inverse=True)[1] + cells.max() + 1
    strata = range(cells.max() + 1)
    sizes, millionths = (np.array([column[cells == each].sum() for each in strata], np.int64) for column in population)
    joined = np.isin(strata, cells[1])
    means = millionths / (_MILLION * sizes)
    return Plan(cells, joined, sizes, means, _allocate(sizes, means, joined, sample))


def _allocate(sizes: np.ndarray, means: np.ndarray, joined: np.ndarray, sample: int) -> np.ndarray:
    """Return how many pairs to draw per stratum, as `plan` says: at least _LEAST, at most all."""
    total = min(sample, int(sizes.sum()))
    spread = np.sqrt(means * (1 - means))
    for_precision = sizes * np.maximum(spread, np.sqrt(_SUREST * (1 - _SUREST))) * joined
    duplicates = sizes * means
    recall = duplicates[joined].sum() / max(duplicates.sum(), _TINY)
    for_recall = sizes * spread * np.where(joined, 1 - recall, recall)
    aims = for_precision, for_recall, np.ones(len(sizes))
    shares = _PRECISION_SHARE, _RECALL_SHARE, 1 - _PRECISION_SHARE - _RECALL_SHARE
    weights = sum(share * aim / max(aim.sum(), _TINY) for share, aim in zip(shares, aims, strict=True))
    least = np.minimum(sizes, _LEAST)

    def allocation(factor: float) -> np.ndarray:
        return np.clip(factor * weights, least, sizes)

    low, high = 0.0, 1.0
    while allocation(high).sum() < total:
        high *= 2
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if allocation(middle).sum() < total else (low, middle)
    exact = allocation(high)
    drawn = np.floor(exact).astype(np.int64)
    missing = total - int(drawn.sum())
    by_remainder = np.argsort(-np.where(drawn < sizes, exact - drawn, -1.0), kind="stable")
    drawn[by_remainder[:missing]] += 1
    return drawn


def strata(probabilities: np.ndarray, joined: np.ndarray, planned: Plan) -> np.ndarray:
    """Return the strata (int64, (n,)) of pairs with `probabilities` (float, (n,)) and decisions `joined` (bool)."""
    return np.take(planned.cells, _cells(probabilities, joined))


def draw(pairs: np.ndarray, strata_of_rows: np.ndarray, planned: Plan, seed: int) -> pa.Table:
    """Return the pairs (int64 keys, shape (n, 2)) of one file that may be in the sample: rows of REVIEW.

    They are those with the smallest hashes in each stratum. A pair's hash depends on its keys and `seed` alone. So the
    order of rows and their distribution over files do not change what `merge` keeps, and every pair of a stratum has
    the same chance.
    """
    of_strata = (planned.joined, planned.sizes, planned.drawn, planned.probabilities)
    columns = [*pairs.T, strata_of_rows, *(column[strata_of_rows] for column in of_strata), pair_hashes(pairs, seed)]
    return merge(pa.table(columns, schema=REVIEW))


def merge(rows: pa.Table) -> pa.Table:
    """Return the rows (REVIEW) with the smallest hashes of each stratum, as many as are drawn, sorted by both."""
    rows = rows.sort_by([(name, "ascending") for name in ("stratum", "hash", "left", "right")])
    return rows.filter(pa.array(_ranks(rows) < rows["drawn"].to_numpy()))


def _ranks(rows: pa.Table) -> np.ndarray:
    """Return the position (int64, (n,)) of each of the sorted rows in its stratum."""
    strata = rows["stratum"].to_numpy()
    return np.arange(len(strata)) - np.searchsorted(strata, strata)


def asking_order(rows: pa.Table) -> np.ndarray:
    """Return the rows (int64, (n,)) of a sample (REVIEW) in the order for people: a pair of each stratum in turn.

    So the first verdicts cover every stratum. Within a turn, and within a stratum, pairs are in the order of their
    hashes, so that their position does not reveal what the run decided.
    """
    # mixed again: the hashes drawn from a large stratum are smaller than those from a small one
    return np.lexsort((_mixed(rows["hash"].to_numpy()), _ranks(rows)))


def pair_hashes(pairs: np.ndarray, seed: int) -> np.ndarray:
    """Return a hash (uint64, (n,)) of `seed` and each pair of keys (int64, (n, 2)) by three mixes of SplitMix64."""
    state = _mixed(np.array([seed % 2**64], np.uint64))
    for keys in pairs.T:
        state = _mixed(state ^ keys.astype(np.uint64))
    return state


def _mixed(values: np.ndarray) -> np.ndarray:
    """Mix values by one step of SplitMix64 (Steele, Lea and Flood 2014), which is a bijection."""
    values = values + np.uint64(0x9E3779B97F4A7C15)
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


class Interval(NamedTuple):
    """An estimate and its 95 % interval."""

    value: float
    lower: float
    upper: float


@dataclass(frozen=True)
class Estimate:
    """Measures of all candidate pairs, estimated from verdicts; None without the verdicts that a measure needs."""

    precision: Interval | None  # duplicates among the joined pairs / joined pairs
    recall: Interval | None  # duplicates among the joined pairs / duplicates among all candidate pairs
    duplicates: Interval | None  # number of pairs, among all candidate pairs
    judged: int  # drawn pairs that are same or different
    unsure: int
    unjudged: int


def estimate(rows: pa.Table, verdicts: np.ndarray) -> Estimate:
    """Estimate precision, recall and the number of duplicates from `verdicts` (int8, (n,): SAME … UNJUDGED) on `rows`
    of REVIEW.

    The values are stratified estimates: a verdict counts for the pairs of its stratum over the verdicts in it (Cochran
    1977, section 5.3). Pairs that are unsure or not judged are left out, as if never drawn.

    The intervals are quantiles of a simulated posterior of the duplicates in each stratum. Its prior is centred at a
    curve: a few verdicts that agree must not make a stratum certain, and a prior centred at a half would pull every
    stratum the same way. The curve, one per decision, is logit(rate) = a + b logit(p) over the mean probabilities p of
    the strata. It is fitted to the verdicts with the normal approximation of its own uncertainty, and the strata
    scatter about it. With k of m verdicts same, the rate has the mean (k + w c) / (m + w), where c is the curve's, and
    the variance of an estimate from m verdicts. Pairs without a verdict are then drawn at that rate, so that a stratum
    judged to its last pair is certain. An interval always contains its value.
    """
    same, sure = verdicts == SAME, (verdicts == SAME) | (verdicts == DIFFERENT)
    _, first, numbers = np.unique(rows["stratum"].to_numpy(), return_index=True, return_inverse=True)
    sizes, joined, means = (rows[name].to_numpy()[first] for name in ("pairs", "joined", "probability"))
    hits, judged = (np.bincount(numbers, mask, len(first)).astype(np.int64) for mask in (same, sure))
    random = np.random.default_rng(_DRAW_SEED)
    values, draws = np.zeros(len(first)), np.zeros((_DRAWS, len(first)))
    for side in (joined, ~joined):
        values[side], draws[:, side] = _side(sizes[side], means[side], hits[side], judged[side], random)
    precision = recall = duplicates = None
    if judged[joined].any():
        pairs = int(sizes[joined].sum())
        precision = _interval(float(values[joined].sum()) / pairs, draws[:, joined].sum(axis=1) / pairs)
    if all(judged[side].any() or not side.any() for side in (joined, ~joined)) and len(first):
        duplicates = _interval(float(values.sum()), draws.sum(axis=1))
        if values.sum() > 0:
            shares = draws[:, joined].sum(axis=1) / np.maximum(draws.sum(axis=1), 1.0)
            recall = _interval(float(values[joined].sum() / values.sum()), shares)
    unsure = int((verdicts == UNSURE).sum())
    total = int(judged.sum())
    return Estimate(precision, recall, duplicates, total, unsure, len(verdicts) - total - unsure)


def _interval(value: float, draws: np.ndarray) -> Interval:
    lower, upper = np.quantile(draws, _QUANTILES).tolist()
    return Interval(value, min(lower, value), max(upper, value))


def _side(
    sizes: np.ndarray, means: np.ndarray, hits: np.ndarray, judged: np.ndarray, random: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Return the duplicates per stratum of one decision: estimates ((s,)) and draws of the posterior ((_DRAWS, s))."""
    inputs = logit(np.clip(means, _NEAREST, 1 - _NEAREST))
    features = np.column_stack([np.ones(len(inputs)), inputs])
    curve, covariance = _fitted_curve(features, hits, judged)
    values = sizes * np.where(judged > 0, hits / np.maximum(judged, 1), expit(features @ curve))
    curves = curve + random.standard_normal((_DRAWS, 2)) @ np.linalg.cholesky(covariance).T
    scatter = _SCATTER * random.standard_normal((_DRAWS, len(inputs)))
    centres = expit(curves @ features.T + scatter)
    rates = (hits + _PRIOR_WEIGHT * centres) / (judged + _PRIOR_WEIGHT)
    strength = np.maximum(judged - 1, 1)  # a Beta(r s, (1 - r) s) has the variance r (1 - r) / (s + 1)
    drawn_rates = random.beta(np.maximum(rates * strength, _TINY), np.maximum((1 - rates) * strength, _TINY))
    return values, hits + random.binomial(sizes - judged, drawn_rates)


def _fitted_curve(features: np.ndarray, hits: np.ndarray, judged: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the most probable intercept and slope under their prior, and their covariance there (Laplace)."""
    precision = _CURVE_DEVIATION**-2.0

    def loss(curve: np.ndarray) -> float:
        logits = features @ curve
        likelihood = judged * np.logaddexp(0.0, logits) - hits * logits
        return float(likelihood.sum() + 0.5 * (precision * (curve - _CURVE_MEAN) ** 2).sum())

    curve = _CURVE_MEAN
    while True:  # Newton's steps, halved until they lead downhill
        rates = expit(features @ curve)
        gradient = features.T @ (hits - judged * rates) - precision * (curve - _CURVE_MEAN)
        curvature = (features.T * (judged * rates * (1 - rates))) @ features + np.diag(precision)
        step = np.linalg.solve(curvature, gradient)
        while np.abs(step).max() > _LAST_STEP and loss(curve + step) > loss(curve):
            step = step / 2
        curve = curve + step
        if np.abs(step).max() <= _LAST_STEP:
            return curve, np.linalg.inv(curvature)


@dataclass(frozen=True)
class Judged:
    """Verdicts on pairs of a run's keys."""

    pairs: np.ndarray  # int64, shape (m, 2), left < right
    verdicts: np.ndarray  # int8, codes of dupq.evaluation.verdicts.VERDICTS

    def of(self, verdict: int) -> np.ndarray:
        """Return the pairs (int64, shape (m, 2)) with a verdict: SAME, DIFFERENT or UNSURE."""
        return self.pairs[self.verdicts == verdict]


def verdicts_of(rows: pa.Table, judged: Judged) -> tuple[np.ndarray, int]:
    """Return the verdict (int8, (n,)) on each row of REVIEW, UNJUDGED if there is none; and how many are on others."""
    indices = pair_indices(judged.pairs, pairs_in(rows))
    of_rows = np.append(judged.verdicts, np.int8(UNJUDGED))[indices]
    return of_rows, len(judged.pairs) - int((indices >= 0).sum())


def read_verdicts(uri: str | None, sites: Sites) -> Judged:
    """Read the verdicts of a file; none without one. Raises DupqError for a file that is not readable."""
    return judged(last_verdicts([] if uri is None else [uri])[0], sites, str(uri))


def judged(verdicts: Sequence[Verdict], sites: Sites, source: str) -> Judged:
    """Return the last verdict on each pair of these sites, by keys. Errors name `source`."""
    last = {row[:4]: row._asdict() for row in verdicts if {row.site_left, row.site_right} <= {*sites.names}}
    last = {pair: row for pair, row in last.items() if row["verdict"] in VERDICTS}  # not undone
    pairs = sites.pack_pairs(pa.Table.from_pylist([*last.values()], _ENDS), source)
    return Judged(np.sort(pairs, axis=1), np.array([VERDICTS[row["verdict"]] for row in last.values()], np.int8))


_ENDS = pa.schema([PAIRS.field(name) for name in COLUMNS[:4]])
