"""texts → the terms of every question, by key; and how rare each term is in the archive: one array of 16 MB."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from dupq import tables
from dupq.job.run import Run
from dupq.job.step import Counted
from dupq.job.table import Each, Shuffled, Table
from dupq.stages.texts import TextTables
from dupq.text.marks import with_askers
from dupq.text.questions import BUCKETS, document_counts, each_once, lists_of, rarities


class TermTables(NamedTuple):
    """The terms of an archive's questions."""

    terms: Shuffled  # TERMS
    rarities: Table  # RARITIES, in one partition


def make_terms(run: Run, texts: TextTables, partitions: int) -> TermTables:
    """Make the terms of each question, in `partitions` by key, and the rarities."""
    counts = run.table("counts", tables.TERM_COUNTS, texts.terms.partitions)
    inputs = texts.terms, texts.contents.only("tags", "asker")
    terms = run.shuffle(
        "terms", terms_of_shard, *inputs, into=tables.TERMS, by="key", partitions=partitions, second=counts
    )
    rarity = run.map("rarities", rarities_of, Each(counts), terms.rows, into=tables.RARITIES)
    run.report.rows_in = run.report.rows_out = terms.rows
    return TermTables(terms, rarity)


def terms_of_shard(texts: pa.Table, contents: pa.Table) -> Counted:
    """Return TERMS of rows of QUESTION_TEXTS and CONTENTS of the same questions; the second table is TERM_COUNTS."""
    marks = with_askers(each_once(texts["marks"]), contents["asker"].combine_chunks())
    columns = {**dict(zip(texts.column_names, texts.columns, strict=True)), "marks": lists_of(marks)[0]}
    columns["tags"] = contents["tags"]
    counts_of_terms = document_counts(each_once(texts["text_terms"]))
    occurring = np.flatnonzero(counts_of_terms)
    counts = pa.table([occurring.astype(np.int32), counts_of_terms[occurring]], schema=tables.TERM_COUNTS)
    return Counted(pa.table(columns, schema=tables.TERMS), second=counts)


def rarities_of(counts: Iterator[pa.Table], questions: int) -> Counted:
    """Return the RARITIES of all terms in an archive of so many `questions`."""
    total = np.zeros(BUCKETS, np.int64)
    for table in counts:
        total[table["term"].to_numpy()] += table["questions"].to_numpy()
    table = pa.table([pa.array(rarities(total, questions))], schema=tables.RARITIES)
    return Counted(table, {"rows_out": 0, "different terms": int((total > 0).sum())})
