"""The texts of an archive as token ids, shard by shard, which all later steps of training read.

    ids       a task a file of texts    token ids, also of known pairs and negatives alone; titles and bodies, spread
                                        over buckets; texts that are picked out
    titles    a task a bucket           titles and bodies of all files

A bucket is a random part of the titles and bodies, small enough for the memory of each worker; while there are no more
of them than `QUESTIONS_PER_BUCKET`, there is one.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dupq import storage
from dupq.execution import task_files
from dupq.execution.task_files import Counts, skip_or
from dupq.execution.tasks import CAP, Report, run_tasks
from dupq.runs.layout import TrainingFiles
from dupq.runs.question_tables import read_keys
from dupq.settings.config import Settings
from dupq.tables import TEXTS
from dupq.text.keys import are_among, key_hashes
from dupq.text.questions import Vocabulary, token_ids
from dupq.text.token_arrays import TokenIds
from dupq.training.one_process import TitlesAndBodies

QUESTIONS_PER_BUCKET = 100_000
_LIST = pa.large_list(pa.int32())
_IDS = pa.schema([pa.field("key", pa.int64(), False), pa.field("ids", _LIST, False)])
_TITLES = pa.schema(
    [pa.field("key", pa.int64(), False), pa.field("title", _LIST, False), pa.field("body", _LIST, False)]
)


@dataclass(frozen=True)
class Titles:
    """Which titles and bodies are read: those of keys up to a hash, in so many buckets."""

    limit: int
    buckets: int


def write_token_ids(files: TrainingFiles, names: list[str], titles: Titles, settings: Settings) -> Report:
    """Read the files of texts that have these `names`, once each. Memory of a task: a file's texts and ids."""
    report = run_tasks("ids", _read, [(files, name, titles, settings) for name in names], names=names)
    report.add(run_tasks("titles", _join, [(files, names, bucket) for bucket in range(titles.buckets)]))
    return report


def read_vocabulary(files: TrainingFiles, settings: Settings) -> Vocabulary:
    """The words that `prepare` chose."""
    return Vocabulary.from_bytes(storage.read_bytes(files.vocabulary), settings.text, settings.word_vectors.hashed)


def _read(files: TrainingFiles, name: str, titles: Titles, settings: Settings) -> Counts:
    output = _place(files, "questions", name)

    def make() -> Counts:
        vocabulary = read_vocabulary(files, settings)
        table = storage.read_table(storage.join(files.texts, name), TEXTS)
        keys = table["key"].to_numpy()
        ids, cut = token_ids(table, vocabulary, settings)
        trained = np.flatnonzero(are_among(read_keys(files.example_keys), keys))
        storage.write_table(_place(files, "examples", name), _ids_table(keys[trained], ids.take(trained)), _IDS)
        is_picked = are_among(read_keys(files.measured_keys), keys) | are_among(read_keys(files.taught_keys), keys)
        storage.write_table(_place(files, "picked", name), table.filter(pa.array(is_picked)), TEXTS)
        if titles.buckets:
            some = table.filter(pa.array(key_hashes(keys) <= np.uint64(titles.limit)))
            found = titles_and_bodies(some, vocabulary, settings)
            parts = (key_hashes(found.keys) % np.uint64(titles.buckets)).astype(np.int64)
            rows = (np.flatnonzero(parts == part) for part in range(titles.buckets))
            batches = (task_files.one_batch(_table(found.take(row))) for row in rows)
            task_files.write_parts(_spread(files, name), batches, _TITLES)
        storage.write_table(output, _ids_table(keys, ids), _IDS)  # last: it marks all
        return {"rows_in": len(table), "rows_out": len(table), f"{CAP}texts cut at encoder.maximum_tokens": cut}

    return skip_or(output, make)


def _ids_table(keys: np.ndarray, ids: TokenIds) -> pa.Table:
    return pa.table([pa.array(keys), ids.lists()], schema=_IDS)


def _place(files: TrainingFiles, kind: str, name: str) -> str:
    return storage.join(files.token_ids, kind, name)


def _spread(files: TrainingFiles, name: str) -> str:
    """The titles and bodies of a file of texts, a batch a bucket."""
    return _place(files, "titles", f"{name}.arrow")


