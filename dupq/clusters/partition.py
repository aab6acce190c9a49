"""Correlation clustering: the best partition of a component into clusters, given the probability of each pair.

The sum of the weights of the pairs inside clusters is maximised. A cluster that no pair of positive weight holds
together can be split without loss, so the groups that pairs of positive weight connect are solved one by one. A small
group is solved exactly. A larger one is solved by greedy additive edge contraction (Keuper et al. 2015), followed by
moves of single questions and more contraction until nothing gains.

All pairs that are not listed have the same weight, `absent`. So only the `excess` of the listed pairs over it is summed
up: joining two clusters gains the excess between them plus `absent` for each of their size x size pairs.
"""

import heapq
from collections import defaultdict

import numpy as np
from scipy import sparse

from dupq.clusters.components import connected
from dupq.kernel_cache import numba

_EXACT = 12  # nodes; 3^12 / 2 steps take half a millisecond
_ROUNDS = 100  # of contraction, moves and splits
_SWEEPS = 100  # of moves in a round
_LEAST_GAIN = 1e-9  # less is rounding; so ties are broken by position, and the rounds end
_EMPTY = -1


def partition(count: int, pairs: np.ndarray, weights: np.ndarray, absent: float) -> np.ndarray:
    """Return for each of the nodes 0 to `count` - 1 the smallest node of its cluster (int64).

    `pairs` is int64 of shape (m, 2), each pair once. `weights` is float64 of shape (m,): positive for pairs that should
    join, -inf for pairs that must never share a cluster. All other pairs weigh `absent`, finite and at most 0. Pairs of
    positive weight connect each cluster. Neither the order nor the orientation of the pairs makes a difference, and
    several components at once are solved as each would be alone. Memory: about 400 bytes a pair.
    """
    lower, upper = pairs.min(axis=1), pairs.max(axis=1)
    groups = connected(count, pairs[weights > 0])
    order = np.lexsort((upper, lower, groups[lower]))
    order = order[groups[lower[order]] == groups[upper[order]]]
    owners, pairs, weights = groups[lower[order]], np.stack([lower[order], upper[order]], axis=1), weights[order]
    exact = np.bincount(groups, minlength=count)[owners] <= _EXACT
    labels = _greedy(count, pairs[~exact], weights[~exact], absent)
    starts = np.flatnonzero(np.diff(owners[exact], prepend=_EMPTY, append=_EMPTY))
    _solve_each(starts, pairs[exact], weights[exact], absent, labels)
    return labels


# Small groups: each subset of nodes is visited once.


@numba.njit(nogil=True, cache=True)
def _solve_each(starts: np.ndarray, pairs: np.ndarray, weights: np.ndarray, absent: float, labels: np.ndarray) -> None:
    """Write the best labels of all nodes of `pairs`; the pairs of a group begin at each of `starts`."""
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
    """Return the labels of the best of all partitions of the nodes of a symmetric matrix of weights."""
    # sets of nodes are numbers, a bit a node; the best partition of one combines the best cluster of its smallest node
    # with the best partition of the rest
    sets = 1 << len(matrix)
    inside, best, clusters = np.zeros(sets), np.zeros(sets), np.zeros(sets, np.int64)
    for last in range(len(matrix)):
        for earlier in range(1 << last):
            nodes = earlier | 1 << last
            inside[nodes] = inside[earlier]
            for node in range(last):
                if earlier >> node & 1:
                    inside[nodes] += matrix[node, last]
            smallest = nodes & -nodes
            rest = nodes ^ smallest
            best[nodes], clusters[nodes] = best[rest], smallest
            others = -rest & rest
            while others:
                value = inside[smallest | others] + best[rest ^ others]
                if value > best[nodes] + _LEAST_GAIN:
                    best[nodes], clusters[nodes] = value, smallest | others
                others = (others - rest) & rest  # the next larger subset of the rest
    labels, left = np.full(len(matrix), _EMPTY), sets - 1
    for smallest in range(len(matrix)):
        if left >> smallest & 1:
            for node in range(smallest, len(matrix)):
                if clusters[left] >> node & 1:
                    labels[node] = smallest
            left ^= clusters[left]
    return labels


# Larger groups: contraction, moves and splits. None of them lowers the sum; the rounds end when none raises it.


