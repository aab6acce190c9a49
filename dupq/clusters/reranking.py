"""The probability of a pair once a sentence model, the reranker, has read both questions.

The reranker's cosine leads. The log-odds by all other evidence (calibration.py) and five flags, most of them against
yearly and numbered templates, correct it. Like the first model this one is logistic, was learned on other sites, and is
moved by the archive's own links and verdicts. A model without a prior of its own has its cosines scaled to the
default model's, and a prior twice as wide.

An archive's own share of duplicates. The prior's sites hold few duplicates, and without labels nothing would tell that
another archive is full of them. The density of cosines does. In an archive with hardly any duplicates, pairs get rarer
at the same rate from related (0.5 to 0.65) to alike (0.75 and more): eight sites of 225 to 6,118 questions have 0.003
to 0.014 alike pairs per related one, without titles of one template. So the alike pairs of an archive are a
mixture: `tail` per related pair, and duplicates, whose share is the rest (an EM step with a known background; Fellegi
and Sunter 1969). Both counts grow with the square of an archive, so the share does not depend on its size. Up to the
prior's share nothing moves. Above it the log-odds rise, with a steeper slope: where most alike pairs are duplicates,
the cosine separates them better.
"""

from typing import NamedTuple

import numpy as np
import pyarrow as pa
from scipy.special import logit

from dupq.clusters.calibration import FEATURES, KINDS, REREAD, Labelled, Model, Prior, RereadPrior, designed, fit
from dupq.neighbours.embeddings import Embeddings
from dupq.text.keys import indices_among

CENTRES = np.array([0.6, -3.0, *[0.0] * (len(REREAD) - 2)])
SCALES = np.array([0.1, 2.0, *[1.0] * (len(REREAD) - 2)])
PAIRS, QUESTIONS_PER_PAIR = 1_000, 6  # a site's likeliest pairs that are read; or one per this number of questions
WHOLE = 2_000  # questions of a site that is read whole, at most
NEAREST = 5  # by the reranker's vectors, of each question of such a site
SAMPLE = 800  # questions whose density is measured, of an archive that is not read whole; else WHOLE
ALIKE, RELATED = 0.75, (0.5, 0.65)  # cosines
_FLAGS = [FEATURES.index(name) for name in REREAD[2:]]
_APART = [FEATURES.index(name) for name in REREAD[2:8]]  # dates, numbers, negations …: of one template
_FEWEST_QUESTIONS = 50  # somebody chose so few, and their density says nothing
_PRIOR_PAIRS = 20.0  # related pairs that count as seen before, with the prior's alike ones: few pairs move little
_MOST, _STEEPER = 4.0, 3.5  # log-odds; share of these per unit of cosine
_LEAST_SPREAD, _LEAST_ODDS = 1e-3, 1e-9
_EXCESS_SCALE = 10.0  # log-odds: so large that the excess is not clipped and hardly moves but with the slope of all
_TRUST = 16.0  # times the spread of the other evidence, where an archive's labels say that it tells more
_PAIRS_AT_ONCE = 16_384


class Reread(NamedTuple):
    """The model of a probability by a cosine and all other evidence, as JSON."""

    coefficients: list[float]  # of REREAD, scaled, and an intercept
    linked_share: float  # share of the duplicates that is linked
    error: float  # spread of ln (right / expected) in the first fifty pairs of sites left out
    factor: float = 1.0  # of cosines, to compare them with the default model's
    offset: float = 0.0
    excess: float = 0.0  # log-odds that are added at the cosine ALIKE, as the archive holds more duplicates

    def log_odds(self, first: Model, pairs: pa.Table, features: np.ndarray, cosines: np.ndarray) -> np.ndarray:
        """Return the log-odds (float64) of rows of COMPARED, given their features; `first` is the model of these."""
        design = reread_design(first, features, cosines * self.factor + self.offset)
        excess = self.excess_at(features, cosines)
        return np.asarray(design @ self.coefficients + excess + first.moves(pairs, features))

    def excess_at(self, features: np.ndarray, cosines: np.ndarray) -> np.ndarray:
        """Return the log-odds (float64) that are added as the archive holds more duplicates."""
        steeper = 1.0 + _STEEPER * (cosines * self.factor + self.offset - ALIKE)
        return np.where(are_apart(features), 0.0, self.excess * steeper)

    def added(self, first: Model, pairs: pa.Table, features: np.ndarray) -> np.ndarray:
        """Return what each of KINDS adds to the log-odds (float64, (n, kinds)); the rest is the cosine's."""
        added = first.added(pairs, features) * self.coefficients[1] / SCALES[1]
        for name, coefficient in zip(REREAD[2:], self.coefficients[2:-1], strict=True):
            kind = next(index for index, names in enumerate(KINDS.values()) if name in names)
            added[:, kind] += coefficient * features[:, FEATURES.index(name)]
        return np.asarray(added)


def reread_design(first: Model, features: np.ndarray, cosines: np.ndarray) -> np.ndarray:
    """Return the scaled values of REREAD, and ones, for pairs with these features and cosines (float64, (n, R + 1))."""
    values = np.column_stack([cosines, first.log_odds(features), features[:, _FLAGS]])
    return designed(values, CENTRES, SCALES)


