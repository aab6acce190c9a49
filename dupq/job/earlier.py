"""What a run takes from an earlier one: texts, embeddings and a teacher's vectors of questions that say the same."""

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
from dupq.tables import CONTENT_HASHES, QUESTIONS, TEXTS
from dupq.text.keys import ID_BITS, MAXIMUM_ID, Sites
from dupq.text.questions import NO_HASHES, ContentHashes
from dupq.text.steps import EarlierTexts, TextTables, make_texts

# What a run takes from an earlier one: texts, embeddings and a teacher's vectors of questions that say the same still.
#
# A shard's questions are looked for in the earlier files whose span of ids its own meets: both are sorted, or nearly
# so. At most 8 are read: those beyond them are counted as left out. What is not found there is made anew. The answer is
# that of a run without an earlier one, byte for byte; so nothing is taken that was made in another way or is damaged,
# nor are embeddings from GPUs taken into a run on CPUs, or the other way round. Of two runs on GPUs they are, although
# there the last bits depend on the others of a batch: made anew, all questions would count as changed.

_log = logging.getLogger(__name__)
_FILES = 8  # of the earlier run that are read for a shard
LEFT_OUT = f"{CAP}files of the earlier run beyond {_FILES} for a shard"  # how they are counted
_ROWS_AT_ONCE = 8_192


class _TextsMadeAs(TypedDict):
    """What is kept beside texts: `texts_made_as`, and whose keys they have."""

    settings: dict[str, object]
    algorithm: int
    sites: list[str]


class Span(NamedTuple):
    """The name of a file of the earlier run, its site, and the ids in it."""

    name: str
    site: str
    low: int
    high: int


class Earlier(NamedTuple):
    """The files of an earlier run that may be used; each shard has one of that name in each folder."""

    texts: str
    contents: str
    embeddings: str
    spans: list[Span]

    def names_for(self, site: str, ids: np.ndarray) -> list[str]:
        """All files that may hold questions of `site` with these ids."""
        if not len(ids):
            return []
        low, high = int(ids.min()), int(ids.max())
        return [span.name for span in self.spans if span.site == site and span.low <= high and low <= span.high]


def texts_made_as(settings: TextSettings) -> dict[str, object]:
    """What texts are made by."""
    return {"settings": settings.model_dump(mode="json"), "algorithm": DEDUP_VERSIONS["texts"]}


def earlier_texts(since: RunFiles | None, made_as: Mapping[str, object]) -> Earlier | None:
    """The texts of the run `since`; None, and why is said, if they are damaged or not made as `made_as` says."""
    if since is None:
        return None
    then = read_or_none(since.texts_made_as, _TextsMadeAs)
    why_not = _why_not(since, "texts", then, made_as, (since.texts, since.contents, since.texts_made_as))
    if then is None or why_not:
        _log.info(f"all texts are made anew: {why_not}")
        return None
    return Earlier(since.texts, since.contents, since.path("embeddings"), _spans(since.contents, then["sites"]))


def earlier_embeddings(since: RunFiles | None, made_as: Mapping[str, object], texts: Earlier | None) -> Earlier | None:
    """`texts`, if the embeddings of the run `since` may be used too; else None, and why is said."""
    if since is None or texts is None:
        return None
    then = read_or_none(since.encoded_as, dict[str, object])
    why_not = _why_not(since, "encode", then, made_as, (texts.embeddings, since.encoded_as))
    if then is not None and then.get("device") != made_as["device"]:
        why_not = f"{since.uri} made them on {_kind(then)}, and this run makes them on {_kind(made_as)}"
    if why_not:
        _log.info(f"all embeddings are made anew: {why_not}")
        return None
    if made_as["device"] == "gpu":
        _log.info(f"embeddings of questions that are as they were are those of {since.uri}, made on GPUs too")
    return texts


def earlier_vectors(since: RunFiles | None, made_as: Mapping[str, object]) -> Earlier | None:
    """The teacher's vectors of the run `since`; None, and why is said, if they are damaged or not made as `made_as`."""
    if since is None:
        return None
    made_by, contents, vectors = since.teacher
    then, texts = read_or_none(made_by, dict[str, object]), read_or_none(since.texts_made_as, _TextsMadeAs)
    why_not = _why_not(since, "teacher", then, made_as, (contents, vectors, made_by))
    if texts is None or why_not:
        _log.info(f"the teacher reads all questions anew: {why_not}")
        return None
    return Earlier("", contents, vectors, _spans(contents, texts["sites"]))


def _kind(made_as: Mapping[str, object]) -> str:
    return f"{str(made_as.get('device')).upper()}s"


