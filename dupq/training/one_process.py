"""Training in one process, without files, on titles and bodies, which belong together in any archive."""

from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch

from dupq.encoders.protocol import Encoder
from dupq.encoders.saved import Reader
from dupq.settings.config import Settings
from dupq.settings.sections import TitleBodySettings
from dupq.text.keys import ID_BITS
from dupq.text.questions import Vocabulary, token_ids
from dupq.text.token_arrays import TokenIds
from dupq.training.loop import Sequences, train_epoch
from dupq.training.optimisation import as_training, falling, optimizer_for, seed_dropout
from dupq.training.pairs import Rankings, site_batches
from dupq.training.start import new_network
from dupq.training.word_vectors import words_of

# Titles and bodies as free training pairs: which body belongs to which title, in any archive and without links.
#
# Two halves of a body are pairs too, which is closer to what the encoder is for: two texts of the same kind.

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


# An encoder learned from texts alone, in one process: the first phase of preset dupq (docs/encoders.md).
#
# Where there are titles and bodies it learns which belong together. Titles alone give it only what can be counted: how
# rare each word is. Skip-gram vectors of 6,118 titles of cs.stackexchange.com found no more of its known duplicates
# than random ones (73 and 76 of 212 among the ten nearest, 21 and 21 among the 300 likeliest pairs).


def learn(texts: pa.Table, settings: Settings) -> Reader:
    """An encoder with `settings` for rows of TEXTS, learned on them; the same for the same rows, seed and machine.

    Raises DupqError if no text has a word. Memory: a table of the word vectors, four times while they are learned.
    """
    vocabulary, table = words_of(texts, settings)
    network = new_network(vocabulary, table, token_ids(texts, vocabulary, settings)[0], [], settings)
    titles = titles_and_bodies(texts, vocabulary, settings)
    if len(titles.titles) > 1:
        with torch.random.fork_rng(devices=[]):
            train_title_body(network, titles, settings)
    network.tune(None)
    return Reader(network.eval(), vocabulary, settings)


def titles_and_bodies(texts: pa.Table, vocabulary: Vocabulary, settings: Settings) -> TitlesAndBodies:
    """Return the rows of TEXTS that have both, in their order."""
    table = texts.filter(pc.and_(pc.not_equal(texts["title"], ""), pc.not_equal(texts["title"], texts["text"])))
    rows = zip(table["title"].to_pylist(), table["text"].to_pylist(), strict=True)
    bodies = pa.chunked_array([[text[len(title) + 1 :] for title, text in rows]], pa.string())
    most = settings.encoder.maximum_tokens
    sides = (vocabulary.sequences(column, most)[0] for column in (table["title"], bodies))
    return TitlesAndBodies(table["key"].to_numpy(), *sides)


def train_title_body(network: Encoder, titles: TitlesAndBodies, settings: Settings) -> None:
    """Train the phase of titles and bodies, all of its epochs, as if all questions were of one site."""
    titles, phase = titles._replace(keys=np.arange(len(titles.titles))), settings.title_body
    training = as_training(settings.training, phase.batch_size, LEARNING_RATE)
    optimizer = optimizer_for(network, training)
    for epoch in range(1, phase.epochs + 1):
        sequences, examples = title_body_examples(titles, phase, training.seed, epoch)
        seed_dropout(training.seed, epoch)
        train_epoch(network, optimizer, sequences, examples, training, rates=falling(epoch, phase.epochs))
