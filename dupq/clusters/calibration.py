"""From evidence to the probability that two questions are duplicates, for this archive and at its size.

The model is logistic, over scale-free evidence (`dupq/clusters/evidence.py`), and was learned from pairs of several
sites that language models read and judged (prior.json, benchmarks/verdicts). An archive's own links and verdicts move
its intercept, each coefficient, and a slope that all coefficients share: archives differ most in how common duplicates
are and in how well evidence separates them from others. All have Gaussian priors, so few links move little. An archive
that is unlike the prior's sites and has many links may move further (`fit`).

Own pairs count only where the prior thinks a duplicate possible (NEAR). The many pairs far below decide nothing, and
their number would bend a model that is a little wrong there.

People link only a share of the duplicates, so an unlinked pair may still be one. The likelihood accounts for that
(Elkan and Noto 2008, section 2; Jaskie et al. 2019): a pair is linked with probability share x p. The share is fitted
too, with a wide Beta prior.

Linked pairs are sampled more densely than others. As in case-control studies, the log of the ratio of both rates is
added to the log-odds (King and Zeng 2001, section 4.1), so that the sample does not make pairs look likelier.
"""

import importlib.resources
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, NamedTuple, NotRequired

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
    "rank",  # ln of the worse rank; k + 1 where a side does not list the other
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
    "other_date",
    "other_asking",  # where title_cosine is at least _SAME_WORDS: "string to float", "float to string"
    "other_negation",  # x title_cosine: "with a visa", "without a visa"
    "other_order",  # "from A to B", "from B to A"; "a < b", "a > b"
    "other_words",  # "… in Egypt", "… in Hong Kong"
    "other_formulas",
    "same_asker",
    "same_asker_alike",  # same_asker x text_cosine: asks again, or asks a follow-up
    "cites",
)
KINDS = {  # kinds of evidence in a reader's words, with their features; each feature is of one kind
    "the encoder's score": ("place",),
    "nearer than other neighbours": ("lift",),
    "rank among the nearest": ("rank",),
    "words in both titles": ("title_cosine", "title_least", "title_lead"),
    "words in both texts": ("text_cosine", "text_least", "both_ways"),
    "tags": ("tags",),
    "a telling word of one title only": ("title_swap",),
    "other numbers": ("other_numbers", "series"),
    # and `Model.same_asking`
    "what the titles ask": ("other_date", "other_asking", "other_negation", "other_order", "other_words"),
    "other formulas": ("other_formulas",),
    "asked by the same person": ("same_asker", "same_asker_alike"),
    "one links to the other": ("cites",),
    "how rare duplicates are": (),  # the intercept
}
REREAD = (  # with a reranker
    "cosine",
    "log_odds",
    "other_date",
    "series",
    "other_asking",
    "other_negation",
    "other_order",
    "other_words",
    "cites",
    "same_asker",
)
NEAR = 0.01  # the prior's probability from which an unjudged pair counts
_SAME_WORDS = 0.9
_NO_TAGS = 0.4  # Jaccard coefficient of pairs without tags: the mean of near neighbours on other sites
_LEAST_LOG_ODDS = -6.0
_LEAST_OPEN = 0.02  # a probability from which titles without bodies may decide
_MOST_DEVIATIONS = 3.0
_MULTIPLES = (1, 2, 4, 8)  # of the prior's spreads that are tried
_PRICE = 3.0  # nats per doubling: more than a handful of links gains by one
_ARRAYS = ("centres", "scales", "coefficients")  # of a model
_STEP = 1e-4  # of second derivatives, in units of the spreads
_SHIPPED = importlib.resources.files("dupq") / "clusters"
OF_TITLES = str(_SHIPPED / "titles_prior.json")  # learned from titles without bodies
_REMEDY = "make it again with benchmarks/prior.py"
_Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class Labelled(NamedTuple):
    """Pairs whose features (n, F) and labels are known."""

    features: np.ndarray
    labels: np.ndarray  # bool: linked, or judged to be duplicates
    weights: np.ndarray  # float64
    is_judged: np.ndarray  # bool: a person gave the label, which may also be no duplicates
    log_rates: np.ndarray  # ln of how much likelier a linked pair is sampled than another one