def titles_and_bodies(table: pa.Table, vocabulary: Vocabulary, settings: Settings) -> TitlesAndBodies:
    """The rows of TEXTS that have both, in their order."""
    has_both = pc.and_(pc.not_equal(table["title"], ""), pc.not_equal(table["title"], table["text"]))
    table = table.filter(has_both)
    rows = zip(table["title"].to_pylist(), table["text"].to_pylist(), strict=True)
    bodies = pa.chunked_array([[text[len(title) + 1 :] for title, text in rows]], pa.string())
    most = settings.encoder.maximum_tokens
    sides = (vocabulary.sequences(texts, most)[0] for texts in (table["title"], bodies))
    return TitlesAndBodies(table["key"].to_numpy(), *sides)


def _table(found: TitlesAndBodies) -> pa.Table:
    return pa.table([pa.array(found.keys), found.titles.lists(), found.bodies.lists()], schema=_TITLES)


def _join(files: TrainingFiles, names: list[str], bucket: int) -> Counts:
    output = _bucket(files, bucket)

    def make() -> Counts:
        batches = task_files.read_part([_spread(files, name) for name in names], bucket)
        table = task_files.table_of(batches, _TITLES)
        storage.write_table(output, table, _TITLES)
        return {"titles with bodies": len(table)}

    return skip_or(output, make)


def _bucket(files: TrainingFiles, bucket: int) -> str:
    return storage.join(files.titles, f"bucket-{bucket:05d}.parquet")


def buckets_of(files: TrainingFiles) -> int:
    """How many buckets there are."""
    return len(storage.list_files(files.titles, ".parquet"))


def read_bucket(files: TrainingFiles, bucket: int) -> TitlesAndBodies:
    """The titles and bodies of a bucket, in the order of the files of texts."""
    table = storage.read_table(_bucket(files, bucket), _TITLES)
    sides = (TokenIds.from_lists(table[name]) for name in ("title", "body"))
    return TitlesAndBodies(table["key"].to_numpy(), *sides)


def read_bucket_keys(files: TrainingFiles, bucket: int) -> np.ndarray:
    """Their keys alone."""
    return storage.read_table(_bucket(files, bucket), _TITLES, ["key"])["key"].to_numpy()


def read_examples(files: TrainingFiles) -> dict[int, np.ndarray]:
    """The token ids of the questions that training reads, by key, in the order of the keys.

    Memory: 4 bytes an id, and 250 a question.
    """
    tables = [storage.read_table(uri, _IDS) for uri in _below(files, "examples")]
    keys = np.concatenate([table["key"].to_numpy() for table in tables])
    texts = [ids for table in tables for ids in TokenIds.from_lists(table["ids"])]
    return {int(keys[place]): texts[place] for place in np.argsort(keys, kind="stable").tolist()}


def picked_files(files: TrainingFiles) -> list[str]:
    """The files of the texts that were picked out: of questions to be measured on or to be taught."""
    return _below(files, "picked")


def _below(files: TrainingFiles, kind: str) -> list[str]:
    return [file.uri for file in storage.list_files(storage.join(files.token_ids, kind), ".parquet")]


def picked_texts(uris: Sequence[str], keys: np.ndarray) -> pa.Table:
    """The texts of those of the questions `keys` (ascending) that are in these files, sorted by key."""
    tables = (storage.read_table(uri, TEXTS) for uri in uris)
    found = [table.filter(pa.array(are_among(keys, table["key"].to_numpy()))) for table in tables]
    return pa.concat_tables(found).sort_by("key").combine_chunks()


class Sequences:
    """The token ids of the questions of an archive, file by file; can be iterated again and again."""

    def __init__(self, files: TrainingFiles, names: list[str], left_out: np.ndarray | None = None) -> None:
        """Of the files of texts that have these `names`, without the questions `left_out` (keys, ascending)."""
        self._places = [_place(files, "questions", name) for name in names]
        self._left_out = left_out

    def __iter__(self) -> Iterator[np.ndarray]:
        """One array (int32) a text, empty ones too."""
        for place in self._places:
            table = storage.read_table(place, _IDS)
            if self._left_out is not None:
                table = table.filter(pa.array(~are_among(self._left_out, table["key"].to_numpy())))
            yield from TokenIds.from_lists(table["ids"])
