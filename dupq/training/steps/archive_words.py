"""texts → how often each word of an archive occurs, and the corpus that word2vec reads.

    corpus    the texts that word2vec reads; beside it the counts of all words, in partitions by a hash of the word
    words     those that occur often enough, with their counts in all texts

A task holds the texts of a shard, or the counts of a partition.
"""

import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import xxhash

from dupq.job.run import Counted, Run
from dupq.job.table import Files, PerTask, Table
from dupq.settings.config import Settings
from dupq.settings.sections import TextSettings
from dupq.text.keys import key_hashes
from dupq.text.normalisation import WORD_COUNTS, forms_of, joined, most_frequent, normaliser_of, summed, word_counts
from dupq.training.word_vectors import SENTENCE_WORDS, FrequentWords, check_words, with_start

_CORPUS = pa.schema([pa.field("words", pa.large_string(), False)])  # joined by single spaces
_FILES_PER_PARTITION = 32  # so that one has 3 million counts at most, with 100,000 different words a file
_TEXTS_AT_ONCE = 1_024
FREQUENT, SENTENCES = "frequent words", "sentences for word2vec"  # counts of `words` and of `corpus`


class Words(NamedTuple):
    """The words of an archive."""

    frequent: Table  # WORD_COUNTS
    corpus: Table
    written: Table | None  # WORD_COUNTS of words as they are written, where vectors of those are read


def count_words(run: Run, texts: Files, limits: Sequence[int], settings: Settings) -> Words:
    """Count all words. `limits` are, for each file of texts, the highest hash of the keys of those in the corpus."""
    vectors, none = settings.word_vectors, [None] * texts.parts
    in_corpus = limits if vectors.is_learned else none
    frequent, corpus = _counted(run, "words", texts, in_corpus, settings.text, vectors.minimum_count, vectors.words)
    written = None
    if reads_written_words(settings):
        as_written = settings.text.changed(word_form="written")
        written, _ = _counted(run, "written", texts, none, as_written, vectors.minimum_count, sys.maxsize)
    return Words(frequent, corpus, written)


def _counted(
    run: Run, name: str, texts: Files, limits: Sequence[int | None], settings: TextSettings, least: int, most: int
) -> tuple[Table, Table]:
    """Make the words that occur `least` times, in each partition the `most` frequent ones; and the corpus."""
    partitions = -(-texts.parts // _FILES_PER_PARTITION)
    counts = run.spread(f"{name}_counts", WORD_COUNTS, texts.parts, partitions, to="partition")
    inputs = texts, PerTask(tuple(limits)), settings, partitions
    corpus = run.map(f"{name}_corpus", corpus_of, *inputs, into=_CORPUS, beside=counts)
    return run.map(name, often_enough, counts, least, most, into=WORD_COUNTS), corpus


def reads_written_words(settings: Settings) -> bool:
    """Return whether vectors of words as they are written are read for words of another form."""
    vectors = settings.word_vectors
    reads = vectors.file_words == "written" if vectors.file else vectors.algorithm == "teacher"
    return reads and settings.text.word_form != "written"


def corpus_of(texts: pa.Table, limit: int | None, settings: TextSettings, partitions: int) -> Counted:
    """Return the corpus of some texts; the second table are the counts of their words, with partitions."""
    found = forms_of(texts["text"], normaliser_of(settings))
    is_read = np.zeros(len(texts), bool) if limit is None else key_hashes(texts["key"].to_numpy()) <= np.uint64(limit)
    sentences = int((-(-found.lengths[is_read] // SENTENCE_WORDS)).sum())
    counts = word_counts(found)
    hashes = (xxhash.xxh3_64_intdigest(word.encode()) % partitions for word in counts["word"].to_pylist())
    return Counted(
        pa.table([joined(found, is_read)], schema=_CORPUS),
        {"words": int(found.lengths.sum()), SENTENCES: sentences},
        counts.append_column("partition", pa.array(hashes, pa.int64())),
    )


def often_enough(counts: pa.Table, least: int, most: int) -> Counted:
    """Return the words of a partition that occur `least` times, the `most` frequent ones."""
    together = summed([counts])
    frequent = together.filter(pc.greater_equal(together["count"], least))
    return Counted(most_frequent(frequent, most), {"different words": len(together), FREQUENT: len(frequent)})


def chosen_words(partitions: Iterator[pa.Table], frequent: int, settings: Settings) -> Counted:
    """Return the words that get vectors (WORD_COUNTS), of so many frequent ones. Raises DupqError if there are none."""
    vectors = settings.word_vectors
    found = together(partitions, vectors.words)
    words, counts = (found[name].to_pylist() for name in WORD_COUNTS.names)
    chosen = with_start(FrequentWords(words, counts, frequent, 0), vectors)
    check_words(chosen.words, vectors)
    left_out = chosen.frequent - len(chosen.words)
    return Counted(
        pa.table([chosen.words, chosen.counts], schema=WORD_COUNTS), {"cap: words over word_vectors.words": left_out}
    )


def together(partitions: Iterable[pa.Table], most: int = sys.maxsize) -> pa.Table:
    """Return the `most` frequent words of all partitions, in their order. Memory: these, and a partition."""
    found = WORD_COUNTS.empty_table()
    for table in partitions:
        found = most_frequent(pa.concat_tables([found, table]), most)
    return found


def sentences_of(corpus: pa.Table) -> Iterator[list[str]]:
    """Yield the words of each text. Memory: of some texts."""
    for batch in corpus.to_batches(max_chunksize=_TEXTS_AT_ONCE):
        for words in batch.column(0).to_pylist():
            yield words.split(" ")
