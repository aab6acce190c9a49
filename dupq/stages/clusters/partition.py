"""scored pairs → the clusters of representatives: components of sure pairs, and of each the best partition.

    components  one task          the pairs above the threshold, and which questions they connect
    inside      a task a part     candidate pairs within one component, also those below the threshold
    embedded    a task a shard    the embeddings of components in which not every pair is a candidate
    terms       a task a part     their terms, and what is around them
    partition   a task a group    every pair of these scored, and clusters chosen

In a component of more than `decision.SCORED_SIZE` questions not every pair is scored: one that is not a candidate,
neither side listing the other, counts as the least likely candidate.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from dupq import storage
from dupq.clusters.components import components, forest_of
from dupq.clusters.decision import SCORED_SIZE, among, best_partition, linked_sets, missing_pairs
from dupq.clusters.evidence import shared
from dupq.clusters.scoring import arounds, read_scale, scored_table, unlisted
from dupq.execution import exchange
from dupq.execution.tasks import Report, run_tasks
from dupq.execution.units import Counts, skip_or
from dupq.neighbours.measure import Measure
from dupq.runs.embeddings import embeddings_of
from dupq.runs.keys import pairs_in, read_around
from dupq.runs.layout import PartitionFiles
from dupq.shards import Shard
from dupq.stages.terms import read_rarities, read_terms, words_of
from dupq.tables import AROUND, KEY_PAIRS, LABELS, NODES, SCORED, TERMS
from dupq.text.keys import Sites, places_among

_PAIRS_OF_GROUP = 2_000_000  # of components, before a group is closed
_INSIDE = pa.schema([*KEY_PAIRS, SCORED.field("probability")])


@dataclass(frozen=True)
class Cut:
    """What decides which pairs join."""

    threshold: float  # probability from which a pair may join
    measure: Measure
    k: int
    scored_size: int = SCORED_SIZE


def partition_pairs(files: PartitionFiles, shards: list[Shard], sites: Sites, cut: Cut) -> Report:
    """Write the clusters of all representatives that are in components."""
    report = run_tasks("components", _components, [(files, cut)])
    groups = report.counts.pop("groups")
    parts = range(files.pairs.terms.parts)
    report.add(run_tasks("inside", _inside_of_part, [(files, groups, part) for part in parts]))
    report.add(run_tasks("embedded", _embeddings_of_shard, [(files, sites.names, groups, shard) for shard in shards]))
    report.add(run_tasks("terms", _terms_of_part, [(files, groups, part) for part in parts]))
    calls = [(files, shards, sites.names, cut, group) for group in range(groups)]
    solved = run_tasks("partition", _partition_group, calls)
    report.add(solved)
    report.rows_out = solved.rows_out
    return report


def _components(files: PartitionFiles, cut: Cut) -> Counts:
    """Memory: about 100 bytes a question in a pair above the threshold, and the pairs of one part."""

    def make() -> Counts:
        counted: list[int] = []
        members, smallest = components(forest_of(_joining(files, cut.threshold, counted)))
        groups, sizes = _groups(smallest, cut.scored_size)
        columns = [members, smallest, (sizes > 2) & (sizes <= cut.scored_size), groups]
        counts = {"rows_in": sum(counted), "groups": int(groups.max(initial=-1)) + 1}
        counts["cap: questions in components too large to score every pair"] = int((sizes > cut.scored_size).sum())
        storage.write_table(files.nodes, pa.table([pa.array(c) for c in columns], schema=NODES), NODES)
        return counts

    return skip_or(files.nodes, make)


def _links(files: PartitionFiles) -> np.ndarray:
    return pairs_in(storage.read_table(files.links, KEY_PAIRS))


def _joining(files: PartitionFiles, threshold: float, counted: list[int]) -> Iterator[np.ndarray]:
    """The links, and the pairs above the threshold part by part; how many they are is added to `counted`."""
    for part in range(-1, files.pairs.terms.parts):
        pairs = _links(files) if part < 0 else _sure_pairs(files, threshold, part)
        counted.append(len(pairs))
        yield pairs


def _sure_pairs(files: PartitionFiles, threshold: float, part: int) -> np.ndarray:
    table = storage.read_table(files.pairs.scored(part), SCORED, ["left", "right", "probability"])
    return pairs_in(table.filter(pa.array(table["probability"].to_numpy() >= np.float32(threshold))))


def _groups(smallest: np.ndarray, scored_size: int) -> tuple[np.ndarray, np.ndarray]:
    """For each question the group that its component is solved in, and the component's size."""
    _, places, sizes = np.unique(smallest, return_inverse=True, return_counts=True)
    work = np.where(sizes <= scored_size, sizes * (sizes - 1) // 2, 20 * sizes)
    groups = np.unique((np.cumsum(work) - work) // _PAIRS_OF_GROUP, return_inverse=True)[1]
    return groups[places], sizes[places]


def _inside_of_part(files: PartitionFiles, groups: int, part: int) -> Counts:
    output = files.step("inside", part)

    def make() -> Counts:
        nodes = storage.read_table(files.nodes, NODES)
        keys, owners = nodes["key"].to_numpy(), nodes["component"].to_numpy()
        table = storage.read_table(files.pairs.scored(part), SCORED, _INSIDE.names)
        rows, known = zip(*(places_among(keys, table[side].to_numpy()) for side in ("left", "right")), strict=True)
        inside = known[0] & known[1]
        inside[inside] = owners[rows[0][inside]] == owners[rows[1][inside]]
        columns = [table[name].to_numpy()[inside] for name in _INSIDE.names]
        of_groups = nodes["group"].to_numpy()[rows[0][inside]]
        exchange.write_parts(output, exchange.split(columns, _INSIDE, of_groups, groups), _INSIDE)
        return {}

    return skip_or(output, make) if groups else {}


def _wanted(nodes: pa.Table, keys: np.ndarray, groups: int) -> list[np.ndarray]:
    """For each group the rows of `keys` that are in it, and in a component of three and more that is scored."""
    rows, known = places_among(nodes["key"].to_numpy(), keys)
    known[known] = nodes["is_scored"].to_numpy()[rows[known]]
    mine = np.where(known, nodes["group"].to_numpy()[rows] if len(nodes) else -1, -1)
    return [np.flatnonzero(mine == group) for group in range(groups)]


def _embeddings_of_shard(files: PartitionFiles, sites: list[str], groups: int, shard: Shard) -> Counts:
    output = files.step("embedded", shard.number)

    def make() -> Counts:
        uri = storage.join(files.embeddings, shard.file)
        table = storage.read_table(uri)
        keys = Sites(sites).pack_columns(table["site"], table["question_id"], uri)
        nodes = read_around(files.nodes, NODES, keys)
        batches = (exchange.one_batch(table.take(pa.array(rows))) for rows in _wanted(nodes, keys, groups))
        exchange.write_parts(output, batches, table.schema.remove_metadata())
        return {}

    return skip_or(output, make) if groups else {}


def _terms_of_part(files: PartitionFiles, groups: int, part: int) -> Counts:
    output = files.step("terms", part)

    def make() -> Counts:
        table = read_terms(files.pairs.terms, part)
        around = storage.read_table(files.pairs.around(part), AROUND)
        nodes = storage.read_table(files.nodes, NODES)  # the keys of a part lie anywhere among them
        wanted = _wanted(nodes, around["key"].to_numpy(), groups)
        batches = (exchange.one_batch(around.take(pa.array(rows))) for rows in wanted)
        exchange.write_parts(files.step("around", part), batches, AROUND)
        wanted = _wanted(nodes, table["key"].to_numpy(), groups)
        exchange.write_parts(output, (exchange.one_batch(table.take(pa.array(rows))) for rows in wanted), TERMS)
        return {}

    return skip_or(output, make) if groups else {}


def _partition_group(files: PartitionFiles, shards: list[Shard], sites: list[str], cut: Cut, group: int) -> Counts:
    output = files.labels(group)

    def make() -> Counts:
        nodes = storage.read_table(files.nodes, NODES)
        nodes = nodes.filter(pa.array(nodes["group"].to_numpy() == group))
        keys = nodes["key"].to_numpy()
        inside = [files.step("inside", part) for part in range(files.pairs.terms.parts)]
        left, right, p = exchange.columns_of(exchange.read_part(inside, group), _INSIDE)
        pairs = np.searchsorted(keys, np.stack([left, right], axis=1))
        missing = missing_pairs(nodes["component"].to_numpy(), nodes["is_scored"].to_numpy(), pairs)
        p = np.concatenate([p, _score(files, shards, sites, cut, group, keys[missing])])
        every = np.concatenate([pairs, missing])
        apart = among(keys, pairs_in(storage.read_table(files.apart, KEY_PAIRS)))
        labels = best_partition(linked_sets(_links(files), keys), every, p, len(pairs), cut.threshold, apart)
        table = pa.table([nodes["key"], pa.array(keys[labels])], schema=LABELS)
        storage.write_table(output, table, LABELS)
        return {"pairs scored that no question lists": len(missing), "rows_out": len(keys)}

    return skip_or(output, make)


def _score(
    files: PartitionFiles, shards: list[Shard], sites: list[str], cut: Cut, group: int, pairs: np.ndarray
) -> np.ndarray:
    """The probability of pairs of keys of which neither side lists the other."""
    if not len(pairs):
        return np.zeros(0, np.float32)
    from dupq.neighbours.embeddings import gathered
    from dupq.neighbours.exact import exact_scores, rule_of, side_of

    uris = [files.step("embedded", shard.number) for shard in shards]
    batches = [exchange.read_part([uri], group)[0] for uri in uris]
    embedded = gathered([embeddings_of(pa.Table.from_batches([b]), Sites(sites), uris[0]) for b in batches])
    rule = rule_of(cut.measure)
    side = side_of(embedded, rule)
    one, other = (np.searchsorted(embedded.keys, pairs[:, column]).astype(np.int32) for column in (0, 1))
    similarities = rule.similarities(exact_scores(one, other, side, side, rule))
    terms = exchange.read_part([files.step("terms", part) for part in range(files.pairs.terms.parts)], group)
    places, words = words_of(exchange.table_of(terms, TERMS))
    left, right = (places.of(pairs[:, column]) for column in (0, 1))
    common = shared(words, left, right, read_rarities(files.pairs.terms))
    compared = unlisted(pairs, similarities, common)
    uris = [files.step("around", part) for part in range(files.pairs.terms.parts)]
    sides = arounds(exchange.columns_of(exchange.read_part(uris, group), AROUND), compared)
    found = scored_table(compared, sides, read_scale(files.pairs.calibration, cut.k))
    return found["probability"].to_numpy()
