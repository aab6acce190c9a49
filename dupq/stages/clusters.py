"""scored pairs, the partition, near duplicates → pairs, clusters, cluster_stats, changes.

    members     the questions of clusters, with ids and canonical questions
    changes     since an earlier run
    pairs       every candidate pair, near duplicate and used link, with its evidence
    edges       the pairs inside clusters, in partitions by cluster
    statistics  how well its pairs hold each cluster together; all in one table: cluster_stats
    clusters    every question, singletons too

Near duplicates are joined through their representatives. Memory: the pairs of a partition, or of some 50,000 questions
in clusters, about 200 bytes each; 150 bytes a question in clusters, and 16 for one with a known link.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple, NewType

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dupq import kinds, storage, tables
from dupq.archive import partitions
from dupq.clusters.components import are_together, clusters_in, with_represented
from dupq.clusters.identity import REASONS, Clustering, canonical_questions, changes, cluster_ids, read_clusters
from dupq.job.run import Run
from dupq.job.step import StepResult, step
from dupq.job.table import Broadcast, Input, Shards, Table
from dupq.kinds import Schema, columns, streamed
from dupq.links import duplicate_links
from dupq.neighbours.scopes import comparable_owners, entries_of
from dupq.runs.reader import read_metrics
from dupq.stages.pairs import questions_of
from dupq.stages.partition import RunKnowledge
from dupq.stages.scopes import Scopes
from dupq.text.keys import (
    RowsByKey,
    Sites,
    are_among,
    are_pairs_among,
    distinct,
    indices_among,
    pairs_in,
    rekey,
    rows_among,
    sorted_keys,
    without,
)

Criteria = NewType("Criteria", kinds.Key)
Edge = NewType("Edge", kinds.KeyPair)
Figures = NewType("Figures", object)

_OF_QUESTIONS = columns(
    tables.QUESTIONS, "score", "answer_count", "view_count", "accepted_answer_id", "creation_date", "own_id"
)
_CRITERIA: Schema[Criteria] = pa.schema([*tables.KEYS, *_OF_QUESTIONS])
_CLUSTER = pa.field("cluster", pa.int64(), False)
_EDGES: Schema[Edge] = pa.schema([_CLUSTER, *tables.KEY_PAIRS, pa.field("probability", pa.float64(), False)])
_FIGURES: Schema[Figures] = pa.schema([_CLUSTER, *tables.CLUSTER_STATS])
_NEAR = ("exact", "near_duplicate")
_LOWEST = np.iinfo(np.int64).min
_EVIDENCE = [field for field in tables.PAIRS if field.name not in ("joined", "known_link", "newer")][4:]


@dataclass(frozen=True)
class PartitionResult:
    """The decisions that clusters are made of."""

    labels: Table[kinds.Label]  # of representatives
    scored: Table[kinds.Scored]
    joined: Table[kinds.JoinedPair]
    verified: Table[kinds.Verified]  # in the partitions of `scored`
    threshold: float  # probability from which pairs joined
    scopes: Scopes | None = None
    earlier: bool = False  # whether the question to keep is the one that was asked first


class ClusterTables(NamedTuple):
    """The tables that describe clusters."""

    pairs: Table[kinds.Pair]
    members: Table[kinds.Member]
    clusters: Table[kinds.Clustered]
    stats: Table[kinds.ClusterStats]


def make_clusters(
    run: Run,
    decided: PartitionResult,
    known: RunKnowledge,
    texts: Table[kinds.QuestionText],
    questions: Shards[kinds.Question],
) -> ClusterTables:
    """Make the pairs, clusters, cluster_stats and changes tables."""
    count, names, alone = decided.scored.partitions, known.sites.names, run.table("alone", tables.KEYS)
    near, threshold = decided.verified, decided.threshold
    likely = shown_pairs(run, decided.scored, decided.scopes)
    labels, copies = Broadcast(decided.labels), Broadcast(known.representatives)
    criteria = Broadcast(run.map("criteria", criteria_of)(questions, labels, copies))
    members = run.map("members", members_of, second=alone)(
        labels, copies, criteria, known.links, known.previous, names, decided.earlier
    )
    owners = Broadcast(members)
    if known.previous is not None:
        run.map("changes", changes_since, publish=True)(owners, known.previous, names)
    linked: Input[kinds.KeyPair] | None = None if known.links is None else known.pairs
    if decided.scopes is None and linked:  # else the left questions of pairs may be those of other partitions
        linked = run.spread("known", linked, count, by="left")
    joined = run.spread("joined", decided.joined, count, by="left")
    dates = None
    if decided.earlier:
        asked = run.shuffle("dates", dates_of, count, by="key")(questions)
        dates = run.look_up("dates_of", asked, run.shuffle("ends", ends_of, count, by="key")(near, likely, joined))
    pairs = run.map("pairs", pairs_table, publish=True)(near, likely, joined, owners, names, linked, dates)

    parts = partitions(members.rows)
    edges = run.shuffle("edges", edges_of, parts, by="cluster")(joined, near, likely, owners, threshold)
    figures = run.map("statistics", figures_of)(edges, owners, names)
    stats = run.map("cluster_stats", by_cluster, publish=True)(Broadcast(figures))

    clusters = run.map("clusters", clusters_of, publish=True)(texts, owners, Broadcast(alone), names, threshold)
    run.report.rows_in, run.report.rows_out = pairs.rows, clusters.rows
    return ClusterTables(pairs, members, clusters, stats)


@step(streamed(_OF_QUESTIONS), tables.KEYS, tables.KEYS, makes=_CRITERIA)
def criteria_of(questions: Iterator[pa.RecordBatch], labels: pa.Table, representatives: pa.Table) -> pa.Table:
    """Return the criteria of those questions of a shard that may be in clusters."""
    return rows_among(questions, sorted_keys([labels, representatives]), _CRITERIA)


@step(tables.LABELS, tables.REPRESENTATIVES, _CRITERIA, makes=tables.MEMBERS, second=tables.KEYS)
def members_of(
    labels: pa.Table,
    owners: pa.Table,
    criteria: pa.Table,
    links: str | None,
    previous: str | None,
    names: list[str],
    earlier: bool = False,
) -> StepResult[pa.Table]:
    """Return the questions of clusters (MEMBERS); the second table has those in none whose key is a cluster's id.

    If `earlier`, only age makes a question canonical. Memory: about 160 bytes a question in clusters.
    """
    sites, solved = Sites(names), labels.sort_by("key")
    copies = owners["key"].to_numpy(), owners["representative"].to_numpy()
    keys, clusters = with_represented(copies, (solved["key"].to_numpy(), solved["cluster"].to_numpy()))
    columns = _criteria(keys, criteria, links, sites)
    ahead = [column * 0 if earlier else column for column in columns[:-1]]
    canonical, reasons = canonical_questions(clusters, keys, [*ahead, columns[-1]])
    ids = cluster_ids(Clustering(keys, clusters), read_clusters(previous and storage.join(previous, "clusters"), sites))
    _, indices, sizes = np.unique(clusters, return_inverse=True, return_counts=True)
    members = pa.table([keys, clusters, ids, canonical, reasons, sizes[indices]], schema=tables.MEMBERS)
    alone = pa.table([without(distinct(ids), keys)], schema=tables.KEYS)
    return StepResult(members, {"clusters": len(sizes)}, alone)


@step(columns(tables.MEMBERS, "key", "id"), makes=tables.CHANGED_CLUSTERS)
def changes_since(members: pa.Table, previous: str, site_names: list[str]) -> pa.Table:
    """Return what became of the clusters of the earlier run at `previous` (CHANGED_CLUSTERS)."""
    return changes(*with_earlier(members, previous, site_names))


@step(tables.VERIFIED, tables.SCORED, tables.JOINED_PAIRS, tables.LABELS, makes=tables.PAIRS)
def pairs_table(
    verified: pa.Table,
    scored: pa.Table,
    joined: pa.Table,
    members: pa.Table,
    names: list[str],
    known: pa.Table | None,
    dates: pa.Table | None = None,
) -> pa.Table:
    """Return PAIRS of a partition: near duplicates, candidates, and pairs that join at any probability.

    `dates` (DATES) are those of its questions; without them it is not said which are newer.
    """
    joined = joined.filter(pa.array(~are_pairs_among(pairs_in(scored), pairs_in(joined))))
    better = pc.min_element_wise(scored["rank_left"], scored["rank_right"])
    by_source = [
        verified.append_column("probability", verified["jaccard"]),
        scored.append_column("source", pa.array(["encoder"] * len(scored), pa.string())).append_column("rank", better),
        joined.append_column("probability", pa.array(np.ones(len(joined), np.float32))),
    ]
    table = pa.concat_tables(by_source, promote_options="default")  # null where a source lacks a column
    table = table.sort_by([("left", "ascending"), ("right", "ascending")])
    sites, pairs, is_known = Sites(names), pairs_in(table), pa.nulls(len(table), pa.bool_())
    if known is not None:
        listed = pa.array(are_pairs_among(pairs_in(known), pairs))
        is_known = pc.or_(listed, pc.equal(table["source"], "known_link").combine_chunks())
    are_joined = pa.array(are_together(pairs, members))
    evidence = [table[field.name] for field in _EVIDENCE]
    ends = *sites.columns(pairs[:, 0]), *sites.columns(pairs[:, 1])
    rows = pa.table([*ends, *evidence, are_joined, is_known, _newer(pairs, dates)], schema=tables.PAIRS)
    is_near = pc.is_in(rows["source"], pa.array(_NEAR))
    return rows.filter(pc.or_(rows["joined"], pc.invert(is_near)))  # verdicts may keep near duplicates apart


def _newer(pairs: np.ndarray, dates: pa.Table | None) -> pa.Array:
    """Return the side of each pair that was asked later: left, right or null."""
    if dates is None:
        return pa.nulls(len(pairs), pa.string())
    rows, asked = RowsByKey(dates["key"].to_numpy()), dates["creation_date"].combine_chunks()
    left, right = (asked.take(pa.array(rows.find(side))) for side in pairs.T)
    later = pc.if_else(pc.greater(left, right), "left", "right")
    return pc.if_else(pc.equal(left, right), pa.scalar(None, pa.string()), later)


@step(streamed(columns(tables.QUESTIONS, "creation_date")), makes=tables.DATES)
def dates_of(questions: Iterator[pa.RecordBatch]) -> pa.Table:
    """Return DATES of the questions of a shard."""
    rows = (pa.table([batch[name] for name in tables.DATES.names], schema=tables.DATES) for batch in questions)
    return pa.concat_tables([tables.DATES.empty_table(), *rows])


@step(tables.KEY_PAIRS, tables.KEY_PAIRS, tables.KEY_PAIRS, makes=tables.KEYS)
def ends_of(verified: pa.Table, scored: pa.Table, joined: pa.Table) -> pa.Table:
    """Return the questions of three tables of pairs, each once (KEYS)."""
    return pa.table([distinct(np.concatenate([*map(pairs_in, (verified, scored, joined))]))], schema=tables.KEYS)


def shown_pairs(run: Run, scored: Table[kinds.Scored], scopes: Scopes | None) -> Table[kinds.Scored]:
    """Return pairs of representatives as pairs of questions that may be compared; as they are without `scopes`."""
    if scopes is None or scopes.grouped is None:
        return scored
    count = scored.partitions
    entries = run.spread("scopes", scopes.table, count, by="key")
    own = run.look_up("scopes_of", entries, run.shuffle("scored_ends", questions_of, count, by="key")(scored))
    return run.map("shown", pairs_within)(scored, own, Broadcast(scopes.grouped), scopes.window)


@step(tables.SCORED, tables.SCOPES, tables.GROUPED, makes=tables.SCORED)
def pairs_within(scored: pa.Table, scopes: pa.Table, grouped: pa.Table, window: int) -> pa.Table:
    """Return rows of SCORED, each of two questions that its own represent, and that may be compared."""
    entries = entries_of(scopes, grouped)
    ends = np.searchsorted(entries.keys, pairs_in(scored))
    pairs = comparable_owners(entries, ends[:, 0], ends[:, 1], window)
    is_swapped = pa.array(pairs[:, 0] > pairs[:, 1])
    left, right = scored["rank_left"], scored["rank_right"]
    changed = {
        **dict(zip(("left", "right"), np.sort(pairs, axis=1).T, strict=True)),
        "rank_left": pc.if_else(is_swapped, right, left),
        "rank_right": pc.if_else(is_swapped, left, right),
    }
    return pa.table([changed.get(name, scored[name]) for name in scored.column_names], schema=tables.SCORED)


@step(
    tables.KEY_PAIRS,
    columns(tables.VERIFIED, "left", "right", "jaccard"),
    columns(tables.SCORED, "left", "right", "probability"),
    tables.LABELS,
    makes=_EDGES,
)
def edges_of(joined: pa.Table, verified: pa.Table, scored: pa.Table, members: pa.Table, threshold: float) -> pa.Table:
    """Return the pairs of a partition inside clusters, each once; a link counts before its own probability."""
    scored = scored.filter(pc.greater_equal(scored["probability"], pa.scalar(threshold, pa.float32())))
    pairs = np.concatenate([pairs_in(table) for table in (joined, verified, scored)])
    p = np.concatenate([np.ones(len(joined)), verified["jaccard"].to_numpy(), scored["probability"].to_numpy()])
    edges, first = np.unique(pairs, axis=0, return_index=True)
    ends = clusters_in(edges, members).T
    inside = (ends[0] == ends[1]) & are_among(members["key"].to_numpy(), edges[:, 0])
    return pa.table([ends[0][inside], *edges[inside].T, p[first][inside]], schema=_EDGES)


@step(_EDGES, columns(tables.MEMBERS, "key", "cluster", "id", "size"), makes=_FIGURES)
def figures_of(edges: pa.Table, members: pa.Table, site_names: list[str]) -> pa.Table:
    """Return the statistics of a partition's clusters, in any order of the edges. Memory: about 1 kB an edge."""
    import networkx as nx  # importing it takes .2 s, and no other task needs it

    edges = edges.sort_by([("left", "ascending"), ("right", "ascending")])  # in which probabilities are summed up
    figures = [("probability", "count"), ("probability", "min"), ("probability", "mean")]
    grouped = edges.group_by("cluster", use_threads=False).aggregate(figures).sort_by("cluster")
    clusters, counts, weakest, means = (column.to_numpy() for column in grouped.columns)
    bridges = np.array([left for left, _ in nx.bridges(nx.Graph(pairs_in(edges).tolist()))], np.int64)
    bridge_counts = np.bincount(np.searchsorted(clusters, clusters_in(bridges, members)), minlength=len(clusters))
    rows = np.searchsorted(members["key"].to_numpy(), clusters)  # a cluster is named by its smallest member
    first = members.take(pa.array(rows))
    ids, sizes = Sites(site_names).labels(first["id"].to_numpy()), first["size"].to_numpy()
    density = counts / (sizes * (sizes - 1) / 2)
    return pa.table([clusters, ids, sizes, counts, density, weakest, bridge_counts, means], schema=_FIGURES)


