"""From scores to decisions: the threshold of clusters and the probability of a pair."""

import numpy as np
from scipy.optimize import minimize

from dupq.clusters.components import components

_PRIOR = 1.0  # strength of the pull towards a flat curve, so that a separable set has a finite answer


def best_cluster_threshold(
    edges: np.ndarray, similarities: np.ndarray, queries: np.ndarray, known: np.ndarray, beta: float, highest: float
) -> tuple[float, dict[str, float]]:
    """The similarity from which edges join questions, such that the clusters that they make are best.

    Judged are clusters and not edges, because one wrong edge joins all questions of two clusters: each of
    `queries` calls every other question of its cluster a duplicate, and `known` (int64, shape (m, 2): a query and
    one of its duplicates) are those that it should. F = (1 + b^2) P R / (b^2 P + R) (van Rijsbergen 1979): a beta
    under 1 weighs precision more. Tried are up to 100 thresholds, from that of the ten best edges to that of all.
    Returns the threshold, `highest` if none finds anything, with its precision and recall.
    """
    best, found = highest, {"precision": 0.0, "recall": 0.0, "f": 0.0}
    for threshold in _candidates(similarities):
        members, clusters = components(edges[similarities >= threshold])
        called = _cluster_sizes(members, clusters, queries).sum() - len(queries)
        hits = _joined(members, clusters, known)
        if not hits:
            continue
        measure = (1 + beta**2) * hits / (called + beta**2 * len(known))
        if measure > found["f"]:
            best, found = threshold, {"precision": hits / called, "recall": hits / len(known), "f": measure}
    return best, {name: float(value) for name, value in found.items()}


def _candidates(similarities: np.ndarray) -> list[float]:
    ordered = np.sort(similarities)[::-1]
    places = np.unique(np.geomspace(min(10, max(1, len(ordered))), max(1, len(ordered)), 100).round().astype(int)) - 1
    return np.unique(ordered[places])[::-1].tolist() if len(ordered) else []


def _cluster_sizes(members: np.ndarray, clusters: np.ndarray, queries: np.ndarray) -> np.ndarray:
    """How many questions the cluster of each query has; 1 for a query that no edge touches."""
    _, numbers, sizes = np.unique(clusters, return_inverse=True, return_counts=True)
    places, inside = _places(members, queries)
    return np.where(inside, sizes[numbers[places]], 1) if len(members) else np.ones(len(queries), int)


def _joined(members: np.ndarray, clusters: np.ndarray, pairs: np.ndarray) -> int:
    """How many pairs are in one cluster."""
    if not len(members):
        return 0
    (left, left_inside), (right, right_inside) = (_places(members, side) for side in pairs.T)
    return int((left_inside & right_inside & (clusters[left] == clusters[right])).sum())


def _places(members: np.ndarray, keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    if not len(members):
        return np.zeros(len(keys), int), np.zeros(len(keys), bool)
    places = np.minimum(np.searchsorted(members, keys), len(members) - 1)
    return places, members[places] == keys


def fit_probability(similarities: np.ndarray, known: np.ndarray) -> tuple[float, float]:
    """Slope and intercept of probability = 1 / (1 + exp(-(slope * s + intercept))) (Platt 1999).

    Fitted by maximum likelihood with a weak Gaussian prior on the slope; never falling.
    """
    labels = known.astype(np.float64)

    def loss(parameters: np.ndarray) -> float:
        logits = parameters[0] * similarities + parameters[1]
        likelihood = np.logaddexp(0.0, logits) - labels * logits
        return float(likelihood.sum() + 0.5 * _PRIOR * (parameters[0] / 10.0) ** 2)

    start = np.array([1.0, 0.0])
    slope, intercept = minimize(loss, start, method="L-BFGS-B", bounds=[(0.0, None), (None, None)]).x
    return float(slope), float(intercept)
