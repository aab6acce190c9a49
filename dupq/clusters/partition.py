"""Correlation clustering: the best partition of a component into clusters, given the probability of each pair.

The sum of the weights of the pairs inside clusters is maximised. A cluster that no pair of positive weight holds
together can be split without loss, so the groups that pairs of positive weight connect are solved one by one:
a small one exactly, a larger one by greedy additive edge contraction (Keuper et al. 2015), then moves of single
questions and more contraction until nothing gains. Every pair that is not listed weighs the same, so sums are kept
of the `excess` of listed pairs above that weight: joining two clusters gains the excess between them plus
`absent` for each of their size × size pairs.
"""

import heapq
from typing import NamedTuple

import numpy as np

from dupq.clusters.components import components, root
from dupq.kernel_cache import numba

_EXACT = 12  # nodes; 3^12 / 2 steps take half a millisecond
_ROUNDS = 100  # of contraction, moves and splits
_SWEEPS = 100  # of moves in a round
_LEAST_GAIN = 1e-9  # less is rounding: ties are broken by position, and the rounds terminate
_EMPTY = -1


def partition(count: int, pairs: np.ndarray, weights: np.ndarray, absent: float) -> np.ndarray:
    """For each of the nodes 0 to `count` - 1 the smallest node of its cluster (int64).

    `pairs` is int64 of shape (m, 2), each pair once; `weights` float64 of shape (m,), above 0 for pairs that should
    be joined, and -inf for those that never share a cluster. Every other pair weighs `absent`, which is finite and at
    most 0. Each cluster is connected by pairs of positive weight. The answer depends neither on the order of the pairs
    nor on their orientation, and that of several components at once is that of each alone. Memory: about 400 bytes a
    pair.
    """
    if not ((weights < np.inf).all() and np.isfinite(absent) and absent <= 0):
        raise ValueError("weights must be finite or -inf, and absent finite and at most 0")
    lower, upper = pairs.min(axis=1), pairs.max(axis=1)
    order = np.lexsort((upper, lower))
    pairs, weights = np.stack([lower[order], upper[order]], axis=1), weights[order]
    groups = connected(count, pairs[weights > 0])
    within = groups[pairs[:, 0]] == groups[pairs[:, 1]]
    pairs, weights = pairs[within], weights[within]
    owners = groups[pairs[:, 0]]
    exact = np.bincount(groups, minlength=count)[owners] <= _EXACT
    labels = _greedy(count, pairs[~exact], weights[~exact], absent)
    pairs, weights, owners = pairs[exact], weights[exact], owners[exact]
    order = np.argsort(owners, kind="stable")
    starts = np.flatnonzero(np.diff(owners[order], prepend=_EMPTY, append=_EMPTY)) if len(owners) else np.zeros(1, int)
    _solve_each(starts, pairs[order], weights[order], absent, labels)
    return labels


