"""Single rows of large files: bodies from the archive, embeddings from the run. One piece of a file is in memory."""

import threading
from functools import cached_property

import pyarrow as pa
import pyarrow.parquet as pq

from dupq import storage
from dupq.encoders.description import read_measure
from dupq.neighbours.embeddings import gathered
from dupq.neighbours.measure import Measure
from dupq.report.explorer.contents import Text, excerpt
from dupq.report.explorer.weighing import Weighing
from dupq.runs.embeddings import embeddings_of
from dupq.runs.reader import Key, Run
from dupq.text.keys import Sites
from dupq.text.vocabulary import Vocabulary

_ROWS = 4_096  # at once
Place = tuple[str, int]  # a file (URI), and the row in it


def row_at(place: Place, columns: list[str]) -> pa.Table | None:
    """One row of a Parquet file, None beyond its end; the pages of its row group before it are read too."""
    uri, row = place
    with storage.open_input(uri) as stream, storage.readable(uri, "Parquet"):
        file = pq.ParquetFile(stream, buffer_size=1 << 20, pre_buffer=False)
        there = [name for name in columns if name in file.schema_arrow.names]
        for group in range(file.num_row_groups):
            rows = file.metadata.row_group(group).num_rows
            if row < rows:
                break
            row -= rows
        else:
            return None
        for batch in file.iter_batches(_ROWS, row_groups=[group], columns=there, use_threads=False):
            if row < len(batch):
                return pa.table(batch.slice(row, 1))
            row -= len(batch)
    return None


class Bodies:
    """Reads for one request at a time, so that memory does not grow with the requests."""

    def __init__(self, run: Run) -> None:
        """Nothing is read yet."""
        self._run, self._lock = run, threading.Lock()

    def text(self, place: Place, key: Key) -> Text | None:
        """What a question says; None if it is no longer where it was. Raises DupqError if its file is damaged."""
        if not storage.exists(place[0]):
            return None
        with self._lock:
            row = row_at(place, ["question_id", "title", "body_html", "score", "tags"])
        if row is None or row["question_id"][0].as_py() != key[1]:
            return None
        (said,) = row.to_pylist()
        return Text(said["title"], excerpt(said["body_html"]), said.get("score"), said.get("tags") or [])

    def weighing(self, places: list[Place], keys: list[Key]) -> Weighing | None:
        """What weighs the pairs among some questions; None where the run's encoder is gone."""
        read = self._encoder
        if read is None:
            return None
        measure, vocabulary = read
        sites, pieces = Sites([site for site, _ in keys]), []
        for place in places:
            with self._lock:
                row = row_at(place, ["site", "question_id", "embedding", "words", "word_weights"])
            if row is not None:
                pieces.append(embeddings_of(row, sites, place[0]))
        if not pieces:
            return None
        embedded = gathered(pieces)
        names, numbers = sites.unpack(embedded.keys)
        rows = {key: row for row, key in enumerate(zip(names, numbers.tolist(), strict=True))}
        return Weighing(measure, vocabulary, embedded, rows)

    @property
    def has_words(self) -> bool:
        """Whether words are a part of any score."""
        return self._encoder is not None and self._encoder[0].lexical != 0

    @cached_property
    def _encoder(self) -> tuple[Measure, Vocabulary] | None:
        encoder = self._run.manifest["inputs"].get("encoder")
        if encoder is None or not storage.exists(storage.join(encoder, "vocabulary.txt")):
            return None
        words = storage.read_bytes(storage.join(encoder, "vocabulary.txt"))
        return read_measure(encoder), Vocabulary.from_bytes(words)
