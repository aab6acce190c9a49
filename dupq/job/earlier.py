"""Texts, embeddings and a teacher's vectors that a run takes from an earlier one, for unchanged questions.

A shard's questions are searched in the earlier files whose range of ids overlaps its own: both are sorted, or nearly
so. At most 8 files are read; the others are counted as left out. The answer is that of a run without an earlier one,
byte for byte. So nothing is taken that is damaged or was made differently, and no embeddings from GPUs into a run on
CPUs, or vice versa. Between two runs on GPUs they are taken, although their last bits depend on the rest of the batch:
if they were made again, all questions would count as changed.
"""

import importlib.metadata
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from typing_extensions import TypedDict

from dupq import storage
from dupq.archive import read_shard
from dupq.job.run import Run
from dupq.job.table import ReadWith, Shards
from dupq.job.tasks import CAP
from dupq.runs.question_tables import key_span
from dupq.runs.records import DEDUP_VERSIONS, RunFiles, is_intact
from dupq.settings.sections import TextSettings
from dupq.storage import read_or_none
from dupq.system import side_by_side
from dupq.tables import CONTENT_HASHES, QUESTION_TEXTS, QUESTIONS
from dupq.text.keys import ID_BITS, MAXIMUM_ID, Sites
from dupq.text.questions import NO_HASHES, ContentHashes
from dupq.text.steps import EarlierTexts, TextTables, make_texts

_log = logging.getLogger(__name__)
_FILES = 8  # of the earlier run that are read per shard
LEFT_OUT = f"{CAP}files of the earlier run beyond {_FILES} for a shard"  # a count
_BATCH_ROWS = 8_192
_LIBRARIES = ("bm25s", "pystemmer", "regex", "selectolax")  # stop words, stems, tokens and texts of HTML


class _TextsMadeAs(TypedDict):
    """The file `texts_made_as`: how texts were made, and the sites in the order of their keys."""

    settings: dict[str, object]
    algorithm: int
    sites: list[str]


class Span(NamedTuple):
    """A file of the earlier run: its name, its site, and its lowest and highest id."""

    name: str
    site: str
    low: int
    high: int


class Earlier(NamedTuple):
    """The folders of an earlier run that may be used; a shard's files have the same name in each of them."""

    texts: str
    contents: str
    embeddings: str
    spans: list[Span]


def texts_made_as(settings: TextSettings) -> dict[str, object]:
    """Return what texts and their terms are made by: the settings, and the versions of the algorithm and libraries."""
    libraries = {name: importlib.metadata.version(name) for name in _LIBRARIES}
    return {"settings": settings.model_dump(mode="json"), "algorithm": DEDUP_VERSIONS["texts"], **libraries}


def earlier_texts(since: RunFiles | None, made_as: Mapping[str, object]) -> Earlier | None:
    """Return the texts of the run `since`; None, and log why, if they are damaged or not made as `made_as` says."""
    if since is None:
        return None
    record = read_or_none(since.texts_made_as, _TextsMadeAs)
    why_not = why_unusable(since, "texts", record, made_as, (since.texts, since.contents, since.texts_made_as))
    if record is None or why_not:
        _log.info(f"all texts are made anew: {why_not}")
        return None
    return Earlier(since.texts, since.contents, since.path("embeddings"), _spans(since.contents, record["sites"]))


def earlier_embeddings(since: RunFiles | None, made_as: Mapping[str, object], texts: Earlier | None) -> Earlier | None:
    """Return `texts` if the embeddings of the run `since` may be used too; else None, and log why."""
    if since is None:
        return None
    if texts is None:
        _log.info("all embeddings are made anew, as all texts are")
        return None
    record = read_or_none(since.encoded_as, dict[str, object])
    why_not = why_unusable(since, "encode", record, made_as, (texts.embeddings, since.encoded_as))
    if record is not None and record.get("device") != made_as["device"]:
        why_not = f"{since.uri} made them on {_kind(record)}, and this run makes them on {_kind(made_as)}"
    if why_not:
        _log.info(f"all embeddings are made anew: {why_not}")
        return None
    if made_as["device"] == "gpu":
        _log.info(f"embeddings of questions that are as they were are those of {since.uri}, made on GPUs too")
    return texts


def earlier_vectors(since: RunFiles | None, made_as: Mapping[str, object]) -> Earlier | None:
    """Return the teacher's vectors of the run `since`; None, and log why, if they are damaged or not made as `made_as`
    says.
    """
    if since is None:
        return None
    made_by, contents, vectors = since.teacher
    record, texts = read_or_none(made_by, dict[str, object]), read_or_none(since.texts_made_as, _TextsMadeAs)
    why_not = why_unusable(since, "teacher", record, made_as, (contents, vectors, made_by))
    if texts is None or why_not:
        _log.info(f"the teacher reads all questions anew: {why_not}")
        return None
    return Earlier("", contents, vectors, _spans(contents, texts["sites"]))


def _kind(made_as: Mapping[str, object]) -> str:
    return f"{str(made_as.get('device')).upper()}s"