def objective(pairs: np.ndarray, weights: np.ndarray, labels: np.ndarray, absent: float) -> float:
    """The sum of the weights of all pairs inside clusters, listed or not; shapes as in `partition`."""
    inside = labels[pairs[:, 0]] == labels[pairs[:, 1]]
    sizes = np.unique(labels, return_counts=True)[1]
    absent_pairs = (sizes * (sizes - 1) // 2).sum() - inside.sum()
    return float(weights[inside].sum() + absent * absent_pairs)


def connected(count: int, pairs: np.ndarray) -> np.ndarray:
    """For each node the smallest node that `pairs` connect it with."""
    labels = np.arange(count)
    members, smallest = components(pairs)
    labels[members] = smallest
    return labels


# Small groups: every subset of nodes, once.


@numba.njit(nogil=True, cache=True)
def _solve_each(starts: np.ndarray, pairs: np.ndarray, weights: np.ndarray, absent: float, labels: np.ndarray) -> None:
    """Write the best labels of all nodes of `pairs`, whose groups begin at `starts`."""
    for group in range(len(starts) - 1):
        start, end = starts[group], starts[group + 1]
        members = np.unique(pairs[start:end].ravel())
        matrix = np.full((len(members), len(members)), absent)
        for row in range(start, end):
            left, right = np.searchsorted(members, pairs[row, 0]), np.searchsorted(members, pairs[row, 1])
            matrix[left, right] = matrix[right, left] = weights[row]
        labels[members] = members[_optimum(matrix)]


@numba.njit(nogil=True, cache=True)
def _optimum(matrix: np.ndarray) -> np.ndarray:
    """The labels of the best of all partitions of the nodes of a symmetric matrix of weights.

    The best partition of a set is the best cluster of its smallest node with the best partition of what is left.
    """
    inside = _sums(matrix)
    best, clusters = np.zeros(len(inside)), np.zeros(len(inside), np.int64)
    for nodes in range(1, len(inside)):
        smallest = nodes & -nodes
        rest = nodes ^ smallest
        best[nodes], clusters[nodes] = best[rest], smallest
        others = -rest & rest
        while others:
            value = inside[smallest | others] + best[rest ^ others]
            if value > best[nodes] + _LEAST_GAIN:
                best[nodes], clusters[nodes] = value, smallest | others
            others = (others - rest) & rest  # the next larger subset of the rest
    return _labels(clusters, len(matrix))


@numba.njit(nogil=True, cache=True)
def _sums(matrix: np.ndarray) -> np.ndarray:
    """For each subset of the nodes, as bits, the sum of the weights of its pairs."""
    sums = np.zeros(1 << len(matrix))
    for last in range(len(matrix)):
        for others in range(1 << last):
            total = sums[others]
            for node in range(last):
                if others >> node & 1:
                    total += matrix[node, last]
            sums[others | 1 << last] = total
    return sums


@numba.njit(nogil=True, cache=True)
def _labels(clusters: np.ndarray, count: int) -> np.ndarray:
    labels = np.full(count, _EMPTY)
    left = len(clusters) - 1
    for smallest in range(count):
        if left >> smallest & 1:
            cluster = clusters[left]
            for node in range(smallest, count):
                if cluster >> node & 1:
                    labels[node] = smallest
            left ^= cluster
    return labels


# Larger groups: contraction, moves and splits. None of them lowers the sum, so the rounds end where none raises it.


def _greedy(count: int, pairs: np.ndarray, weights: np.ndarray, absent: float) -> np.ndarray:
    """Labels that neither joining two clusters nor moving one node improves; nodes without pairs stay alone."""
    labels = np.arange(count)
    if not len(pairs):
        return labels
    excess, positive = weights - absent, pairs[weights > 0]
    neighbours = _neighbours(count, pairs, excess)
    for _ in range(_ROUNDS):
        changed = _joined(labels, pairs, excess, absent)
        for _ in range(_SWEEPS):
            if not _sweep(neighbours, changed, absent):
                break
        changed = connected(count, positive[changed[positive[:, 0]] == changed[positive[:, 1]]])
        if np.array_equal(changed, labels):
            break
        labels = changed
    return labels


def _joined(labels: np.ndarray, pairs: np.ndarray, excess: np.ndarray, absent: float) -> np.ndarray:
    """The labels after joining clusters for as long as two of them gain by it, those that gain most first."""
    graph = _cluster_graph(labels, pairs, excess)
    _contract(graph, absent)
    return graph.parents[labels]


class _Graph(NamedTuple):
    """Clusters, and edges with the excess between two; an edge keeps its row when its ends are joined."""

    ends: np.ndarray  # (m, 2) the clusters
    excess: np.ndarray  # (m,)
    gone: np.ndarray  # (m,) whether it was joined with another edge, or its ends with each other
    following: np.ndarray  # (2 m,) linked lists of the half-edges of a cluster; half-edges 2 e and 2 e + 1 are edge e's
    first: np.ndarray  # (count,) the head of each cluster's list
    degrees: np.ndarray  # (count,) edges of each cluster that are not gone
    sizes: np.ndarray  # (count,)
    parents: np.ndarray  # (count,) union-find


def _cluster_graph(labels: np.ndarray, pairs: np.ndarray, excess: np.ndarray) -> _Graph:
    count = len(labels)
    between = labels[pairs]
    apart = between[:, 0] != between[:, 1]
    codes, edges = np.unique(between[apart].min(axis=1) * count + between[apart].max(axis=1), return_inverse=True)
    return _Graph(
        ends=np.stack([codes // count, codes % count], axis=1),
        excess=np.bincount(edges, excess[apart], minlength=len(codes)),
        gone=np.zeros(len(codes), bool),
        following=np.full(2 * len(codes), _EMPTY),
        first=np.full(count, _EMPTY),
        degrees=np.zeros(count, np.int64),
        sizes=np.bincount(labels, minlength=count),
        parents=np.arange(count),
    )


@numba.njit(nogil=True, cache=True)
def _link(graph: _Graph, half: int, cluster: int) -> None:
    graph.following[half] = graph.first[cluster]
    graph.first[cluster] = half
    graph.degrees[cluster] += 1


@numba.njit(nogil=True, cache=True)
def _ends(graph: _Graph, left: int, right: int) -> int:
    """Return the key of an edge between two clusters among `edges`."""
    return min(left, right) * len(graph.first) + max(left, right)


@numba.njit(nogil=True, cache=True)
def _gain(graph: _Graph, edge: int, absent: float) -> float:
    """The gain of joining the ends of an edge."""
    return graph.excess[edge] + absent * graph.sizes[graph.ends[edge, 0]] * graph.sizes[graph.ends[edge, 1]]


@numba.njit(nogil=True, cache=True)
def _contract(graph: _Graph, absent: float) -> None:
    """Join the two clusters that gain most until none gains.

    A gain rises only where two edges become one, which goes on the heap again; it falls with every growth of
    a cluster, which is only seen when the edge comes to the top.
    """
    for half in range(len(graph.following)):
        _link(graph, half, graph.ends[half >> 1, half & 1])
    # Nothing is deleted: clusters that are lost never return, so nobody asks for their edges.
    edges = {_ends(graph, graph.ends[edge, 0], graph.ends[edge, 1]): edge for edge in range(len(graph.ends))}
    gains = [(-_gain(graph, edge, absent), edge) for edge in range(len(graph.ends))]
    heap = [(loss, edge) for loss, edge in gains if loss < -_LEAST_GAIN]
    heapq.heapify(heap)
    while heap:
        loss, edge = heap[0]
        gain = _gain(graph, edge, absent)
        if graph.gone[edge] or gain <= _LEAST_GAIN:
            heapq.heappop(heap)
        elif gain < -loss:
            heapq.heapreplace(heap, (-gain, edge))
        else:
            heapq.heappop(heap)
            _join(graph, edge, edges, heap, absent)
    for cluster in range(len(graph.parents)):
        graph.parents[cluster] = root(graph.parents, cluster)


@numba.njit(nogil=True, cache=True)
def _join(graph: _Graph, edge: int, edges: dict[int, int], heap: list[tuple[float, int]], absent: float) -> None:
    """Join the ends of an edge; the edges of the end that has fewer are handed to the other."""
    kept, lost = graph.ends[edge, 0], graph.ends[edge, 1]
    if graph.degrees[kept] < graph.degrees[lost]:
        kept, lost = lost, kept
    graph.parents[lost] = kept
    graph.sizes[kept] += graph.sizes[lost]
    graph.gone[edge] = True
    graph.degrees[kept] -= 1
    half = graph.first[lost]
    while half != _EMPTY:
        following = graph.following[half]
        if not graph.gone[half >> 1]:
            _hand_over(graph, half, lost, kept, edges, heap, absent)
        half = following


@numba.njit(nogil=True, cache=True)
def _hand_over(
    graph: _Graph,
    half: int,
    lost: int,
    kept: int,
    edges: dict[int, int],
    heap: list[tuple[float, int]],
    absent: float,
) -> None:
    edge = half >> 1
    other = graph.ends[edge, 0] + graph.ends[edge, 1] - lost
    code = _ends(graph, kept, other)
    if code not in edges:
        graph.ends[edge, 0], graph.ends[edge, 1] = kept, other
        edges[code] = edge
        _link(graph, half, kept)
        return
    twin = edges[code]
    graph.gone[edge] = True
    graph.degrees[other] -= 1
    graph.excess[twin] += graph.excess[edge]
    heapq.heappush(heap, (-_gain(graph, twin, absent), twin))


class _Neighbours(NamedTuple):
    """Those of node i are rows `starts[i]` to `starts[i + 1]`."""

    starts: np.ndarray
    nodes: np.ndarray
    excess: np.ndarray


def _neighbours(count: int, pairs: np.ndarray, excess: np.ndarray) -> _Neighbours:
    sources, targets = np.r_[pairs[:, 0], pairs[:, 1]], np.r_[pairs[:, 1], pairs[:, 0]]
    order = np.lexsort((targets, sources))
    starts = np.searchsorted(sources[order], np.arange(count + 1))
    return _Neighbours(starts, targets[order], np.r_[excess, excess][order])


@numba.njit(nogil=True, cache=True)
def _sweep(neighbours: _Neighbours, labels: np.ndarray, absent: float) -> bool:
    """Move each node once where that gains, in order; label count + i is that of node i once it left for itself."""
    count, moved = len(labels), False
    sizes, towards = np.zeros(2 * count, np.int64), np.zeros(2 * count)
    for node in range(count):
        sizes[labels[node]] += 1
    for node in range(count):
        best = _best_cluster(neighbours, node, labels, sizes, towards, absent)
        if best != labels[node]:
            moved = True
            sizes[labels[node]] -= 1
            sizes[best] += 1
            labels[node] = best
    _relabel(labels)
    return moved


@numba.njit(nogil=True, cache=True)
def _best_cluster(
    neighbours: _Neighbours, node: int, labels: np.ndarray, sizes: np.ndarray, towards: np.ndarray, absent: float
) -> int:
    """The label with which the node adds most; its own unless another gains. `towards` is all 0 before and after."""
    rows = range(neighbours.starts[node], neighbours.starts[node + 1])
    for row in rows:
        towards[labels[neighbours.nodes[row]]] += neighbours.excess[row]
    own = best = labels[node]
    most = towards[own] + absent * (sizes[own] - 1) + _LEAST_GAIN
    if most < 0:
        best, most = len(labels) + node, 0.0
    for row in rows:
        label = labels[neighbours.nodes[row]]
        value = towards[label] + absent * sizes[label]
        if label != own and value > most:
            best, most = label, value
    for row in rows:
        towards[labels[neighbours.nodes[row]]] = 0
    return best


@numba.njit(nogil=True, cache=True)
def _relabel(labels: np.ndarray) -> None:
    """Name each cluster by its smallest node."""
    smallest = np.full(2 * len(labels), _EMPTY)
    for node in range(len(labels)):
        if smallest[labels[node]] == _EMPTY:
            smallest[labels[node]] = node
        labels[node] = smallest[labels[node]]