def are_apart(features: np.ndarray) -> np.ndarray:
    """Tell which pairs fill in one template: the density of cosines says nothing of them."""
    return np.asarray((features[:, _APART] > 0).any(axis=1))


def cosines_of(read: Embeddings, pairs: np.ndarray) -> np.ndarray:
    """Return the cosine (float32) of each pair of keys (int64, (m, 2)); NaN if a side has not been read.

    `read` has vectors of length 1, and ascending keys.
    """
    cosines = np.full(len(pairs), np.nan, np.float32)
    rows, are_read = indices_among(read.keys, pairs)
    both = np.flatnonzero(are_read.all(axis=1))
    for start in range(0, len(both), _PAIRS_AT_ONCE):
        batch = both[start : start + _PAIRS_AT_ONCE]
        left, right = (read.vectors[rows[batch, side]].astype(np.float32) for side in (0, 1))
        cosines[batch] = (left * right).sum(axis=1)
    return cosines


class Density(NamedTuple):
    """How many pairs of a sample of questions are alike, and how many are related."""

    questions: int
    alike: float
    related: float


def density_of(vectors: np.ndarray) -> Density:
    """Return the density of n questions with these vectors (float16 or float32, (n, d), of length 1)."""
    wide, alike, related = vectors.astype(np.float32), 0, 0
    for row in range(len(wide)):
        cosines = wide[row + 1 :] @ wide[row]
        alike += int((cosines >= ALIKE).sum())
        related += int(((cosines >= RELATED[0]) & (cosines < RELATED[1])).sum())
    return Density(len(wide), alike, related)


def excess_of(density: Density, prior: RereadPrior) -> float:
    """Return the log-odds that an archive of this density has more than the prior's sites at the cosine ALIKE."""
    if density.questions < _FEWEST_QUESTIONS:
        return 0.0
    alike, related = density.alike + _PRIOR_PAIRS * prior["tail"], density.related + _PRIOR_PAIRS
    odds = max(alike / (related * prior["tail"]) - 1.0, _LEAST_ODDS)  # of duplicates among alike pairs
    return float(np.clip(np.log(odds) - logit(prior["share"]), 0.0, _MOST))


def reread_of(prior: Prior, features: np.ndarray, cosines: np.ndarray, density: Density, is_default: bool) -> Reread:
    """Return the prior's model for an archive: pairs with these features (of FEATURES) and cosines have been read.

    `is_default` says that the cosines are the prior's own model's. Else they are scaled to its mean and spread,
    and the density is not used: what is alike to another model is not known.
    """
    reread, (factor, offset, excess) = prior.reread, (1.0, 0.0, 0.0)
    if is_default:
        alike = features[cosines >= ALIKE]
        templates = float(are_apart(alike).mean()) if len(alike) else 0.0
        excess = excess_of(density._replace(alike=density.alike * (1.0 - templates)), reread)
    elif len(cosines):
        factor = reread["spread"] / max(float(cosines.std()), _LEAST_SPREAD)
        offset = reread["mean"] - factor * float(cosines.mean())
    return Reread(reread["coefficients"], prior.model.linked_share, reread["error"], factor, offset, excess)


def fit_reread(
    labelled: Labelled, cosines: np.ndarray, first: Model, prior: Prior, density: Density, is_default: bool
) -> Reread:
    """Fit the model to pairs whose features (of FEATURES), labels and cosines (NaN: not read) are known.

    `first` is the archive's model of the features. A reranker without a prior of its own has one twice as wide. What
    the excess adds is a feature too, so that labels that agree with it move nothing.
    """
    is_read = np.isfinite(cosines)
    kept, cosines = Labelled(*(column[is_read] for column in labelled)), cosines[is_read].astype(np.float64)
    start = reread_of(prior, kept.features, cosines, density, is_default)
    design = reread_design(first, kept.features, cosines * start.factor + start.offset)
    values = np.column_stack([design[:, :-1], start.excess_at(kept.features, cosines) / _EXCESS_SCALE])
    none, one, width = np.zeros(len(REREAD) + 1), np.ones(len(REREAD) + 1), 1.0 if is_default else 2.0
    model, own = Model(none, one, np.insert(start.coefficients, -1, _EXCESS_SCALE), start.linked_share), prior.reread
    each = np.full(len(one), width * own["coefficient_spread"])
    spreads = width * own["intercept_spread"], width * own["slope_spread"], each
    wide = Prior(model, *spreads, prior.linked, prior.error, own)
    trusting = np.where(np.arange(len(one)) == REREAD.index("log_odds"), _TRUST * each, each)
    fitted = fit(kept._replace(features=values), wide, wide._replace(coefficient_spread=trusting))
    *coefficients, excess, intercept = fitted.coefficients.tolist()
    return start._replace(
        coefficients=[*coefficients, intercept],
        linked_share=fitted.linked_share,
        excess=start.excess * excess / _EXCESS_SCALE,
    )