@step(_FIGURES, makes=tables.CLUSTER_STATS)
def by_cluster(figures: pa.Table) -> pa.Table:
    """Return CLUSTER_STATS of all partitions."""
    return figures.sort_by("cluster").select(tables.CLUSTER_STATS.names)


@step(
    tables.KEYS, columns(tables.MEMBERS, "key", "id", "canonical", "reason", "size"), tables.KEYS, makes=tables.CLUSTERS
)
def clusters_of(
    texts: pa.Table, members: pa.Table, alone: pa.Table, site_names: list[str], threshold: float
) -> pa.Table:
    """Return CLUSTERS of the questions of a shard; `members` are the archive's questions in clusters."""
    sites, keys = Sites(site_names), texts["key"].to_numpy()
    rows, is_member = indices_among(members["key"].to_numpy(), keys)
    own = members.take(pa.array(rows, mask=~is_member))  # null where a question is in no cluster
    ids, canonical, sizes = (
        pc.fill_null(own[name], default).to_numpy()
        for name, default in (("id", pa.array(keys)), ("canonical", pa.array(keys)), ("size", 1))
    )
    is_alone, labels = pa.array(~is_member & are_among(alone["key"].to_numpy(), keys)), sites.labels(ids)
    row = [
        *sites.columns(keys),
        pc.if_else(is_alone, pc.binary_join_element_wise(labels, "~alone", ""), labels),
        *sites.columns(canonical),
        pa.array(canonical == keys),
        pa.array(REASONS, pa.string()).take(own["reason"].combine_chunks()),
        pa.array(sizes),
        pa.array(np.full(len(keys), threshold, np.float32)),
    ]
    return pa.table(row, schema=tables.CLUSTERS)


