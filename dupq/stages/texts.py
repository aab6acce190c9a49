"""Questions, or answers → their texts, tokenised once for all later stages.

For the nightly job also the terms and marks of questions; an unchanged question has all of these from the earlier run.
Tags and askers are read each time, as they may change without the text.
"""

import importlib.metadata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dupq import kinds, storage
from dupq.archive import Shard, read_shard
from dupq.errors import DupqError
from dupq.job.run import Run
from dupq.job.stage import stage
from dupq.job.step import StepResult, step
from dupq.job.table import Computed, Input, Shards, Streamed, Table
from dupq.kinds import ANY, columns, streamed
from dupq.settings.sections import TextSettings
from dupq.stages.inputs import LEFT_OUT, EarlierContents, contents_of, find_contents
from dupq.tables import ANSWERS, CONTENTS, KEYS, QUESTION_TEXTS, QUESTIONS, TEXTS
from dupq.text.keys import MAXIMUM_ID, RowsByKey, Sites, are_among, sorted_keys
from dupq.text.marks import askers_of, marks_of
from dupq.text.questions import NO_HASHES, ContentHashes, content_hashes, lists_of, tags_of, terms_of, texts_table
from dupq.text.title_intent import TitleComparer
from dupq.text.written import written_titles

AT_ONCE = 1_024  # questions whose HTML is in memory
_EARLIER_AT_ONCE = 8_192  # texts of the earlier run in memory
_LIBRARIES = ("bm25s", "icu4py", "pystemmer", "regex", "selectolax")  # stop words, words, stems, tokens, texts of HTML


class TextTables(NamedTuple):
    """The texts of questions: one partition per shard, with the same questions in the same order in both tables."""

    texts: Table[kinds.QuestionText]
    contents: Table[kinds.Content]
    sites: tuple[str, ...]  # of the run, in the order of keys


class EarlierTexts(NamedTuple):
    """What an earlier run knows of a shard's questions and of others of their site."""

    contents: ContentHashes = NO_HASHES
    texts: Iterable[pa.Table] = ()  # QUESTION_TEXTS in batches, with the keys of this run
    caps: Mapping[str, int] = MappingProxyType({})


@stage("texts", version=8, keeps=("work/texts", "work/contents"))
def make_texts(run: Run, questions: Shards[kinds.Question], settings: TextSettings, skipped: int = 0) -> TextTables:
    """Make the texts of questions. Texts of unchanged questions come from the earlier run.

    `skipped` is the number of shards that the job leaves out. A task holds a shard's tokens and terms, and some of its
    HTML.
    """
    if skipped:
        run.report.caps["shards of questions left out by --skip-shard"] = skipped
    then = make_texts.earlier(run, texts_made_as(settings))
    contents_then = then and contents_of(then.contents, then.sites)
    earlier = Computed[EarlierTexts](earlier_texts, (then, contents_then, questions), questions.partitions)
    contents = run.table("contents", CONTENTS, questions.partitions, keep=True)
    texts = run.map("texts", texts_since, second=contents, keep=True)(questions, earlier, settings)
    run.report.rows_out = texts.rows
    return TextTables(texts, contents, questions.sites)


def texts_made_as(settings: TextSettings) -> dict[str, object]:
    """Return what texts and their terms are made by: the settings, and the versions of the algorithm and libraries."""
    libraries = {name: importlib.metadata.version(name) for name in _LIBRARIES}
    return {"settings": settings.model_dump(mode="json"), "algorithm": make_texts.version, **libraries}


def earlier_texts(
    then: TextTables | None, contents: EarlierContents | None, questions: Shards[kinds.Question], partition: int
) -> EarlierTexts:
    """Return the earlier content hashes and texts for the questions of a shard; the texts are read in batches."""
    shard, sites = questions.shards[partition], Sites([*questions.sites])
    if then is None:
        return EarlierTexts(caps={LEFT_OUT: 0})
    ids = read_shard(shard, QUESTIONS, ["question_id"])["question_id"].to_numpy()
    numbers, hashes, left_out = find_contents(contents, shard.site, ids)
    texts = (table for number in numbers for table in _texts_in(then.texts.file(number), shard.site, sites))
    return EarlierTexts(hashes, texts, {LEFT_OUT: left_out})


def _texts_in(uri: str, site: str, sites: Sites) -> Iterator[pa.Table]:
    """Yield the rows of a file of texts of one site, with the keys of `sites`."""
    for batch in storage.read_batches(uri, QUESTION_TEXTS, QUESTION_TEXTS.names, _EARLIER_AT_ONCE):
        keys = sites.pack(site, batch["key"].to_numpy() & MAXIMUM_ID, uri)
        yield pa.Table.from_batches([batch]).set_column(0, QUESTION_TEXTS.field("key"), pa.array(keys))


