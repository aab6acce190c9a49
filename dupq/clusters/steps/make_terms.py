"""The terms stage: texts, questions → the terms of every question, and how rare each is in this archive.

    terms      stems, tags and marks, by hash; and how many questions of a shard have each term
    rarities   of all shards

The rarities are one array of fixed size (16 MB), whatever the archive. Evidence is computed from the terms.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from dupq.clusters.evidence import Words
from dupq.clusters.marks import marks_of
from dupq.job.run import Counted, Run
from dupq.job.table import Each, Shards, Spread, Table
from dupq.tables import RARITIES, TERM_COUNTS, TERMS
from dupq.text.keys import RowsByKey
from dupq.text.terms import BUCKETS, Terms, document_counts, gathered, rarities, tags_of, terms_of

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
