"""The pairs that a run is calibrated on: sampled questions and their neighbours, with ranks in both directions."""

from typing import NamedTuple

import numpy as np

from dupq import storage
from dupq.clusters.evidence import UNLISTED, Listing, listing_of
from dupq.evaluation.verdict_files import Judged, read_verdicts
from dupq.links.split import Split
from dupq.neighbours.lists import nearest_in
from dupq.neighbours.steps.blocks import SearchRequest
from dupq.runs.layout import CalibrationFiles
from dupq.stages.represented_links import read_known_sets
from dupq.tables import NEAREST, SAMPLE
from dupq.text.keys import Sites, are_pairs_among

_REFERENCE = 1_000


class SampledPairs(NamedTuple):
    """A row for each sampled question and neighbour of it."""

    left: np.ndarray  # int64, the smaller key
    right: np.ndarray
    scores: np.ndarray  # float64, the encoder's
    listing_left: Listing
    listing_right: Listing
    is_linked: np.ndarray  # bool: known duplicates of the development part
    is_judged: np.ndarray  # bool: people gave their verdict
    labels: np.ndarray  # bool: linked, or judged to be the same
    weights: np.ndarray  # float64, in the likelihood: all of a sample alike, less where sets are large
    log_rates: np.ndarray  # float64: ln of how much likelier a linked pair came into the sample than another one
    counts: np.ndarray  # float64: how many pairs of the archive a row stands for
    reference: np.ndarray  # float64, sorted: best scores of other questions, at most _REFERENCE
    sets: int  # of duplicates
    questions: int


class Lists(NamedTuple):
    """The lists of some questions (sorted keys): others (n, k) and scores as similarities, -inf where there is none."""

    keys: np.ndarray
    others: np.ndarray
    scores: np.ndarray
    listing: Listing


def sampled_pairs(files: CalibrationFiles, request: SearchRequest, lists: Lists) -> SampledPairs:
    """The pairs of the sampled questions that calibration may read: no question of training or test parts."""
    sites = Sites(request.sites)
    sample = storage.read_table(files.sample, SAMPLE)
    sampled, is_development = sample["key"].to_numpy(), sample["is_linked"].to_numpy()
    rows = np.flatnonzero(np.isin(lists.keys, sampled))
    places, ranks = np.nonzero(lists.others[rows] >= 0)
    queries, others = lists.keys[rows][places], lists.others[rows][places, ranks]
    scores = lists.scores[rows][places, ranks]
    split = read_known_sets(files.known)
    from_linked = np.isin(queries, sampled[is_development])
    is_linked = from_linked & (split.set_of(queries) == split.set_of(others))
    both = np.where(look_up(lists, others, queries).ranks > 0, 2.0, 1.0)  # a pair that lists each other comes up twice
    population = storage.read_counts(files.sample)["rows_in"]
    other_share = (~is_development).sum() / max(1, population - len(split.questions))
    linked_share = is_development.sum() / max(1, len(split.questions))
    kept = is_linked | ~from_linked
    linked_counts = np.where(is_linked, 1 / max(linked_share, 1e-9), 1 / max(other_share, 1e-9))
    reference = lists.scores[np.isin(lists.keys, sampled[~is_development]), 0]
    left, right = np.minimum(queries, others)[kept], np.maximum(queries, others)[kept]
    judged = _judged_pairs(read_verdicts(files.verdicts, sites), lists, split)
    verdicts = np.stack([judged.left, judged.right], axis=1)
    fresh = ~are_pairs_among(verdicts, np.stack([left, right], axis=1))  # a verdict replaces it
    none, every = np.zeros(len(judged.left), bool), np.ones(len(judged.left), bool)

    def both_kinds(sampled_ones: np.ndarray, judged_ones: np.ndarray) -> np.ndarray:
        return np.concatenate([sampled_ones[kept][fresh], judged_ones])

    left, right = np.concatenate([left[fresh], judged.left]), np.concatenate([right[fresh], judged.right])
    return SampledPairs(
        left,
        right,
        both_kinds(scores, judged.scores),
        look_up(lists, left, right),
        look_up(lists, right, left),
        both_kinds(is_linked, none),
        both_kinds(np.zeros(len(queries), bool), every),
        both_kinds(is_linked, judged.is_same),
        both_kinds(_weight(split.set_of(queries), is_linked) / both, np.ones(len(judged.left))),
        both_kinds(
            np.full(len(queries), np.log(max(linked_share, 1e-9) / max(other_share, 1e-9))), np.zeros(len(judged.left))
        ),
        both_kinds(linked_counts / both, np.zeros(len(judged.left))),
        _quantiles(np.sort(reference[np.isfinite(reference)])),
        len(np.unique(split.set_of(sampled[is_development]))),
        len(sampled),
    )


