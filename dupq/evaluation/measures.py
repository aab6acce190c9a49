"""Measures of retrieval and of pair classification."""

from collections.abc import Sequence
from typing import Any

import numpy as np


def average_precision(ranked: Sequence[int], relevant: set[int], k: int) -> float:
    """The mean of the precision at each relevant question among the first k, over min(k, relevant) of them."""
    hits, total = 0, 0.0
    for rank, question in enumerate(ranked[:k], start=1):
        if question in relevant:
            hits += 1
            total += hits / rank
    return total / min(k, len(relevant))


def retrieval_measures(rankings: Sequence[Sequence[int]], relevant: list[set[int]], k: int) -> dict[str, Any]:
    """Accuracy@1, @5, @10 (a known duplicate among the first n) and MAP@k, means over the queries."""
    measures: dict[str, Any] = {
        f"accuracy_at_{n}": float(
            np.mean([bool(wanted.intersection(ranked[:n])) for ranked, wanted in zip(rankings, relevant, strict=True)])
        )
        for n in (1, 5, 10)
    }
    precisions = [average_precision(ranked, wanted, k) for ranked, wanted in zip(rankings, relevant, strict=True)]
    return {**measures, "map": float(np.mean(precisions)), "map_cut": k}


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
