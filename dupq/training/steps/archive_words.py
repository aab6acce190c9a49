"""The words of an archive, counted shard by shard: texts → the frequent words, and the corpus that word2vec reads.

    words    a task a file of texts    how often each word occurs, spread over parts by a hash of the word; the corpus
    words    a task a part             how often in all files, of words that are frequent enough

Memory: a file's texts, or the counts of a part; the words that get vectors are read together at last.
"""

import dataclasses
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import xxhash

from dupq import storage
from dupq.execution import task_files
from dupq.execution.task_files import Counts, skip_or
from dupq.execution.tasks import Report, run_tasks
from dupq.runs.layout import TrainingFiles
from dupq.settings.config import Settings
from dupq.settings.sections import TextSettings
from dupq.tables import TEXTS
from dupq.text.keys import key_hashes
from dupq.text.normalisation import (
    WORD_COUNTS,
    Forms,
    forms_of,
    joined,
    most_frequent,
    normaliser_of,
    summed,
    word_counts,
)
from dupq.training.word_vectors import SENTENCE_WORDS, FrequentWords

_CORPUS = pa.schema([pa.field("words", pa.large_string(), False)])  # joined by single spaces
_FILES_PER_PART = 32  # so that a part has 3 million counts at most, with 100,000 different words a file
_SENTENCES_AT_ONCE = 1_024


