"""neighbours, terms, model → candidate pairs with their probability → the clusters of representatives.

    terms       stems, tags and marks of every question, by hash; and how many questions of a shard have each term
    rarities    of all shards: how much each term says, one array of 16 MB whatever the archive

    candidates  both directions of a pair as one row
    wanted      the questions of a partition's pairs
    compared    what the two texts of a pair have in common
    around      how alike each question's title is to those of its neighbours, over all of its pairs
    scored      the probability

    nodes       the questions that pairs above the threshold connect, and the group in which each component is solved
    inside      candidate pairs within one component, also those below the threshold
    embeddings  of components in which not every pair is a candidate; so their terms, and what is around them
    labels      a task per group: every pair of these scored, and clusters chosen

A partition holds the pairs whose left keys are in it (`partition_of`). Memory: its pairs, and the terms of their
questions, some 2 kB each.

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
    Histogram,
    Scale,
    Thresholds,
    histogram_of,
    scored_table,
    solve,
    undirected,
    unlisted,
)
from dupq.clusters.evidence import Words, around, marks_of, shared
from dupq.evaluation.sampling import Judged
from dupq.evaluation.verdicts import DIFFERENT, SAME
from dupq.job.run import Run
from dupq.job.step import Counted, as_is
from dupq.job.table import Each, ReadWith, Shards, Shuffled, Table, Whole
from dupq.links import links_table, represented_by
from dupq.neighbours.embeddings import Measure
from dupq.runs.question_tables import embeddings_of, pairs_in, sorted_keys
from dupq.tables import (
    AROUND,
    CANDIDATES,
    COMPARED,
    HISTOGRAM,
    JOINED_PAIRS,
    KEY_PAIRS,
    KEYS,
    LABELS,
    NODES,
    RARITIES,
    SCORED,
    TERM_COUNTS,
    TERMS,
)
from dupq.text.keys import RowsByKey, Sites, distinct, indices_among
from dupq.text.questions import BUCKETS, Terms, concatenated, document_counts, rarities, tags_of, terms_of

_NONE = Terms(np.zeros(1, np.int64), np.zeros(0, np.int32), np.zeros(0, np.uint8))
COLUMNS, AT_ONCE = ("question_id", "title", "body_html", "tags", "owner"), 1_024  # of questions


class TermTables(NamedTuple):
    """What is known of the terms of an archive."""

    terms: Shuffled  # TERMS
    rarities: Table  # RARITIES, in one partition


def make_terms(run: Run, texts: Table, questions: Shards, language: str, parts: int) -> TermTables:
    """Make the terms of each question, in so many partitions of its key, and the rarities."""
    counts = run.table("counts", TERM_COUNTS, texts.partitions)
    made = run.shuffle(
        "terms", terms_of_shard, texts, questions, language, into=TERMS, by="key", partitions=parts, second=counts
    )
    rarity = run.map("rarities", rarities_of, Each(counts), made.rows, into=RARITIES)
    run.report.rows_in = run.report.rows_out = made.rows
    return TermTables(made, rarity)


def terms_of_shard(texts: pa.Table, questions: Iterator[pa.RecordBatch], language: str) -> Counted:
    """Return TERMS of rows of TEXTS and their questions; the second table is TERM_COUNTS."""
    titles, bodies = (terms_of(texts[name].combine_chunks(), language) for name in ("title", "text"))
    words = Words(titles, bodies, *_tags_and_marks(texts, questions, language))
    counted = document_counts(words.texts)
    seen = np.flatnonzero(counted)
    counts = pa.table([pa.array(seen.astype(np.int32)), pa.array(counted[seen])], schema=TERM_COUNTS)
    return Counted(terms_table(texts["key"].combine_chunks(), words), second=counts)


def _tags_and_marks(texts: pa.Table, questions: Iterator[pa.RecordBatch], language: str) -> tuple[Terms, Terms]:
    """Return the tags and marks of rows of TEXTS, in their order."""
    rows, found = RowsByKey(texts["key"].to_numpy()), [(np.zeros(0, np.int64), _NONE, _NONE)]
    for batch in questions:
        own = rows.find(batch["key"].to_numpy())
        titles = texts["title"].take(pa.array(own))
        found.append((own, tags_of(batch["tags"]), marks_of(batch, titles, batch["site"].to_pylist(), language)))
    order = np.argsort(np.concatenate([own for own, _, _ in found]), kind="stable")
    tags, marks = (concatenated(column).take(order) for column in list(zip(*found, strict=True))[1:])
    return tags, marks


def terms_table(keys: pa.Array, words: Words) -> pa.Table:
    """Return rows of TERMS."""
    lists = []
    for terms in words:
        offsets = pa.array(terms.offsets.astype(np.int32))
        lists += [pa.ListArray.from_arrays(offsets, pa.array(column)) for column in (terms.ids, terms.counts)]
    return pa.table([keys, *lists], schema=TERMS)


def rarities_of(counts: Iterator[pa.Table], questions: int) -> Counted:
    """Return RARITIES: how much each term says in an archive of so many questions."""
    total = np.zeros(BUCKETS, np.int64)
    for table in counts:
        total[table["term"].to_numpy()] += table["questions"].to_numpy()
    found = pa.table([pa.array(rarities(total, questions))], schema=RARITIES)
    return Counted(found, {"rows_out": 0, "different terms": int((total > 0).sum())})


def titles_only(table: pa.Table) -> pa.Table:
    """Rows of TERMS without texts, tags and marks."""
    for place, field in enumerate(TERMS):
        if place > TERMS.names.index("title_counts"):
            table = table.set_column(place, field, pa.array([[]] * len(table), field.type))
    return table


def words_of(table: pa.Table) -> tuple[RowsByKey, Words]:
    """Where each question is among rows of TERMS, and their words and tags. Memory: a copy of the table."""
    columns = [_column(table[name]) for name in TERMS.names[1:]]
    terms = [Terms(*columns[place], columns[place + 1][1]) for place in (0, 2, 4, 6)]
    return RowsByKey(table["key"].to_numpy()), Words(*terms)


def _column(column: pa.ChunkedArray) -> tuple[np.ndarray, np.ndarray]:
    """The offsets and values of a column of lists."""
    lists = column.combine_chunks()
    lengths = lists.value_lengths().to_numpy()
    return np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]), lists.flatten().to_numpy()


_PRECISIONS = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95)  # their thresholds are stored beside the chosen one
_SIDES = ("left", "right")


def score_pairs(run: Run, directed: Shuffled, terms: TermTables, scale: Scale) -> tuple[Table, Table]:
    """Make SCORED of the candidate pairs in `directed` (NEIGHBOURS), and AROUND of their questions."""
    pairs = run.map("candidates", candidates, directed, into=CANDIDATES)
    wanted = run.shuffle("wanted", questions_of, pairs, into=KEYS, by="key", partitions=terms.terms.partitions)
    texts = run.look_up("terms", terms.terms, wanted)
    compared = run.map("compared", compare, pairs, texts, Whole(terms.rarities), into=COMPARED)
    listed = run.shuffle("listed", listed_by, compared, into=AROUND, by="key", partitions=terms.terms.partitions)
    sums = run.map("around", sum_by_key, listed, into=AROUND)
    scored = run.map("scored", scored_table, compared, run.look_up("around_for", sums, wanted), scale, into=SCORED)
    run.report.rows_out = scored.rows
    return scored, sums


def candidates(directed: pa.Table) -> Counted:
    """Return rows of NEIGHBOURS as pairs (CANDIDATES), each once."""
    return Counted(undirected(directed), {"rows_in": len(directed)})


def questions_of(pairs: pa.Table) -> pa.Table:
    """Return the questions of pairs, each once (KEYS)."""
    keys = distinct(np.concatenate([pairs[side].to_numpy() for side in _SIDES]))
    return pa.table([pa.array(keys)], schema=KEYS)


def compare(pairs: pa.Table, texts: pa.Table, rarities: pa.Table) -> pa.Table:
    """Return rows of CANDIDATES with what the texts (TERMS) of each have in common (COMPARED)."""
    rows, words = words_of(texts)
    left, right = (rows.find(pairs[side].to_numpy()) for side in _SIDES)
    common = shared(words, left, right, rarities["rarity"].to_numpy())
    return pa.table([*pairs.columns, *map(pa.array, common)], schema=COMPARED)


def listed_by(compared: pa.Table) -> pa.Table:
    """Return for each question of pairs how alike its title is to those of the questions that it lists (AROUND)."""
    listed = [compared.filter(pc.greater(compared[f"rank_{side}"], 0)) for side in _SIDES]
    keys = [table[side].to_numpy() for side, table in zip(_SIDES, listed, strict=True)]
    return around(np.concatenate(keys), np.concatenate([table["title_cosine"].to_numpy() for table in listed]))


def sum_by_key(listed: pa.Table) -> pa.Table:
    """Return rows of AROUND, one per question: the sums of all rows of it."""
    names = AROUND.names[1:]
    sums = listed.group_by("key").aggregate([(name, "sum") for name in names]).sort_by("key")
    return pa.table([sums["key"], *(sums[f"{name}_sum"] for name in names)], schema=AROUND)


def choose_threshold(run: Run, scored: Table, precision: float, threshold: float) -> Thresholds:
    """Record the probability from which a pair may join: `threshold`, or if that is below 0 the one for `precision`.

    It is chosen over all candidate pairs, in steps of .001, and recorded with those for other precisions.
    """
    counted = run.map("histogram", histogram_table, scored.only("probability"), into=HISTOGRAM)
    thresholds: Thresholds = run.record("threshold", thresholds_of, Each(counted), precision, threshold)
    return thresholds


def histogram_table(scored: pa.Table) -> pa.Table:
    """Return how many pairs have a probability of each step, and the sum of these (HISTOGRAM)."""
    return pa.table([*histogram_of(scored["probability"].to_numpy())], schema=HISTOGRAM)


def thresholds_of(counted: Iterator[pa.Table], precision: float, threshold: float) -> Thresholds:
    """Return the chosen threshold, and those for other precisions, with what is expected of each."""
    columns = zip(*([column.to_numpy() for column in table.columns] for table in counted), strict=True)
    histogram = Histogram(*(np.sum(column, axis=0) for column in columns))
    at_threshold = {"precision": precision, **histogram.above(threshold)}
    chosen = histogram.choose(precision) if threshold < 0 else at_threshold
    return {"chosen": chosen, "others": [histogram.choose(other) for other in _PRECISIONS]}


@dataclass(frozen=True)
class Known:
    """What a run knows beside its questions."""

    sites: Sites
    links: str | None  # the links table of the archive; None: there is none, or it is ignored
    joins_links: bool  # or only says which pairs are known
    judged: Judged  # what people say of pairs
    representatives: Whole  # REPRESENTATIVES
    seen: dict[str, np.ndarray]  # keys that the encoder was trained, tuned and tested on, by part
    previous: str | None = None  # an earlier run

    @property
    def pairs(self) -> Whole:
        """The known duplicates (KEY_PAIRS)."""
        return Whole(ReadWith(links_table, (self.links, self.sites.names)))


_PAIRS_OF_GROUP = 2_000_000  # of components, before a group is closed
_INSIDE = pa.schema([*KEY_PAIRS, SCORED.field("probability")])


@dataclass(frozen=True)
class Cut:
    """What decides which pairs join."""

    threshold: float  # probability from which a pair may join
    sites: Sites
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


def decide(
    run: Run,
    pairs: Candidates,
    wanted: tuple[float, float],
    texts: Table,
    known: Known,
    measure: Measure,
    scale: Scale,
) -> tuple[Thresholds, Table, Held]:
    """Return the thresholds, the clusters of all representatives in components (LABELS), and what people say.

    `wanted` is how sure pairs must be to join: a precision, or if it is not below 0 a probability.
    """
    thresholds = choose_threshold(run, pairs.scored, *wanted)
    held, cut = hold(run, texts, known), Cut(thresholds["chosen"]["threshold"], known.sites, measure, scale)
    return thresholds, partition_pairs(run, pairs, held, cut), held


def hold(run: Run, texts: Table, known: Known) -> Held:
    """Make the tables of pairs that known duplicates and verdicts decide; `texts` are those of all questions."""
    apart = run.table("apart", KEY_PAIRS)
    links = known.links if known.joins_links else None
    inputs = Each(texts.only("key")), known.representatives, links, known.sites.names, known.judged
    return Held(run.map("joined", held_pairs, *inputs, into=JOINED_PAIRS, second=apart), apart)


def held_pairs(
    texts: Iterator[pa.Table], representatives: pa.Table, links: str | None, sites: list[str], judged: Judged
) -> Counted:
    """Return JOINED_PAIRS; the second table are the pairs that must be apart. Memory: 8 bytes a question."""
    known = pairs_in(links_table(links, sites))
    said = judged.pairs(SAME), known, judged.pairs(DIFFERENT)
    found = constraints(*said, sorted_keys(texts), represented_by(representatives))
    sources = pc.if_else(pa.array(found.is_verdict), "verdict", "known_link")
    joined = pa.table([*found.joined.T, sources], schema=JOINED_PAIRS)
    counts = {"rows_out": 0, "verdicts that others contradict": found.contradicting}
    return Counted(joined, counts, pa.table([*found.apart.T], schema=KEY_PAIRS))


def partition_pairs(run: Run, pairs: Candidates, held: Held, cut: Cut) -> Table:
    """Make the clusters of all representatives that are in components (LABELS)."""
    likely = pairs.scored.only(*_INSIDE.names)
    nodes = run.map("nodes", nodes_of, Whole(held.joined), Each(likely), cut, into=NODES)
    groups = 1 + int(nodes.only("group").read(0)["group"].to_numpy().max(initial=-1))
    if not groups:
        return run.table("labels", LABELS, 0)
    inside = run.shuffle("inside", inside_of, likely, Whole(nodes), into=_INSIDE, to="group", partitions=groups)
    own = run.shuffle("own", as_is, nodes, into=NODES, to="group", partitions=groups)
    embedded, terms, around = (
        run.shuffle(name, scored_rows, table, Whole(nodes), cut.sites, into=table.schema, to="group", partitions=groups)
        for name, table in (("embeddings", pairs.embeddings), ("terms", pairs.terms.terms), ("around", pairs.around))
    )
    whole = (Whole(table) for table in (pairs.terms.rarities, held.joined, held.apart))
    labels = run.map("labels", labels_of, own, inside, embedded, terms, around, *whole, cut, into=LABELS)
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
    _, indices, sizes = np.unique(smallest, return_inverse=True, return_counts=True)
    work = np.where(sizes <= cut.scored_size, sizes * (sizes - 1) // 2, 20 * sizes)
    groups = np.unique((np.cumsum(work) - work) // _PAIRS_OF_GROUP, return_inverse=True)[1]
    sizes = sizes[indices]
    is_scored = (sizes > 2) & (sizes <= cut.scored_size)
    found = pa.table([members, smallest, is_scored, groups[indices]], schema=NODES)
    over = int((sizes > cut.scored_size).sum())
    return Counted(found, {"rows_in": sum(counted), "cap: questions in components too large to score every pair": over})


def inside_of(scored: pa.Table, nodes: pa.Table) -> pa.Table:
    """Return the pairs within one component, with its group."""
    keys, owners = nodes["key"].to_numpy(), nodes["component"].to_numpy()
    rows, known = indices_among(keys, pairs_in(scored))
    inside = known[:, 0] & known[:, 1]
    inside[inside] = np.equal(*owners[rows[inside]].T)
    groups = nodes["group"].take(pa.array(rows[inside, 0]))
    return scored.filter(pa.array(inside)).append_column("group", groups)


def scored_rows(table: pa.Table, nodes: pa.Table, sites: Sites) -> pa.Table:
    """Return the rows of questions in components of three and more that are scored, with the component's group."""
    if "key" in table.column_names:
        keys = table["key"].to_numpy()
    else:
        keys = sites.pack_columns(table["site"], table["question_id"], "embeddings")
    rows, known = indices_among(nodes["key"].to_numpy(), keys)
    known[known] = nodes["is_scored"].to_numpy()[rows[known]]
    return table.filter(pa.array(known)).append_column("group", nodes["group"].take(pa.array(rows[known])))


