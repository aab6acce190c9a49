"""Connected components of a graph of questions, on verified edges only."""

import numpy as np

from dupq.kernel_cache import numba

_EDGES_AT_ONCE = 1 << 20


def components(edges: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The questions that `edges` touch, and for each the smallest key of its component.

    `edges` is int64 of shape (m, 2). Both results are int64 and sorted by question. The answer does not depend on the
    order of the edges. Union-find over the numbered questions; memory: 24 bytes a question beside the edges, and 16 an
    edge while the questions are numbered.
    """
    members = np.unique(edges)
    parents = np.arange(len(members))
    for start in range(0, len(edges), _EDGES_AT_ONCE):
        ends = np.searchsorted(members, edges[start : start + _EDGES_AT_ONCE])
        _unite(parents, ends)
    _flatten(parents)
    return members, members[parents]


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