def _greedy(count: int, pairs: np.ndarray, weights: np.ndarray, absent: float) -> np.ndarray:
    """Return labels that neither joining two clusters nor moving one node improves; nodes without pairs stay alone."""
    labels = np.arange(count)
    if not len(pairs):
        return labels
    excess, positive = weights - absent, pairs[weights > 0]
    ends = np.concatenate([pairs, pairs[:, ::-1]]).T
    graph = sparse.coo_array((np.r_[excess, excess], tuple(ends)), shape=(count, count)).tocsr()
    for _ in range(_ROUNDS):
        changed = _joined(labels, pairs, excess, absent)
        for _ in range(_SWEEPS):
            if not _sweep(graph.indptr, graph.indices, graph.data, changed, absent):
                break
        changed = connected(count, positive[changed[positive[:, 0]] == changed[positive[:, 1]]])
        if np.array_equal(changed, labels):
            break
        labels = changed
    return labels


def _joined(labels: np.ndarray, pairs: np.ndarray, excess: np.ndarray, absent: float) -> np.ndarray:
    """Return the labels after joining clusters, the best gain first, for as long as a gain is left.

    A gain rises only when two edges become one, and that edge is pushed again. It falls whenever a cluster grows, which
    is noticed when the edge comes to the top.
    """
    count, between = len(labels), labels[pairs]
    apart = between[:, 0] != between[:, 1]
    codes, edges = np.unique(between[apart].min(axis=1) * count + between[apart].max(axis=1), return_inverse=True)
    total = np.bincount(edges, excess[apart], minlength=len(codes)).tolist()  # excess of each edge; -inf: gone
    ends = list(zip((codes // count).tolist(), (codes % count).tolist(), strict=True))
    edge_to: dict[int, dict[int, int]] = defaultdict(dict)  # the edges of each cluster, by the cluster at the other end
    for edge, (left, right) in enumerate(ends):
        edge_to[left][right] = edge_to[right][left] = edge
    sizes, joined = np.bincount(labels, minlength=count).tolist(), [(0, 0)]

    def gain(edge: int) -> float:
        left, right = ends[edge]
        return float(total[edge] + absent * sizes[left] * sizes[right])

    heap = [(-gain(edge), edge) for edge in range(len(ends)) if gain(edge) > _LEAST_GAIN]
    heapq.heapify(heap)
    while heap:
        loss, edge = heapq.heappop(heap)
        gained = gain(edge)
        if gained <= _LEAST_GAIN:
            continue
        if gained < -loss:
            heapq.heappush(heap, (-gained, edge))
            continue
        root, absorbed = ends[edge]
        if len(edge_to[root]) < len(edge_to[absorbed]):
            root, absorbed = absorbed, root
        joined.append((root, absorbed))
        sizes[root] += sizes[absorbed]
        total[edge] = -np.inf
        del edge_to[root][absorbed], edge_to[absorbed][root]
        for other, moved in edge_to.pop(absorbed).items():
            del edge_to[other][absorbed]
            twin = edge_to[root].get(other)
            if twin is None:
                ends[moved] = root, other
                edge_to[root][other] = edge_to[other][root] = moved
            else:
                total[twin] += total[moved]
                total[moved] = -np.inf
                heapq.heappush(heap, (-gain(twin), twin))
    return connected(count, np.array(joined))[labels]


@numba.njit(nogil=True, cache=True)
def _sweep(starts: np.ndarray, nodes: np.ndarray, excess: np.ndarray, labels: np.ndarray, absent: float) -> bool:
    """Move each node in order to the cluster with which it adds most, if that gains; returns whether one moved."""
    count, moved = len(labels), False
    sizes, towards = np.zeros(2 * count, np.int64), np.zeros(2 * count)
    for node in range(count):
        sizes[labels[node]] += 1
    for node in range(count):
        rows, own = range(starts[node], starts[node + 1]), labels[node]
        for row in rows:
            towards[labels[nodes[row]]] += excess[row]
        best, most = own, towards[own] + absent * (sizes[own] - 1) + _LEAST_GAIN
        if most < 0:
            best, most = count + node, 0.0  # alone
        for row in rows:
            label = labels[nodes[row]]
            value = towards[label] + absent * sizes[label]
            if label != own and value > most:
                best, most = label, value
        for row in rows:
            towards[labels[nodes[row]]] = 0
        if best != own:
            moved = True
            sizes[own] -= 1
            sizes[best] += 1
            labels[node] = best
    smallest = np.full(2 * count, _EMPTY)  # the node that names each cluster from now on
    for node in range(count):
        if smallest[labels[node]] == _EMPTY:
            smallest[labels[node]] = node
        labels[node] = smallest[labels[node]]
    return moved
