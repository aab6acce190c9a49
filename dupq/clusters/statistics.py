"""How well the edges of a cluster hold it together."""

from typing import NamedTuple

import networkx as nx
import numpy as np


class ClusterStatistics(NamedTuple):
    """Of one cluster; see tables.CLUSTER_STATS."""

    cluster: int
    size: int
    edges: int
    density: float
    weakest_link: float
    bridges: int


def cluster_statistics(clusters: np.ndarray, edges: np.ndarray, probabilities: np.ndarray) -> list[ClusterStatistics]:
    """Of each cluster, sorted. Row i of `edges` (int64, shape (m, 2), no repeats) lies in cluster `clusters[i]`."""
    order = np.lexsort((edges[:, 1], edges[:, 0], clusters))
    clusters, edges, probabilities = clusters[order], edges[order], probabilities[order]
    if not len(clusters):
        return []
    starts = np.flatnonzero(np.r_[True, clusters[1:] != clusters[:-1]])
    pieces = zip(starts, [*starts[1:], len(clusters)], strict=True)
    return [_of_one(int(clusters[start]), edges[start:end], probabilities[start:end]) for start, end in pieces]


def _of_one(cluster: int, edges: np.ndarray, probabilities: np.ndarray) -> ClusterStatistics:
    graph = nx.Graph(edges.tolist())
    size = graph.number_of_nodes()
    bridges = sum(1 for _ in nx.bridges(graph))
    density = len(edges) / (size * (size - 1) / 2)
    return ClusterStatistics(cluster, size, len(edges), density, float(probabilities.min()), bridges)
