"""clusters, scored pairs, near duplicates → cluster_stats: how well its pairs hold each cluster together.

    edges       the pairs inside clusters, in slices by cluster
    statistics  the figures of the clusters of a slice
    gathered    all of them, by cluster

Memory: the pairs of a partition, or of the clusters of a slice, at some 200,000 questions, about 200 bytes each; 24
bytes a question in clusters; in the last task about 250 bytes a cluster.
"""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dupq.clusters.components import represented
from dupq.clusters.statistics import cluster_statistics
from dupq.job.run import Run
from dupq.job.table import Read, Spread, Table, Whole
from dupq.runs.keys import pairs_in
from dupq.tables import CLUSTER_STATS, KEY_PAIRS
from dupq.text.keys import Sites, are_among

_EDGES = pa.schema([pa.field("cluster", pa.int64(), False), *KEY_PAIRS, pa.field("probability", pa.float64(), False)])
_FIGURES = pa.schema([_EDGES.field("cluster"), *CLUSTER_STATS])


def make_cluster_stats(
    run: Run,
    pairs: tuple[Spread, Table | Read, Table],
    owners: Whole,
    members: Whole,
    sites: Sites,
    threshold: float,
    slices: int,
) -> None:
    """Make the statistics of clusters. `pairs` are those that join at any probability, verified and scored ones."""
    joined, verified, scored = pairs
    likely = scored.only("left", "right", "probability")
    edges = run.shuffle(
        "edges", edges_of, joined, verified, likely, owners, threshold, into=_EDGES, by="cluster", parts=slices
    )
    figures = run.map("statistics", figures_of, edges, members, sites.names, into=_FIGURES)
    run.map("cluster_stats", by_cluster, Whole(figures), into=CLUSTER_STATS, publish=True)


def edges_of(joined: pa.Table, verified: pa.Table, scored: pa.Table, members: pa.Table, threshold: float) -> pa.Table:
    """Return the pairs of a partition inside clusters, each once; of one that is known and likely the link counts."""
    scored = scored.filter(pc.greater_equal(scored["probability"], pa.scalar(threshold, pa.float32())))
    found = np.concatenate([pairs_in(table) for table in (joined, verified, scored)])
    p = np.concatenate([np.ones(len(joined)), verified["jaccard"].to_numpy(), scored["probability"].to_numpy()])
    edges, first = np.unique(found, axis=0, return_index=True)
    keys, clusters = members["key"].to_numpy(), members["cluster"].to_numpy()
    ends = [represented(edges[:, side], keys, clusters) for side in (0, 1)]
    inside = (ends[0] == ends[1]) & are_among(keys, edges[:, 0])
    columns = [ends[0][inside], *edges[inside].T, p[first][inside]]
    return pa.table([pa.array(column) for column in columns], schema=_EDGES)


def figures_of(edges: pa.Table, members: pa.Table, site_names: list[str]) -> pa.Table:
    """Return the figures of the clusters of a slice."""
    owners, left, right, p = (column.to_numpy() for column in edges.columns)
    order = np.lexsort((right, left))  # the mean is a sum in this order
    owners, p = owners[order], p[order]
    found = cluster_statistics(owners, np.stack([left[order], right[order]], axis=1), p)
    sums = np.bincount(np.searchsorted(found.clusters, owners), p, len(found.clusters))
    # a cluster's name is a member's key
    ids = members["id"].to_numpy()[np.searchsorted(members["key"].to_numpy(), found.clusters)]
    columns = [found.clusters, Sites(site_names).labels(ids), *found[1:], sums / found.edges]
    return pa.table(
        [pa.array(column, field.type) for column, field in zip(columns, _FIGURES, strict=True)], schema=_FIGURES
    )


def by_cluster(figures: pa.Table) -> pa.Table:
    """Return CLUSTER_STATS of all slices."""
    return figures.sort_by("cluster").select(CLUSTER_STATS.names)
