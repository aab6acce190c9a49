"""Encode texts in memory with a saved encoder: `dupq.load_encoder`."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from dupq import storage
from dupq.api.inputs import texts
from dupq.encoders.bags import Encoded
from dupq.encoders.saved import Reader, load_reader
from dupq.errors import DupqError
from dupq.neighbours.embeddings import Embeddings, Measure
from dupq.neighbours.exact import explain_score, pair_scores
from dupq.text.questions import texts_table


class Word(NamedTuple):
    """A word of both questions, and what it adds to their score."""

    word: str
    contribution: float


class Weighed(NamedTuple):
    """A score by the encoder, and its terms: `score` is the sum of `dense` and of all words' contributions."""

    score: float
    dense: float
    words: list[Word]  # the largest contribution first; empty for an encoder without bags of words


@dataclass(frozen=True)
class TextEncoder:
    """An encoder with its vocabulary: texts in, arrays out, on the CPU."""

    reader: Reader

    @property
    def dimensions(self) -> int:
        """The length of an embedding."""
        return self.reader.network.dimensions

    @cached_property
    def measure(self) -> Measure:
        """How two embeddings are scored."""
        return self.reader.network.measure

    def encode(self, titles: Sequence[str], bodies_html: Sequence[str] | None = None) -> np.ndarray:
        """Return the dense vectors (float16, shape (n, dimensions)) of questions, in their order.

        They have length 1 if the encoder is scored by cosine; an empty text has the zero vector.
        """
        return self.encode_whole(titles, bodies_html).vectors

    def encode_whole(self, titles: Sequence[str], bodies_html: Sequence[str] | None = None) -> Encoded:
        """Return the vectors of `encode`, and the bags of words (sparse, (n, ids)) of an encoder that has them."""
        titles = texts(titles, "encode", "titles")
        bodies = [""] * len(titles) if bodies_html is None else texts(bodies_html, "encode", "bodies_html")
        if len(bodies) != len(titles):
            raise DupqError(f"{len(titles)} titles, but {len(bodies)} bodies; one of each per question expected")
        keys, shown = pa.array(np.arange(len(titles))), pa.array(titles, pa.string())
        table = texts_table(keys, shown, pa.array(bodies, pa.string()), self.reader.settings.text)
        return self.reader.encode(table)

    def score(self, left: Sequence[str], right: Sequence[str]) -> np.ndarray:
        """Return the scores (float64, shape (n,)) of pairs of titles; higher is more alike."""
        left, right = (texts(side, "score", "titles") for side in (left, right))
        if len(left) != len(right):
            raise DupqError(f"{len(left)} titles on the left, but {len(right)} on the right")
        sides = [Embeddings(np.arange(len(side)), *self.encode_whole(side)) for side in (left, right)]
        return pair_scores(self.measure, sides[0], sides[1])

    def weighed(self, left: tuple[str, str], right: tuple[str, str]) -> Weighed:
        """Return the score of two questions (title, body as HTML), and what each word adds to it."""
        titles, bodies = zip(left, right, strict=True)
        both = Embeddings(np.arange(2), *self.encode_whole(titles, bodies))
        score, dense, words = explain_score(self.measure, both, 0, 1)
        vocabulary = self.reader.vocabulary
        return Weighed(score, dense, [Word(vocabulary.word(number), value) for number, value in words])


def load_encoder(uri: str | os.PathLike[str]) -> TextEncoder:
    """Open the encoder that `train` saved at `uri`. Raises DupqError if there is none, or it is damaged."""
    return TextEncoder(load_reader(storage.absolute(uri)))
