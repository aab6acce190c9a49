"""scored pairs, the partition, near duplicates → pairs, clusters, cluster_stats, changes.

    members   one task         the questions of clusters, with ids and canonical questions; changes; known duplicates
    pairs     a task a part    every candidate pair, near duplicate and used link, with its evidence
    ...                        cluster_stats (cluster_stats.py)
    clusters  a task a shard   every question, singletons too

Near duplicates are joined through the question that represents them.
"""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dupq import storage
from dupq.clusters import identity
from dupq.clusters.canonical import REASONS, CanonicalCriteria, canonical_questions
from dupq.clusters.components import represented, with_represented
from dupq.execution import exchange
from dupq.execution.tasks import Report, run_tasks
from dupq.execution.units import Counts, skip_or
from dupq.links.tables import known_duplicates, link_targets
from dupq.runs.keys import pairs_in, read_around
from dupq.runs.layout import ClusterFiles
from dupq.shards import Shard, partition_of, read_shard
from dupq.stages.clusters.cluster_stats import make_cluster_stats
from dupq.stages.near_duplicates.verify import verified_part
from dupq.tables import (
    CHANGED_CLUSTERS,
    CLUSTERS,
    JOINED_PAIRS,
    KEY_PAIRS,
    LABELS,
    MEMBERS,
    PAIRS,
    QUESTIONS,
    REPRESENTATIVES,
    SCORED,
    TEXTS,
    VERIFIED,
)
from dupq.text.keys import Sites, are_among, are_pairs_among, places_among, without

_NEAR = ("exact", "near_duplicate")
_LOWEST = np.iinfo(np.int64).min


def make_clusters(files: ClusterFiles, shards: list[Shard], sites: Sites, threshold: float, parts: int) -> Report:
    """Write the pairs, clusters and cluster_stats tables; `threshold` is a probability."""
    report = run_tasks("members", _members, [(files, shards, sites.names)])
    members = report.rows_in
    pairs = run_tasks("pairs", _pairs_of_part, [(files, sites.names, part) for part in range(parts)])
    report.add(pairs)
    report.add(make_cluster_stats(files, sites, threshold, members))
    written = run_tasks("clusters", _clusters_of_shard, [(files, shard, sites.names, threshold) for shard in shards])
    report.add(written)
    report.rows_in, report.rows_out = pairs.rows_out, written.rows_out
    return report


def _members(files: ClusterFiles, shards: list[Shard], site_names: list[str]) -> Counts:
    """Memory: about 150 bytes a question in clusters, and 60 a known duplicate."""

    def make() -> Counts:
        sites = Sites(site_names)
        keys, clusters = _clusters(files)
        canonical, reasons = canonical_questions(clusters, _criteria(files, keys, shards, sites))
        now, then = identity.Grouping(keys, clusters), previous_clusters(files.previous, sites)
        ids = identity.cluster_ids(now, then)
        _, indices, sizes = np.unique(clusters, return_inverse=True, return_counts=True)
        if files.previous is not None:
            _write_changes(files, identity.changes(identity.Grouping(keys, ids.of(clusters)), then), sites)
        alone = without(np.sort(ids.ids), keys)
        storage.write_table(files.alone, pa.table([pa.array(alone)], names=["key"]), pa.schema([("key", pa.int64())]))
        _write_known(files, sites)
        columns = [keys, clusters, ids.of(clusters), canonical, reasons.astype(np.int8), sizes[indices]]
        storage.write_table(files.members, pa.table([pa.array(c) for c in columns], schema=MEMBERS), MEMBERS)
        return {"rows_in": len(keys), "clusters": len(sizes)}

    return skip_or(files.members, make)


def _write_known(files: ClusterFiles, sites: Sites) -> None:
    """Write the known duplicates for the parts that their pairs are in."""
    if files.links is None:
        return
    pairs, parts = known_duplicates(files.links, sites), files.scored.terms.parts
    batches = exchange.split([*pairs.T], KEY_PAIRS, partition_of(pairs[:, 0], parts), parts)
    exchange.write_parts(files.known, batches, KEY_PAIRS)


def _clusters(files: ClusterFiles) -> tuple[np.ndarray, np.ndarray]:
    """The questions of clusters of two and more (sorted keys), and the smallest key of each one's cluster."""
    nearby = storage.read_table(files.representatives, REPRESENTATIVES)
    members, representatives = nearby["key"].to_numpy(), nearby["representative"].to_numpy()
    labels = [LABELS.empty_table()]
    for file in storage.list_files(storage.parent(files.partition.labels(0)), ".parquet"):
        labels.append(storage.read_table(file.uri, LABELS))
    solved = pa.concat_tables(labels).sort_by("key")
    return with_represented((members, representatives), (solved["key"].to_numpy(), solved["cluster"].to_numpy()))


