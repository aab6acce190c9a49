"""From evidence to the probability that two questions are duplicates, for this archive and at its size.

A logistic model over scale-free evidence (`dupq/clusters/evidence.py`), learned from pairs of several sites that were
judged by reading
(prior.json). An archive's own links and verdicts move its intercept, a slope that all coefficients share, and each
coefficient: archives differ most in how common duplicates are and in how well evidence separates them from others. All
have Gaussian priors: few links move little. An archive unlike the prior's sites that has many links may go further
(`fit`).

Own pairs count only where the prior thinks a duplicate possible (NEAR): the many pairs far below decide nothing, and a
model that is a little wrong there would be bent by their number.

Known duplicates are incomplete: only a share of the duplicates is linked, so an unlinked pair may still be one. The
likelihood accounts for that (Elkan and Noto 2008, section 2; Jaskie et al. 2019): a pair is linked with probability
share x p. The share is fitted too, with a wide Beta prior.

Linked pairs are sampled more densely than others; as in case-control studies the log of the ratio of both rates is
added to the log-odds (King and Zeng 2001, section 4.1), so that they do not make pairs look likelier.
"""

import importlib.resources
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple

import numpy as np
import pyarrow as pa
from pydantic import Field, FiniteFloat
from scipy.special import expit, logit
from typing_extensions import TypedDict

from dupq.clusters.evidence import title_leads
from dupq.errors import DupqError
from dupq.storage import read_as

FEATURES = (
    "place",  # log-odds that the best score of a random question is lower than this score
    "lift",  # of the side that lists the other more clearly; 0 where neither does
    "rank",  # ln of the worse one, k + 1 where a side does not list the other
    "title_cosine",
    "title_least",
    "text_cosine",
    "text_least",
    "both_ways",
    "title_lead",
    "tags",
    "title_swap",  # x title_cosine: titles that differ in one telling word on each side
    "other_numbers",
    "series",  # other_numbers x title_cosine: "Election 2013", "Election 2014"
    "other_asking",  # where title_cosine is at least _SAME_WORDS: "string to float", "float to string"
    "other_formulas",
    "same_asker",
    "same_asker_alike",  # same_asker x text_cosine: who asks again, and who asks on
    "cites",
)
KINDS = {  # of evidence, in a reader's words, and the features of each; every feature is of one kind
    "the encoder's score": ("place",),
    "nearer than other neighbours": ("lift",),
    "rank among the nearest": ("rank",),
    "words in both titles": ("title_cosine", "title_least", "title_lead"),
    "words in both texts": ("text_cosine", "text_least", "both_ways"),
    "tags": ("tags",),
    "a telling word of one title only": ("title_swap",),
    "other numbers": ("other_numbers", "series"),
    "titles that ask something else": ("other_asking",),
    "other formulas": ("other_formulas",),
    "asked by the same person": ("same_asker", "same_asker_alike"),
    "one links to the other": ("cites",),
    "how rare duplicates are": (),  # the intercept
}
NEAR = 0.01  # probability by the prior from which an unjudged pair counts
_SAME_WORDS = 0.9
_NO_TAGS = 0.4  # Jaccard coefficient assumed where a site has no tags: the mean of near neighbours on other sites
_LEAST_PLACE = -6.0
_MOST_DEVIATIONS = 3.0
_MULTIPLES = (1, 2, 4, 8)  # of the prior's spreads
_PRICE = 3.0  # nats for each doubling: more than a site with a handful of links has for one
_STEP = 1e-4  # for second derivatives, in units of the spreads


class Prior(NamedTuple):
    """What was learned on other sites."""

    centres: np.ndarray  # (F,): subtracted from the features
    scales: np.ndarray  # (F,): divisors of the features
    coefficients: np.ndarray  # (F + 1,): the last is the intercept
    intercept_spread: float  # standard deviation of an archive's own intercept round that one
    slope_spread: float  # of the log of its own slope round 0
    coefficient_spread: float  # of each of its own coefficients round that slope's
    linked: tuple[float, float]  # of the Beta distribution of the share of duplicates that is linked
    teacher: np.ndarray  # (3,): of a teacher's evidence; see `teacher_features`
    sites: tuple[str, ...] = ()  # that it was learned on

    @property
    def model(self) -> "Model":
        """The model of an archive of which nothing is known."""
        return Model(self.centres, self.scales, self.coefficients, _mean(self.linked))


