"""texts → their token ids, and those of titles and bodies apart; which of them training reads for what.

    ids       the token ids of each text; beside them titles and bodies, in buckets by a hash of the key
    titles    titles and bodies, a bucket per partition

A bucket is a random part of the titles and bodies, small enough for the memory of each worker; while there are no more
of them than `QUESTIONS_PER_BUCKET`, there is one. A task holds a shard's texts and ids, or a bucket.
"""

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dupq.execution.tasks import CAP
from dupq.job.run import Counted
from dupq.settings.config import Settings
from dupq.text.keys import are_among, key_hashes
from dupq.text.questions import Vocabulary, token_ids
from dupq.text.token_arrays import TokenIds
from dupq.training.one_process import TitlesAndBodies

QUESTIONS_PER_BUCKET = 100_000
_LIST = pa.large_list(pa.int32())
IDS = pa.schema([pa.field("key", pa.int64(), False), pa.field("ids", _LIST, False)])
TITLES = pa.schema(
    [pa.field("key", pa.int64(), False), pa.field("title", _LIST, False), pa.field("body", _LIST, False)]
)


def vocabulary_of(words: pa.Table, settings: Settings) -> Vocabulary:
    """Return the vocabulary of the words that `prepare` chose."""
    return Vocabulary(words["word"].to_pylist(), settings.text, settings.word_vectors.hashed)


def ids_of(texts: pa.Table, words: pa.Table, limit: int, buckets: int, settings: Settings) -> Counted:
    """Return IDS of texts; the second table are TITLES with buckets, of the questions with keys up to a hash."""
    vocabulary, keys = vocabulary_of(words, settings), texts["key"].to_numpy()
    ids, cut = token_ids(texts, vocabulary, settings)
    is_read = key_hashes(keys) <= np.uint64(limit) if buckets else np.zeros(len(keys), bool)
    found = titles_and_bodies(texts.filter(pa.array(is_read)), vocabulary, settings)
    bucket = (key_hashes(found.keys) % np.uint64(max(1, buckets))).astype(np.int64)
    titles = pa.table([pa.array(found.keys), found.titles.lists(), found.bodies.lists()], schema=TITLES)
    counts = {f"{CAP}texts cut at encoder.maximum_tokens": cut}
    return Counted(pa.table([keys, ids.lists()], schema=IDS), counts, titles.append_column("bucket", pa.array(bucket)))


def titles_and_bodies(table: pa.Table, vocabulary: Vocabulary, settings: Settings) -> TitlesAndBodies:
    """Return the rows of TEXTS that have both, in their order."""
    has_both = pc.and_(pc.not_equal(table["title"], ""), pc.not_equal(table["title"], table["text"]))
    table = table.filter(has_both)
    rows = zip(table["title"].to_pylist(), table["text"].to_pylist(), strict=True)
    bodies = pa.chunked_array([[text[len(title) + 1 :] for title, text in rows]], pa.string())
    most = settings.encoder.maximum_tokens
    sides = (vocabulary.sequences(texts, most)[0] for texts in (table["title"], bodies))
    return TitlesAndBodies(table["key"].to_numpy(), *sides)


def bucket_of_titles(titles: pa.Table) -> Counted:
    """Return the table, whose rows are counted."""
    return Counted(titles, {"titles with bodies": len(titles)})


def titles_in(table: pa.Table) -> TitlesAndBodies:
    """Return the titles and bodies of rows of TITLES."""
    sides = (TokenIds.from_lists(table[name]) for name in ("title", "body"))
    return TitlesAndBodies(table["key"].to_numpy(), *sides)


def read_for(table: pa.Table, uses: pa.Table) -> pa.Table:
    """Return the rows of the questions that are read for any of the `uses` (their keys, ascending, and booleans)."""
    is_read = np.any([uses[name].to_numpy() for name in uses.column_names[1:]], axis=0)
    some = uses.filter(pa.array(is_read))
    return table.filter(pa.array(are_among(some["key"].to_numpy(), table["key"].to_numpy())))


def sequences_in(ids: pa.Table) -> dict[int, np.ndarray]:
    """Return token ids by key, in the order of the keys. Memory: 4 bytes an id, and 250 a question."""
    keys, texts = ids["key"].to_numpy(), list(TokenIds.from_lists(ids["ids"]))
    return {int(keys[row]): texts[row] for row in np.argsort(keys, kind="stable").tolist()}


def texts_among(partitions: Iterable[pa.Table], keys: np.ndarray) -> pa.Table:
    """Return the rows of those of the questions `keys` (ascending), sorted by key."""
    some = (table.filter(pa.array(are_among(keys, table["key"].to_numpy()))) for table in partitions)
    return pa.concat_tables(some).sort_by("key").combine_chunks()


def each_text(ids: pa.Table, left_out: np.ndarray | None) -> Iterator[np.ndarray]:
    """Yield the token ids of each text, empty ones too, without the questions `left_out` (keys, ascending)."""
    if left_out is not None:
        ids = ids.filter(pa.array(~are_among(left_out, ids["key"].to_numpy())))
    yield from TokenIds.from_lists(ids["ids"])