def _criteria(files: ClusterFiles, members: np.ndarray, shards: list[Shard], sites: Sites) -> CanonicalCriteria:
    """The criteria of the canonical rule for `members` (sorted keys), read shard by shard."""
    accepted = np.zeros(len(members), bool)
    scores, answers, views, ages = (np.full(len(members), _LOWEST) for _ in range(4))
    for shard in shards:
        names = ["question_id", "score", "answer_count", "view_count", "accepted_answer_id", "creation_date"]
        table = read_shard(shard, QUESTIONS, names)
        keys = sites.pack(shard.site, table["question_id"].to_numpy(), shard.uri)
        rows = np.flatnonzero(are_among(members, keys))
        indices, found = np.searchsorted(members, keys[rows]), table.take(pa.array(rows))
        accepted[indices] = found["accepted_answer_id"].is_valid().to_numpy()
        for column, name in ((scores, "score"), (answers, "answer_count"), (views, "view_count")):
            column[indices] = found[name].cast(pa.int64()).fill_null(_LOWEST).to_numpy()
        ages[indices] = pc.negate(found["creation_date"].cast(pa.int64())).fill_null(_LOWEST).to_numpy()
    targets = np.zeros(0, np.int64) if files.links is None else link_targets(files.links, sites)
    places, are_there = places_among(members, targets)
    return CanonicalCriteria(
        members, np.bincount(places[are_there], minlength=len(members)), accepted, scores, answers, views, ages
    )


def previous_clusters(uri: str | None, sites: Sites) -> identity.Grouping:
    """The clusters of an earlier run, by id, as keys of this one.

    Questions of sites that are gone are left out, and so are clusters whose id names one: it could not be written.
    """
    empty = np.zeros(0, np.int64)
    keys, ids = [empty], [empty]
    for file in storage.list_files(uri, ".parquet") if uri is not None else []:
        table = storage.read_table(file.uri, CLUSTERS, ["site", "question_id", "cluster_id", "cluster_size"])
        is_here = pc.is_in(table["site"], pa.array(sites.names))
        table = table.filter(pc.and_(pc.greater(table["cluster_size"], 1), is_here))
        named = pc.extract_regex(table["cluster_id"], "^(?P<site>.*)/(?P<number>[0-9]+)$")
        is_known = pc.is_in(pc.struct_field(named, "site"), pa.array(sites.names))
        table, named = table.filter(is_known), named.filter(is_known)
        numbers = pc.struct_field(named, "number").cast(pa.int64())
        keys.append(sites.pack_columns(table["site"], table["question_id"], file.uri))
        ids.append(sites.pack_columns(pc.struct_field(named, "site"), numbers, file.uri))
    return identity.Grouping(np.concatenate(keys), np.concatenate(ids))


def _write_changes(files: ClusterFiles, found: identity.Changes, sites: Sites) -> None:
    none = pa.scalar(None, pa.string())
    ids = [
        pc.if_else(pa.array(side >= 0), sites.labels(np.maximum(side, 0)), none)
        for side in (found.ids_now, found.ids_then)
    ]
    rest = [pa.array(column) for column in (found.sizes_now, found.sizes_then, found.shared)]
    table = pa.table([pa.array(found.kinds.tolist(), pa.string()), *ids, *rest], schema=CHANGED_CLUSTERS)
    storage.write_table(files.changes, table, CHANGED_CLUSTERS)


def _clusters_of_shard(files: ClusterFiles, shard: Shard, site_names: list[str], threshold: float) -> Counts:
    output = storage.join(files.clusters, shard.file)

    def make() -> Counts:
        sites = Sites(site_names)
        keys = storage.read_table(storage.join(files.texts, shard.file), TEXTS, ["key"])["key"].to_numpy()
        members = read_around(files.members, MEMBERS, keys)
        alone = storage.read_table(files.alone)["key"].to_numpy()
        columns = _cluster_columns(keys, members, alone, sites)
        threshold_column = pa.array(np.full(len(keys), threshold, np.float32))
        table = pa.table([*columns, threshold_column], schema=CLUSTERS)
        storage.write_table(output, table, CLUSTERS)
        return {"rows_in": len(keys), "rows_out": len(keys)}

    return skip_or(output, make)


