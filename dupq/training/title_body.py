"""Titles and bodies as free training pairs: which body belongs to which title, in any archive and without links.

Two halves of a body are pairs too, which is closer to what the encoder is for: two texts of the same kind.
"""

from typing import NamedTuple

import numpy as np

from dupq.settings.training import TitleBodySettings
from dupq.text.keys import ID_BITS
from dupq.text.token_ids import TokenIds
from dupq.training.loop import Sequences
from dupq.training.pairs import Rankings
from dupq.training.site_batches import site_batches

LEARNING_RATE = 0.002  # of the first step; it falls to 0
SPAN = 12  # words of the spans that are dealt out to the two halves of a body


class TitlesAndBodies(NamedTuple):
    """Questions that have both."""

    keys: np.ndarray  # int64, (n,)
    titles: TokenIds
    bodies: TokenIds

    @property
    def sites(self) -> np.ndarray:
        """The number of each one's site."""
        found: np.ndarray = self.keys >> ID_BITS
        return found

    def take(self, rows: np.ndarray) -> "TitlesAndBodies":
        """Some questions, by row number."""
        return TitlesAndBodies(self.keys[rows], self.titles.take(rows), self.bodies.take(rows))

    def among(self, keys: np.ndarray) -> "TitlesAndBodies":
        """Those of the questions `keys`."""
        return self.take(np.flatnonzero(np.isin(self.keys, keys)))


def title_body_examples(
    texts: TitlesAndBodies, settings: TitleBodySettings, seed: int, epoch: int, bucket: int = 0
) -> tuple[Sequences, Rankings]:
    """The pairs of texts of one epoch, in batches, and their token ids by keys that hold for this epoch only.

    With even odds the title is paired with the body, or (if it has two spans of words) one half of the body's spans,
    with even odds behind the title, with the other half. Which side is the query alternates at random between batches.
    `bucket` tells parts of an epoch apart that are trained on one after the other. Memory: twice the texts.
    """
    generator = np.random.default_rng([seed, epoch, 0, bucket])  # zeros at the end of a seed count for nothing
    sequences: dict[int, np.ndarray] = {}
    left, right = [], []
    for batch in site_batches(texts.sites, settings.batch_size, generator):
        keys = 2 * batch + generator.integers(0, 2)
        left.append(keys)
        right.append(keys ^ 1)
        for row, key in zip(batch.tolist(), keys.tolist(), strict=True):
            sequences[key], sequences[key ^ 1] = _views(texts.titles[row], texts.bodies[row], generator)
    rows = np.concatenate([np.zeros(0, np.int64), *left])
    return sequences, Rankings(
        rows,
        np.concatenate([np.zeros(0, np.int64), *right]),
        np.zeros((len(rows), 0), np.int64),
        np.arange(len(rows)),
    )


def _views(title: np.ndarray, body: np.ndarray, generator: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    if len(body) <= SPAN or generator.random() < 0.5:
        return title, body
    pieces = [body[start : start + SPAN] for start in range(0, len(body), SPAN)]
    order = generator.permutation(len(pieces)).tolist()
    half = len(pieces) // 2
    first, second = (np.concatenate([pieces[index] for index in part]) for part in (order[:half], order[half:]))
    return (np.concatenate([title, first]) if generator.random() < 0.5 else first), second