def labels_of(
    nodes: pa.Table,
    inside: pa.Table,
    embedded: pa.Table,
    terms: pa.Table,
    around: pa.Table,
    rarities: pa.Table,
    joined: pa.Table,
    apart: pa.Table,
    cut: Cut,
) -> Counted:
    """Return the clusters of a group's questions (LABELS)."""
    keys, owners, is_scored = (nodes[name].to_numpy() for name in ("key", "component", "is_scored"))
    pairs, p = np.searchsorted(keys, pairs_in(inside)), inside["probability"].to_numpy()

    def score(missing: np.ndarray) -> np.ndarray:
        return score_unlisted(missing, embedded.drop_columns("group"), terms, around, rarities, cut)

    held = pairs_in(joined), pairs_in(apart)
    clusters, missing = solve(keys, owners, is_scored, pairs, p, held, cut.threshold, score)
    return Counted(pa.table([keys, clusters], schema=LABELS), {"pairs scored that no question lists": missing})


def score_unlisted(
    pairs: np.ndarray, embedded: pa.Table, terms: pa.Table, around: pa.Table, rarities: pa.Table, cut: Cut
) -> np.ndarray:
    """Return the probability of pairs of keys of which neither side lists the other."""
    from dupq.neighbours.exact import exact_scores, rule_of, scoring, side_of

    found, rule = embeddings_of(embedded, cut.sites, "embeddings"), rule_of(cut.measure)
    rows, side = RowsByKey(found.keys), side_of(found, rule)
    left, right = (rows.find(column).astype(np.int32) for column in pairs.T)
    similarities = rule.similarities(exact_scores(scoring(side, side, rule), left, right))
    rows, words = words_of(terms)
    left, right = (rows.find(column) for column in pairs.T)
    common = shared(words, left, right, rarities["rarity"].to_numpy())
    return scored_table(unlisted(pairs, similarities, common), around, cut.scale)["probability"].to_numpy()
