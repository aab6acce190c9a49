"""texts → words, token ids, titles and bodies, as training reads them.

    corpus    the texts that word2vec reads; also the counts of all words, in partitions by a hash of the word
    words     the words that occur often enough, with their counts in all texts
    ids       the token ids of each text; also titles and bodies, in buckets by a hash of the key
    titles    titles and bodies, a bucket per partition

A bucket is a random part of the titles and bodies, of some `QUESTIONS_PER_BUCKET`, that fits the memory of each worker.
A task holds a shard's texts and ids, or a partition of counts or titles.
"""

import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import NewType

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import xxhash

from dupq import kinds
from dupq.job.run import Run
from dupq.job.step import StepResult, step
from dupq.job.table import Partition, Table, zipped
from dupq.kinds import ANY, Schema, columns, streamed
from dupq.settings.config import Settings
from dupq.settings.sections import TextSettings
from dupq.tables import KEYS, TEXTS
from dupq.text.keys import are_among, key_hashes
from dupq.text.languages import normaliser_of
from dupq.text.questions import TitlesAndBodies, Vocabulary, titles_and_bodies, token_ids
from dupq.text.token_arrays import TokenIds
from dupq.training.word_vectors import FrequentWords, with_start_words

WordCount = NewType("WordCount", object)
CorpusText = NewType("CorpusText", object)
TextIds = NewType("TextIds", kinds.Key)
TitleIds = NewType("TitleIds", kinds.Key)
WORD_COUNTS: Schema[WordCount] = pa.schema(
    [pa.field("word", pa.large_string(), False), pa.field("count", pa.int64(), False)]
)
CORPUS: Schema[CorpusText] = pa.schema([pa.field("words", pa.large_string(), False)])  # joined by single spaces
_FILES_PER_PARTITION = 32  # so that a partition has at most 3 million counts, at 100,000 different words per file
_TEXTS_AT_ONCE = 1_024
QUESTIONS_PER_BUCKET = 100_000
_LIST = pa.large_list(pa.int32())
IDS: Schema[TextIds] = pa.schema([*KEYS, pa.field("ids", _LIST, False)])
TITLES: Schema[TitleIds] = pa.schema([*KEYS, pa.field("title", _LIST, False), pa.field("body", _LIST, False)])


