"""The pairs that a run is calibrated on: sampled questions and their neighbours, with ranks in both directions."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from dupq.clusters.evidence import UNLISTED, Listing, listing_of
from dupq.evaluation.verdict_files import Judged
from dupq.links.split import Split
from dupq.neighbours.lists import nearest_in
from dupq.neighbours.measure import Measure
from dupq.text.keys import are_pairs_among

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


def sampled_pairs(sample: pa.Table, population: int, split: Split, judged: Judged, lists: Lists) -> SampledPairs:
    """Return the pairs of the sampled questions that calibration may read: no question of training or test parts.

    `sample` (SAMPLE) is of `population` questions.
    """
    sampled, is_development = sample["key"].to_numpy(), sample["is_linked"].to_numpy()
    rows = np.flatnonzero(np.isin(lists.keys, sampled))
    places, ranks = np.nonzero(lists.others[rows] >= 0)
    queries, others = lists.keys[rows][places], lists.others[rows][places, ranks]
    scores = lists.scores[rows][places, ranks]
    from_linked = np.isin(queries, sampled[is_development])
    is_linked = from_linked & (split.set_of(queries) == split.set_of(others))
    both = np.where(look_up(lists, others, queries).ranks > 0, 2.0, 1.0)  # a pair that lists each other comes up twice
    other_share = (~is_development).sum() / max(1, population - len(split.questions))
    linked_share = is_development.sum() / max(1, len(split.questions))
    kept = is_linked | ~from_linked
    linked_counts = np.where(is_linked, 1 / max(linked_share, 1e-9), 1 / max(other_share, 1e-9))
    reference = lists.scores[np.isin(lists.keys, sampled[~is_development]), 0]
    left, right = np.minimum(queries, others)[kept], np.maximum(queries, others)[kept]
    told = _judged_pairs(judged, lists, split)
    verdicts = np.stack([told.left, told.right], axis=1)
    fresh = ~are_pairs_among(verdicts, np.stack([left, right], axis=1))  # a verdict replaces it
    none, every = np.zeros(len(told.left), bool), np.ones(len(told.left), bool)

    def both_kinds(sampled_ones: np.ndarray, judged_ones: np.ndarray) -> np.ndarray:
        return np.concatenate([sampled_ones[kept][fresh], judged_ones])

    left, right = np.concatenate([left[fresh], told.left]), np.concatenate([right[fresh], told.right])
    return SampledPairs(
        left,
        right,
        both_kinds(scores, told.scores),
        look_up(lists, left, right),
        look_up(lists, right, left),
        both_kinds(is_linked, none),
        both_kinds(np.zeros(len(queries), bool), every),
        both_kinds(is_linked, told.is_same),
        both_kinds(_weight(split.set_of(queries), is_linked) / both, np.ones(len(told.left))),
        both_kinds(
            np.full(len(queries), np.log(max(linked_share, 1e-9) / max(other_share, 1e-9))), np.zeros(len(told.left))
        ),
        both_kinds(linked_counts / both, np.zeros(len(told.left))),
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
    """Return the pairs without known duplicates of the test part: quality is measured on them."""
    left, right = judged.left, judged.right
    scores = np.maximum(_score(lists, left, right), _score(lists, right, left))
    sets = split.set_of(left)
    is_known = (sets >= 0) & (sets == split.set_of(right)) & np.isin(left, split.questions_of("test"))
    kept = np.isfinite(scores) & (judged.verdicts >= 0) & ~is_known
    return JudgedPairs(left[kept], right[kept], scores[kept], judged.verdicts[kept] == 1)


def _score(lists: Lists, queries: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Return the score by which each of `queries` lists the other one, -inf where it does not."""
    if not len(lists.keys):
        return np.full(len(queries), -np.inf)
    rows = np.minimum(np.searchsorted(lists.keys, queries), len(lists.keys) - 1)
    listed = (lists.others[rows] == others[:, None]) & (lists.keys[rows] == queries)[:, None]
    return np.where(listed, lists.scores[rows], -np.inf).max(axis=1, initial=-np.inf)


def _quantiles(reference: np.ndarray) -> np.ndarray:
    """Return at most `_REFERENCE` of the sorted scores, evenly spread: features do not depend on the sample's size."""
    if len(reference) <= _REFERENCE:
        return reference
    return np.quantile(reference, np.linspace(0, 1, _REFERENCE), method="nearest")


def _weight(sets: np.ndarray, is_linked: np.ndarray) -> float:
    """Return the weight of each pair: all linked ones weigh as much as one per set, in both directions, would."""
    pairs = np.unique(sets[is_linked], return_counts=True)[1]
    return float(np.minimum(pairs, 2).sum() / pairs.sum()) if len(pairs) else 1.0


def lists_in(tables: Sequence[pa.Table], k: int, measure: Measure) -> Lists:
    """Return the lists in tables (NEAREST), at most `k` neighbours each."""
    from dupq.neighbours.exact import rule_of

    found = [nearest_in(table, k) for table in tables]
    keys = np.concatenate([some for some, _ in found])
    order = np.argsort(keys, kind="stable")
    others = np.concatenate([nearest.others for _, nearest in found])[order]
    exact = np.concatenate([nearest.scores for _, nearest in found])[order]
    scores = np.where(others >= 0, rule_of(measure).similarities(exact).astype(np.float64), -np.inf)
    return Lists(keys[order], others, scores, listing_of(scores, measure.highest))


def look_up(lists: Lists, queries: np.ndarray, others: np.ndarray) -> Listing:
    """Return how each of `queries` lists the one of `others`."""
    if not len(lists.keys):
        return Listing(np.full(len(queries), UNLISTED, np.int32), np.zeros(len(queries), np.float32))
    rows = np.minimum(np.searchsorted(lists.keys, queries), len(lists.keys) - 1)
    listed = (lists.others[rows] == others[:, None]) & (lists.keys[rows] == queries)[:, None]
    is_listed, places = listed.any(axis=1), listed.argmax(axis=1)
    ranks, lifts = (column[rows, places] for column in lists.listing)
    return Listing(
        np.where(is_listed, ranks, UNLISTED).astype(np.int32), np.where(is_listed, lifts, 0).astype(np.float32)
    )
