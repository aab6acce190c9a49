"""candidate pairs with their probability, links, verdicts → the clusters of representatives.

    threshold   the probability from which pairs may join
    joined      pairs that people joined; and pairs that must be apart
    nodes       the questions that pairs above the threshold connect, and the group in which their component is solved
    inside      candidate pairs within one component, also below the threshold
    embeddings  of components in which some pairs are no candidates; also their terms and rows of `title_context`
    labels      the clusters; a task per group scores its other pairs and partitions its components

In a component of more than `decision.SCORED_SIZE` questions, a pair that neither side lists is not scored: it counts as
the least likely candidate.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dupq import kinds
from dupq.clusters import decision
from dupq.clusters.components import components, constraints, forest_of
from dupq.clusters.decision import PairScorer, Thresholds
from dupq.evaluation.sampling import Judged
from dupq.evaluation.verdicts import DIFFERENT, SAME
from dupq.job.run import Run
from dupq.job.stage import stage
from dupq.job.step import StepResult, step
from dupq.job.table import Broadcast, Computed, Shuffled, Streamed, Table
from dupq.kinds import ANY, JSON, columns, streamed
from dupq.links import links_table, represented_by
from dupq.neighbours.embeddings import Measure, embeddings_of, keyed_embeddings
from dupq.stages.pairs import compare
from dupq.stages.terms import TermTables
from dupq.tables import JOINED_PAIRS, KEY_PAIRS, LABELS, NODES, QUESTION_TEXTS, RARITIES, REPRESENTATIVES, SCORED
from dupq.text.keys import Sites, indices_among, pairs_in, sorted_keys

_PRECISIONS = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95)  # their thresholds are stored with the chosen one
_PAIRS_OF_GROUP = 2_000_000  # in its components, before the next group begins
_INSIDE = columns(SCORED, "left", "right", "probability")
_JOINED = columns(JOINED_PAIRS, "left", "right")


@dataclass(frozen=True)
class RunKnowledge:
    """What a run knows besides its questions."""

    sites: Sites
    links: str | None  # the archive's links table; None: there is none, or it is ignored
    joins_links: bool  # whether links join questions; else they only mark pairs as known
    judged: Judged  # people's verdicts
    representatives: Table[kinds.Representative]
    seen: dict[str, np.ndarray]  # keys that the encoder was trained, tuned and tested on, by part
    previous: str | None = None  # the URI of an earlier run

    @property
    def pairs(self) -> Broadcast[kinds.KeyPair]:
        """The known duplicates."""
        return Broadcast(Computed(links_table, (self.links, self.sites.names)))


@dataclass(frozen=True)
class Partitioning:
    """What the partition into clusters depends on, besides the pairs."""

    threshold: float  # probability from which a pair may join
    sites: Sites
    measure: Measure
    scale: PairScorer
    scored_size: int = decision.SCORED_SIZE


class Candidates(NamedTuple):
    """The candidate pairs, and what they were scored by."""

    scored: Table[kinds.Scored]
    title_context: Table[kinds.TitleContext]
    terms: TermTables
    embeddings: Table[kinds.Embedded]
    read: Shuffled[kinds.KeyedVector] | None = None  # a reranker's vectors of those questions that it has read


class Partitioned(NamedTuple):
    """The clusters of representatives."""

    thresholds: Thresholds
    labels: Table[kinds.Label]
    joined: Table[kinds.JoinedPair]  # the pairs that people joined
    contradicting: int  # verdicts that others contradict


@stage("partition", version=3)
def decide(
    run: Run,
    pairs: Candidates,
    target: tuple[float, float],
    texts: Table[kinds.QuestionText],
    known: RunKnowledge,
    measure: Measure,
    scale: PairScorer,
    least_sure: float = 0.5,
) -> Partitioned:
    """Make the clusters of representatives.

    `target` is the precision that joined pairs should have, and a threshold that replaces it unless it is below 0.
    No pair below the probability `least_sure` joins for a precision. `texts` has all questions.
    """
    precision, threshold = target
    thresholds = run.record("threshold", thresholds_of)(Streamed(pairs.scored), precision, threshold, least_sure)
    apart, links = run.table("apart", KEY_PAIRS), known.links if known.joins_links else None
    joined = run.map("joined", constrained_pairs, second=apart)(
        Streamed(texts), Broadcast(known.representatives), links, known.sites.names, known.judged
    )
    settings = Partitioning(thresholds["chosen"]["threshold"], known.sites, measure, scale)
    labels = partition_pairs(run, pairs, joined, apart, settings)
    return Partitioned(thresholds, labels, joined, run.report.numbers["contradicting"])


@step(streamed(columns(SCORED, "probability")), makes=JSON)
def thresholds_of(
    scored: Iterator[pa.Table], precision: float, threshold: float, least_sure: float = 0.5
) -> Thresholds:
    """Return the probability from which pairs may join: `threshold`, or if that is below 0, the one for `precision`.

    It is chosen over all candidate pairs, in steps of .001. Those for other precisions are returned too.
    """
    histograms = [decision.histogram_of(table["probability"].to_numpy()) for table in scored]
    histogram = decision.Histogram(*(np.sum(column, axis=0) for column in zip(*histograms, strict=True)))
    at_threshold = {"precision": precision, **histogram.above(threshold)}
    chosen = histogram.choose(precision, least_sure) if threshold < 0 else at_threshold
    return {"chosen": chosen, "others": [histogram.choose(other, least_sure) for other in _PRECISIONS]}


@step(streamed(columns(QUESTION_TEXTS, "key")), REPRESENTATIVES, makes=JOINED_PAIRS, second=KEY_PAIRS)
def constrained_pairs(
    texts: Iterator[pa.Table], representatives: pa.Table, links: str | None, sites: list[str], judged: Judged
) -> StepResult[pa.Table]:
    """Return JOINED_PAIRS of representatives; the second table (KEY_PAIRS) has the pairs that must be apart.

    Memory: 8 bytes a question.
    """
    known = pairs_in(links_table(links, sites))
    verdicts = judged.of(SAME), known, judged.of(DIFFERENT)
    found = constraints(*verdicts, sorted_keys(texts), represented_by(representatives))
    sources = pc.if_else(pa.array(found.is_verdict), "verdict", "known_link")
    joined = pa.table([*found.joined.T, sources], schema=JOINED_PAIRS)
    counts = {"rows_out": 0, "verdicts that others contradict": found.contradicting}
    apart, numbers = pa.table([*found.apart.T], schema=KEY_PAIRS), {"contradicting": found.contradicting}
    return StepResult(joined, counts, apart, numbers=numbers)


def partition_pairs(
    run: Run, pairs: Candidates, joined: Table[kinds.JoinedPair], apart: Table[kinds.KeyPair], settings: Partitioning
) -> Table[kinds.Label]:
    """Make the clusters of all representatives that are in components.

    Pairs in `joined` join at any probability, pairs in `apart` never.
    """
    nodes = run.map("nodes", nodes_of)(Broadcast(joined), Streamed(pairs.scored), settings)
    groups = 1 + int(nodes.only("group").read(0)["group"].to_numpy().max(initial=-1))
    if not groups:
        return run.table("labels", LABELS, 0)
    inside = run.shuffle("inside", inside_of, groups, to="group")(pairs.scored, Broadcast(nodes))
    own = run.spread("own", nodes, groups, to="group")
    sources: dict[str, Table[Any] | Shuffled[Any] | None] = {"embeddings": pairs.embeddings, "terms": pairs.terms.terms}
    sources |= {"around": pairs.title_context, "read": pairs.read}
    evidence = [
        run.shuffle(name, scored_rows, groups, to="group", schema=rows.schema)(rows, Broadcast(nodes), settings.sites)
        for name, rows in sources.items()
        if rows is not None
    ]
    labels = run.map("labels", labels_of)(
        own, inside, Broadcast(pairs.terms.rarities), Broadcast(joined), Broadcast(apart), settings, *evidence
    )
    run.report.rows_out = labels.rows
    return labels


@step(_JOINED, streamed(_INSIDE), makes=NODES)
def nodes_of(joined: pa.Table, scored: Iterator[pa.Table], settings: Partitioning) -> StepResult[pa.Table]:
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
    nodes = pa.table([members, smallest, is_scored, groups[indices]], schema=NODES)
    over = int((sizes > settings.scored_size).sum())
    caps = {"questions in components too large to score every pair": over}
    return StepResult(nodes, {"rows_in": sum(counts)}, caps=caps)


@step(_INSIDE, columns(NODES, "key", "component", "group"), makes=_INSIDE)
def inside_of(scored: pa.Table, nodes: pa.Table) -> pa.Table:
    """Return the pairs within one component, with its group."""
    rows, inside = decision.pairs_inside(nodes["key"].to_numpy(), nodes["component"].to_numpy(), pairs_in(scored))
    return scored.filter(pa.array(inside)).append_column("group", nodes["group"].take(pa.array(rows[:, 0])))


@step(ANY, columns(NODES, "key", "is_scored", "group"), makes=ANY)
def scored_rows(table: pa.Table, nodes: pa.Table, sites: Sites) -> pa.Table:
    """Return the rows of the questions of components that are scored, with the component's group."""
    if "key" in table.column_names:
        keys = table["key"].to_numpy()
    else:
        keys = sites.pack_columns(table["site"], table["question_id"], "embeddings")
    rows, is_scored = indices_among(nodes["key"].to_numpy(), keys)
    is_scored[is_scored] = nodes["is_scored"].to_numpy()[rows[is_scored]]
    return table.filter(pa.array(is_scored)).append_column("group", nodes["group"].take(pa.array(rows[is_scored])))