def count_words(
    run: Run,
    name: str,
    texts: Sequence[Partition[kinds.Text]],
    limits: Sequence[int | None],
    settings: Settings,
    most: int,
) -> tuple[Table[WordCount], Table[CorpusText]]:
    """Make the table of the words that occur often enough, the `most` frequent per partition; and the corpus.

    The corpus has the texts whose keys' hashes are up to the limit of their file; None keeps all out of it.
    """
    partitions = -(-len(texts) // _FILES_PER_PARTITION)
    counts = run.shuffled(f"{name}_counts", WORD_COUNTS, len(texts), partitions, to="partition")
    count = run.map(f"{name}_corpus", corpus_of, second=counts)
    corpus = count(zipped(texts), zipped(limits), settings.text, partitions)
    return run.map(name, frequent_words)(counts.table, settings.word_vectors.minimum_count, most), corpus


def reads_written_words(settings: Settings) -> bool:
    """Return whether words get the vectors of their written forms, which are other ones."""
    return settings.word_vectors.are_of_written_words and settings.text.word_form != "written"


@step(columns(TEXTS, "key", "text"), makes=CORPUS, second=WORD_COUNTS)
def corpus_of(texts: pa.Table, limit: int | None, settings: TextSettings, partitions: int) -> StepResult[pa.Table]:
    """Return the corpus of some texts; the second table has the counts of their words, with partitions.

    Texts without words, or with hashes of keys over `limit`, are not in the corpus; None keeps all out of it.
    """
    normaliser = normaliser_of(settings)
    numbers, offsets, forms = normaliser.in_forms(normaliser.learned(texts["text"].combine_chunks()))
    counts = sum_counts(pa.table([forms, np.bincount(numbers, minlength=len(forms))], WORD_COUNTS.names).drop_null())
    lengths = np.diff(offsets)
    is_sampled = limit is not None and key_hashes(texts["key"].to_numpy()) <= np.uint64(limit)
    is_read = (lengths > 0) & is_sampled
    lists = pa.LargeListArray.from_arrays(pa.array(offsets), forms.take(pa.array(numbers)))
    corpus = pc.binary_join(lists.filter(pa.array(is_read)), pa.scalar(" ", pa.large_string()))
    hashes = (xxhash.xxh3_64_intdigest(word.encode()) % partitions for word in counts["word"].to_pylist())
    counts = counts.append_column("partition", pa.array(hashes, pa.int64()))
    return StepResult(pa.table([corpus], schema=CORPUS), {"words": int(lengths.sum())}, counts)


def sum_counts(counts: pa.Table) -> pa.Table:
    """Return WORD_COUNTS with one row per word, sorted by word."""
    by_word = counts.group_by("word", use_threads=False).aggregate([("count", "sum")])
    return by_word.rename_columns(WORD_COUNTS.names).sort_by("word").cast(WORD_COUNTS)


def most_frequent(counts: pa.Table, most: int) -> pa.Table:
    """Return the `most` frequent words of WORD_COUNTS, sorted by falling count and then by word."""
    return counts.sort_by([("count", "descending"), ("word", "ascending")]).slice(0, most)


@step(WORD_COUNTS, makes=WORD_COUNTS)
def frequent_words(counts: pa.Table, least: int, most: int) -> StepResult[pa.Table]:
    """Return the words of a partition that occur `least` times, the `most` frequent ones."""
    sums = sum_counts(counts)
    frequent = sums.filter(pc.greater_equal(sums["count"], least))
    counted = {"different words": len(sums), "frequent words": len(frequent)}
    return StepResult(most_frequent(frequent, most), counted, numbers={"frequent": len(frequent)})


@step(streamed(WORD_COUNTS), makes=WORD_COUNTS)
def chosen_words(partitions: Iterator[pa.Table], frequent: int, settings: Settings) -> StepResult[pa.Table]:
    """Return the words that get vectors (WORD_COUNTS); `frequent` is the number of all frequent words.

    Raises DupqError if there are none.
    """
    vectors = settings.word_vectors
    table = merge_counts(partitions, vectors.words)
    words, counts = (table[name].to_pylist() for name in WORD_COUNTS.names)
    chosen = with_start_words(FrequentWords(words, counts, frequent - len(words)), vectors)
    rows = pa.table([chosen.words, chosen.counts], schema=WORD_COUNTS)
    return StepResult(rows, caps={"words over word_vectors.words": chosen.over})


def merge_counts(partitions: Iterable[pa.Table], most: int = sys.maxsize) -> pa.Table:
    """Return the `most` frequent words of all partitions, in their order. Memory: these, and four partitions."""
    merged = WORD_COUNTS.empty_table()
    for table in partitions:
        merged = most_frequent(pa.concat_tables([merged, table]), most)
    return merged


def sentences_of(corpus: pa.Table) -> Iterator[list[str]]:
    """Yield the words of each text. Memory: the words of a batch of texts."""
    for batch in corpus.to_batches(max_chunksize=_TEXTS_AT_ONCE):
        for words in batch.column(0).to_pylist():
            yield words.split(" ")


def vocabulary_of(words: pa.Table, settings: Settings) -> Vocabulary:
    """Return the vocabulary of the words that `prepare` chose."""
    return Vocabulary(words["word"].to_pylist(), settings.text)


@step(TEXTS, columns(WORD_COUNTS, "word"), makes=IDS, second=TITLES)
def ids_of(texts: pa.Table, words: pa.Table, limit: int, buckets: int, settings: Settings) -> StepResult[pa.Table]:
    """Return IDS of texts; the second table has TITLES with buckets, of questions with hashes of keys up to `limit`."""
    vocabulary, keys = vocabulary_of(words, settings), texts["key"].to_numpy()
    ids, truncated = token_ids(texts, vocabulary, settings)
    is_read = key_hashes(keys) <= np.uint64(limit) if buckets else np.zeros(len(keys), bool)
    both = titles_and_bodies(texts.filter(pa.array(is_read)), vocabulary, settings)
    bucket = (key_hashes(both.keys) % np.uint64(max(1, buckets))).astype(np.int64)
    titles = pa.table([pa.array(both.keys), both.titles.lists(), both.bodies.lists()], schema=TITLES)
    return StepResult(
        pa.table([keys, ids.lists()], schema=IDS),
        {"titles with bodies": len(both.keys)},
        titles.append_column("bucket", pa.array(bucket)),
        caps={"texts cut at encoder.maximum_tokens": truncated},
    )


def titles_in(table: pa.Table) -> TitlesAndBodies:
    """Return the titles and bodies of rows of TITLES."""
    sides = (TokenIds.from_lists(table[name]) for name in ("title", "body"))
    return TitlesAndBodies(table["key"].to_numpy(), *sides)


@step(ANY, ANY, makes=ANY)
def rows_with_uses(table: pa.Table, uses: pa.Table) -> pa.Table:
    """Return the rows of questions with at least one use; `uses` has keys, ascending, and a boolean column per use."""
    is_used = np.any([uses[name].to_numpy() for name in uses.column_names[1:]], axis=0)
    keys = uses["key"].to_numpy()[is_used]
    return table.filter(pa.array(are_among(keys, table["key"].to_numpy())))


def sequences_in(ids: pa.Table) -> dict[int, np.ndarray]:
    """Return token ids by key, in the order of the keys. Memory: 4 bytes per id and 250 per question."""
    keys, texts = ids["key"].to_numpy(), list(TokenIds.from_lists(ids["ids"]))
    return {int(keys[row]): texts[row] for row in np.argsort(keys, kind="stable").tolist()}


def texts_among(partitions: Iterable[pa.Table], keys: np.ndarray) -> pa.Table:
    """Return the rows of the questions `keys` (ascending), sorted by key."""
    tables = (table.filter(pa.array(are_among(keys, table["key"].to_numpy()))) for table in partitions)
    return pa.concat_tables(tables).sort_by("key").combine_chunks()


def each_text(ids: pa.Table, left_out: np.ndarray | None) -> Iterator[np.ndarray]:
    """Yield the token ids of each text, also empty ones, except those of the questions `left_out` (keys, ascending)."""
    if left_out is not None:
        ids = ids.filter(pa.array(~are_among(left_out, ids["key"].to_numpy())))
    yield from TokenIds.from_lists(ids["ids"])
