"""Measures of retrieval, pair classification, clusters and calibration, with their intervals."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from typing_extensions import TypedDict

from dupq.clusters.identity import Clustering
from dupq.text.keys import are_pairs_among, distinct

_DRAWN_AT_ONCE = 1 << 22  # 64 MiB
_ACCURACY_RANKS = (1, 5, 10)
_RANKS = (*_ACCURACY_RANKS, 100)


class Scorer(Protocol):
    """A system that scores pairs."""

    def score(self, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        """Score the questions of each pair of keys (float64, shape (m,)); more alike is higher."""
        ...


@runtime_checkable
class Ranker(Scorer, Protocol):
    """A system that also ranks an archive."""

    def rank(self, queries: np.ndarray, k: int) -> list[list[int]]:
        """Return for each query (a key of the archive) the keys of its k best questions, best first, ties by key.

        Fewer than k if fewer have anything in common with it.
        """
        ...


def bootstrap_interval(values: np.ndarray, seed: int, resamples: int = 10_000) -> tuple[float, float]:
    """Return the 95 % percentile interval of the mean of `values` (Efron and Tibshirani 1993, section 13.3).

    Values are one per query (float64, (q,)), at least one. The interval accounts only for the choice of the queries,
    which are a sample of all possible ones. To compare two systems on the same queries, pass the differences.
    """
    from scipy.stats import bootstrap  # slow to import, and only `dupq evaluate` needs it

    if len(values) == 1:
        return float(values[0]), float(values[0])
    how = {"n_resamples": resamples, "batch": max(1, _DRAWN_AT_ONCE // len(values)), "method": "percentile"}
    low, high = bootstrap((values,), np.mean, rng=np.random.default_rng(seed), **how).confidence_interval
    return float(low), float(high)


def retrieval_values(rankings: Sequence[Sequence[int]], relevant: Sequence[set[int]], k: int) -> dict[str, np.ndarray]:
    """Return per query whether a known duplicate is among the first n, the share of them there, and MAP@k.

    By the measure's name, float64 of shape (q,), from 0 to 1. Each query has at least one relevant question. `rankings`
    have at most length k, so there is no recall beyond it. MAP is trec_eval's map_cut: the sum of the precisions at the
    relevant questions, over the number of all relevant. With more than k relevant questions no ranking reaches 1.
    """
    is_hit = np.zeros((len(rankings), k), bool)
    for row, (ranked, duplicates) in enumerate(zip(rankings, relevant, strict=True)):
        is_hit[row, : len(ranked)] = [question in duplicates for question in ranked[:k]]
    hits, sizes = is_hit.cumsum(axis=1), np.array([len(duplicates) for duplicates in relevant])
    precisions = np.where(is_hit, hits / np.arange(1, k + 1), 0.0)
    return {
        **{f"accuracy_at_{n}": (hits[:, min(n, k) - 1] > 0).astype(float) for n in _ACCURACY_RANKS},
        **{f"recall_at_{n}": hits[:, n - 1] / sizes for n in _RANKS if n <= k},
        "map": precisions.cumsum(axis=1)[:, -1] / sizes,  # a sum in the order of ranks, as trec_eval's
    }


def retrieval_measures(rankings: Sequence[Sequence[int]], relevant: Sequence[set[int]], k: int) -> dict[str, float]:
    """Return the means of `retrieval_values` over the queries; `map_cut` is the k of `map`."""
    values = retrieval_values(rankings, relevant, k)
    return {**{name: float(np.mean(value)) for name, value in values.items()}, "map_cut": k}


def best_threshold(scores: np.ndarray, labels: np.ndarray) -> float:
    """Return the lowest threshold with the best accuracy; it is midway between two neighbouring scores."""
    order = np.argsort(scores, kind="stable")
    ordered, positive = scores[order], labels[order] > 0.5
    # a threshold before index i is right about the negatives before i and the positives from i on
    right = np.concatenate([[0], np.cumsum(~positive)]) + positive.sum() - np.concatenate([[0], np.cumsum(positive)])
    allowed = np.r_[True, ordered[1:] != ordered[:-1], True]
    cut = int(np.argmax(np.where(allowed, right, -1)))
    below = ordered[cut - 1] if cut > 0 else ordered[0] - 1.0
    above = ordered[cut] if cut < len(ordered) else ordered[-1] + 1.0
    return float((below + above) / 2)


def accuracy(scores: np.ndarray, labels: np.ndarray, threshold: float) -> float:
    """Return the share of pairs on the right side of `threshold`."""
    return float(np.mean((scores >= threshold) == (labels > 0.5)))


def best_accuracy(scores: np.ndarray, labels: np.ndarray) -> tuple[float, float]:
    """Return `best_threshold`, and the accuracy there."""
    threshold = best_threshold(scores, labels)
    return threshold, accuracy(scores, labels, threshold)


def calibration(probabilities: np.ndarray, is_right: np.ndarray, edges: Sequence[float]) -> dict[str, list[float]]:
    """Return the reliability diagram (DeGroot and Fienberg 1983): per bin, the probabilities and the share of right.

    `probabilities` (float64, (m,)) lie between the first and the last of the sorted `edges`; `is_right` is bool (m,).
    Each list has an entry per bin [lower, upper) that has pairs; the last bin includes its upper edge.
    """
    borders = np.asarray(edges, np.float64)
    bin_of = np.minimum(np.searchsorted(borders, probabilities, side="right"), len(borders) - 1) - 1
    bins, rows = np.unique(bin_of, return_inverse=True)
    pairs, sums, right = (np.bincount(rows, weights, len(bins)) for weights in (None, probabilities, is_right))
    columns = {
        "lower": borders[bins],
        "upper": borders[bins + 1],
        "pairs": pairs.astype(np.float64),
        "mean_probability": sums / pairs,
        "share_right": right / pairs,
    }
    return {name: column.tolist() for name, column in columns.items()}


def partners_changed(now: Clustering, earlier: Clustering) -> float:
    """Return the share of clustered questions, of either run, that are not in the cluster of the same id in both.

    Both name clusters by their id. Return 0 if neither has any.
    """
    questions = len(distinct(np.concatenate([now.keys, earlier.keys])))
    both = (np.stack(clustering, axis=1) for clustering in (now, earlier))
    return (questions - int(are_pairs_among(*both).sum())) / questions if questions else 0.0


# The measures on known duplicates in JSON and in text tables, and what a run cannot measure.


class Labelled(TypedDict):
    """Measures on labelled pairs."""

    duplicates: int
    others: int
    systems: dict[str, dict[str, float]]


class LinkMetrics(TypedDict, total=False):
    """Measures of each system, by its name."""

    left_out: dict[str, int]
    test_queries: int
    test_queries_available: int
    archive_questions: int
    retrieval: dict[str, dict[str, float]]
    intervals: dict[str, dict[str, tuple[float, float]]]  # 95 %, of some measures of `retrieval`: low, high
    balanced_pairs: dict[str, float]  # accuracies, and the number of `pairs`
    labelled_pairs: Labelled | None  # None if pairs of one of the two labels are missing
    labels: dict[str, int]  # see Labels.counts


_LABELLED = {"accuracy": "Acc", "average_precision": "AP", "roc_auc": "AUC"}


def retrieval_table(known: LinkMetrics) -> str:
    """Return a row per system: Accuracy@1, @5, @10, MAP and recall@k in per cent; then the 95 % intervals, if known."""
    head = f"{known['test_queries']} test questions against {known['archive_questions']:,} questions"
    cut = max((int(measures["map_cut"]) for measures in known["retrieval"].values()), default=0)
    columns = {
        **{f"accuracy_at_{n}": f"Acc@{n}" for n in _ACCURACY_RANKS},
        "map": f"MAP@{cut}",
        **{f"recall_at_{n}": f"R@{n}" for n in _RANKS},
    }
    lines = [head, *_rows(known["retrieval"], columns)]
    if known.get("intervals"):
        lines.append("95 % intervals, by bootstrap over the test questions")
    for name, intervals in known.get("intervals", {}).items():
        cells = (f"{columns[key]} {100 * low:.1f} to {100 * high:.1f}" for key, (low, high) in intervals.items())
        lines.append(f"{name:24}" + ", ".join(cells))
    return "\n".join(lines)


def pairs_table(known: LinkMetrics) -> str:
    """Return a row per system: accuracy on balanced pairs, and the measures on labelled ones, if any; in per cent."""
    measures = dict(known["balanced_pairs"])
    head = f"{measures.pop('pairs')} test pairs, half of them linked, half random"
    rows = [head, *(f"{name:24}{100 * value:8.1f}" for name, value in measures.items())]
    labelled = known.get("labelled_pairs")
    if labelled:
        rows.append(f"{labelled['duplicates']} test pairs labelled 1, {labelled['others']} labelled 0")
        rows += _rows(labelled["systems"], _LABELLED)
    return "\n".join(rows)


def left_out(known: LinkMetrics) -> str:
    """Return one or two lines on what was left out of the measurement and why."""
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
    """Return a heading, and a row per system with the columns that any system has, in per cent."""
    used = {key: label for key, label in columns.items() if any(key in measures for measures in systems.values())}
    rows = [f"{'':24}" + "".join(f"{label:>8}" for label in used.values())]
    for name, measures in systems.items():
        cells = (f"{100 * measures[key]:8.1f}" if key in measures else f"{'-':>8}" for key in used)
        rows.append(f"{name:24}" + "".join(cells))
    return rows


TABLES: dict[str, Callable[[LinkMetrics], str]] = {"pairs": pairs_table, "retrieval": retrieval_table}


def not_measured(metrics: Mapping[str, Any], has_links: bool) -> dict[str, str]:
    """Return the reason for each measure of metrics.json that is null, or rests on nothing of this archive.

    `has_links` tells whether the run has links and does not ignore them.
    """
    reasons, calibration = {}, metrics["calibration"]
    if metrics["links"] is None:
        why = "no link is between two questions of the archive that the encoder was not trained on"
        reasons["links"] = (
            f"no known duplicates to test on ({why if has_links else 'the run was given no links, or ignored them'}): "
            "neither the recall nor the precision of clusters is known"
        )
    if not calibration["development_sets"] and not calibration["judged_pairs"]:
        reasons["calibration"] = (
            "no known duplicates to calibrate on, and no verdicts: probabilities are those of a prior, learned on "
            f"{len(calibration['prior_sites'])} other sites"
        )
    return reasons


def encoder_pairs(pairs: pa.Table) -> pa.Table:
    """Return the rows of PAIRS that the encoder found."""
    return pairs.filter(pc.equal(pairs["source"], "encoder"))