class Labelled(NamedTuple):
    """Pairs whose features (n, F) and labels are known."""

    features: np.ndarray
    labels: np.ndarray  # bool: linked, or judged to be duplicates
    weights: np.ndarray  # float64
    is_judged: np.ndarray  # bool: by a person, who also labels pairs that are not duplicates
    log_rates: np.ndarray  # ln of how much likelier a linked pair came into the sample than another one


@dataclass(frozen=True)
class Model:
    """The probability of a pair by its features."""

    centres: np.ndarray
    scales: np.ndarray
    coefficients: np.ndarray  # (F + 1,)
    linked_share: float  # of the duplicates, the share that is linked

    def probabilities(self, features: np.ndarray) -> np.ndarray:
        """The probability that each pair is a duplicate (float64, (n,))."""
        return np.asarray(expit(self.log_odds(features)))

    def log_odds(self, features: np.ndarray) -> np.ndarray:
        """The same as log-odds."""
        return np.asarray(designed(features, self.centres, self.scales) @ self.coefficients)

    def added(self, features: np.ndarray) -> np.ndarray:
        """Return what each of KINDS adds to the log-odds of each pair (float64, (n, kinds))."""
        terms = designed(features, self.centres, self.scales) * self.coefficients
        own = [[FEATURES.index(name) for name in names] or [len(FEATURES)] for names in KINDS.values()]
        return np.stack([terms[:, columns].sum(axis=1) for columns in own], axis=1)

    def to_dict(self) -> dict[str, object]:
        """For a JSON file."""
        return {
            "features": list(FEATURES),
            **{name: getattr(self, name).tolist() for name in ("centres", "scales", "coefficients")},
            "linked_share": self.linked_share,
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "Model":
        """What `to_dict` gave."""
        centres, scales, coefficients = (np.array(values[name]) for name in ("centres", "scales", "coefficients"))
        return cls(centres, scales, coefficients, float(values["linked_share"]))


class Calibrated(TypedDict):
    """calibration.json: the model of a run, and what it rests on."""

    model: dict[str, object]  # of `Model.to_dict`
    reference: list[float]  # best scores of questions, ascending
    floor: float | None  # score from which all pairs are wanted; None: from none
    development_links: int
    judged_pairs: int
    development_sets: int
    sampled_questions: int
    own_share: float
    prior_sites: list[str]
    fitness: Mapping[str, object]  # of the encoder on this archive


def features_of(pairs: pa.Table, around: pa.Table, reference: np.ndarray, k: int) -> np.ndarray:
    """The features (float64, (n, F)) of rows of COMPARED, with the rows of AROUND of their questions.

    `reference` are the best scores of random questions (see `places_of`); `k` is the length of lists.
    """
    of = {name: pairs[name].to_numpy() for name in pairs.column_names}
    ranks = [np.where(rank > 0, rank, k + 1) for rank in (of["rank_left"], of["rank_right"])]
    columns = (
        places_of(of["similarity"].astype(np.float64), reference),
        np.maximum(of["lift_left"], of["lift_right"]),
        np.log(np.maximum(*ranks)),
        *(of[name] for name in ("title_cosine", "title_least", "text_cosine", "text_least", "both_ways")),
        title_leads(pairs, around),
        np.where(np.isnan(of["tags"]), _NO_TAGS, of["tags"]),
        of["title_swap"] * of["title_cosine"],
        of["other_numbers"],
        of["other_numbers"] * of["title_cosine"],
        np.where(of["title_cosine"] >= _SAME_WORDS, of["other_asking"], 0.0),
        of["other_formulas"],
        of["same_asker"],
        of["same_asker"] * of["text_cosine"],
        of["cites"],
    )
    return np.stack([np.asarray(column, np.float64) for column in columns], axis=1)


def places_of(scores: np.ndarray, reference: np.ndarray) -> np.ndarray:
    """The place of each score (float64) among `reference`, the best scores of random questions, sorted.

    That is the log-odds of the share of them that is lower. The reference rises with the size of the archive, so a
    score that unrelated questions reach in a large archive counts less there than in a small one.
    """
    lower = np.searchsorted(reference, scores, "left")
    return np.maximum(np.log((lower + 1.0) / (len(reference) - lower + 1.0)), _LEAST_PLACE)


def fit(labelled: Labelled, prior: Prior) -> Model:
    """Return the model with the highest posterior density, given the prior and this archive's labelled pairs.

    How far an archive may lie from the prior's sites is fitted too: of some multiples of the prior's spreads the one
    whose marginal likelihood is highest, less a price for each doubling. Four links never pay it; hundreds of clear
    ones do.
    """
    rows = labelled.is_judged | (prior.model.probabilities(labelled.features) >= NEAR)
    if not rows.any():
        return prior.model
    near = Labelled(*(column[rows] for column in labelled))
    fits = [_fit_within(multiple, near, prior) for multiple in _MULTIPLES]
    return max(fits, key=lambda found: found[1])[0]


def _fit_within(multiple: float, labelled: Labelled, prior: Prior) -> tuple[Model, float]:
    """Fit with `multiple` times the prior's spreads; return the model and its log marginal likelihood, less the price.

    The likelihood is Laplace's approximation (MacKay 1992, "Bayesian interpolation", section 3). Parameters are in
    units of their spreads: log of the slope, a move of each coefficient, one of the intercept; last the linked
    share's log-odds.
    """
    from scipy.optimize import minimize  # half a second to import, and most processes never fit

    design = designed(labelled.features, prior.centres, prior.scales)
    slopes, intercept = prior.coefficients[:-1], prior.coefficients[-1]
    spreads = multiple * np.array(
        [prior.slope_spread, *[prior.coefficient_spread] * len(slopes), prior.intercept_spread]
    )
    a, b = prior.linked

    def coefficients(moves: np.ndarray) -> np.ndarray:
        return np.append(np.exp(moves[0]) * slopes + moves[1:-1], intercept + moves[-1])

    def loss(parameters: np.ndarray) -> tuple[float, np.ndarray]:
        units, log_odds = parameters[:-1], parameters[-1]
        moves = units * spreads
        value, by = negative_log_likelihood(labelled, design, np.append(coefficients(moves), log_odds))
        value += 0.5 * float(units @ units) + float(a * np.logaddexp(0, -log_odds) + b * np.logaddexp(0, log_odds))
        by_slope = np.exp(moves[0]) * (by[: len(slopes)] @ slopes)
        past_share = b * expit(log_odds) - a * expit(-log_odds)
        return value, np.append(np.append(by_slope, by[:-1]) * spreads + units, by[-1] + past_share)

    start = np.append(np.zeros(len(spreads)), logit(_mean(prior.linked)))
    best = minimize(loss, start, jac=True, method="L-BFGS-B", options={"maxiter": 2000})
    steps = np.eye(len(start)) * _STEP
    curvature = np.array([(loss(best.x + step)[1] - loss(best.x - step)[1]) / (2 * _STEP) for step in steps])
    evidence = -best.fun - 0.5 * np.linalg.slogdet((curvature + curvature.T) / 2)[1]
    moved = coefficients(best.x[:-1] * spreads)
    model = Model(prior.centres, prior.scales, moved, float(expit(best.x[-1])))
    return model, float(evidence - _PRICE * np.log2(multiple))


def negative_log_likelihood(labelled: Labelled, design: np.ndarray, parameters: np.ndarray) -> tuple[float, np.ndarray]:
    """The loss of labelled pairs, and its gradient by the coefficients and by the log-odds of the linked share.

    `design` (n, F + 1) are their scaled features and ones.
    """
    share, p = expit(parameters[-1]), expit(design @ parameters[:-1])
    linked = np.where(labelled.is_judged, 1.0, share)
    q = np.clip(linked * p, 1e-12, 1 - 1e-12)
    seen = logit(q) + labelled.log_rates
    value = float((labelled.weights * (np.logaddexp(0.0, seen) - labelled.labels * seen)).sum())
    slope = labelled.weights * (expit(seen) - labelled.labels) / (q * (1 - q))  # by q
    by_share = float((slope * p * ~labelled.is_judged).sum()) * share * (1 - share)
    return value, np.append(design.T @ (slope * linked * p * (1 - p)), by_share)


def designed(features: np.ndarray, centres: np.ndarray, scales: np.ndarray) -> np.ndarray:
    """Features, scaled and clipped at three standard deviations, with a column of ones for the intercept.

    Clipped, so that a value far outside the prior's data (an announcement repeated word for word each year) counts as
    strong evidence and not as ten times that.
    """
    scaled = np.clip((features - centres) / scales, -_MOST_DEVIATIONS, _MOST_DEVIATIONS)
    return np.concatenate([scaled, np.ones((len(features), 1))], axis=1)


def _mean(beta: tuple[float, float]) -> float:
    return beta[0] / (beta[0] + beta[1])


def own_share(model: Model, prior: Prior, features: np.ndarray) -> float:
    """The archive's own share of the decision: 0 if the model is the prior, near 1 if they are far apart.

    The distance of the log-odds of both against how far the prior's own spread would let them differ, over pairs, each
    by how open it is (p (1 - p)): how unlikely the unlikely ones are decides nothing.
    """
    if not len(features):
        return 0.0
    design = designed(features, prior.centres, prior.scales)
    moved = design @ (model.coefficients - prior.coefficients)
    sloping = design[:, :-1] @ prior.coefficients[:-1] * prior.slope_spread
    each = prior.coefficient_spread**2 * (design[:, :-1] ** 2).sum(axis=1)
    free = np.sqrt(prior.intercept_spread**2 + sloping**2 + each)
    p = model.probabilities(features)
    return float(np.tanh((p * (1 - p)) @ np.abs(moved) / max((p * (1 - p)) @ free, 1e-12)))


_SHIPPED = importlib.resources.files("dupq") / "clusters"
OF_TITLES = str(_SHIPPED / "titles_prior.json")  # of pairs of titles without bodies, judged by them alone
_REMEDY = "make it anew with benchmarks/prior.py"
_Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class _Entries(TypedDict):
    """The file."""

    features: list[str]
    centres: list[FiniteFloat]
    scales: list[_Positive]
    coefficients: list[FiniteFloat]
    intercept_spread: _Positive
    slope_spread: _Positive
    coefficient_spread: _Positive
    linked: list[_Positive]
    teacher: list[FiniteFloat]
    sites: list[str]


def read_prior(uri: str = "") -> Prior:
    """The prior at `uri`, or the one that ships with dupq. Raises DupqError if it was made for other features."""
    place = uri or str(_SHIPPED / "prior.json")
    values = read_as(place, _Entries, _REMEDY)
    if tuple(values["features"]) != FEATURES:
        raise DupqError(f"{place}: made for other features; {_REMEDY}")
    columns = [values[name] for name in ("centres", "scales", "coefficients", "linked", "teacher")]
    features = len(FEATURES)
    if [len(column) for column in columns] != [features, features, features + 1, 2, 3]:
        raise DupqError(f"{place}: not as many numbers as there are features; {_REMEDY}")
    centres, scales, coefficients, (a, b), teacher = (np.array(column, np.float64) for column in columns)
    spreads = values["intercept_spread"], values["slope_spread"], values["coefficient_spread"]
    return Prior(centres, scales, coefficients, *spreads, (float(a), float(b)), teacher, tuple(values["sites"]))


# A teacher's cosine as evidence: it moves the log-odds that all other evidence gives a pair.
#
# A logistic model over two features, learned on other sites (prior.json) and moved by this archive's known duplicates
# and verdicts as the first one is. Cosines of models differ in mean and spread, and so do archives; so a cosine counts
# in standard deviations over the pairs that a run is calibrated on.

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
    own = prior._replace(centres=_CENTRES, scales=SCALES, coefficients=prior.teacher)
    return TeacherModel(mean, spread, *fit(read, own).coefficients.tolist())
