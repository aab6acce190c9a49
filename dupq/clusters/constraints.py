"""What people said of pairs, as constraints: pairs that are to join, and pairs that must not be in one cluster."""

from collections import defaultdict
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from dupq.clusters.components import components
from dupq.text.keys import are_among


class Constraints(NamedTuple):
    """Pairs of representatives (int64 keys, shape (m, 2), left < right, each once)."""

    joined: np.ndarray  # those that join at any probability
    is_verdict: np.ndarray  # bool: people judged them, or others that they represent, to be the same; else a known link
    apart: np.ndarray  # those that must not get into one cluster, directly or through others
    contradicting: int  # pairs that were judged to be the same, which those that must be apart forbid


def constraints(
    same: np.ndarray, links: np.ndarray, apart: np.ndarray, represent: Callable[[np.ndarray], np.ndarray]
) -> Constraints:
    """The constraints by verdicts and known links (pairs of keys, shape (m, 2)) on the questions that represent others.

    Where not all can hold, `apart` wins over `same`, and both over `links`; of pairs that are alike the smaller one.
    """
    same, links, apart = (_between(represent(pairs)) for pairs in (same, links, apart))
    every, first = np.unique(np.concatenate([same, links]), axis=0, return_index=True)
    is_verdict = first < len(same)
    order = np.argsort(~is_verdict, kind="stable")
    every, is_verdict = every[order], is_verdict[order]
    kept = joinable(every, apart)
    return Constraints(every[kept], is_verdict[kept], apart, int((is_verdict & ~kept).sum()))


def _between(pairs: np.ndarray) -> np.ndarray:
    """Pairs with the smaller key on the left, each once, without those of a question with itself."""
    pairs = np.unique(np.sort(pairs, axis=1), axis=0)
    return pairs[pairs[:, 0] != pairs[:, 1]]


def joinable(edges: np.ndarray, apart: np.ndarray) -> np.ndarray:
    """Which of `edges` may join their ends (bool, (m,)), one after the other, if no pair of `apart` is to be joined.

    Both are int64 keys, shape (m, 2). Only the edges of components that hold such a pair are gone through one by one.
    """
    is_joinable = np.ones(len(edges), bool)
    members, smallest = components(edges)
    inside = apart[are_among(members, apart).all(axis=1)]
    owners = smallest[np.searchsorted(members, inside)]
    torn = np.unique(owners[owners[:, 0] == owners[:, 1], 0])
    rows = np.flatnonzero(are_among(torn, smallest[np.searchsorted(members, edges[:, 0])]))
    parents: dict[int, int] = {}
    foes = defaultdict[int, set[int]](set)  # of each root, the roots that it must not be joined with
    for left, right in inside.tolist():
        foes[left].add(right)
        foes[right].add(left)
    for row, (left, right) in zip(rows.tolist(), edges[rows].tolist(), strict=True):
        kept, lost = _root(parents, left), _root(parents, right)
        if lost in foes[kept]:
            is_joinable[row] = False
        elif kept != lost:
            parents[lost] = kept
            for foe in foes.pop(lost, ()):
                foes[foe].discard(lost)
                foes[foe].add(kept)
                foes[kept].add(foe)
    return is_joinable


def _root(parents: dict[int, int], key: int) -> int:
    while key in parents:
        if parents[key] in parents:
            parents[key] = parents[parents[key]]  # path halving
        key = parents[key]
    return key
