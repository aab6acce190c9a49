"""Whether an encoder knows an archive: how many of its words, and how often it finds a body by its title.

Both are measured on a sample of the archive that it was trained on, and again on each archive that it is used on. An
encoder of another language or field makes embeddings like any other, and every threshold would be wrong.
"""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from dupq.encoders.reader import Reader
from dupq.neighbours.embeddings import Embeddings
from dupq.neighbours.search import top_k
from dupq.text.vocabulary import FIRST_WORD, UNKNOWN


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