def _why_not(
    since: RunFiles,
    stage: str,
    then: Mapping[str, object] | None,
    now: Mapping[str, object],
    places: tuple[str, ...],
) -> str | None:
    if then is None:
        return f"{since.uri} has not kept them"
    different = sorted(name for name, value in now.items() if then.get(name) != value)
    if different:
        return f"{since.uri} was made with another {', '.join(different)}"
    if not is_intact(since.uri, stage, places):
        return f"{since.uri} has lost some of them"
    return None


def _spans(folder: str, sites: Sequence[str]) -> list[Span]:
    """The spans of the files of contents that are not empty."""
    files = storage.list_files(folder, ".parquet")
    found = side_by_side(key_span, [file.uri for file in files])
    return [
        Span(file.relative, sites[ends[0] >> ID_BITS], ends[0] & MAXIMUM_ID, ends[1] & MAXIMUM_ID)
        for file, ends in zip(files, found, strict=True)
        if ends is not None
    ]


class Found(NamedTuple):
    """What the earlier run has for the questions of a shard."""

    names: list[str]  # of the files that may hold them and are read
    contents: ContentHashes
    left_out: int  # files that may hold some too


def find_contents(earlier: Earlier | None, site: str, ids: np.ndarray) -> Found:
    """What there is of the questions `ids` of `site`; nothing without an earlier run."""
    met = [] if earlier is None else earlier.names_for(site, ids)
    names = met[:_FILES]
    uris = [] if earlier is None else [storage.join(earlier.contents, name) for name in names]
    return Found(names, hashes_in(uris), len(met) - len(names))


def hashes_in(uris: Sequence[str]) -> ContentHashes:
    """What files of contents hold; all are of one site."""
    found = [tuple(NO_HASHES)]
    for uri in uris:
        table = storage.read_table(uri, CONTENT_HASHES, CONTENT_HASHES.names)
        hashes = np.stack([table[half].to_numpy() for half in ("high", "low")], axis=1)
        found.append((table["key"].to_numpy() & MAXIMUM_ID, hashes))
    ids, hashes = (np.concatenate(column) for column in zip(*found, strict=True))
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
    """Make the texts of questions; those that say what they said in the `earlier` run are taken from there.

    `made_as` is the file that says what they are made by; `skipped` the number of shards that the job leaves out.
    """
    then = None
    if not run.is_done:
        storage.write_json(made_as, {**texts_made_as(settings), "sites": questions.sites})
        if skipped:
            run.report.caps["shards of questions left out by --skip-shard"] = skipped
        then = earlier()
    return make_texts(run, questions, ReadWith(texts_then, (then, questions), questions.partitions), settings)


def texts_then(earlier: Earlier | None, questions: Shards, part: int) -> EarlierTexts:
    """Return what there is of the questions of a shard; of the texts, some are in memory at a time."""
    shard, sites = questions.shards[part], Sites([*questions.sites])
    if earlier is None:
        return EarlierTexts(counts={LEFT_OUT: 0})
    ids = read_shard(shard, QUESTIONS, ["question_id"])["question_id"].to_numpy()
    names, contents, left_out = find_contents(earlier, shard.site, ids)
    uris = [storage.join(earlier.texts, name) for name in names]
    return EarlierTexts(
        contents, (table for uri in uris for table in _texts_in(uri, shard.site, sites)), {LEFT_OUT: left_out}
    )


def _texts_in(uri: str, site: str, sites: Sites) -> Iterator[pa.Table]:
    """Yield the rows of a file of texts of a site, by the keys of `sites`."""
    for batch in storage.read_batches(uri, TEXTS, TEXTS.names, _ROWS_AT_ONCE):
        keys = sites.pack(site, batch["key"].to_numpy() & MAXIMUM_ID, uri)
        yield pa.Table.from_batches([batch]).set_column(0, TEXTS.field("key"), pa.array(keys))


def read_embeddings(earlier: Earlier, names: Sequence[str], ids: np.ndarray) -> pa.Table:
    """The rows of embeddings of the questions `ids` that are in these files, at least one."""
    found = []
    for name in names:
        table = storage.read_table(storage.join(earlier.embeddings, name)).replace_schema_metadata(None)
        found.append(table.filter(pc.is_in(table["question_id"], pa.array(ids))))
    return pa.concat_tables(found)


def find_embeddings(earlier: Earlier, names: Sequence[str], ids: np.ndarray) -> np.ndarray:
    """Which of the questions `ids` have embeddings in these files (int64)."""
    uris = [storage.join(earlier.embeddings, name) for name in names]
    found = [storage.read_table(uri, columns=["question_id"])["question_id"].to_numpy() for uri in uris]
    return np.intersect1d(ids, np.concatenate([np.zeros(0, np.int64), *found]))