class JudgedPairs(NamedTuple):
    """Pairs with verdicts of which one question lists the other."""

    left: np.ndarray
    right: np.ndarray
    scores: np.ndarray
    is_same: np.ndarray


def _judged_pairs(judged: Judged, lists: Lists, split: Split) -> JudgedPairs:
    """`pairs` without known duplicates of the test part: quality is measured on them."""
    left, right = judged.left, judged.right
    scores = np.maximum(_score(lists, left, right), _score(lists, right, left))
    sets = split.set_of(left)
    is_known = (sets >= 0) & (sets == split.set_of(right)) & np.isin(left, split.questions_of("test"))
    kept = np.isfinite(scores) & (judged.verdicts >= 0) & ~is_known
    return JudgedPairs(left[kept], right[kept], scores[kept], judged.verdicts[kept] == 1)


def _score(lists: Lists, queries: np.ndarray, others: np.ndarray) -> np.ndarray:
    """The score by which each of `queries` lists the other one, -inf where it does not."""
    if not len(lists.keys):
        return np.full(len(queries), -np.inf)
    rows = np.minimum(np.searchsorted(lists.keys, queries), len(lists.keys) - 1)
    listed = (lists.others[rows] == others[:, None]) & (lists.keys[rows] == queries)[:, None]
    return np.where(listed, lists.scores[rows], -np.inf).max(axis=1, initial=-np.inf)


def _quantiles(reference: np.ndarray) -> np.ndarray:
    """At most `_REFERENCE` of the sorted scores, evenly spread, so that features do not depend on the sample's size."""
    if len(reference) <= _REFERENCE:
        return reference
    return np.quantile(reference, np.linspace(0, 1, _REFERENCE), method="nearest")


def _weight(sets: np.ndarray, is_linked: np.ndarray) -> float:
    """Of each pair, linked or not: so that all linked pairs weigh as much as one a set, in both directions, would."""
    pairs = np.unique(sets[is_linked], return_counts=True)[1]
    return float(np.minimum(pairs, 2).sum() / pairs.sum()) if len(pairs) else 1.0


def read_lists(files: CalibrationFiles, request: SearchRequest) -> Lists:
    """The lists of the sampled questions (step 1) and of their neighbours (2)."""
    from dupq.neighbours.exact import rule_of

    found = [nearest_in(storage.read_table(files.lists(step), NEAREST), request.settings.k) for step in (1, 2)]
    keys = np.concatenate([some for some, _ in found])
    order = np.argsort(keys, kind="stable")
    others = np.concatenate([nearest.others for _, nearest in found])[order]
    exact = np.concatenate([nearest.scores for _, nearest in found])[order]
    scores = np.where(others >= 0, rule_of(request.measure).similarities(exact).astype(np.float64), -np.inf)
    return Lists(keys[order], others, scores, listing_of(scores, request.measure.highest))


def look_up(lists: Lists, queries: np.ndarray, others: np.ndarray) -> Listing:
    """How each of `queries` lists the one of `others`."""
    if not len(lists.keys):
        return Listing(np.full(len(queries), UNLISTED, np.int32), np.zeros(len(queries), np.float32))
    rows = np.minimum(np.searchsorted(lists.keys, queries), len(lists.keys) - 1)
    listed = (lists.others[rows] == others[:, None]) & (lists.keys[rows] == queries)[:, None]
    is_listed, places = listed.any(axis=1), listed.argmax(axis=1)
    ranks, lifts = (column[rows, places] for column in lists.listing)
    return Listing(
        np.where(is_listed, ranks, UNLISTED).astype(np.int32), np.where(is_listed, lifts, 0).astype(np.float32)
    )