@dataclass(frozen=True)
class WordFiles:
    """Where an archive's words are counted: `folder`, in which nothing else is."""

    folder: str
    files: int  # of texts

    @property
    def parts(self) -> int:
        """Over how many parts the words are spread."""
        return -(-self.files // _FILES_PER_PART)

    def counted(self, number: int) -> str:
        """The counts of a file of texts, a batch a part."""
        return storage.join(self.folder, "counted", f"file-{number:05d}.arrow")

    def corpus(self, number: int) -> str:
        """Of a file of texts what word2vec reads."""
        return storage.join(self.folder, "corpus", f"file-{number:05d}.parquet")

    def part(self, part: int) -> str:
        """The words of a part that are frequent enough."""
        return storage.join(self.folder, "frequent", f"part-{part:05d}.parquet")


class Text(NamedTuple):
    """A file of texts, and the highest hash of the keys of those that are in the corpus; None: there is none."""

    uri: str
    limit: int | None


def count_words(files: TrainingFiles, limits: list[int], settings: Settings) -> Report:
    """Count all words, also as they are written where vectors of those are read; write the corpus of word2vec.

    `limits` are, for questions and for answers, the highest hash of the keys of those that are in the corpus.
    """
    vectors = settings.word_vectors
    texts = [
        Text(file.uri, limit if vectors.is_learned else None)
        for folder, limit in zip(_folders(files), limits, strict=True)
        for file in storage.list_files(folder, ".parquet")
    ]
    least, most = vectors.minimum_count, vectors.words
    report = _count_all(word_files(files), texts, settings.text, least, most)
    if reads_written_words(settings):
        plain = [Text(text.uri, None) for text in texts]
        as_written = settings.text.changed(word_form="written")
        report.add(_count_all(written_files(files), plain, as_written, least, sys.maxsize))
    return report


def word_files(files: TrainingFiles) -> WordFiles:
    """Where words are counted in their form."""
    return WordFiles(files.words, sum(len(storage.list_files(folder, ".parquet")) for folder in _folders(files)))


def written_files(files: TrainingFiles) -> WordFiles:
    """Likewise as they are written, if they are."""
    return dataclasses.replace(word_files(files), folder=files.written_words)


def _folders(files: TrainingFiles) -> list[str]:
    return [files.texts] if files.answers is None else [files.texts, files.answers]


def reads_written_words(settings: Settings) -> bool:
    """Whether vectors of words as they are written are read for words of another form."""
    vectors = settings.word_vectors
    reads = vectors.file_words == "written" if vectors.file else vectors.algorithm == "teacher"
    return reads and settings.text.word_form != "written"


def _count_all(files: WordFiles, texts: list[Text], settings: TextSettings, least: int, most: int) -> Report:
    """Of each part the `most` frequent words are kept that occur `least` times."""
    calls = [(files, number, text, settings) for number, text in enumerate(texts)]
    report = run_tasks("words", _count, calls, names=[text.uri for text in texts])
    report.add(run_tasks("words", _merge, [(files, part, least, most) for part in range(files.parts)]))
    return report


def _count(files: WordFiles, number: int, text: Text, settings: TextSettings) -> Counts:
    output = files.counted(number)

    def make() -> Counts:
        table = storage.read_table(text.uri, TEXTS, ["key", "text"])
        found = forms_of(table["text"], normaliser_of(settings))
        if text.limit is not None:
            is_wanted = key_hashes(table["key"].to_numpy()) <= np.uint64(text.limit)
            _write_corpus(files.corpus(number), found, is_wanted)
        counted = word_counts(found)
        parts = _parts_of(counted["word"].to_pylist(), files.parts)
        batches = (task_files.one_batch(counted.filter(pa.array(parts == part))) for part in range(files.parts))
        task_files.write_parts(output, batches, WORD_COUNTS)
        return {"rows_in": len(table), "words": int(found.lengths.sum())}

    return skip_or(output, make)


def _parts_of(words: list[str], count: int) -> np.ndarray:
    if count == 1:
        return np.zeros(len(words), np.int64)
    return np.array([xxhash.xxh3_64_intdigest(word.encode()) % count for word in words], np.int64)


def _write_corpus(uri: str, found: Forms, is_wanted: np.ndarray) -> None:
    sentences = int((-(-found.lengths[is_wanted] // SENTENCE_WORDS)).sum())
    table = pa.table([joined(found, is_wanted)], schema=_CORPUS)
    storage.write_table(uri, table, _CORPUS, {"sentences": sentences})


def _merge(files: WordFiles, part: int, least: int, most: int) -> Counts:
    output = files.part(part)

    def make() -> Counts:
        batches = task_files.read_part([files.counted(number) for number in range(files.files)], part)
        together = summed([pa.Table.from_batches([batch.replace_schema_metadata(None)]) for batch in batches])
        frequent = together.filter(pc.greater_equal(together["count"], least))
        counts = {"different words": len(together), "frequent": len(frequent)}
        storage.write_table(output, most_frequent(frequent, most), WORD_COUNTS, counts)
        return {"different words": len(together)}

    return skip_or(output, make)


def frequent_words(files: WordFiles, most: int) -> FrequentWords:
    """The `most` frequent words of all parts. Memory: these, and a part's."""
    found, frequent = WORD_COUNTS.empty_table(), 0
    for part in range(files.parts):
        table = storage.read_table(files.part(part), WORD_COUNTS)
        found = most_frequent(pa.concat_tables([found, table]), most)
        frequent += storage.read_counts(files.part(part))["frequent"]
    corpora = (files.corpus(number) for number in range(files.files))
    sentences = sum(storage.read_counts(uri)["sentences"] for uri in corpora if storage.exists(uri))
    return FrequentWords(found["word"].to_pylist(), found["count"].to_pylist(), frequent, sentences)


def written_counts(files: TrainingFiles, settings: Settings) -> dict[str, int]:
    """How often each word occurs as it is written, of those that do often enough; none where that is not needed."""
    if not reads_written_words(settings):
        return {}
    found = frequent_words(written_files(files), sys.maxsize)
    return dict(zip(found.words, found.counts, strict=True))


class Corpus:
    """What word2vec reads, text by text; can be iterated again and again. Memory: some sentences."""

    def __init__(self, files: WordFiles) -> None:
        """The corpus of `files`, which must have one."""
        self._files = files

    def __iter__(self) -> Iterator[list[str]]:
        """One list of words a text that has any."""
        for number in range(self._files.files):
            for piece in storage.read_pieces(self._files.corpus(number), _CORPUS, ["words"], _SENTENCES_AT_ONCE):
                for words in piece.column(0).to_pylist():
                    yield words.split(" ")
