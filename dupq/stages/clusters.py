"""verified pairs, neighbours → pairs, clusters, cluster_stats.

    pairs       a task a part     both directions of its neighbours, its verified pairs, its known links
    components  one task          the edges, and the questions that are in clusters
    clusters    a task a shard    every question, singletons too

Only verified near duplicates and encoder pairs over the threshold join questions.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from dupq import storage
from dupq.clusters.canonical import Standing, canonical_questions
from dupq.clusters.components import components
from dupq.clusters.statistics import cluster_statistics
from dupq.encoders.decision import Decision
from dupq.stages.links import known_duplicates
from dupq.stages.near_duplicates import verified_part
from dupq.stages.neighbour_tables import directed_rows
from dupq.stages.shards import Shard
from dupq.stages.tasks import Counts, Report, run_tasks, skip_or
from dupq.tables import CLUSTER_STATS, CLUSTERS, EDGES, MEMBERS, PAIRS, QUESTIONS, TEXTS, VERIFIED
from dupq.text.keys import Sites


@dataclass(frozen=True)
class ClusterFiles:
    """Where the tables are, and where they go."""

    verified: str
    neighbours: str
    texts: str
    links: str | None
    edges: str
    members: str  # one file
    pairs: str
    clusters: str
    cluster_stats: str  # one file


def make_clusters(files: ClusterFiles, shards: list[Shard], sites: Sites, decision: Decision, parts: int) -> Report:
    """Write the pairs, clusters and cluster_stats tables. `decision` holds the threshold."""
    report = run_tasks("pairs", _pairs_of_part, [(files, sites.names, decision, part) for part in range(parts)])
    rows_in = report.rows_in
    report.add(run_tasks("components", _components, [(files, shards, sites.names)]))
    written = run_tasks("clusters", _clusters_of_shard, [(files, shard, sites.names) for shard in shards])
    report.add(written)
    report.rows_in, report.rows_out = rows_in, written.rows_out
    return report


def _pairs_of_part(files: ClusterFiles, sites: list[str], decision: Decision, part: int) -> Counts:
    name = f"part-{part:05d}.parquet"
    output, edges_output = storage.join(files.pairs, name), storage.join(files.edges, name)

    def make() -> Counts:
        slices = storage.list_files(verified_part(files.verified, part), ".parquet")
        verified = pa.concat_tables([storage.read_table(file.uri, VERIFIED) for file in slices])
        found, rows_in = _undirected(files.neighbours, part, decision)
        table = pa.concat_tables([_near_pairs(verified), found]).sort_by(
            [("left", "ascending"), ("right", "ascending")]
        )
        storage.write_table(edges_output, _edges(table, decision), EDGES)
        pairs = _pairs_table(table, Sites(sites), files.links)
        counts = {"rows_in": rows_in + len(verified)}
        storage.write_table(output, pairs, PAIRS, counts)
        return {**counts, "rows_out": len(pairs)}

    return skip_or(output, make)


_WORK = pa.schema(
    [
        ("left", pa.int64()),
        ("right", pa.int64()),
        ("source", pa.string()),
        ("jaccard", pa.float32()),
        ("similarity", pa.float32()),
        ("probability", pa.float32()),
        ("rank", pa.int32()),
    ]
)


def _near_pairs(verified: pa.Table) -> pa.Table:
    nothing = pa.nulls(len(verified))
    columns = [*verified.select(["left", "right", "source", "jaccard"]).columns, nothing.cast(pa.float32())]
    return pa.table([*columns, verified["jaccard"], nothing.cast(pa.int32())], schema=_WORK)


_NO_RANK = np.iinfo(np.int32).max  # after all others


def _undirected(folder: str, part: int, decision: Decision) -> tuple[pa.Table, int]:
    """Each pair once, with the better of its two ranks if it has one, and how many directed ones there were."""
    directed = pa.concat_tables(directed_rows(folder, part)).combine_chunks()
    queries, others = directed["query"].to_numpy(), directed["neighbour"].to_numpy()
    left, right = np.minimum(queries, others), np.maximum(queries, others)
    ranks, similarities = directed["rank"].fill_null(_NO_RANK).to_numpy(), directed["similarity"].to_numpy()
    order = np.lexsort((ranks, right, left))
    left, right = left[order], right[order]
    first = np.r_[True, (left[1:] != left[:-1]) | (right[1:] != right[:-1])] if len(left) else np.zeros(0, bool)
    kept = order[first]
    probabilities = decision.probability(similarities[kept]).astype(np.float32)
    columns = [
        pa.array(left[first]),
        pa.array(right[first]),
        pa.array(["encoder"] * len(kept), pa.string()),
        pa.nulls(len(kept), pa.float32()),
        pa.array(similarities[kept]),
        pa.array(probabilities),
        pa.array(ranks[kept], mask=ranks[kept] == _NO_RANK),
    ]
    return pa.table(columns, schema=_WORK), len(directed)


def _edges(table: pa.Table, decision: Decision) -> pa.Table:
    """The pairs that join their questions."""
    similarities = table["similarity"].to_numpy()
    joins = np.isnan(similarities) | (similarities >= np.float32(decision.threshold))
    return table.filter(pa.array(joins)).select(["left", "right", "probability"]).cast(EDGES)


def _pairs_table(table: pa.Table, sites: Sites, links: str | None) -> pa.Table:
    left, right = table["left"].to_numpy(), table["right"].to_numpy()
    sites_left, ids_left = sites.unpack(left)
    sites_right, ids_right = sites.unpack(right)
    known = pa.nulls(len(table), pa.bool_())
    if links is not None:
        known = pa.array(_among(left, right, known_duplicates(links, sites)))
    columns = [
        pa.array(sites_left, pa.string()),
        pa.array(ids_left),
        pa.array(sites_right, pa.string()),
        pa.array(ids_right),
    ]
    evidence = table.select(["source", "jaccard", "similarity", "probability", "rank"]).columns
    return pa.table([*columns, *evidence, known], schema=PAIRS)


def _among(left: np.ndarray, right: np.ndarray, known: np.ndarray) -> np.ndarray:
    pair = np.dtype([("left", np.int64), ("right", np.int64)])
    wanted = np.zeros(len(left), pair)
    wanted["left"], wanted["right"] = left, right
    listed = np.zeros(len(known), pair)
    listed["left"], listed["right"] = known[:, 0], known[:, 1]
    return np.isin(wanted, listed)


def _components(files: ClusterFiles, shards: list[Shard], sites: list[str]) -> Counts:
    def make() -> Counts:
        tables = [storage.read_table(file.uri, EDGES) for file in storage.list_files(files.edges, ".parquet")]
        table = pa.concat_tables(tables)
        edges = np.stack([table["left"].to_numpy(), table["right"].to_numpy()], axis=1)
        members, clusters = components(edges)
        canonical = canonical_questions(clusters, _standing(members, shards, Sites(sites)))
        _, places, sizes = np.unique(clusters, return_inverse=True, return_counts=True)
        columns = [members, clusters, canonical, sizes[places]]
        statistics = _statistics_table(members, clusters, edges, table["probability"].to_numpy(), Sites(sites))
        storage.write_table(files.cluster_stats, statistics, CLUSTER_STATS)
        counts = {"rows_in": len(edges)}
        storage.write_table(files.members, pa.table([pa.array(c) for c in columns], schema=MEMBERS), MEMBERS, counts)
        return {**counts, "rows_out": len(members)}

    return skip_or(files.members, make)


def _standing(members: np.ndarray, shards: list[Shard], sites: Sites) -> Standing:
    """What the canonical rule needs of `members` (sorted keys), read shard by shard."""
    accepted = np.zeros(len(members), bool)
    scores, views = (np.full(len(members), np.iinfo(np.int64).min) for _ in range(2))
    for shard in shards:
        columns = ["question_id", "score", "view_count", "accepted_answer_id"]
        table = storage.read_table(shard.uri, QUESTIONS, columns)
        keys = sites.pack(shard.site, table["question_id"].to_numpy(), shard.uri)
        rows = np.flatnonzero(np.isin(keys, members))
        places, found = np.searchsorted(members, keys[rows]), table.take(pa.array(rows))
        accepted[places] = found["accepted_answer_id"].is_valid().to_numpy()
        lowest = np.iinfo(np.int64).min
        scores[places] = found["score"].cast(pa.int64()).fill_null(lowest).to_numpy()
        views[places] = found["view_count"].fill_null(lowest).to_numpy()
    return Standing(members, accepted, scores, views)


def _statistics_table(
    members: np.ndarray, clusters: np.ndarray, edges: np.ndarray, probabilities: np.ndarray, sites: Sites
) -> pa.Table:
    clusters_of_edges = clusters[np.searchsorted(members, edges[:, 0])] if len(edges) else np.zeros(0, np.int64)
    statistics = cluster_statistics(clusters_of_edges, edges, probabilities)
    rows = [{**row._asdict(), "cluster_id": sites.label(row.cluster)} for row in statistics]
    return pa.Table.from_pylist([{k: v for k, v in row.items() if k != "cluster"} for row in rows], CLUSTER_STATS)


def _clusters_of_shard(files: ClusterFiles, shard: Shard, sites_list: list[str]) -> Counts:
    output = storage.join(files.clusters, shard.file)

    def make() -> Counts:
        sites = Sites(sites_list)
        keys = storage.read_table(storage.join(files.texts, shard.file), TEXTS, ["key"])["key"].to_numpy()
        members = storage.read_table(files.members, MEMBERS)
        known = members["key"].to_numpy()
        places = np.minimum(np.searchsorted(known, keys), max(0, len(known) - 1))
        inside = known[places] == keys if len(known) else np.zeros(len(keys), bool)
        columns = _cluster_columns(keys, members, places, inside, sites)
        counts = {"rows_in": len(keys)}
        storage.write_table(output, pa.table(list(columns), schema=CLUSTERS), CLUSTERS, counts)
        return {**counts, "rows_out": len(keys)}

    return skip_or(output, make)


def _cluster_columns(
    keys: np.ndarray, members: pa.Table, places: np.ndarray, inside: np.ndarray, sites: Sites
) -> Iterator[pa.Array]:
    def of_members(column: str, otherwise: np.ndarray) -> np.ndarray:
        values = members[column].to_numpy()
        return np.where(inside, values[places], otherwise) if len(values) else otherwise

    cluster, canonical = of_members("cluster", keys), of_members("canonical", keys)
    site_names, ids = sites.unpack(keys)
    canonical_sites, canonical_ids = sites.unpack(canonical)
    yield pa.array(site_names, pa.string())
    yield pa.array(ids)
    yield pa.array([sites.label(key) for key in cluster.tolist()], pa.string())
    yield pa.array(canonical_sites, pa.string())
    yield pa.array(canonical_ids)
    yield pa.array(canonical == keys)
    yield pa.array(of_members("size", np.ones(len(keys), np.int64)))