@dataclass(frozen=True)
class Model:
    """The model that gives the probability of a pair by its features."""

    centres: np.ndarray  # (F,): subtracted from the features
    scales: np.ndarray  # (F,): divisors of the features
    coefficients: np.ndarray  # (F + 1,): the last is the intercept
    linked_share: float  # share of the duplicates that is linked
    same_asking: float = 0.0  # added to the log-odds where titles ask the same

    def probabilities_of(self, pairs: pa.Table, features: np.ndarray) -> np.ndarray:
        """Return the probability (float64, (n,)) of rows of COMPARED, given their features.

        Where texts are titles alone, and these ask the same, that raises the log-odds of pairs that are not far from
        open.
        """
        return np.asarray(expit(self.log_odds(features) + self.moves(pairs, features)))

    def moves(self, pairs: pa.Table, features: np.ndarray) -> np.ndarray:
        """Return what titles that ask the same add to the log-odds of rows of COMPARED (float64, (n,))."""
        is_open = self.probabilities(features) >= _LEAST_OPEN
        return self.same_asking * np.where(is_open, pairs["same_asking"].to_numpy(), 0.0)

    def probabilities(self, features: np.ndarray) -> np.ndarray:
        """Return the probability that each pair is a duplicate (float64, (n,))."""
        return np.asarray(expit(self.log_odds(features)))

    def log_odds(self, features: np.ndarray) -> np.ndarray:
        """Return the same as log-odds."""
        return np.asarray(designed(features, self.centres, self.scales) @ self.coefficients)

    def added(self, pairs: pa.Table, features: np.ndarray) -> np.ndarray:
        """Return what each of KINDS adds to the log-odds of rows of COMPARED (float64, (n, kinds))."""
        terms = designed(features, self.centres, self.scales) * self.coefficients
        terms[:, FEATURES.index("other_asking")] += self.moves(pairs, features)
        columns = [[FEATURES.index(name) for name in names] or [len(FEATURES)] for names in KINDS.values()]
        return np.stack([terms[:, indices].sum(axis=1) for indices in columns], axis=1)

    def to_dict(self) -> dict[str, object]:
        """Return the model as JSON."""
        return {
            "features": list(FEATURES),
            **{name: getattr(self, name).tolist() for name in _ARRAYS},
            "linked_share": self.linked_share,
            "same_asking": self.same_asking,
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "Model":
        """Return the model of a dict that `to_dict` made."""
        centres, scales, coefficients = (np.array(values[name], np.float64) for name in _ARRAYS)
        return cls(centres, scales, coefficients, float(values["linked_share"]), float(values.get("same_asking", 0)))


class Prior(NamedTuple):
    """What was learned on other sites."""

    model: Model  # of an archive without links or verdicts
    intercept_spread: float  # standard deviation of an archive's intercept round the model's
    slope_spread: float  # of the log of its slope round 0
    coefficient_spread: float | np.ndarray  # of each of its coefficients round the model's times the slope
    linked: tuple[float, float]  # parameters of the Beta distribution of the share of duplicates that is linked
    error: float  # spread of ln (right / expected) in the first fifty pairs of sites left out
    reread: "RereadPrior"  # of the probability once a reranker has read both questions
    sites: tuple[str, ...] = ()  # that it was learned on


class Calibrated(TypedDict):
    """calibration.json: the model of a run, and what it rests on."""

    model: dict[str, object]  # `Model.to_dict`
    reference: list[float]  # best scores of questions, ascending
    floor: float | None  # score from which all pairs become candidates; None: no score
    development_links: int
    judged_pairs: int
    development_sets: int
    sampled_questions: int
    own_share: float
    prior_sites: list[str]
    error: float  # of the prior
    titles_only: bool  # whether no question of the sample has a body: then the prior is that of titles
    fitness: Mapping[str, object]  # of the encoder on this archive


def features_of(pairs: pa.Table, title_context: pa.Table, reference: np.ndarray, k: int) -> np.ndarray:
    """Return the features (float64, (n, F)) of rows of COMPARED, given the rows of TITLE_CONTEXT of their questions.

    `reference` are the best scores of random questions, ascending; a question lists `k` others.
    """
    of = {name: pairs[name].to_numpy() for name in pairs.column_names}
    ranks = [np.where(rank > 0, rank, k + 1) for rank in (of["rank_left"], of["rank_right"])]
    columns = (
        score_log_odds(of["similarity"].astype(np.float64), reference),
        np.maximum(of["lift_left"], of["lift_right"]),
        np.log(np.maximum(*ranks)),
        *(of[name] for name in ("title_cosine", "title_least", "text_cosine", "text_least", "both_ways")),
        title_leads(pairs, title_context),
        np.where(np.isnan(of["tags"]), _NO_TAGS, of["tags"]),
        of["title_swap"] * of["title_cosine"],
        of["other_numbers"],
        of["other_numbers"] * of["title_cosine"],
        of["other_date"],
        np.where(of["title_cosine"] >= _SAME_WORDS, of["other_asking"], 0.0),
        of["other_negation"] * of["title_cosine"],
        of["other_order"],
        np.where(of["title_swap"] > 0, of["other_words"], 0.0),  # not if one title only has more words
        of["other_formulas"],
        of["same_asker"],
        of["same_asker"] * of["text_cosine"],
        of["cites"],
    )
    return np.stack([np.asarray(column, np.float64) for column in columns], axis=1)


def score_log_odds(scores: np.ndarray, reference: np.ndarray) -> np.ndarray:
    """Return the log-odds (float64) that the best score of a random question is lower than each score.

    `reference` are best scores of random questions, ascending. They rise with the size of the archive, so a score that
    unrelated questions reach in a large archive counts less there than in a small one.
    """
    lower = np.searchsorted(reference, scores, "left")
    return np.maximum(np.log((lower + 1.0) / (len(reference) - lower + 1.0)), _LEAST_LOG_ODDS)


def fit(labelled: Labelled, prior: Prior, *others: Prior) -> Model:
    """Return the model with the highest posterior density, given the prior and this archive's labelled pairs.

    How far an archive may differ from the prior's sites is fitted too: the multiple of the prior's spreads with the
    highest marginal likelihood wins, less a price for each doubling. Four links never pay it; hundreds of clear ones
    do. Each of the `others`, which have other spreads, has the same price.
    """
    rows = labelled.is_judged | (prior.model.probabilities(labelled.features) >= NEAR)
    if not rows.any():
        return prior.model
    near = Labelled(*(column[rows] for column in labelled))
    fits = [
        (_fit_within(multiple, near, each), -_PRICE * number)
        for number, each in enumerate((prior, *others))
        for multiple in _MULTIPLES
    ]
    return max(fits, key=lambda fitted: fitted[0][1] + fitted[1])[0][0]


def _fit_within(multiple: float, labelled: Labelled, prior: Prior) -> tuple[Model, float]:
    """Fit with `multiple` times the prior's spreads; return the model and its log marginal likelihood, less the price.

    The likelihood is Laplace's approximation (MacKay 1992, "Bayesian interpolation", section 3). Parameters, in units
    of their spreads: the log of the slope, moves of each coefficient and of the intercept; last, the log-odds of the
    linked share.
    """
    from scipy.optimize import minimize  # importing it takes half a second, and most processes never fit

    design = designed(labelled.features, prior.model.centres, prior.model.scales)
    slopes, intercept = prior.model.coefficients[:-1], prior.model.coefficients[-1]
    spreads = multiple * np.array(
        [prior.slope_spread, *np.broadcast_to(prior.coefficient_spread, len(slopes)), prior.intercept_spread]
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

    start = np.append(np.zeros(len(spreads)), logit(prior.model.linked_share))
    best = minimize(loss, start, jac=True, method="L-BFGS-B", options={"maxiter": 2000})
    steps = np.eye(len(start)) * _STEP
    curvature = np.array([(loss(best.x + step)[1] - loss(best.x - step)[1]) / (2 * _STEP) for step in steps])
    evidence = -best.fun - 0.5 * np.linalg.slogdet((curvature + curvature.T) / 2)[1]
    share, moved = float(expit(best.x[-1])), coefficients(best.x[:-1] * spreads)
    model = replace(prior.model, coefficients=moved, linked_share=share)
    return model, float(evidence - _PRICE * np.log2(multiple))


def negative_log_likelihood(labelled: Labelled, design: np.ndarray, parameters: np.ndarray) -> tuple[float, np.ndarray]:
    """Return the loss of labelled pairs, and its gradient by the coefficients and the log-odds of the linked share.

    `design` (n, F + 1) holds their scaled features and a column of ones.
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
    """Return features, scaled and clipped at three standard deviations, with a column of ones for the intercept.

    So a value far outside the prior's data, such as an announcement repeated word for word each year, counts as strong
    evidence, but not as ten times that.
    """
    scaled = np.clip((features - centres) / scales, -_MOST_DEVIATIONS, _MOST_DEVIATIONS)
    return np.concatenate([scaled, np.ones((len(features), 1))], axis=1)


def own_share(model: Model, prior: Prior, features: np.ndarray) -> float:
    """Return the archive's share of the decision: 0 if the model is the prior, near 1 if they are far apart.

    It compares the distance of the log-odds of both models with the distance that the prior's spread allows. Pairs
    count by how open they are, p (1 - p): how unlikely the unlikely pairs are decides nothing.
    """
    if not len(features):
        return 0.0
    design, coefficients = designed(features, model.centres, model.scales), prior.model.coefficients
    moved = design @ (model.coefficients - coefficients)
    sloping = design[:, :-1] @ coefficients[:-1] * prior.slope_spread
    each = prior.coefficient_spread**2 * (design[:, :-1] ** 2).sum(axis=1)
    free = np.sqrt(prior.intercept_spread**2 + sloping**2 + each)
    p = model.probabilities(features)
    return float(np.tanh((p * (1 - p)) @ np.abs(moved) / max((p * (1 - p)) @ free, 1e-12)))


class RereadPrior(TypedDict):
    """What was learned of a reranker's cosines: the entry `reranker` of a prior's file (dupq/clusters/reranking.py)."""

    weights: str  # sha256 of the reranker's weights
    features: list[str]
    coefficients: list[FiniteFloat]  # of the features, and an intercept
    intercept_spread: _Positive
    slope_spread: _Positive
    coefficient_spread: _Positive
    mean: FiniteFloat  # of cosines, over the pairs that a run is calibrated on
    spread: _Positive
    tail: _Positive  # pairs that are alike per related pair, in archives with hardly any duplicates
    share: _Positive  # of alike pairs that are duplicates there
    error: _Positive  # as of the prior itself


class _Entries(TypedDict):
    """A prior's file."""

    features: list[str]
    centres: list[FiniteFloat]
    scales: list[_Positive]
    coefficients: list[FiniteFloat]
    intercept_spread: _Positive
    slope_spread: _Positive
    coefficient_spread: _Positive
    linked: list[_Positive]
    error: _Positive
    reranker: RereadPrior
    sites: list[str]
    same_asking: NotRequired[FiniteFloat]


def read_prior(uri: str = "") -> Prior:
    """Return the prior at `uri`, or dupq's own. Raises DupqError if it was made for other features."""
    uri = uri or str(_SHIPPED / "prior.json")
    values = read_as(uri, _Entries, _REMEDY)
    lengths = [len(values[name]) for name in ("centres", "scales", "coefficients", "linked")]
    features, reread = len(FEATURES), values["reranker"]
    if tuple(values["features"]) != FEATURES or lengths != [features, features, features + 1, 2]:
        raise DupqError(f"{uri}: made for other features; {_REMEDY}")
    if tuple(reread["features"]) != REREAD or len(reread["coefficients"]) != len(REREAD) + 1:
        raise DupqError(f"{uri}: its entry 'reranker' was made for other features; {_REMEDY}")
    a, b = map(float, values["linked"])
    model = Model.from_dict({**values, "linked_share": a / (a + b)})
    spreads = values["intercept_spread"], values["slope_spread"], values["coefficient_spread"]
    return Prior(model, *spreads, (a, b), values["error"], reread, tuple(values["sites"]))
