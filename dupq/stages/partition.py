"""neighbours, terms, model → candidate pairs with their probability → the clusters of representatives.

    terms       stems, tags and marks of every question, by key; and how many questions of a shard have each term
    rarities    how rare each term is in the archive: one array of 16 MB, however large the archive

    candidates  both directions of a pair as one row
    wanted      the questions of a partition's pairs
    compared    what the texts of each pair have in common
    around      how alike each question's title is to the titles of its neighbours, over all of its pairs
    scored      the probability

    nodes       the questions that pairs above the threshold connect, and the group in which their component is solved
    inside      candidate pairs within one component, also below the threshold
    embeddings  of components in which some pairs are no candidates; likewise their terms and rows of `around`
    labels      the clusters; a task per group scores its other pairs and partitions its components

A partition holds the pairs whose left key belongs to it (`partition_of`). Memory: its pairs, and the terms of their
questions, some 2 kB each.

In a component of more than `decision.SCORED_SIZE` questions, a pair that neither side lists is not scored: it counts as
the least likely candidate.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dupq import tables
from dupq.clusters import decision
from dupq.clusters.components import components, constraints, forest_of
from dupq.clusters.decision import Scale, Thresholds
from dupq.evaluation.sampling import Judged
from dupq.evaluation.verdicts import DIFFERENT, SAME
from dupq.job.run import Run
from dupq.job.step import Counted, as_is
from dupq.job.table import Each, ReadWith, Shuffled, Table, Whole
from dupq.links import links_table, represented_by
from dupq.neighbours.embeddings import Measure, embeddings_of, keyed_embeddings
from dupq.stages.pairs import compare
from dupq.stages.terms import TermTables
from dupq.text.keys import Sites, indices_among, pairs_in, sorted_keys

_PRECISIONS = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95)  # their thresholds are stored beside the chosen one
_PAIRS_OF_GROUP = 2_000_000  # in its components, before the next group begins
_INSIDE = pa.schema([*tables.KEY_PAIRS, tables.SCORED.field("probability")])


def thresholds_of(scored: Iterator[pa.Table], precision: float, threshold: float) -> Thresholds:
    """Return the probability from which pairs may join: `threshold`, or if that is below 0, the one for `precision`.

    It is chosen over all candidate pairs, in steps of .001. Those for other precisions are returned too.
    """
    histograms = [decision.histogram_of(table["probability"].to_numpy()) for table in scored]
    histogram = decision.Histogram(*(np.sum(column, axis=0) for column in zip(*histograms, strict=True)))
    at_threshold = {"precision": precision, **histogram.above(threshold)}
    chosen = histogram.choose(precision) if threshold < 0 else at_threshold
    return {"chosen": chosen, "others": [histogram.choose(other) for other in _PRECISIONS]}


@dataclass(frozen=True)
class Known:
    """What a run knows beside its questions."""

    sites: Sites
    links: str | None  # the archive's links table; None: there is none, or it is ignored
    joins_links: bool  # whether links join questions; else they only mark pairs as known
    judged: Judged  # people's verdicts
    representatives: Whole  # REPRESENTATIVES
    seen: dict[str, np.ndarray]  # keys that the encoder was trained, tuned and tested on, by part
    previous: str | None = None  # the URI of an earlier run

    @property
    def pairs(self) -> Whole:
        """The known duplicates (KEY_PAIRS)."""
        return Whole(ReadWith(links_table, (self.links, self.sites.names)))


@dataclass(frozen=True)
class Partitioning:
    """What the partition into clusters depends on, beside the pairs."""

    threshold: float  # probability from which a pair may join
    sites: Sites
    measure: Measure
    scale: Scale
    scored_size: int = decision.SCORED_SIZE


class Candidates(NamedTuple):
    """The candidate pairs, and what they were scored by."""

    scored: Table  # SCORED
    around: Table  # AROUND
    terms: TermTables
    embeddings: Table
    read: Shuffled | None = None  # a reranker's vectors (keyed_vectors) of those questions that it has read


def decide(
    run: Run, pairs: Candidates, target: tuple[float, float], texts: Table, known: Known, measure: Measure, scale: Scale
) -> tuple[Thresholds, Table, Table]:
    """Return the thresholds, the clusters of representatives (LABELS), and the pairs that people joined (JOINED_PAIRS).

    `target` is the precision that joined pairs should have, and a threshold that replaces it unless it is below 0.
    `texts` are those of all questions.
    """
    probabilities = Each(pairs.scored.only("probability"))
    thresholds: Thresholds = run.record("threshold", thresholds_of, probabilities, *target)
    apart, links = run.table("apart", tables.KEY_PAIRS), known.links if known.joins_links else None
    sources = Each(texts.only("key")), known.representatives, links, known.sites.names, known.judged
    joined = run.map("joined", constrained_pairs, *sources, into=tables.JOINED_PAIRS, second=apart)
    settings = Partitioning(thresholds["chosen"]["threshold"], known.sites, measure, scale)
    return thresholds, partition_pairs(run, pairs, joined, apart, settings), joined


def constrained_pairs(
    texts: Iterator[pa.Table], representatives: pa.Table, links: str | None, sites: list[str], judged: Judged
) -> Counted:
    """Return JOINED_PAIRS of representatives; the second table (KEY_PAIRS) has the pairs that must be apart.

    Memory: 8 bytes a question.
    """
    known = pairs_in(links_table(links, sites))
    verdicts = judged.of(SAME), known, judged.of(DIFFERENT)
    found = constraints(*verdicts, sorted_keys(texts), represented_by(representatives))
    sources = pc.if_else(pa.array(found.is_verdict), "verdict", "known_link")
    joined = pa.table([*found.joined.T, sources], schema=tables.JOINED_PAIRS)
    counts = {"rows_out": 0, "verdicts that others contradict": found.contradicting}
    return Counted(joined, counts, pa.table([*found.apart.T], schema=tables.KEY_PAIRS))


def partition_pairs(run: Run, pairs: Candidates, joined: Table, apart: Table, settings: Partitioning) -> Table:
    """Make the clusters of all representatives that are in components (LABELS).

    Pairs in `joined` (JOINED_PAIRS) join at any probability, pairs in `apart` (KEY_PAIRS) never.
    """
    likely = pairs.scored.only(*_INSIDE.names)
    nodes = run.map("nodes", nodes_of, Whole(joined), Each(likely), settings, into=tables.NODES)
    groups = 1 + int(nodes.only("group").read(0)["group"].to_numpy().max(initial=-1))
    if not groups:
        return run.table("labels", tables.LABELS, 0)
    inside = run.shuffle("inside", inside_of, likely, Whole(nodes), into=_INSIDE, to="group", partitions=groups)
    own = run.shuffle("own", as_is, nodes, into=tables.NODES, to="group", partitions=groups)
    sources: dict[str, Table | Shuffled | None] = {"embeddings": pairs.embeddings, "terms": pairs.terms.terms}
    sources |= {"around": pairs.around, "read": pairs.read}
    evidence = [
        run.shuffle(
            name, scored_rows, table, Whole(nodes), settings.sites, into=table.schema, to="group", partitions=groups
        )
        for name, table in sources.items()
        if table is not None
    ]
    whole = (Whole(table) for table in (pairs.terms.rarities, joined, apart))
    labels = run.map("labels", labels_of, own, inside, *whole, settings, *evidence, into=tables.LABELS)
    run.report.rows_out = labels.rows
    return labels


def nodes_of(joined: pa.Table, scored: Iterator[pa.Table], settings: Partitioning) -> Counted:
    """Return the questions that `joined` and pairs above the threshold connect (NODES).

    Memory: about 150 bytes a question in such a pair, and the pairs of a partition.
    """
    counts = [len(joined)]

    def joining() -> Iterator[np.ndarray]:
        yield pairs_in(joined)
        for table in scored:
            sure = table.filter(pa.array(table["probability"].to_numpy() >= np.float32(settings.threshold)))
            counts.append(len(sure))
            yield pairs_in(sure)

    members, smallest = components(forest_of(joining()))
    _, indices, sizes = np.unique(smallest, return_inverse=True, return_counts=True)
    work = np.where(sizes <= settings.scored_size, sizes * (sizes - 1) // 2, 20 * sizes)
    groups = np.unique((np.cumsum(work) - work) // _PAIRS_OF_GROUP, return_inverse=True)[1]
    sizes = sizes[indices]
    is_scored = (sizes > 2) & (sizes <= settings.scored_size)
    nodes = pa.table([members, smallest, is_scored, groups[indices]], schema=tables.NODES)
    over = int((sizes > settings.scored_size).sum())
    return Counted(nodes, {"rows_in": sum(counts), "cap: questions in components too large to score every pair": over})


def inside_of(scored: pa.Table, nodes: pa.Table) -> pa.Table:
    """Return the pairs within one component, with its group."""
    rows, inside = decision.pairs_inside(nodes["key"].to_numpy(), nodes["component"].to_numpy(), pairs_in(scored))
    return scored.filter(pa.array(inside)).append_column("group", nodes["group"].take(pa.array(rows[:, 0])))


def scored_rows(table: pa.Table, nodes: pa.Table, sites: Sites) -> pa.Table:
    """Return the rows of the questions of components that are scored, with the component's group."""
    if "key" in table.column_names:
        keys = table["key"].to_numpy()
    else:
        keys = sites.pack_columns(table["site"], table["question_id"], "embeddings")
    rows, is_scored = indices_among(nodes["key"].to_numpy(), keys)
    is_scored[is_scored] = nodes["is_scored"].to_numpy()[rows[is_scored]]
    return table.filter(pa.array(is_scored)).append_column("group", nodes["group"].take(pa.array(rows[is_scored])))