def _criteria(members: np.ndarray, rows: pa.Table, links: str | None, sites: Sites) -> list[np.ndarray]:
    """Return the criteria for canonical questions of `members` (sorted keys): a column for each of REASONS."""
    rows = rows.filter(pa.array(are_among(members, rows["key"].to_numpy()))).sort_by("key")
    accepted = rows["accepted_answer_id"].is_valid().to_numpy()
    numbers = [rows[name].cast(pa.int64()) for name in ("score", "answer_count", "view_count")]
    ages = pc.negate(rows["creation_date"].cast(pa.int64()))
    scores, answers, views, ages = (column.fill_null(_LOWEST).to_numpy() for column in (*numbers, ages))
    originals = np.zeros(0, np.int64) if links is None else duplicate_links(links, sites)[:, 1]
    indices, are_members = indices_among(members, originals)
    linked = np.bincount(indices[are_members], minlength=len(members))
    ids = [_natural(own_id or "") for own_id in rows["own_id"].to_pylist()]
    ranks = np.empty(len(ids), np.int64)
    ranks[sorted(range(len(ids)), key=ids.__getitem__)] = np.arange(len(ids))  # of equal ids the smaller key is first
    return [linked, accepted, scores, answers, views, ages, -ranks]


def _natural(own_id: str) -> list[str | tuple[int, str]]:
    """Return what puts ids in order with the numbers in them as numbers: texts and numbers in turn."""
    parts = re.split("([0-9]+)", own_id)
    return [(len(digits := part.lstrip("0")), digits) if index % 2 else part for index, part in enumerate(parts)]


def with_earlier(members: pa.Table, previous: str, site_names: list[str]) -> tuple[Clustering, Clustering, Sites]:
    """Return the clusters of MEMBERS and of the earlier run at `previous`, and the sites of both runs."""
    sites = Sites([*site_names, *(read_metrics(previous).get("sites") or ())])
    keys, ids = (rekey(members[name].to_numpy(), site_names, sites.names) for name in ("key", "id"))
    return Clustering(keys, ids), read_clusters(storage.join(previous, "clusters"), sites), sites
