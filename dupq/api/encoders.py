"""Encode texts in memory with a saved encoder (`dupq.load_encoder`), and compare them with one another: the nearest of
each, and how likely they are duplicates.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from dupq import storage
from dupq.api.inputs import texts, values_of
from dupq.clusters.calibration import Model, features_of
from dupq.clusters.decision import Scale, compared, ranked, scored_table, undirected, unlisted
from dupq.clusters.evidence import Words, around, title_cosines
from dupq.encoders.bags import Encoded
from dupq.encoders.saved import Reader, load_reader
from dupq.errors import DupqError
from dupq.neighbours.embeddings import Embeddings, Measure
from dupq.neighbours.exact import explain_score, pair_scores
from dupq.neighbours.tiles import Search, block, search_tile
from dupq.text.keys import RowsByKey, pairs_in
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
        titles = texts(values_of(titles, "encode", "titles"), "encode", "titles")
        bodies = [""] * len(titles)
        if bodies_html is not None:
            bodies = texts(values_of(bodies_html, "encode", "bodies_html"), "encode", "bodies_html")
        if len(bodies) != len(titles):
            raise DupqError(f"{len(titles)} titles, but {len(bodies)} bodies; one of each per question expected")
        keys, shown = pa.array(np.arange(len(titles))), pa.array(titles, pa.string())
        table = texts_table(keys, shown, pa.array(bodies, pa.string()), self.reader.settings.text)
        return self.reader.encode(table)[0]

    def score(self, left: Sequence[str], right: Sequence[str]) -> np.ndarray:
        """Return the scores (float64, shape (n,)) of pairs of titles; higher is more alike."""
        left, right = (texts(values_of(side, "score", "titles"), "score", "titles") for side in (left, right))
        if len(left) != len(right):
            raise DupqError(f"{len(left)} titles on the left, but {len(right)} on the right")
        sides = [Embeddings(np.arange(len(side)), *self.encode_whole(side)) for side in (left, right)]
        return pair_scores(self.measure, *sides)

    def weighed(self, left: tuple[str, str], right: tuple[str, str]) -> Weighed:
        """Return the score of two questions (title, body as HTML), and what each word adds to it."""
        if any(isinstance(side, str) or len(side) != 2 for side in (left, right)):
            raise DupqError("weighed: two questions expected, each as (title, body_html)")
        titles, bodies = zip(left, right, strict=True)
        both = Embeddings(np.arange(2), *self.encode_whole(titles, bodies))
        score, dense, words = explain_score(self.measure, both, 0, 1)
        vocabulary = self.reader.vocabulary
        return Weighed(score, dense, [Word(vocabulary.word(number), value) for number, value in words])


def load_encoder(uri: str | os.PathLike[str]) -> TextEncoder:
    """Open the encoder that `train` saved at `uri`. Raises DupqError if there is none, or it is damaged."""
    return TextEncoder(load_reader(storage.absolute(uri)))


class Comparison:
    """Texts compared with one another. The key of a text is its row."""

    def __init__(
        self,
        embedded: Embeddings,
        words: Words,
        rarity: np.ndarray,
        search: tuple[Measure, int],
        model: Model,
    ) -> None:
        """Search the `embedded` texts for the k nearest of each, and score these pairs.

        `search` is the measure and k; `words` has a row per text, `rarity` one per term.
        """
        self._embedded, (self._measure, k) = embedded, search
        whole = block(embedded, self._measure)
        nearest = search_tile(whole, whole, Search(self._measure, k))[0]
        directed = ranked(whole.keys, nearest, self._measure)
        queries, others = (directed[name].to_numpy() for name in ("query", "neighbour"))
        self._around = around(queries, title_cosines(words.titles, queries, others, rarity))
        best = directed["similarity"].to_numpy()[directed["rank"].to_numpy() == 1]
        self._scale = Scale(model, np.sort(best.astype(np.float64)), k)
        self._texts = RowsByKey(np.arange(len(words.titles.offsets) - 1)), words, rarity
        self.evidence = compared(undirected(directed), *self._texts)
        self.table = scored_table(self.evidence, self._around, self._scale)  # SCORED

    @property
    def pairs(self) -> np.ndarray:
        """The rows of the texts of each pair (int64, shape (m, 2))."""
        return pairs_in(self.table)

    @property
    def probabilities(self) -> np.ndarray:
        """The probability that each pair are duplicates (float32, shape (m,))."""
        column: np.ndarray = self.table["probability"].to_numpy()
        return column

    @property
    def features(self) -> np.ndarray:
        """The evidence of each pair, of which the model makes its probability (float64, shape (m, features))."""
        return features_of(self.evidence, self._around, self._scale.reference, self._scale.k)

    def score(self, pairs: np.ndarray) -> np.ndarray:
        """Return the probabilities of pairs (int64, shape (m, 2)) of which neither lists the other."""
        evidence = compared(unlisted(pairs, self._embedded, self._measure), *self._texts)
        column: np.ndarray = scored_table(evidence, self._around, self._scale)["probability"].to_numpy()
        return column
