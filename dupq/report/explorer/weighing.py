"""What an encoder's score of a pair is made of, from the embeddings that the run stored: no network is loaded."""

from collections.abc import Iterable

import pyarrow as pa
import pyarrow.compute as pc

from dupq import storage
from dupq.encoders.description import read_measure
from dupq.neighbours.contributions import Parts, parts_of
from dupq.neighbours.embeddings import Embeddings, gathered
from dupq.neighbours.measure import Measure
from dupq.runs.embeddings import embeddings_of
from dupq.runs.reader import Key, Run
from dupq.text.keys import Sites
from dupq.text.vocabulary import Vocabulary

WORDS = 8  # of a pair; the others are added up


class Weighing:
    """The parts of the scores of pairs among some questions."""

    def __init__(self, measure: Measure, vocabulary: Vocabulary, embedded: Embeddings, rows: dict[Key, int]) -> None:
        """`rows` are the places in `embedded`; see `weighing`."""
        self.vocabulary = vocabulary
        self._measure, self._embedded, self._rows = measure, embedded, rows

    @property
    def has_words(self) -> bool:
        """Whether words are a part of any score."""
        return self._measure.lexical != 0

    def parts(self, left: Key, right: Key) -> Parts | None:
        """The score's parts; None where either has no embedding: near copies are represented by another question."""
        if left not in self._rows or right not in self._rows:
            return None
        return parts_of(self._measure, self._embedded, self._rows[left], self._rows[right])


def weighing(run: Run, keys: Iterable[Key]) -> Weighing | None:
    """Reads the embeddings of `keys`; None where the run's encoder or its embeddings are gone."""
    encoder = run.manifest["inputs"].get("encoder")
    is_there = encoder is not None and storage.exists(storage.join(encoder, "vocabulary.txt"))
    if encoder is None or not is_there or not storage.list_files(storage.join(run.uri, "embeddings"), ".parquet"):
        return None
    measure, stored = read_measure(encoder), run.embeddings
    vocabulary = Vocabulary.from_bytes(storage.read_bytes(storage.join(encoder, "vocabulary.txt")))
    wanted, sites = set(keys), Sites(sorted({site for site, _ in keys}))
    ids = pa.array(sorted({number for _, number in wanted}), pa.int64())
    names = pa.array(sites.names, pa.string())
    pieces = []
    for table in stored.files():
        rows = table.filter(pc.and_(pc.is_in(table["question_id"], ids), pc.is_in(table["site"], names)))
        if len(rows):
            pieces.append(embeddings_of(rows, sites, stored.place))
    if not pieces:
        return None
    embedded = gathered(pieces)
    places, numbers = sites.unpack(embedded.keys)
    labels = zip(places, numbers.tolist(), strict=True)
    rows_of = {key: row for row, key in enumerate(labels) if key in wanted}
    return Weighing(measure, vocabulary, embedded, rows_of)
