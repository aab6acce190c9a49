"""neighbours, terms, model → every candidate pair with its evidence and probability.

    candidates  both directions of a pair as one row
    wanted      the questions of a partition's pairs
    compared    what the two texts of a pair have in common
    around      how alike each question's title is to those of its neighbours, over all of its pairs
    scored      the probability

A partition holds the pairs whose left keys are in it (`partition_of`). Memory: its pairs, and the terms of their
questions, some 2 kB each.

The terms come first: stems, tags and marks of every question, by hash, and how rare each is in this archive.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from dupq.clusters.decision import Scale, Thresholds, arounds, scored_table, spread_of, undirected
from dupq.clusters.decision import Spread as Histogram
from dupq.clusters.evidence import Words, around, marks_of, shared
from dupq.job.run import Counted, Run
from dupq.job.table import Each, Shards, Spread, Table, Whole
from dupq.tables import AROUND, CANDIDATES, COMPARED, HISTOGRAM, KEYS, RARITIES, SCORED, TERM_COUNTS, TERMS
from dupq.text.keys import RowsByKey, distinct
from dupq.text.questions import BUCKETS, Terms, document_counts, gathered, rarities, tags_of, terms_of

# The terms stage: texts, questions → the terms of every question, and how rare each is in this archive.
#
#     terms      stems, tags and marks, by hash; and how many questions of a shard have each term
#     rarities   of all shards
#
# The rarities are one array of fixed size (16 MB), whatever the archive. Evidence is computed from the terms.

_NONE = Terms(np.zeros(1, np.int64), np.zeros(0, np.int32), np.zeros(0, np.uint8))
COLUMNS, AT_ONCE = ("question_id", "title", "body_html", "tags", "owner"), 1_024  # of questions


class TermTables(NamedTuple):
    """What is known of the terms of an archive."""

    terms: Spread  # TERMS
    rarities: Table  # RARITIES, in one partition


def make_terms(run: Run, texts: Table, questions: Shards, language: str, parts: int) -> TermTables:
    """Make the terms of each question, in so many partitions of its key, and the rarities."""
    counts = run.table("counts", TERM_COUNTS, texts.parts)
    made = run.shuffle(
        "terms", terms_of_shard, texts, questions, language, into=TERMS, by="key", parts=parts, beside=counts
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
        own = rows.of(batch["key"].to_numpy())
        titles = texts["title"].take(pa.array(own))
        found.append((own, tags_of(batch["tags"]), marks_of(batch, titles, batch["site"].to_pylist(), language)))
    order = np.argsort(np.concatenate([own for own, _, _ in found]), kind="stable")
    tags, marks = (gathered(column).take(order) for column in list(zip(*found, strict=True))[1:])
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


def score_pairs(run: Run, directed: Spread, terms: TermTables, scale: Scale) -> tuple[Table, Table]:
    """Make SCORED of the candidate pairs in `directed` (NEIGHBOURS), and AROUND of their questions."""
    pairs = run.map("candidates", candidates, directed, into=CANDIDATES)
    wanted = run.shuffle("wanted", questions_of, pairs, into=KEYS, by="key", parts=terms.terms.parts)
    texts = run.look_up("terms", terms.terms, wanted)
    compared = run.map("compared", compare, pairs, texts, Whole(terms.rarities), into=COMPARED)
    listed = run.shuffle("listed", listed_by, compared, into=AROUND, by="key", parts=terms.terms.parts)
    sums = run.map("around", sum_by_key, listed, into=AROUND)
    scored = run.map("scored", score, compared, run.look_up("around_for", sums, wanted), scale, into=SCORED)
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
    left, right = (rows.of(pairs[side].to_numpy()) for side in _SIDES)
    common = shared(words, left, right, rarities["rarity"].to_numpy())
    return pa.table([*pairs.columns, *map(pa.array, common)], schema=COMPARED)


def listed_by(compared: pa.Table) -> pa.Table:
    """Return for each question of pairs how alike its title is to those of the questions that it lists (AROUND)."""
    listed = [compared[f"rank_{side}"].to_numpy() > 0 for side in _SIDES]
    keys = [compared[side].to_numpy() for side in _SIDES]
    questions, cosines = distinct(np.concatenate(keys)), compared["title_cosine"].to_numpy()
    rows = np.searchsorted(questions, np.concatenate([key[some] for key, some in zip(keys, listed, strict=True)]))
    sums = around(rows, np.concatenate([cosines[some] for some in listed]), len(questions))
    return pa.table([pa.array(questions), *map(pa.array, sums)], schema=AROUND)


def sum_by_key(listed: pa.Table) -> pa.Table:
    """Return rows of AROUND, one per question: the sums of all rows of it."""
    names = AROUND.names[1:]
    sums = listed.group_by("key").aggregate([(name, "sum") for name in names]).sort_by("key")
    return pa.table([sums["key"], *(sums[f"{name}_sum"] for name in names)], schema=AROUND)


def score(compared: pa.Table, sums: pa.Table, scale: Scale) -> pa.Table:
    """Return rows of COMPARED as rows of SCORED; `sums` are the rows of AROUND of their questions."""
    return scored_table(compared, arounds([column.to_numpy() for column in sums.columns], compared), scale)


def choose_threshold(run: Run, scored: Table, precision: float, threshold: float) -> Thresholds:
    """Record the probability from which a pair may join: `threshold`, or if that is below 0 the one for `precision`.

    It is chosen over all candidate pairs, in steps of .001, and recorded with those for other precisions.
    """
    counted = run.map("histogram", histogram_of, scored.only("probability"), into=HISTOGRAM)
    thresholds: Thresholds = run.record("threshold", thresholds_of, Each(counted), precision, threshold)
    return thresholds


def thresholds_of(counted: Iterator[pa.Table], precision: float, threshold: float) -> Thresholds:
    """Return the chosen threshold, and those for other precisions, with what is expected of each."""
    columns = zip(*([column.to_numpy() for column in table.columns] for table in counted), strict=True)
    histogram = Histogram(*(np.sum(column, axis=0) for column in columns))
    at_threshold = {"precision": precision, **histogram.above(threshold)}
    chosen = histogram.choose(precision) if threshold < 0 else at_threshold
    return {"chosen": chosen, "others": [histogram.choose(wanted) for wanted in _PRECISIONS]}


def histogram_of(scored: pa.Table) -> pa.Table:
    """Return how many pairs have a probability of each step, and the sum of these (HISTOGRAM)."""
    return pa.table([*spread_of(scored["probability"].to_numpy())], schema=HISTOGRAM)
