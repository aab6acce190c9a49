"""Connected components of a graph of questions, and the constraints that people's verdicts put on them.

Only verified edges are followed.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from scipy import sparse
from scipy.sparse.csgraph import connected_components

from dupq.text.keys import are_among, distinct, indices_among, pairs_among, proper_pairs

_EDGES_HELD = 1 << 22  # before they are reduced to a forest
Represent = Callable[[np.ndarray], np.ndarray]  # from keys to the keys of their representatives


def components(edges: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the questions that `edges` touch (sorted), and for each the smallest key of its component.

    `edges` is int64 of shape (m, 2), in any order; both results are int64. Memory: some 50 bytes an edge.
    """
    members = distinct(edges)
    ends = np.searchsorted(members, edges).astype(np.int32)  # as SciPy holds them: it makes no copies
    return members, members[connected(len(members), ends)]


def connected(count: int, pairs: np.ndarray) -> np.ndarray:
    """Return for each of the nodes 0 to `count` - 1 the smallest node of its component (int64).

    `pairs` are nodes (integers, shape (m, 2)).
    """
    graph = sparse.coo_array((np.ones(len(pairs), np.int8), (pairs[:, 0], pairs[:, 1])), shape=(count, count))
    groups, labels = connected_components(graph.tocsr(), directed=False)
    smallest = np.zeros(groups, np.int64)
    smallest[labels[::-1]] = np.arange(count)[::-1]  # the last assignment to an index counts
    return smallest[labels]


def forest(edges: np.ndarray) -> np.ndarray:
    """Return the fewest edges (int64, shape (m, 2)) with the same components: each question with the smallest one."""
    members, smallest = components(edges)
    is_joined = members != smallest
    return np.stack([smallest[is_joined], members[is_joined]], axis=1)


def forest_of(arrays: Iterable[np.ndarray]) -> np.ndarray:
    """Return edges with the components of all edges in `arrays`: a forest, perhaps with some edges more.

    Memory: the largest arrays, or three times the forest: 48 bytes per question in it, however many edges.
    """
    held, count, most = [np.zeros((0, 2), np.int64)], 0, _EDGES_HELD
    for edges in arrays:
        held.append(edges)
        count += len(edges)
        if count > most:
            held = [forest(np.concatenate(held))]
            count = len(held[0])
            most = max(_EDGES_HELD, 2 * count)
    return np.concatenate(held)


def represented(keys: np.ndarray, members: np.ndarray, representatives: np.ndarray) -> np.ndarray:
    """Return the representative of each key, or the key itself if it is not among the sorted `members`."""
    indices, are_members = indices_among(members, keys)
    return np.where(are_members, representatives[indices], keys) if len(members) else keys


def with_represented(
    representatives: tuple[np.ndarray, np.ndarray], solved: tuple[np.ndarray, np.ndarray]
) -> tuple[np.ndarray, np.ndarray]:
    """Return the questions of clusters of two and more (sorted keys), and the smallest key of each one's cluster.

    `representatives` are sorted keys and their representatives; `solved` sorted representatives and their clusters.
    """
    keys = distinct(np.concatenate([representatives[0], solved[0]]))
    labels = represented(represented(keys, *representatives), *solved)
    _, first, indices, sizes = np.unique(labels, return_index=True, return_inverse=True, return_counts=True)
    is_shared = sizes[indices] > 1
    return keys[is_shared], keys[first][indices][is_shared]  # keys are sorted: the first of a cluster is its smallest


class Constraints(NamedTuple):
    """Pairs of representatives (int64 keys, shape (m, 2), left < right, each once) that people decided."""

    joined: np.ndarray  # they join at any probability
    is_verdict: np.ndarray  # bool: `joined` by a verdict, perhaps on questions that they represent; else by a link
    apart: np.ndarray  # they must not get into one cluster, not even through other questions
    contradicting: int  # pairs judged to be the same that `apart` forbids


def constraints(
    same: np.ndarray, links: np.ndarray, apart: np.ndarray, keys: np.ndarray, represent: Represent
) -> Constraints:
    """Return the constraints that verdicts and known links (pairs of keys, shape (m, 2)) put on representatives.

    Pairs with a question that is not among the sorted `keys` are ignored. Where pairs contradict one another, `apart`
    wins over `same`, both win over `links`, and otherwise the smaller pair wins.
    """
    same, links, apart = (proper_pairs(represent(pairs_among(keys, pairs))) for pairs in (same, links, apart))
    pairs, first = np.unique(np.concatenate([same, links]), axis=0, return_index=True)
    is_verdict = first < len(same)
    order = np.argsort(~is_verdict, kind="stable")
    pairs, is_verdict = pairs[order], is_verdict[order]
    may_join = joinable(pairs, apart)
    return Constraints(pairs[may_join], is_verdict[may_join], apart, int((is_verdict & ~may_join).sum()))


def joinable(edges: np.ndarray, apart: np.ndarray) -> np.ndarray:
    """Return which `edges`, taken in order, may join their ends (bool, (m,)) without joining a pair of `apart`.

    Both are int64 keys, shape (m, 2). Only components that would join such a pair are gone through edge by edge.
    """
    is_joinable = np.ones(len(edges), bool)
    members, smallest = components(edges)
    inside = pairs_among(members, apart)
    owners = smallest[np.searchsorted(members, inside)]
    torn = np.unique(owners[owners[:, 0] == owners[:, 1], 0])
    rows = np.flatnonzero(are_among(torn, smallest[np.searchsorted(members, edges[:, 0])]))
    from networkx.utils import UnionFind

    sets = UnionFind()
    foes = defaultdict[int, set[int]](set)  # roots that a root must not be joined with
    for left, right in inside.tolist():
        foes[left].add(right)
        foes[right].add(left)
    for row, (left, right) in zip(rows.tolist(), edges[rows].tolist(), strict=True):
        left, right = sets[left], sets[right]
        if right in foes[left]:
            is_joinable[row] = False
        elif left != right:
            sets.union(left, right)
            root = sets[left]
            absorbed = right if root == left else left
            for foe in foes.pop(absorbed, ()):
                foes[foe].discard(absorbed)
                foes[foe].add(root)
                foes[root].add(foe)
    return is_joinable


def clusters_in(keys: np.ndarray, members: pa.Table) -> np.ndarray:
    """Return the clusters of keys (any shape); a question in none is a cluster of its own."""
    return represented(keys, members["key"].to_numpy(), members["cluster"].to_numpy())


def are_together(pairs: np.ndarray, members: pa.Table) -> np.ndarray:
    """Tell which pairs of keys have both questions in one cluster (bool, (m,))."""
    return np.equal(*clusters_in(pairs, members).T)