@step(NODES, _INSIDE, RARITIES, _JOINED, KEY_PAIRS, makes=LABELS)
def labels_of(
    nodes: pa.Table,
    inside: pa.Table,
    rarities: pa.Table,
    joined: pa.Table,
    apart: pa.Table,
    settings: Partitioning,
    *evidence: pa.Table,
) -> StepResult[pa.Table]:
    """Return the clusters of a group's questions (LABELS).

    `evidence` are their embeddings, TERMS and TITLE_CONTEXT, and a reranker's vectors if there are any.
    """
    embedded, terms, title_context, *vectors = evidence
    keys, owners, is_scored = (nodes[name].to_numpy() for name in ("key", "component", "is_scored"))
    pairs, p = np.searchsorted(keys, pairs_in(inside)), inside["probability"].to_numpy()
    read = keyed_embeddings(*vectors) if vectors else None

    def score(missing: np.ndarray) -> np.ndarray:
        embeddings = embeddings_of(embedded, settings.sites, "embeddings")
        compared = compare(decision.unlisted(missing, embeddings, settings.measure), terms, rarities)
        return decision.scored_table(compared, title_context, settings.scale, read)["probability"].to_numpy()

    decided = pairs_in(joined), pairs_in(apart)
    clusters, missing = decision.solve(keys, owners, is_scored, pairs, p, decided, settings.threshold, score)
    return StepResult(pa.table([keys, clusters], schema=LABELS), {"pairs scored that no question lists": missing})