def _cluster_columns(keys: np.ndarray, members: pa.Table, alone: np.ndarray, sites: Sites) -> Iterator[pa.Array]:
    indices, inside = places_among(members["key"].to_numpy(), keys)

    def of_members(column: str, otherwise: np.ndarray) -> np.ndarray:
        values = members[column].to_numpy()
        return np.where(inside, values[indices], otherwise) if len(values) else otherwise

    ids, canonical = of_members("id", keys), of_members("canonical", keys)
    is_alone = ~inside & are_among(alone, keys)
    reasons = of_members("reason", np.zeros(len(keys), np.int8))
    yield from sites.columns(keys)
    yield identity.written_ids(sites.labels(ids), is_alone)
    yield from sites.columns(canonical)
    yield pa.array(canonical == keys)
    yield pc.take(pa.array(REASONS, pa.string()), pa.array(reasons, mask=~inside))
    yield pa.array(of_members("size", np.ones(len(keys), np.int64)))


def _pairs_of_part(files: ClusterFiles, site_names: list[str], part: int) -> Counts:
    output = storage.join(files.pairs, f"part-{part:05d}.parquet")

    def make() -> Counts:
        sites = Sites(site_names)
        slices = storage.list_files(verified_part(files.verified, part), ".parquet")
        verified = pa.concat_tables([VERIFIED.empty_table(), *(storage.read_table(f.uri, VERIFIED) for f in slices)])
        scored = storage.read_table(files.scored.scored(part), SCORED)
        links = _links_beside(files, part, scored)
        table = pa.concat_tables([_near_pairs(verified), _encoder_pairs(scored), _link_pairs(links)])
        table = table.sort_by([("left", "ascending"), ("right", "ascending")])
        pairs = _pairs_table(table, files, sites, part)
        storage.write_table(output, pairs, PAIRS)
        return {"rows_in": len(table), "rows_out": len(pairs)}

    return skip_or(output, make)


_EVIDENCE = [field for field in PAIRS if field.name not in ("joined", "known_link")][4:]
_WORK = pa.schema([*KEY_PAIRS, *_EVIDENCE])


def _with_nulls(table: pa.Table, **columns: pa.Array) -> pa.Table:
    """The evidence columns of some pairs; those that are not given are null."""
    given = {name: table[name] for name in _WORK.names if name in table.column_names} | columns
    return pa.table([given.get(field.name, pa.nulls(len(table), field.type)) for field in _WORK], schema=_WORK)


def _near_pairs(verified: pa.Table) -> pa.Table:
    return _with_nulls(verified, probability=verified["jaccard"])


def _encoder_pairs(scored: pa.Table) -> pa.Table:
    better = pc.min_element_wise(scored["rank_left"], scored["rank_right"])
    return _with_nulls(scored, source=pa.array(["encoder"] * len(scored), pa.string()), rank=better)


def _link_pairs(links: pa.Table) -> pa.Table:
    return _with_nulls(links, probability=pa.array(np.ones(len(links), np.float32)))


def _links_beside(files: ClusterFiles, part: int, scored: pa.Table) -> pa.Table:
    """The pairs of a part that join at any probability, and are no candidate pairs."""
    links = storage.read_table(files.partition.links, JOINED_PAIRS)
    mine = partition_of(links["left"].to_numpy(), files.scored.terms.parts) == part
    links = links.filter(pa.array(mine))
    return links.filter(pa.array(~are_pairs_among(pairs_in(scored), pairs_in(links))))


def _pairs_table(table: pa.Table, files: ClusterFiles, sites: Sites, part: int) -> pa.Table:
    pairs = pairs_in(table)
    columns = [*sites.columns(pairs[:, 0]), *sites.columns(pairs[:, 1])]
    known = pa.nulls(len(table), pa.bool_())
    if files.links is not None:
        duplicates = exchange.table_of(exchange.read_part([files.known], part), KEY_PAIRS)
        listed = are_pairs_among(pairs_in(duplicates), pairs)
        known = pc.or_(pa.array(listed), pc.equal(table["source"], "known_link").combine_chunks())
    members = storage.read_table(files.members, MEMBERS, ["key", "cluster"])
    keys, clusters = members["key"].to_numpy(), members["cluster"].to_numpy()
    clusters_of = represented(pairs, keys, clusters)
    joined = clusters_of[:, 0] == clusters_of[:, 1]
    evidence = [table[field.name] for field in _EVIDENCE]
    found = pa.table([*columns, *evidence, pa.array(joined), known], schema=PAIRS)
    # a near duplicate joins, unless verdicts forbid it
    return found.filter(pc.or_(found["joined"], pc.invert(pc.is_in(found["source"], pa.array(_NEAR)))))
