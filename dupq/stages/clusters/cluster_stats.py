"""clusters, scored pairs, near duplicates → cluster_stats: how well its pairs hold each cluster together.

    edges       a task a part     the pairs of a part that are inside clusters, spread over slices by cluster
    statistics  a task a slice    the figures of its clusters
    gather      one task          all of them, by cluster

Memory: the pairs of a part, or of the clusters of a slice, at some 200,000 questions, about 200 bytes each; 24 bytes a
question in clusters; in the last task about 250 bytes a cluster.
"""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dupq import storage
from dupq.clusters.components import represented
from dupq.clusters.statistics import cluster_statistics
from dupq.execution import exchange
from dupq.execution.tasks import Report, run_tasks
from dupq.execution.units import Counts, skip_or
from dupq.runs.keys import pairs_in
from dupq.runs.layout import ClusterFiles
from dupq.shards import partition_of, partitions
from dupq.stages.near_duplicates.verify import verified_part
from dupq.tables import CLUSTER_STATS, KEY_PAIRS, MEMBERS, SCORED, VERIFIED
from dupq.text.keys import Sites, are_among

_EDGES = pa.schema([pa.field("cluster", pa.int64(), False), *KEY_PAIRS, pa.field("probability", pa.float64(), False)])
_FIGURES = pa.schema([_EDGES.field("cluster"), *CLUSTER_STATS])


def make_cluster_stats(files: ClusterFiles, sites: Sites, threshold: float, questions: int) -> Report:
    """Write the statistics of clusters that have so many `questions`, which `files.members` lists."""
    parts, slices = files.scored.terms.parts, partitions(questions)
    report = run_tasks("edges", _edges_of_part, [(files, threshold, slices, part) for part in range(parts)])
    calls = [(files, sites.names, parts, number) for number in range(slices)]
    report.add(run_tasks("statistics", _statistics_of_slice, calls))
    report.add(run_tasks("statistics", _gather, [(files, slices)]))
    return report


def _edges_of_part(files: ClusterFiles, threshold: float, slices: int, part: int) -> Counts:
    output = files.edges(part)

    def make() -> Counts:
        edges, p = _edges(files, threshold, part)
        members = storage.read_table(files.members, MEMBERS, ["key", "cluster"])
        keys, clusters = (column.to_numpy() for column in members.columns)
        ends = [represented(edges[:, side], keys, clusters) for side in (0, 1)]
        inside = (ends[0] == ends[1]) & are_among(keys, edges[:, 0])
        owners = ends[0][inside]
        columns = [owners, *edges[inside].T, p[inside]]
        exchange.write_parts(output, exchange.split(columns, _EDGES, partition_of(owners, slices), slices), _EDGES)
        return {}

    return skip_or(output, make)


def _edges(files: ClusterFiles, threshold: float, part: int) -> tuple[np.ndarray, np.ndarray]:
    """The pairs of a part that may join (int64, shape (m, 2), left < right, sorted, each once), and their probability.

    Of a pair that is said to be known and likely the link counts.
    """
    links = storage.read_table(files.partition.links, KEY_PAIRS)
    links = links.filter(pa.array(partition_of(links["left"].to_numpy(), files.scored.terms.parts) == part))
    slices = storage.list_files(verified_part(files.verified, part), ".parquet")
    verified = pa.concat_tables([VERIFIED.empty_table(), *(storage.read_table(file.uri, VERIFIED) for file in slices)])
    scored = storage.read_table(files.scored.scored(part), SCORED, ["left", "right", "probability"])
    scored = scored.filter(pc.greater_equal(scored["probability"], pa.scalar(threshold, pa.float32())))
    found = np.concatenate([pairs_in(table) for table in (links, verified, scored)])
    p = np.concatenate([np.ones(len(links)), verified["jaccard"].to_numpy(), scored["probability"].to_numpy()])
    edges, first = np.unique(found, axis=0, return_index=True)
    return edges, p[first]


def _statistics_of_slice(files: ClusterFiles, site_names: list[str], parts: int, number: int) -> Counts:
    output = files.statistics(number)

    def make() -> Counts:
        batches = exchange.read_part([files.edges(part) for part in range(parts)], number)
        owners, left, right, p = exchange.columns_of(batches, _EDGES)
        order = np.lexsort((right, left))  # the mean is a sum in this order
        owners, p = owners[order], p[order]
        found = cluster_statistics(owners, np.stack([left[order], right[order]], axis=1), p)
        sums = np.bincount(np.searchsorted(found.clusters, owners), p, len(found.clusters))
        members = storage.read_table(files.members, MEMBERS, ["key", "id"])  # a cluster's name is a member's key
        ids = members["id"].to_numpy()[np.searchsorted(members["key"].to_numpy(), found.clusters)]
        columns = [found.clusters, Sites(site_names).labels(ids), *found[1:], sums / found.edges]
        arrays = [pa.array(column, field.type) for column, field in zip(columns, _FIGURES, strict=True)]
        storage.write_table(output, pa.table(arrays, schema=_FIGURES), _FIGURES)
        return {}

    return skip_or(output, make)


def _gather(files: ClusterFiles, slices: int) -> Counts:
    def make() -> Counts:
        tables = [storage.read_table(files.statistics(number), _FIGURES) for number in range(slices)]
        table = pa.concat_tables(tables).sort_by("cluster").select(CLUSTER_STATS.names)
        storage.write_table(files.cluster_stats, table, CLUSTER_STATS)
        return {}

    return skip_or(files.cluster_stats, make)
