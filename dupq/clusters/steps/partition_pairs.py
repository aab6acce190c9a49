"""scored pairs → the clusters of representatives: components of sure pairs, and of each the best partition.

    nodes       the questions that pairs above the threshold connect, and the group in which each component is solved
    inside      candidate pairs within one component, also those below the threshold
    embeddings  of components in which not every pair is a candidate; so their terms, and what is around them
    labels      a task per group: every pair of these scored, and clusters chosen

In a component of more than `decision.SCORED_SIZE` questions not every pair is scored: one that is not a candidate,
neither side listing the other, counts as the least likely candidate.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dupq.clusters.components import components, constraints, forest_of
from dupq.clusters.decision import (
    SCORED_SIZE,
    Scale,
    Thresholds,
    among,
    arounds,
    best_partition,
    linked_sets,
    missing_pairs,
    scored_table,
    unlisted,
)
from dupq.clusters.evidence import shared
from dupq.clusters.steps.score_pairs import TermTables, choose_threshold, words_of
from dupq.evaluation.sampling import Judged
from dupq.evaluation.verdicts import DIFFERENT, SAME
from dupq.job.run import Counted, Run, as_they_are
from dupq.job.table import Each, Table, Whole
from dupq.links import links_table, represented_by
from dupq.neighbours.embeddings import Measure
from dupq.runs.question_tables import embeddings_of, pairs_in, sorted_keys
from dupq.tables import JOINED_PAIRS, KEY_PAIRS, LABELS, NODES, SCORED
from dupq.text.keys import Sites, are_among, places_among

_PAIRS_OF_GROUP = 2_000_000  # of components, before a group is closed
_INSIDE = pa.schema([*KEY_PAIRS, SCORED.field("probability")])


@dataclass(frozen=True)
class Cut:
    """What decides which pairs join."""

    threshold: float  # probability from which a pair may join
    measure: Measure
    scale: Scale
    scored_size: int = SCORED_SIZE


class Held(NamedTuple):
    """What people say of pairs of representatives, each table in one partition."""

    joined: Table  # JOINED_PAIRS: they join at any probability
    apart: Table  # KEY_PAIRS: they must not be in one cluster


class Candidates(NamedTuple):
    """The candidate pairs, and what they were scored by."""

    scored: Table  # SCORED
    around: Table  # AROUND
    terms: TermTables
    embeddings: Table


class Said(NamedTuple):
    """What people say of pairs, and of which questions."""

    texts: Table  # TEXTS of all questions
    links: str | None  # known duplicates that are joined
    representatives: Whole  # REPRESENTATIVES
    sites: Sites
    judged: Judged


def decide(
    run: Run, pairs: Candidates, wanted: tuple[float, float], said: Said, measure: Measure, scale: Scale
) -> tuple[Thresholds, Table, Held]:
    """Return the thresholds, the clusters of all representatives in components (LABELS), and what people say.

    `wanted` is how sure pairs must be to join: a precision, or if it is not below 0 a probability.
    """
    thresholds = choose_threshold(run, pairs.scored, *wanted)
    held, cut = hold(run, *said), Cut(thresholds["chosen"]["threshold"], measure, scale)
    return thresholds, partition_pairs(run, pairs, held, said.sites, cut), held


def hold(run: Run, texts: Table, links: str | None, representatives: Whole, sites: Sites, judged: Judged) -> Held:
    """Make the tables of pairs that known duplicates, if there are `links`, and verdicts decide."""
    apart = run.table("apart", KEY_PAIRS)
    inputs = Each(texts.only("key")), representatives, links, sites.names, judged
    return Held(run.map("joined", held_pairs, *inputs, into=JOINED_PAIRS, beside=apart), apart)


def held_pairs(
    texts: Iterator[pa.Table], representatives: pa.Table, links: str | None, sites: list[str], judged: Judged
) -> Counted:
    """Return JOINED_PAIRS; the second table are the pairs that must be apart. Memory: 8 bytes a question."""
    keys, known = sorted_keys(texts), pairs_in(links_table(links, sites))
    same, known, apart = (
        pairs[are_among(keys, pairs).all(axis=1)] for pairs in (judged.pairs(SAME), known, judged.pairs(DIFFERENT))
    )
    found = constraints(same, known, apart, represented_by(representatives))
    sources = pc.if_else(pa.array(found.is_verdict), "verdict", "known_link")
    joined = pa.table([*found.joined.T, sources], schema=JOINED_PAIRS)
    counts = {"rows_out": 0, "verdicts that others contradict": found.contradicting}
    return Counted(joined, counts, pa.table([*found.apart.T], schema=KEY_PAIRS))


def partition_pairs(run: Run, pairs: Candidates, held: Held, sites: Sites, cut: Cut) -> Table:
    """Make the clusters of all representatives that are in components (LABELS)."""
    likely = pairs.scored.only(*_INSIDE.names)
    nodes = run.map("nodes", nodes_of, Whole(held.joined), Each(likely), cut, into=NODES)
    groups = 1 + int(nodes.only("group").read(0)["group"].to_numpy().max(initial=-1))
    if not groups:
        return run.table("labels", LABELS, 0)
    inside = run.shuffle("inside", inside_of, likely, Whole(nodes), into=_INSIDE, to="group", parts=groups)
    own = run.shuffle("own", as_they_are, nodes, into=NODES, to="group", parts=groups)
    embedded, terms, around = (
        run.shuffle(name, scored_rows, table, Whole(nodes), sites.names, into=table.schema, to="group", parts=groups)
        for name, table in (("embeddings", pairs.embeddings), ("terms", pairs.terms.terms), ("around", pairs.around))
    )
    whole = (Whole(table) for table in (pairs.terms.rarities, held.joined, held.apart))
    labels = run.map("labels", solve, own, inside, embedded, terms, around, *whole, sites.names, cut, into=LABELS)
    run.report.rows_out = labels.rows
    return labels


def nodes_of(joined: pa.Table, scored: Iterator[pa.Table], cut: Cut) -> Counted:
    """Return the questions that `joined` and pairs above the threshold connect (NODES).

    Memory: about 100 bytes a question in such a pair, and the pairs of a partition.
    """
    counted = [len(joined)]

    def joining() -> Iterator[np.ndarray]:
        yield pairs_in(joined)
        for table in scored:
            sure = table.filter(pa.array(table["probability"].to_numpy() >= np.float32(cut.threshold)))
            counted.append(len(sure))
            yield pairs_in(sure)

    members, smallest = components(forest_of(joining()))
    groups, sizes = _groups(smallest, cut.scored_size)
    columns = [members, smallest, (sizes > 2) & (sizes <= cut.scored_size), groups]
    found = pa.table([pa.array(column) for column in columns], schema=NODES)
    over = int((sizes > cut.scored_size).sum())
    return Counted(found, {"rows_in": sum(counted), "cap: questions in components too large to score every pair": over})


def _groups(smallest: np.ndarray, scored_size: int) -> tuple[np.ndarray, np.ndarray]:
    """Return for each question the group that its component is solved in, and the component's size."""
    _, indices, sizes = np.unique(smallest, return_inverse=True, return_counts=True)
    work = np.where(sizes <= scored_size, sizes * (sizes - 1) // 2, 20 * sizes)
    groups = np.unique((np.cumsum(work) - work) // _PAIRS_OF_GROUP, return_inverse=True)[1]
    return groups[indices], sizes[indices]


def inside_of(scored: pa.Table, nodes: pa.Table) -> pa.Table:
    """Return the pairs within one component, with its group."""
    keys, owners = nodes["key"].to_numpy(), nodes["component"].to_numpy()
    rows, known = zip(*(places_among(keys, scored[side].to_numpy()) for side in ("left", "right")), strict=True)
    inside = known[0] & known[1]
    inside[inside] = owners[rows[0][inside]] == owners[rows[1][inside]]
    groups = nodes["group"].to_numpy()[rows[0][inside]] if len(nodes) else np.zeros(0, np.int64)
    return scored.filter(pa.array(inside)).append_column("group", pa.array(groups))


def scored_rows(table: pa.Table, nodes: pa.Table, sites: list[str]) -> pa.Table:
    """Return the rows of questions in components of three and more that are scored, with the component's group."""
    if "key" in table.column_names:
        keys = table["key"].to_numpy()
    else:
        keys = Sites(sites).pack_columns(table["site"], table["question_id"], "embeddings")
    rows, known = places_among(nodes["key"].to_numpy(), keys)
    known[known] = nodes["is_scored"].to_numpy()[rows[known]]
    return table.filter(pa.array(known)).append_column("group", nodes["group"].take(pa.array(rows[known])))


def solve(
    nodes: pa.Table,
    inside: pa.Table,
    embedded: pa.Table,
    terms: pa.Table,
    around: pa.Table,
    rarities: pa.Table,
    joined: pa.Table,
    apart: pa.Table,
    sites: list[str],
    cut: Cut,
) -> Counted:
    """Return the clusters of a group's questions (LABELS)."""
    keys = nodes["key"].to_numpy()
    pairs = np.searchsorted(keys, pairs_in(inside))
    missing = missing_pairs(nodes["component"].to_numpy(), nodes["is_scored"].to_numpy(), pairs)
    p = inside["probability"].to_numpy()
    if len(missing):
        words = terms, around, rarities["rarity"].to_numpy()
        p = np.concatenate([p, _score(keys[missing], embedded.drop_columns("group"), *words, sites, cut)])
    firsts, separate = linked_sets(pairs_in(joined), keys), among(keys, pairs_in(apart))
    labels = best_partition(firsts, np.concatenate([pairs, missing]), p, len(pairs), cut.threshold, separate)
    found = pa.table([nodes["key"], pa.array(keys[labels])], schema=LABELS)
    return Counted(found, {"pairs scored that no question lists": len(missing)})


def _score(
    pairs: np.ndarray,
    embedded: pa.Table,
    terms: pa.Table,
    around: pa.Table,
    rarities: np.ndarray,
    sites: list[str],
    cut: Cut,
) -> np.ndarray:
    """Return the probability of pairs of keys of which neither side lists the other."""
    from dupq.neighbours.exact import exact_scores, rule_of, side_of

    found = embeddings_of(embedded, Sites(sites), "embeddings")
    found = found.take(np.argsort(found.keys))
    rule = rule_of(cut.measure)
    side = side_of(found, rule)
    one, other = (np.searchsorted(found.keys, pairs[:, column]).astype(np.int32) for column in (0, 1))
    similarities = rule.similarities(exact_scores(one, other, side, side, rule))
    rows, words = words_of(terms)
    left, right = (rows.of(pairs[:, column]) for column in (0, 1))
    common = shared(words, left, right, rarities)
    compared = unlisted(pairs, similarities, common)
    sides = arounds([column.to_numpy() for column in around.columns], compared)
    return scored_table(compared, sides, cut.scale)["probability"].to_numpy()
