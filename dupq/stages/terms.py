"""texts → the terms of every question, and how rare each term is.

    terms     stems, tags and marks of every question, by key; and how many questions of a shard have each term: counts
    rarities  how rare each term is in the archive: one array of 16 MB, however large the archive

Memory: a shard's terms, some 2 kB a question.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from dupq import kinds
from dupq.job.run import Run
from dupq.job.stage import stage
from dupq.job.step import StepResult, step
from dupq.job.table import Shuffled, Streamed, Table
from dupq.kinds import columns, streamed
from dupq.stages.texts import TextTables
from dupq.tables import CONTENTS, QUESTION_TEXTS, RARITIES, TERM_COUNTS, TERMS
from dupq.text.marks import with_askers
from dupq.text.questions import BUCKETS, document_counts, each_once, lists_of, rarities

_OF_TEXTS = columns(QUESTION_TEXTS, *(name for name in TERMS.names if name != "tags"))


class TermTables(NamedTuple):
    """The terms of an archive's questions."""

    terms: Shuffled[kinds.Terms]
    rarities: Table[kinds.Rarity]  # one partition


@stage("terms", version=3)
def make_terms(run: Run, texts: TextTables, partitions: int) -> TermTables:
    """Make the terms of each question, in `partitions` by key, and the rarities."""
    counts = run.table("counts", TERM_COUNTS, texts.texts.partitions)
    terms = run.shuffle("terms", terms_of_shard, partitions, by="key", second=counts)(texts.texts, texts.contents)
    rarity = run.map("rarities", rarities_of)(Streamed(counts), terms.rows)
    run.report.rows_in = run.report.rows_out = terms.rows
    return TermTables(terms, rarity)


@step(_OF_TEXTS, columns(CONTENTS, "tags", "asker"), makes=TERMS, second=TERM_COUNTS)
def terms_of_shard(texts: pa.Table, contents: pa.Table) -> StepResult[pa.Table]:
    """Return TERMS of texts and contents of the same questions; the second table is TERM_COUNTS."""
    marks = with_askers(each_once(texts["marks"]), contents["asker"].combine_chunks())
    every = {**dict(zip(texts.column_names, texts.columns, strict=True)), "marks": lists_of(marks)[0]}
    every["tags"] = contents["tags"]
    counts_of_terms = document_counts(each_once(texts["text_terms"]))
    occurring = np.flatnonzero(counts_of_terms)
    counts = pa.table([occurring.astype(np.int32), counts_of_terms[occurring]], schema=TERM_COUNTS)
    return StepResult(pa.table(every, schema=TERMS), second=counts)


@step(streamed(TERM_COUNTS), makes=RARITIES)
def rarities_of(counts: Iterator[pa.Table], questions: int) -> StepResult[pa.Table]:
    """Return the RARITIES of all terms in an archive of `questions` questions."""
    total = np.zeros(BUCKETS, np.int64)
    for table in counts:
        total[table["term"].to_numpy()] += table["questions"].to_numpy()
    table = pa.table([pa.array(rarities(total, questions))], schema=RARITIES)
    return StepResult(table, {"rows_out": 0, "different terms": int((total > 0).sum())})
