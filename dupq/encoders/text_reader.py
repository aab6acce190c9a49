"""From stored texts to embeddings: all code that encodes uses the reader, so that a question has the same embedding
wherever it is made. And the encoder's fitness: whether it knows an archive.

Both are measured on a sample of the archive that it was trained on, and again on each archive that it is used on. An
encoder of another language or field makes embeddings like any other, and every threshold would be wrong.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from dupq.encoders.bags import Bag, Encoded
from dupq.neighbours.embeddings import Embeddings
from dupq.neighbours.tiles import top_k
from dupq.settings.config import Settings
from dupq.text.questions import FIRST_WORD, UNKNOWN, Vocabulary, token_ids
from dupq.text.token_arrays import TokenIds

if TYPE_CHECKING:
    from dupq.encoders.protocol import Encoder


@dataclass(frozen=True)
class Reader:
    """A network, its words, and the settings that say how it reads a stored text."""

    network: "Encoder | Bag"  # a network of torch, or dupq's own encoder without it
    vocabulary: Vocabulary
    settings: Settings

    def encode(self, table: pa.Table, rows: int | None = None) -> tuple[Encoded, int]:
        """The embeddings of rows of TEXTS, and how many texts were truncated; `rows` is the size of a batch."""
        sequences, cut = token_ids(table, self.vocabulary, self.settings)
        return self._encoded(sequences, rows or self.settings.encode.batch_size), cut

    def encode_alone(self, texts: pa.StringArray | pa.ChunkedArray) -> Encoded:
        """The embeddings of titles or bodies alone: tokenised texts, read unchanged."""
        sequences, _ = self.vocabulary.sequences(texts, self.settings.encoder.maximum_tokens)
        return self._encoded(sequences, self.settings.encode.batch_size)

    def _encoded(self, sequences: TokenIds, rows: int) -> Encoded:
        if isinstance(self.network, Bag):
            return self.network.encode(sequences)
        from dupq.encoders.encoding import encode

        return encode(self.network, sequences, rows)


@dataclass(frozen=True)
class Fitness:
    """The fitness of an encoder, measured on a sample of questions."""

    questions: int
    unknown_words: float  # share of the words read that the encoder does not know
    bodies_found: float | None  # share of titles whose nearest body is their own; None: too few have both


_FEWEST_BODIES = 50


def fitness(reader: Reader, texts: pa.Table) -> Fitness:
    """The fitness of an encoder on rows of TEXTS, distinct in their keys."""
    sequences, _ = reader.vocabulary.sequences(texts["text"], reader.settings.encoder.maximum_tokens)
    ids = sequences.ids
    known = (ids >= FIRST_WORD) & (ids < FIRST_WORD + len(reader.vocabulary.words))
    unknown = float((~known & (ids >= UNKNOWN)).sum() / max(1, len(ids)))
    return Fitness(len(texts), unknown, _bodies_found(reader, texts))


def _bodies_found(reader: Reader, texts: pa.Table) -> float | None:
    rows = zip(texts["key"].to_pylist(), texts["title"].to_pylist(), texts["text"].to_pylist(), strict=True)
    both = [(key, title, text[len(title) + 1 :]) for key, title, text in rows if title and len(text) > len(title) + 1]
    if len(both) < _FEWEST_BODIES:
        return None
    keys = np.array([key for key, _, _ in both])
    titles, bodies = (reader.encode_alone(pa.array([row[column] for row in both], pa.string())) for column in (1, 2))
    # a question is not its own neighbour, so bodies have keys of their own
    found = top_k(Embeddings(2 * keys, *titles), [Embeddings(2 * keys + 1, *bodies)], 1, reader.network.measure)
    return float((found.neighbours == found.queries + 1).sum() / len(keys))
