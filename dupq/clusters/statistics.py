"""Statistics of each cluster: how well its edges hold it together (density, weakest link, bridges)."""

from typing import NamedTuple

import numpy as np

from dupq.kernel_cache import numba

_NONE = -1


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
    clusters. The answer does not depend on the order of the edges. Memory: about 100 bytes an edge.
    """
    names, owners = np.unique(clusters, return_inverse=True)
    members, ends = np.unique(edges, return_inverse=True)
    ends = ends.reshape(-1, 2)
    sizes = np.bincount(_owners_of_nodes(ends, owners, len(members)), minlength=len(names))
    counts = np.bincount(owners, minlength=len(names))
    weakest = np.full(len(names), np.inf, probabilities.dtype)
    np.minimum.at(weakest, owners, probabilities)
    bridges = np.bincount(owners[_are_bridges(ends, len(members))], minlength=len(names))
    return ClusterStatistics(names, sizes, counts, counts / (sizes * (sizes - 1) / 2), weakest, bridges)


def _owners_of_nodes(ends: np.ndarray, owners: np.ndarray, count: int) -> np.ndarray:
    found = np.empty(count, np.int64)
    found[ends[:, 0]] = found[ends[:, 1]] = owners
    return found


def _are_bridges(ends: np.ndarray, count: int) -> np.ndarray:
    """Whether each edge is a bridge, the only path between its ends; nodes are 0 to `count` - 1."""
    halves = np.argsort(ends.ravel(), kind="stable")  # half-edges 2 i and 2 i + 1 are edge i's
    starts = np.r_[0, np.cumsum(np.bincount(ends.ravel(), minlength=count))]
    found = np.zeros(len(ends), bool)
    _find_bridges(ends, halves, starts, found)
    return found


@numba.njit(nogil=True, cache=True)
def _find_bridges(ends: np.ndarray, halves: np.ndarray, starts: np.ndarray, found: np.ndarray) -> None:
    """Tarjan's search of each component, with `parents` for a stack."""
    count = len(starts) - 1
    order, lowest = np.full(count, _NONE), np.empty(count, np.int64)
    parents = np.full(count, _NONE)  # the edge by which a node was found
    following = starts[:-1].copy()  # the next half-edge of each node
    seen = 0
    for root in range(count):
        node = root if order[root] == _NONE else _NONE
        while node != _NONE:
            if order[node] == _NONE:
                order[node] = lowest[node] = seen
                seen += 1
            if following[node] < starts[node + 1]:
                node = _step(node, ends, halves, following, order, lowest, parents)
            else:
                node = _leave(node, ends, order, lowest, parents, found)


@numba.njit(nogil=True, cache=True)
def _step(
    node: int,
    ends: np.ndarray,
    halves: np.ndarray,
    following: np.ndarray,
    order: np.ndarray,
    lowest: np.ndarray,
    parents: np.ndarray,
) -> int:
    """Follow the node's next edge: the node behind it if that is new, else the same node."""
    half = halves[following[node]]
    following[node] += 1
    edge, other = half >> 1, ends[half >> 1, 1 - (half & 1)]
    if edge == parents[node]:
        return node
    if order[other] != _NONE:
        lowest[node] = min(lowest[node], order[other])
        return node
    parents[other] = edge
    return other


@numba.njit(nogil=True, cache=True)
def _leave(
    node: int, ends: np.ndarray, order: np.ndarray, lowest: np.ndarray, parents: np.ndarray, found: np.ndarray
) -> int:
    """Go back to the node's parent: its edge is a bridge if nothing below it reaches the parent or higher."""
    edge = parents[node]
    if edge == _NONE:
        return _NONE
    parent = ends[edge, 0] + ends[edge, 1] - node
    lowest[parent] = min(lowest[parent], lowest[node])
    found[edge] = lowest[node] > order[parent]
    return parent
