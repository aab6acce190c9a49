"""The texts of an archive as token ids, shard by shard, which all later steps of training read.

    ids       a task a file of texts    token ids; titles and bodies, spread over buckets; texts that are picked out
    titles    a task a bucket           titles and bodies of all files

A bucket is a random part of the titles and bodies, small enough for the memory of each worker; while there are no more
of them than `QUESTIONS_PER_BUCKET`, there is one.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dupq import storage
from dupq.execution import exchange
from dupq.execution.tasks import CAP, Report, run_tasks
from dupq.execution.units import Counts, skip_or
from dupq.runs.keys import read_keys
from dupq.runs.training_layout import TrainingFiles
from dupq.settings.config import Settings
from dupq.tables import TEXTS
from dupq.text.keys import key_hashes
from dupq.text.questions import token_ids
from dupq.text.token_ids import TokenIds
from dupq.text.vocabulary import Vocabulary
from dupq.training.title_body import TitlesAndBodies

QUESTIONS_PER_BUCKET = 200_000
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
        picked = np.union1d(read_keys(files.example_keys), read_keys(files.measured_keys))
        storage.write_table(_place(files, "picked", name), table.filter(pa.array(np.isin(keys, picked))), TEXTS)
        if titles.buckets:
            some = table.filter(pa.array(key_hashes(keys) <= np.uint64(titles.limit)))
            found = titles_and_bodies(some, vocabulary, settings)
            parts = (key_hashes(found.keys) % np.uint64(titles.buckets)).astype(np.int64)
            rows = (np.flatnonzero(parts == part) for part in range(titles.buckets))
            batches = (exchange.one_batch(_table(found.take(row))) for row in rows)
            exchange.write_parts(_spread(files, name), batches, _TITLES)
        storage.write_table(output, pa.table([pa.array(keys), ids.lists()], schema=_IDS), _IDS)  # last: it marks all
        return {"rows_in": len(table), "rows_out": len(table), f"{CAP}texts cut at encoder.maximum_tokens": cut}

    return skip_or(output, make)


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
        batches = exchange.read_part([_spread(files, name) for name in names], bucket)
        table = pa.Table.from_batches([batch.replace_schema_metadata(None) for batch in batches], _TITLES)
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


def picked_texts(files: TrainingFiles, names: list[str], keys: np.ndarray) -> pa.Table:
    """The texts of the questions `keys`, which were picked out, sorted by key."""
    tables = (storage.read_table(_place(files, "picked", name), TEXTS) for name in names)
    found = [table.filter(pa.array(np.isin(table["key"].to_numpy(), keys))) for table in tables]
    return pa.concat_tables(found).sort_by("key").combine_chunks()


class Sequences:
    """The token ids of the questions of an archive, file by file; can be iterated again and again."""

    def __init__(self, files: TrainingFiles, names: list[str], left_out: np.ndarray | None = None) -> None:
        """What was read of the files of texts that have these `names`, without questions with keys `left_out`."""
        self._places = [_place(files, "questions", name) for name in names]
        self._left_out = left_out

    def __iter__(self) -> Iterator[np.ndarray]:
        """One array (int32) a text, empty ones too."""
        for place in self._places:
            table = storage.read_table(place, _IDS)
            if self._left_out is not None:
                table = table.filter(pa.array(~np.isin(table["key"].to_numpy(), self._left_out)))
            yield from TokenIds.from_lists(table["ids"])
