"""Measures of retrieval and of pair classification, in plain numpy.

A night's run calls these, in processes that would take half a second to two to import scipy or scikit-learn; tests hold
them to ir_measures and scikit-learn. `query_measures.py` has every other measure of rankings, by ir_measures.
"""

from collections.abc import Sequence

import numpy as np

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
