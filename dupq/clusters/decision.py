"""From pairs with a probability to clusters, at a threshold: components of sure pairs, and of each the best partition.

In components up to a size, pairs that no question lists are scored too; in larger ones they count as least likely.
"""

from collections.abc import Callable

import numpy as np
from scipy.special import logit

from dupq.clusters.components import components
from dupq.clusters.partition import partition
from dupq.text.keys import are_among

_NO_PAIRS = np.zeros((0, 2), np.int64)
SCORED_SIZE = 1_000  # questions of a component of which every pair is scored; beyond it, only candidates
_LEAST_PROBABILITY, _MOST_PROBABILITY = 1e-3, 1 - 1e-6


def decide(
    pairs: np.ndarray,
    probabilities: np.ndarray,
    links: np.ndarray,
    threshold: float,
    scored_size: int,
    score: Callable[[np.ndarray], np.ndarray],
    apart: np.ndarray = _NO_PAIRS,
) -> tuple[np.ndarray, np.ndarray]:
    """The questions (int64 keys, sorted) of components, and for each the smallest key of its cluster.

    `pairs` (int64 keys, shape (m, 2), left < right, each once) have `probabilities` (float32); `links` (likewise) join
    at any probability, and pairs that are `apart` (likewise) are never in one cluster. `score` gives the probabilities
    of pairs that are not among `pairs`, in components of three to `scored_size` questions. This is the partition stage
    in one process. Memory: about 500 bytes a pair of components.
    """
    sure = probabilities >= np.float32(threshold)
    keys, owners = components(np.concatenate([links, pairs[sure]]))
    _, indices, sizes = np.unique(owners, return_inverse=True, return_counts=True)
    is_scored = (sizes[indices] > 2) & (sizes[indices] <= scored_size)
    rows = np.flatnonzero(are_among(keys, pairs).all(axis=1))
    ends = np.searchsorted(keys, pairs[rows])
    inside = owners[ends[:, 0]] == owners[ends[:, 1]] if len(keys) else np.zeros(len(rows), bool)
    listed, p = ends[inside], probabilities[rows[inside]]
    missing = missing_pairs(owners, is_scored, listed)
    p = np.concatenate([p, score(keys[missing])]) if len(missing) else p
    pairs = np.concatenate([listed, missing])
    firsts, apart = linked_sets(links, keys), among(keys, apart)
    return keys, keys[best_partition(firsts, pairs, p, len(listed), threshold, apart)]


def among(keys: np.ndarray, pairs: np.ndarray) -> np.ndarray:
    """The pairs (int64, shape (m, 2)) of which both are among the sorted `keys`, as indices of these."""
    return np.searchsorted(keys, pairs[are_among(keys, pairs).all(axis=1)])


def best_partition(
    firsts: np.ndarray,
    pairs: np.ndarray,
    probabilities: np.ndarray,
    listed: int,
    threshold: float,
    apart: np.ndarray = _NO_PAIRS,
) -> np.ndarray:
    """For each of n questions (numbered 0 to n - 1) the first of its cluster (int64).

    `pairs` are of indices, each once; `firsts` says which questions known links have made one (see `linked_sets`). Only
    the first `listed` pairs are in the table of pairs: a cluster is split into what those above the threshold, and
    links, connect, as it would have nothing to show for the rest. Pairs that are `apart`, of indices too and not of one
    linked set, are never in one cluster.
    """
    even = logit(np.clip(threshold, _LEAST_PROBABILITY, _MOST_PROBABILITY))
    weights = logit(np.clip(probabilities.astype(np.float64), _LEAST_PROBABILITY, _MOST_PROBABILITY)) - even
    absent = min(0.0, float(logit(_LEAST_PROBABILITY) - even))
    weighed, weights = np.concatenate([pairs, apart]), np.concatenate([weights, np.full(len(apart), -np.inf)])
    labels: np.ndarray = partition(len(firsts), *_contracted(firsts, weighed, weights, absent), absent)[firsts]
    return _connected(labels, firsts, pairs[:listed][probabilities[:listed] >= np.float32(threshold)])


def _connected(labels: np.ndarray, firsts: np.ndarray, sure: np.ndarray) -> np.ndarray:
    """For each question the first of those of its label that `sure` pairs and links connect it with."""
    within = sure[labels[sure[:, 0]] == labels[sure[:, 1]]]
    linked = np.stack([np.arange(len(firsts)), firsts], axis=1)[firsts != np.arange(len(firsts))]
    members, smallest = components(np.concatenate([within, linked]))
    found = np.arange(len(firsts))
    found[members] = smallest
    return found


def missing_pairs(owners: np.ndarray, is_scored: np.ndarray, pairs: np.ndarray) -> np.ndarray:
    """The pairs (int64, shape (m, 2), of indices) within components that are scored, that are not among `pairs`.

    `owners` is the component of each question, `is_scored` whether that is scored.
    """
    order = np.argsort(owners, kind="stable")
    order = order[is_scored[order]]
    starts = np.flatnonzero(np.r_[True, np.diff(owners[order]) != 0]) if len(order) else np.zeros(0, np.int64)
    found = [np.zeros((0, 2), np.int64)]
    for indices in np.split(order, starts[1:]) if len(order) else []:
        one, other = np.triu_indices(len(indices), 1)
        found.append(np.stack([indices[one], indices[other]], axis=1))
    every = np.concatenate(found)
    count = np.int64(len(owners))
    known = np.sort(pairs[:, 0] * count + pairs[:, 1])
    return every[~are_among(known, every[:, 0] * count + every[:, 1])]


def linked_sets(links: np.ndarray, keys: np.ndarray) -> np.ndarray:
    """For each of the sorted `keys` the index of the first one that `links` connect it with, its own without any."""
    members, smallest = components(among(keys, links))
    firsts = np.arange(len(keys))
    firsts[members] = smallest
    return firsts


def _contracted(
    firsts: np.ndarray, pairs: np.ndarray, weights: np.ndarray, absent: float
) -> tuple[np.ndarray, np.ndarray]:
    """The pairs between linked sets, each once with the sum of its weights: linked questions are one.

    Pairs of two such sets that are not listed weigh `absent` each, where any of them is listed.
    """
    ends = np.sort(firsts[pairs], axis=1)
    apart = ends[:, 0] != ends[:, 1]
    distinct, indices = np.unique(ends[apart], axis=0, return_inverse=True)
    distinct, indices, sizes = distinct.reshape(-1, 2), indices.ravel(), np.bincount(firsts, minlength=len(firsts))
    unlisted = sizes[distinct].prod(axis=1) - np.bincount(indices, minlength=len(distinct))
    return distinct, np.bincount(indices, weights[apart], len(distinct)) + absent * unlisted