@step(
    streamed(columns(QUESTIONS, "question_id", "title", "body_html", "tags", "owner")),
    ANY,
    makes=QUESTION_TEXTS,
    second=CONTENTS,
)
def texts_since(
    questions: Iterator[pa.RecordBatch], earlier: EarlierTexts, settings: TextSettings
) -> StepResult[pa.Table]:
    """Return QUESTION_TEXTS of questions; the second table is CONTENTS."""
    texts, contents, marks = [TEXTS.empty_table()], [CONTENTS.empty_table()], []
    same, comparer = [np.zeros(0, np.int64)], TitleComparer(settings.language)
    for batch in questions:
        hashes = content_hashes(batch["title"], batch["body_html"])
        written = written_titles(batch["title"], settings.language)
        tags, askers = lists_of(tags_of(batch["tags"]))[0], askers_of(batch["owner"], batch["site"])
        contents.append(pa.table([batch["key"], *hashes.T, written, tags, askers], schema=CONTENTS))
        is_same = earlier.contents.are_same(batch["question_id"].to_numpy(), hashes)
        same.append(batch["key"].to_numpy()[is_same])
        is_new = pa.array(~is_same)
        new = batch.filter(is_new)
        texts.append(_tokenised(new, settings))
        marks.append(lists_of(marks_of(new, texts[-1]["title"], written.filter(is_new), comparer))[0])
    taken, made = np.sort(np.concatenate(same)), _with_terms(pa.concat_tables(texts), marks, settings)
    unchanged = (table.filter(pa.array(are_among(taken, table["key"].to_numpy()))) for table in earlier.texts)
    table, second = pa.concat_tables([made, *unchanged]), pa.concat_tables(contents)
    keys, keys_in_order = table["key"].to_numpy(), second["key"].to_numpy()
    if not np.array_equal(keys, keys_in_order):  # a repeated key repeats its row
        table = table.take(pa.array(RowsByKey(keys).find(keys_in_order)))
    return StepResult(table, {**_counts(table), "texts as in the earlier run": len(taken)}, second, earlier.caps)


def _with_terms(texts: pa.Table, marks: list[pa.ListArray], settings: TextSettings) -> pa.Table:
    """Return QUESTION_TEXTS of rows of TEXTS; `marks` are of successive ones."""
    titles, bodies = (terms_of(texts[name].combine_chunks(), settings.language) for name in ("title", "text"))
    all_marks = pa.chunked_array(marks, QUESTION_TEXTS.field("marks").type).combine_chunks()
    return pa.table([*texts.columns, *lists_of(titles), *lists_of(bodies), all_marks], schema=QUESTION_TEXTS)


@stage("texts", version=3)
def make_distinct_texts(run: Run, shards: Sequence[Shard], sites: Sites, settings: TextSettings) -> Table[kinds.Text]:
    """Make the texts of the shards' questions. Raises DupqError if one appears twice.

    For jobs without an earlier run. The nightly job checks for repeated questions in its next stage.
    """
    questions = Shards(tuple(shards), tuple(sites.names), QUESTIONS, batch_rows=AT_ONCE)
    texts = run.map("texts", texts_of, publish=True)(questions, settings)
    find_repeated(run, texts, sites)
    run.report.rows_out = texts.rows
    return texts


@step(streamed(columns(QUESTIONS, "title", "body_html")), makes=TEXTS)
def texts_of(posts: Iterator[pa.RecordBatch], settings: TextSettings) -> StepResult[pa.Table]:
    """Return TEXTS of questions."""
    texts = pa.concat_tables([TEXTS.empty_table(), *(_tokenised(batch, settings) for batch in posts)])
    return StepResult(texts, _counts(texts))


def find_repeated(run: Run, texts: Input[kinds.Key], sites: Sites) -> None:
    """Raise DupqError if a question appears twice. The task holds 16 bytes per question."""
    run.map("distinct", no_repeated)(Streamed(texts), sites.names)


@step(streamed(KEYS), makes=KEYS)
def no_repeated(texts: Iterator[pa.Table], sites: list[str]) -> pa.Table:
    """Return no row. Raises DupqError if a key appears twice."""
    keys = sorted_keys(texts)
    repeated = keys[1:][keys[1:] == keys[:-1]]
    if len(repeated):
        raise DupqError(
            f"questions: {Sites(sites).label(int(repeated[0]))} appears more than once ({len(repeated)} or more rows "
            "too many in all); ingest the dump again into an empty folder"
        )
    return KEYS.empty_table()


@stage("answer_texts", version=3)
def make_answer_texts(run: Run, shards: Sequence[Shard], sites: Sites, settings: TextSettings) -> Table[kinds.Text]:
    """Make the texts of answers, keyed by answer."""
    answers = Shards(tuple(shards), tuple(sites.names), ANSWERS, batch_rows=AT_ONCE, id="answer_id")
    texts = run.map("answer_texts", texts_of_answers, publish=True)(answers, settings.changed(fields="title+body"))
    run.report.rows_out = texts.rows
    return texts


@step(streamed(columns(ANSWERS, "body_html")), makes=TEXTS)
def texts_of_answers(answers: Iterator[pa.RecordBatch], settings: TextSettings) -> StepResult[pa.Table]:
    """Return TEXTS of answers, which have no titles."""
    return texts_of((batch.append_column("title", pa.array([""] * len(batch))) for batch in answers), settings)


def _tokenised(posts: pa.RecordBatch, settings: TextSettings) -> pa.Table:
    return texts_table(posts["key"], posts["title"], posts["body_html"], settings)


def _counts(texts: pa.Table) -> dict[str, int]:
    return {"rows_in": len(texts), "empty texts": pc.sum(pc.equal(texts["text"], "")).as_py() or 0}
