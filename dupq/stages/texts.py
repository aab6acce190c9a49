"""Steps that tokenise questions, and answers, once for all later stages.

For the nightly job they also make the terms and marks of questions, and take all that of an unchanged question from the
earlier run. Tags and askers are read each time, as they may change without the text.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dupq.archive import TEXT_COLUMNS, Shard
from dupq.errors import DupqError
from dupq.job.run import Run
from dupq.job.step import Counted
from dupq.job.table import Each, ReadWith, Shards, Table
from dupq.settings.sections import TextSettings
from dupq.tables import ANSWERS, CONTENTS, KEYS, QUESTION_TEXTS, TERMS, TEXTS
from dupq.text.keys import RowsByKey, Sites, are_among, sorted_keys
from dupq.text.marks import askers_of, marks_of
from dupq.text.questions import NO_HASHES, ContentHashes, content_hashes, lists_of, tags_of, terms_of, texts_table
from dupq.text.title_intent import TitleComparer, signs_of

COLUMNS = ("question_id", "title", "body_html", "tags", "owner")  # of questions, for `make_texts`
AT_ONCE = 1_024  # questions whose HTML is in memory


class TextTables(NamedTuple):
    """The texts of questions: one partition per shard, with the same questions in the same order in both tables."""

    texts: Table  # the columns TEXTS of QUESTION_TEXTS
    contents: Table  # CONTENTS

    @property
    def terms(self) -> Table:
        """The same table with the columns of TERMS that it has."""
        return self.texts.only(*(name for name in TERMS.names if name != "tags"))


class EarlierTexts(NamedTuple):
    """What an earlier run knows of a shard's questions and of others of their site."""

    contents: ContentHashes = NO_HASHES
    texts: Iterable[pa.Table] = ()  # QUESTION_TEXTS in batches, with the keys of this run
    counts: Mapping[str, int] = MappingProxyType({})


def make_texts(run: Run, questions: Shards, earlier: ReadWith, settings: TextSettings) -> TextTables:
    """Make the texts of questions. Texts of unchanged questions come from the run that `earlier` (EarlierTexts) reads.

    A task holds a shard's tokens and terms, and some of its HTML.
    """
    contents = run.table("contents", CONTENTS, questions.partitions, keep=True)
    texts = run.map("texts", texts_since, questions, earlier, settings, into=QUESTION_TEXTS, second=contents, keep=True)
    run.report.rows_out = texts.rows
    return TextTables(texts.only(*TEXTS.names), contents)


def texts_since(questions: Iterator[pa.RecordBatch], earlier: EarlierTexts, settings: TextSettings) -> Counted:
    """Return QUESTION_TEXTS of questions; the second table is CONTENTS."""
    texts, contents, marks = [TEXTS.empty_table()], [CONTENTS.empty_table()], []
    same, comparer = [np.zeros(0, np.int64)], TitleComparer(settings.language)
    for batch in questions:
        hashes, signs = content_hashes(batch["title"], batch["body_html"]), signs_of(batch["title"])
        tags, askers = lists_of(tags_of(batch["tags"]))[0], askers_of(batch["owner"], batch["site"])
        contents.append(pa.table([batch["key"], *hashes.T, signs, tags, askers], schema=CONTENTS))
        is_same = earlier.contents.are_same(batch["question_id"].to_numpy(), hashes)
        same.append(batch["key"].to_numpy()[is_same])
        is_new = pa.array(~is_same)
        new = batch.filter(is_new)
        texts.append(_tokenised(new, settings))
        marks.append(lists_of(marks_of(new, texts[-1]["title"], signs.filter(is_new), comparer))[0])
    taken, made = np.sort(np.concatenate(same)), _with_terms(pa.concat_tables(texts), marks, settings)
    unchanged = (table.filter(pa.array(are_among(taken, table["key"].to_numpy()))) for table in earlier.texts)
    table, second = pa.concat_tables([made, *unchanged]), pa.concat_tables(contents)
    keys, keys_in_order = table["key"].to_numpy(), second["key"].to_numpy()
    if not np.array_equal(keys, keys_in_order):  # a repeated key repeats its row
        table = table.take(pa.array(RowsByKey(keys).find(keys_in_order)))
    return Counted(table, {**_counts(table), "texts as in the earlier run": len(taken), **earlier.counts}, second)


def _tokenised(posts: pa.RecordBatch, settings: TextSettings) -> pa.Table:
    titles = posts["title"] if "title" in posts.schema.names else pa.array([""] * len(posts))
    return texts_table(posts["key"], titles, posts["body_html"], settings)


def _with_terms(texts: pa.Table, marks: list[pa.ListArray], settings: TextSettings) -> pa.Table:
    """Return QUESTION_TEXTS of rows of TEXTS; `marks` are those of successive ones."""
    titles, bodies = (terms_of(texts[name].combine_chunks(), settings.language) for name in ("title", "text"))
    all_marks = pa.chunked_array(marks, QUESTION_TEXTS.field("marks").type).combine_chunks()
    return pa.table([*texts.columns, *lists_of(titles), *lists_of(bodies), all_marks], schema=QUESTION_TEXTS)


def _counts(texts: pa.Table) -> dict[str, int]:
    return {"rows_in": len(texts), "empty texts": pc.sum(pc.equal(texts["text"], "")).as_py() or 0}


def make_distinct_texts(run: Run, shards: Sequence[Shard], sites: Sites, settings: TextSettings) -> Table:
    """Make the texts of the shards' questions. Raises DupqError if one appears twice.

    For jobs without an earlier run. The nightly job checks for repeated questions in its next stage.
    """
    questions = Shards(tuple(shards), tuple(sites.names), TEXT_COLUMNS, AT_ONCE)
    texts = run.map("texts", texts_of, questions, settings, into=TEXTS, publish=True)
    find_repeated(run, texts, sites)
    run.report.rows_out = texts.rows
    return texts


def texts_of(posts: Iterator[pa.RecordBatch], settings: TextSettings) -> Counted:
    """Return TEXTS of questions, or of answers, which have no titles."""
    texts = pa.concat_tables([TEXTS.empty_table(), *(_tokenised(batch, settings) for batch in posts)])
    return Counted(texts, _counts(texts))


def find_repeated(run: Run, texts: Table, sites: Sites) -> None:
    """Raise DupqError if a question appears twice. The task holds 16 bytes per question."""
    run.map("distinct", no_repeated, Each(texts.only("key")), sites.names, into=KEYS)


def no_repeated(texts: Iterator[pa.Table], sites: list[str]) -> Counted:
    """Return no row. Raises DupqError if a key appears twice."""
    keys = sorted_keys(texts)
    repeated = keys[1:][keys[1:] == keys[:-1]]
    if len(repeated):
        raise DupqError(
            f"questions: {Sites(sites).label(int(repeated[0]))} appears more than once ({len(repeated)} or more rows "
            "too many in all); ingest the dump anew into an empty folder"
        )
    return Counted(KEYS.empty_table())


def make_answer_texts(run: Run, shards: Sequence[Shard], sites: Sites, settings: TextSettings) -> Table:
    """Make the texts of answers, keyed by answer."""
    columns, names = ("answer_id", "body_html"), tuple(sites.names)
    answers = Shards(tuple(shards), names, columns, AT_ONCE, schema=ANSWERS, id="answer_id")
    whole = settings.changed(fields="title+body")
    texts = run.map("answer_texts", texts_of, answers, whole, into=TEXTS, publish=True)
    run.report.rows_out = texts.rows
    return texts
