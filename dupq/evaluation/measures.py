"""Measures of retrieval, of pair classification, of clusters and of calibration, and how sure they are, in plain
numpy.

A night's run calls these, in processes that would take half a second to two to import scipy or scikit-learn; tests hold
them to ir_measures.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
from typing_extensions import TypedDict

from dupq.text.keys import distinct, indices_among


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


# Measures of clusters against known duplicates, and of the calibration of probabilities.
#
# Where a clustering is given as `keys` (int64, sorted, no repeats) and `clusters` (int64, the label of each key's
# cluster), a question that is not among `keys` is a cluster of its own. So only clusters of two and more need be
# passed. Time and memory grow with what is passed, not with the archive or with the number of pairs.


class Calibration(NamedTuple):
    """One entry a bin [lower, upper), the last one with its upper edge; bins without pairs are left out."""

    lower: np.ndarray  # float64
    upper: np.ndarray  # float64
    pairs: np.ndarray  # float64: how many
    mean_probability: np.ndarray  # float64
    share_right: np.ndarray  # float64


def joined(links: np.ndarray, keys: np.ndarray, clusters: np.ndarray) -> np.ndarray:
    """Which of `links` (int64, (m, 2)) have both questions in one cluster: bool (m,)."""
    places, is_there = indices_among(keys, links)
    if not len(keys):
        return links[:, 0] == links[:, 1]
    together = is_there.all(axis=1) & (clusters[places[:, 0]] == clusters[places[:, 1]])
    return together | (links[:, 0] == links[:, 1])


def calibration(probabilities: np.ndarray, is_right: np.ndarray, edges: Sequence[float]) -> Calibration:
    """The reliability diagram (DeGroot and Fienberg 1983): in each bin what was said and what was right.

    `probabilities` (float64, (m,)) lie between the first and the last of the sorted `edges`; `is_right` is bool (m,).
    """
    borders = np.asarray(edges, np.float64)
    bins = len(borders) - 1
    own = np.minimum(np.searchsorted(borders, probabilities, side="right") - 1, bins - 1)
    pairs, said, right = (np.bincount(own, of, bins) for of in (None, probabilities, is_right))
    kept = pairs > 0
    count = pairs[kept].astype(np.float64)
    return Calibration(borders[:-1][kept], borders[1:][kept], count, said[kept] / count, right[kept] / count)


def partners_changed(now: tuple[np.ndarray, np.ndarray], then: tuple[np.ndarray, np.ndarray]) -> float:
    """Return the share of questions of clusters, of either run, that are not in the cluster of the same id in both.

    Each run is its sorted keys and the ids of their clusters; 0 if neither has any.
    """
    every = distinct(np.concatenate([now[0], then[0]]))
    ids = np.full((2, len(every)), -1)
    for column, (keys, names) in zip(ids, (now, then), strict=True):
        column[np.searchsorted(every, keys)] = names
    return float((ids[0] != ids[1]).mean()) if len(every) else 0.0


# What is measured on known duplicates, as JSON has it and as text tables show it, and what a run cannot tell of itself.


class Labelled(TypedDict):
    """Measures on labelled pairs."""

    duplicates: int
    others: int
    systems: dict[str, dict[str, float]]


class Known(TypedDict, total=False):
    """Measures of each system, by its name."""

    left_out: dict[str, int]
    test_queries: int
    test_queries_available: int
    archive_questions: int
    retrieval: dict[str, dict[str, float]]
    intervals: dict[str, dict[str, list[float]]]  # of 95 per cent, for some measures of `retrieval`: low, high
    balanced_pairs: dict[str, float]  # accuracies, and the number of `pairs`
    labelled_pairs: Labelled | None  # None where pairs of one of the two labels are missing
    labels: dict[str, int]  # see Labels.counts


_RETRIEVAL = {
    "accuracy_at_1": "Acc@1",
    "accuracy_at_5": "Acc@5",
    "accuracy_at_10": "Acc@10",
    "map": "MAP",
    "recall_at_1": "R@1",
    "recall_at_5": "R@5",
    "recall_at_10": "R@10",
    "recall_at_100": "R@100",
}
_LABELLED = {"accuracy": "Acc", "average_precision": "AP", "roc_auc": "AUC"}


def retrieval_table(known: Known) -> str:
    """One row a system: Accuracy@1, @5, @10, MAP and recall@k as far as the ranking goes, in per cent.

    Under it the intervals of 95 per cent, where they are known.
    """
    head = f"{known['test_queries']} test questions against {known['archive_questions']:,} questions"
    cut = max((int(measures["map_cut"]) for measures in known["retrieval"].values()), default=0)
    columns = _RETRIEVAL | {"map": f"MAP@{cut}"}
    return "\n".join([head, *_rows(known["retrieval"], columns), *_interval_rows(known.get("intervals", {}), columns)])


def _interval_rows(systems: dict[str, dict[str, list[float]]], columns: dict[str, str]) -> list[str]:
    """A heading, and a line a system: the intervals of 95 per cent of some measures."""
    lines = []
    for name, measures in systems.items():
        cells = (f"{columns[key]} {100 * low:.1f} to {100 * high:.1f}" for key, (low, high) in measures.items())
        lines.append(f"{name:24}" + ", ".join(cells))
    return ["95 % intervals, by bootstrap over the test questions", *lines] if lines else []


def pairs_table(known: Known) -> str:
    """One row a system: accuracy on balanced pairs, and the measures on labelled ones if there are any; in per cent."""
    measures = dict(known["balanced_pairs"])
    head = f"{measures.pop('pairs')} test pairs, half of them linked, half random"
    rows = [head, *(f"{name:24}{100 * value:8.1f}" for name, value in measures.items())]
    labelled = known.get("labelled_pairs")
    if labelled:
        rows.append(f"{labelled['duplicates']} test pairs labelled 1, {labelled['others']} labelled 0")
        rows += _rows(labelled["systems"], _LABELLED)
    return "\n".join(rows)


def left_out(known: Known) -> str:
    """What was not measured on, and why, in one or two lines."""
    seen = known["left_out"]
    lines = [
        f"not measured: {seen['train']:,} questions with known duplicates, for training, and {seen['development']:,}, "
        "for tuning"
    ]
    labels = known.get("labels")
    if labels:
        in_training = f", {seen['labelled_pairs']:,} seen in training" if "labelled_pairs" in seen else ""
        lines.append(
            f"of {labels['lines']:,} labelled pairs {labels['not_in_archive']:,} are not in the archive, "
            f"{labels['repeated']:,} repeated, {labels['contradictory']:,} labelled 0 within a set of duplicates"
            f"{in_training}"
        )
    return "\n".join(lines)


def _rows(systems: dict[str, dict[str, float]], columns: dict[str, str]) -> list[str]:
    """A heading, and a row a system with what it has of the columns, in per cent."""
    there = {key: label for key, label in columns.items() if any(key in measures for measures in systems.values())}
    rows = [f"{'':24}" + "".join(f"{label:>8}" for label in there.values())]
    for name, measures in systems.items():
        cells = (f"{100 * measures[key]:8.1f}" if key in measures else f"{'-':>8}" for key in there)
        rows.append(f"{name:24}" + "".join(cells))
    return rows


TABLES: dict[str, Callable[[Known], str]] = {"pairs": pairs_table, "retrieval": retrieval_table}


def not_measured(metrics: Mapping[str, Any], has_links: bool) -> dict[str, str]:
    """The reason for each measure of metrics.json that is null, or rests on nothing of this archive, by its name.

    `has_links`: the run was given links, and did not ignore them.
    """
    found, calibration = {}, metrics["calibration"]
    if metrics["links"] is None:
        why = "none has both questions in the archive, or the encoder was trained on all of them"
        found["links"] = (
            f"no known duplicates to test on ({why if has_links else 'the run was given no links, or ignored them'}): "
            "neither the recall nor the precision of clusters is known"
        )
    if not calibration["development_sets"] and not calibration["judged_pairs"]:
        found["calibration"] = (
            "no known duplicates to calibrate on, and no verdicts: probabilities are those of a prior, learned on "
            f"{len(calibration['prior_sites'])} other sites"
        )
    return found
