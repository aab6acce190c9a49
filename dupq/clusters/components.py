"""Connected components of a graph of questions, on verified edges only."""

from collections.abc import Iterable

import numpy as np

from dupq.kernel_cache import numba
from dupq.text.keys import distinct

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
    keys = np.union1d(representatives[0], solved[0])
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
    while parents[index] != index:
        parents[index] = parents[parents[index]]  # path halving
        index = parents[index]
    return index


@numba.njit(nogil=True, cache=True)
def _flatten(parents: np.ndarray) -> None:
    for index in range(len(parents)):  # a parent is smaller than its child, so it is flat already
        parents[index] = parents[parents[index]]