def labels_of(
    nodes: pa.Table,
    inside: pa.Table,
    rarities: pa.Table,
    joined: pa.Table,
    apart: pa.Table,
    settings: Partitioning,
    embedded: pa.Table,
    terms: pa.Table,
    around: pa.Table,
    vectors: pa.Table | None = None,
) -> Counted:
    """Return the clusters of a group's questions (LABELS); `vectors` (keyed_vectors) are a reranker's."""
    keys, owners, is_scored = (nodes[name].to_numpy() for name in ("key", "component", "is_scored"))
    pairs, p = np.searchsorted(keys, pairs_in(inside)), inside["probability"].to_numpy()
    read = None if vectors is None else keyed_embeddings(vectors)

    def score(missing: np.ndarray) -> np.ndarray:
        embeddings = embeddings_of(embedded.drop_columns("group"), settings.sites, "embeddings")
        evidence = compare(decision.unlisted(missing, embeddings, settings.measure), terms, rarities)
        return decision.scored_table(evidence, around, settings.scale, read)["probability"].to_numpy()

    decided = pairs_in(joined), pairs_in(apart)
    clusters, missing = decision.solve(keys, owners, is_scored, pairs, p, decided, settings.threshold, score)
    return Counted(pa.table([keys, clusters], schema=tables.LABELS), {"pairs scored that no question lists": missing})
