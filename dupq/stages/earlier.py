"""Texts, embeddings and a reranker's vectors that a run takes from an earlier one, for unchanged questions.

A shard's questions are searched in the earlier files whose range of ids overlaps its own: both are sorted, or nearly
so. At most 8 files are read; the others are counted as left out. The answer is that of a run without an earlier one,
byte for byte. So nothing is taken that is damaged or was made differently, and no embeddings from GPUs into a run on
CPUs, or vice versa. Between two runs on GPUs they are taken, although their last bits depend on the rest of the batch:
if they were made again, all questions would count as changed.
"""

import importlib.metadata
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from dupq import storage
from dupq.archive import read_shard
from dupq.job.records import DEDUP_VERSIONS, RunFiles, is_intact
from dupq.job.run import Run
from dupq.job.table import ReadWith, Shards
from dupq.job.tasks import CAP
from dupq.settings.sections import TextSettings
from dupq.stages.texts import EarlierTexts, TextTables, make_texts
from dupq.storage import read_or_none
from dupq.system import side_by_side
from dupq.tables import CONTENT_HASHES, QUESTION_TEXTS, QUESTIONS
from dupq.text.keys import ID_BITS, MAXIMUM_ID, Sites
from dupq.text.questions import NO_HASHES, ContentHashes

_log = logging.getLogger(__name__)
_FILES = 8  # of the earlier run that are read per shard
LEFT_OUT = f"{CAP}files of the earlier run beyond {_FILES} for a shard"  # a count
_BATCH_ROWS = 8_192
_LIBRARIES = ("bm25s", "icu4py", "pystemmer", "regex", "selectolax")  # stop words, words, stems, tokens, texts of HTML


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


def record_if_usable(
    since: RunFiles, stage: str, record: str, made_as: Mapping[str, object], *uris: str
) -> dict[str, Any] | None:
    """Return the content of `record`, a file of a stage of the run `since`, if the stage's results can be used.

    They can if the record says all that `made_as` does, and it and `uris` (files, folders) are unchanged. If not, log
    why, and return None.
    """
    kept = read_or_none(record, dict[str, Any])
    different = sorted(name for name, value in made_as.items() if kept and kept.get(name) != value)
    if not kept:
        why_not = "it has kept no results"
    elif different:
        why_not = f"its results were made with another {', '.join(different)}"
    elif not is_intact(since.uri, stage, (*uris, record)):
        why_not = "it has lost some of its results"
    else:
        return kept
    _log.info(f"{stage}: nothing is taken from {since.uri}: {why_not}")
    return None


def earlier_texts(since: RunFiles | None, made_as: Mapping[str, object]) -> Earlier | None:
    """Return the texts of the run `since`; None if they cannot be used."""
    if since is None:
        return None
    kept = record_if_usable(since, "texts", since.texts_made_as, made_as, since.texts, since.contents)
    if not kept:
        return None
    return Earlier(since.texts, since.contents, since.embeddings, _spans(since.contents, kept["sites"]))


def earlier_embeddings(since: RunFiles | None, made_as: Mapping[str, object], texts: Earlier | None) -> Earlier | None:
    """Return the texts of the run `since`, with their embeddings; None if either cannot be used."""
    if since is None or texts is None:
        return None
    return texts if record_if_usable(since, "encode", since.encoded_as, made_as, since.embeddings) else None


def earlier_vectors(since: RunFiles | None, made_as: Mapping[str, object]) -> Earlier | None:
    """Return the reranker's vectors of the run `since`; None if they cannot be used."""
    if since is None:
        return None
    record, contents, vectors = since.reranker
    texts = read_or_none(since.texts_made_as, dict[str, Any])  # they name the sites of its keys
    if not texts or not record_if_usable(since, "rerank", record, made_as, contents, vectors):
        return None
    return Earlier("", contents, vectors, _spans(contents, texts["sites"]))


def _spans(folder: str, sites: Sequence[str]) -> list[Span]:
    """Return the spans of the files of contents that have rows."""
    files = storage.list_files(folder, ".parquet")
    spans = side_by_side(storage.key_span, [file.uri for file in files])
    return [
        Span(file.relative, sites[span[0] >> ID_BITS], span[0] & MAXIMUM_ID, span[1] & MAXIMUM_ID)
        for file, span in zip(files, spans, strict=True)
        if span is not None
    ]


def find_contents(earlier: Earlier | None, site: str, ids: np.ndarray) -> tuple[list[str], ContentHashes, int]:
    """Return the files of the earlier run that may have the questions `ids` of `site`, and the content hashes in them.

    The number is that of such files that are not read.
    """
    if earlier is None or not len(ids):
        return [], NO_HASHES, 0
    low, high = int(ids.min()), int(ids.max())
    overlapping = [span.name for span in earlier.spans if span.site == site and span.low <= high and low <= span.high]
    names = overlapping[:_FILES]
    hashes = hashes_in([storage.join(earlier.contents, name) for name in names])
    return names, hashes, len(overlapping) - len(names)


def hashes_in(uris: Sequence[str]) -> ContentHashes:
    """Return the hashes in files of contents, all of one site, sorted by id."""
    tables = [storage.read_table(uri, CONTENT_HASHES, CONTENT_HASHES.names) for uri in uris]
    contents = pa.concat_tables([CONTENT_HASHES.empty_table(), *tables])
    ids = contents["key"].to_numpy() & MAXIMUM_ID
    order = np.argsort(ids, kind="stable")
    hashes = np.stack([contents[half].to_numpy()[order] for half in ("high", "low")], axis=1)
    return ContentHashes(ids[order], hashes)


def make_texts_since(
    run: Run, questions: Shards, made_as: str, text: TextSettings, skipped: int, earlier: Callable[[], Earlier | None]
) -> TextTables:
    """Make the texts of questions; texts of unchanged questions come from the `earlier` run.

    `made_as` is the file that records how they are made; `skipped` is the number of shards that the job leaves out.
    """
    before = None
    if not run.is_done:
        storage.write_json(made_as, {**texts_made_as(text), "sites": questions.sites})
        if skipped:
            run.report.caps["shards of questions left out by --skip-shard"] = skipped
        before = earlier()
    return make_texts(run, questions, ReadWith(texts_then, (before, questions), questions.partitions), text)


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