def why_unusable(
    since: RunFiles,
    stage: str,
    record: Mapping[str, object] | None,
    made_as: Mapping[str, object],
    uris: tuple[str, ...],
) -> str | None:
    """Return why what a stage of the run `since` made cannot be used; None if it can."""
    if record is None:
        return f"{since.uri} has not kept them"
    different = sorted(name for name, value in made_as.items() if record.get(name) != value)
    if different:
        return f"{since.uri} was made with another {', '.join(different)}"
    if not is_intact(since.uri, stage, uris):
        return f"{since.uri} has lost some of them"
    return None


def _spans(folder: str, sites: Sequence[str]) -> list[Span]:
    """Return the spans of the files of contents that have rows."""
    files = storage.list_files(folder, ".parquet")
    spans = side_by_side(key_span, [file.uri for file in files])
    return [
        Span(file.relative, sites[span[0] >> ID_BITS], span[0] & MAXIMUM_ID, span[1] & MAXIMUM_ID)
        for file, span in zip(files, spans, strict=True)
        if span is not None
    ]


class EarlierContents(NamedTuple):
    """The content hashes in an earlier run for the questions of a shard."""

    names: list[str]  # of the files that are read
    contents: ContentHashes
    left_out: int  # files that may also hold some of the questions


def find_contents(earlier: Earlier | None, site: str, ids: np.ndarray) -> EarlierContents:
    """Return the earlier content hashes of the questions `ids` of `site`; none without an earlier run."""
    if earlier is None or not len(ids):
        return EarlierContents([], NO_HASHES, 0)
    low, high = int(ids.min()), int(ids.max())
    overlapping = [span.name for span in earlier.spans if span.site == site and span.low <= high and low <= span.high]
    names = overlapping[:_FILES]
    hashes = hashes_in([storage.join(earlier.contents, name) for name in names])
    return EarlierContents(names, hashes, len(overlapping) - len(names))


def hashes_in(uris: Sequence[str]) -> ContentHashes:
    """Return the hashes in files of contents, all of one site, sorted by id."""
    contents = [tuple(NO_HASHES)]
    for uri in uris:
        table = storage.read_table(uri, CONTENT_HASHES, CONTENT_HASHES.names)
        hashes = np.stack([table[half].to_numpy() for half in ("high", "low")], axis=1)
        contents.append((table["key"].to_numpy() & MAXIMUM_ID, hashes))
    ids, hashes = (np.concatenate(column) for column in zip(*contents, strict=True))
    order = np.argsort(ids, kind="stable")
    return ContentHashes(ids[order], hashes[order])


def make_texts_since(
    run: Run,
    questions: Shards,
    made_as: str,
    settings: TextSettings,
    skipped: int,
    earlier: Callable[[], Earlier | None],
) -> TextTables:
    """Make the texts of questions; texts of unchanged questions come from the `earlier` run.

    `made_as` is the file that records how they are made; `skipped` is the number of shards that the job leaves out.
    """
    before = None
    if not run.is_done:
        storage.write_json(made_as, {**texts_made_as(settings), "sites": questions.sites})
        if skipped:
            run.report.caps["shards of questions left out by --skip-shard"] = skipped
        before = earlier()
    return make_texts(run, questions, ReadWith(texts_then, (before, questions), questions.partitions), settings)


def texts_then(earlier: Earlier | None, questions: Shards, partition: int) -> EarlierTexts:
    """Return the earlier content hashes and texts for the questions of a shard; the texts are read in batches."""
    shard, sites = questions.shards[partition], Sites([*questions.sites])
    if earlier is None:
        return EarlierTexts(counts={LEFT_OUT: 0})
    ids = read_shard(shard, QUESTIONS, ["question_id"])["question_id"].to_numpy()
    names, contents, left_out = find_contents(earlier, shard.site, ids)
    uris = [storage.join(earlier.texts, name) for name in names]
    texts = (table for uri in uris for table in _texts_in(uri, shard.site, sites))
    return EarlierTexts(contents, texts, {LEFT_OUT: left_out})


def _texts_in(uri: str, site: str, sites: Sites) -> Iterator[pa.Table]:
    """Yield the rows of a file of texts of one site, with the keys of `sites`."""
    for batch in storage.read_batches(uri, QUESTION_TEXTS, QUESTION_TEXTS.names, _BATCH_ROWS):
        keys = sites.pack(site, batch["key"].to_numpy() & MAXIMUM_ID, uri)
        yield pa.Table.from_batches([batch]).set_column(0, QUESTION_TEXTS.field("key"), pa.array(keys))


def read_embeddings(earlier: Earlier, names: Sequence[str], ids: np.ndarray) -> list[pa.Table]:
    """Return the rows of embeddings of the questions `ids` in each of these files; not all may have some."""
    tables = []
    for name in names:
        table = storage.read_table(storage.join(earlier.embeddings, name)).replace_schema_metadata(None)
        tables.append(table.filter(pc.is_in(table["question_id"], pa.array(ids))))
    return tables
