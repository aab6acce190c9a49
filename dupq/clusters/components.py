"""Connected components of a graph of questions, on verified edges only; what people said of pairs, as constraints on
them; and how well its edges hold a cluster together.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import NamedTuple

import numpy as np

from dupq.kernel_cache import numba
from dupq.text.keys import are_among, distinct

_EDGES_AT_ONCE = 1 << 20
_EDGES_HELD = 1 << 22  # before those of some parts become a forest


def components(edges: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The questions that `edges` touch, and for each the smallest key of its component.

    `edges` is int64 of shape (m, 2). Both results are int64 and sorted by question. The answer does not depend on the
    order of the edges. Union-find over the numbered questions; memory: 24 bytes a question beside the edges, and 16 an
    edge while the questions are numbered.
    """
    members = distinct(edges)
    parents = np.arange(len(members))
    for start in range(0, len(edges), _EDGES_AT_ONCE):
        ends = np.searchsorted(members, edges[start : start + _EDGES_AT_ONCE])
        _unite(parents, ends)
    _flatten(parents)
    return members, members[parents]


def forest(edges: np.ndarray) -> np.ndarray:
    """The fewest edges (int64, shape (m, 2)) with the same components: each question with the smallest of its own."""
    members, smallest = components(edges)
    is_joined = members != smallest
    return np.stack([smallest[is_joined], members[is_joined]], axis=1)


def forest_of(parts: Iterable[np.ndarray]) -> np.ndarray:
    """A forest with the components of the edges of all parts, or some more edges.

    Memory: some parts, or three times the forest: 48 bytes a question in it, however many edges there are.
    """
    held, count, most = [np.zeros((0, 2), np.int64)], 0, _EDGES_HELD
    for part in parts:
        held.append(part)
        count += len(part)
        if count > most:
            held = [forest(np.concatenate(held))]
            count = len(held[0])
            most = max(_EDGES_HELD, 2 * count)
    return np.concatenate(held)


def represented(keys: np.ndarray, members: np.ndarray, representatives: np.ndarray) -> np.ndarray:
    """For each key the question that represents it; `members` is sorted."""
    if not len(members):
        return keys
    indices = np.minimum(np.searchsorted(members, keys), len(members) - 1)
    return np.where(members[indices] == keys, representatives[indices], keys)


def with_represented(
    representatives: tuple[np.ndarray, np.ndarray], solved: tuple[np.ndarray, np.ndarray]
) -> tuple[np.ndarray, np.ndarray]:
    """The questions of clusters of two and more (sorted keys), and the smallest key of each one's cluster.

    Both arguments are sorted keys with a key for each: its representative, and the first of a representative's cluster.
    """
    keys = distinct(np.concatenate([representatives[0], solved[0]]))
    labelled = represented(represented(keys, *representatives), *solved)
    _, first, indices, sizes = np.unique(labelled, return_index=True, return_inverse=True, return_counts=True)
    kept = sizes[indices] > 1
    return keys[kept], keys[first][indices][kept]  # keys are sorted, so the first of a cluster is its smallest


@numba.njit(nogil=True, cache=True)
def _unite(parents: np.ndarray, edges: np.ndarray) -> None:
    """Join the components of both ends of each edge; a root is always the smallest number of its component."""
    for edge in range(len(edges)):
        left, right = _root(parents, edges[edge, 0]), _root(parents, edges[edge, 1])
        if left < right:
            parents[right] = left
        else:
            parents[left] = right


@numba.njit(nogil=True, cache=True)
def _root(parents: np.ndarray, index: int) -> int:
    """Return the root of a node of a forest; `parents` is that of each, its own of a root."""
    while parents[index] != index:
        parents[index] = parents[parents[index]]  # path halving
        index = parents[index]
    return index


@numba.njit(nogil=True, cache=True)
def _flatten(parents: np.ndarray) -> None:
    for index in range(len(parents)):  # a parent is smaller than its child, so it is flat already
        parents[index] = parents[parents[index]]


class Constraints(NamedTuple):
    """Pairs of representatives (int64 keys, shape (m, 2), left < right, each once)."""

    joined: np.ndarray  # those that join at any probability
    is_verdict: np.ndarray  # bool: people judged them, or others that they represent, to be the same; else a known link
    apart: np.ndarray  # those that must not get into one cluster, directly or through others
    contradicting: int  # pairs that were judged to be the same, which those that must be apart forbid


def constraints(
    same: np.ndarray,
    links: np.ndarray,
    apart: np.ndarray,
    keys: np.ndarray,
    represent: Callable[[np.ndarray], np.ndarray],
) -> Constraints:
    """The constraints by verdicts and known links (pairs of keys, shape (m, 2)) on the questions that represent others.

    Pairs with a question that is not among the sorted `keys` count for nothing. Where not all others can hold, `apart`
    wins over `same`, and both over `links`; of pairs that are alike the smaller one.
    """
    same, links, apart = (
        _between(represent(pairs[are_among(keys, pairs).all(axis=1)])) for pairs in (same, links, apart)
    )
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
    from networkx.utils import UnionFind

    sets = UnionFind()
    foes = defaultdict[int, set[int]](set)  # of each root, the roots that it must not be joined with
    for left, right in inside.tolist():
        foes[left].add(right)
        foes[right].add(left)
    for row, (left, right) in zip(rows.tolist(), edges[rows].tolist(), strict=True):
        one, other = sets[left], sets[right]
        if other in foes[one]:
            is_joinable[row] = False
        elif one != other:
            sets.union(one, other)
            kept = sets[one]
            lost = other if kept == one else one
            for foe in foes.pop(lost, ()):
                foes[foe].discard(lost)
                foes[foe].add(kept)
                foes[kept].add(foe)
    return is_joinable


class ClusterStatistics(NamedTuple):
    """A column a field, a row a cluster; see tables.CLUSTER_STATS."""

    clusters: np.ndarray
    sizes: np.ndarray
    edges: np.ndarray
    densities: np.ndarray
    weakest_links: np.ndarray
    bridges: np.ndarray


def cluster_statistics(clusters: np.ndarray, edges: np.ndarray, probabilities: np.ndarray) -> ClusterStatistics:
    """Of each cluster, sorted by cluster.

    Row i of `edges` (int64, shape (m, 2), no repeats) is inside cluster `clusters[i]`; no question is in two
    clusters. The answer does not depend on the order of the edges. Memory: about 1 kB an edge.
    """
    import networkx as nx  # which takes .2 s, in no other task

    names, owners = np.unique(clusters, return_inverse=True)
    members, ends = np.unique(edges, return_inverse=True)
    ends = ends.reshape(-1, 2)
    of_members = np.empty(len(members), np.int64)
    of_members[ends[:, 0]] = of_members[ends[:, 1]] = owners
    sizes = np.bincount(of_members, minlength=len(names))
    counts = np.bincount(owners, minlength=len(names))
    weakest = np.full(len(names), np.inf, probabilities.dtype)
    np.minimum.at(weakest, owners, probabilities)
    only_paths = np.array(list(nx.bridges(nx.Graph(ends.tolist()))), np.int64).reshape(-1, 2)
    bridges = np.bincount(of_members[only_paths[:, 0]], minlength=len(names))
    return ClusterStatistics(names, sizes, counts, counts / (sizes * (sizes - 1) / 2), weakest, bridges)
