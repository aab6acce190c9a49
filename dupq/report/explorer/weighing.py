"""What an encoder's score of a pair is made of, from the embeddings that the run stored: no network is loaded."""

import functools
from collections.abc import Iterable

import pyarrow as pa
import pyarrow.compute as pc

from dupq import storage
from dupq.encoders.description import read_measure
from dupq.neighbours.contributions import Parts, parts_of
from dupq.neighbours.embeddings import Embeddings
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

    def parts(self, left: Key, right: Key) -> Parts | None:
        """The score's parts; None where either has no embedding: near copies are represented by another question."""
        if left not in self._rows or right not in self._rows:
            return None
        return parts_of(self._measure, self._embedded, self._rows[left], self._rows[right])


def weighing(run: Run, keys: Iterable[Key]) -> Weighing | None:
    """Reads the embeddings of `keys`; None where the run's encoder or its embeddings are gone."""
    encoder = _encoder(run.manifest["inputs"].get("encoder"))
    if encoder is None or not storage.list_files(storage.join(run.uri, "embeddings"), ".parquet"):
        return None
    wanted, stored = set(keys), run.embeddings
    sites = Sites(sorted({site for site, _ in wanted}))
    ids = pa.array(sorted({number for _, number in wanted}), pa.int64())
    is_wanted = pc.field("question_id").isin(ids) & pc.field("site").isin(pa.array(sites.names, pa.string()))
    rows = stored.arrow(filter=is_wanted)  # of row groups without such ids nothing is read
    if not len(rows):
        return None
    embedded = embeddings_of(rows, sites, stored.place)
    places, numbers = sites.unpack(embedded.keys)
    labels = zip(places, numbers.tolist(), strict=True)
    rows_of = {key: row for row, key in enumerate(labels) if key in wanted}
    return Weighing(*encoder, embedded, rows_of)


def has_words(run: Run) -> bool:
    """Whether words are a part of any score of the run's encoder; not if that is gone."""
    encoder = _encoder(run.manifest["inputs"].get("encoder"))
    return encoder is not None and encoder[0].lexical != 0


@functools.lru_cache(1)
def _encoder(uri: str | None) -> tuple[Measure, Vocabulary] | None:
    """How the encoder at `uri` scores, and its words; an encoder's folder never changes."""
    if uri is None or not storage.exists(storage.join(uri, "vocabulary.txt")):
        return None
    return read_measure(uri), Vocabulary.from_bytes(storage.read_bytes(storage.join(uri, "vocabulary.txt")))
