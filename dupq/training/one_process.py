"""Training in one process, without files: on titles and bodies, which belong together in any archive, and then on
known duplicates, for experiments.

An epoch is measured by whatever the caller wants of it, and the best one's weights are kept. Unlike there that may be
the start, before any pair is learned; the epochs of titles and bodies are not measured; and there is no teacher.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch

from dupq.encoders.encoding import counts_training_texts_only
from dupq.encoders.protocol import Encoder
from dupq.encoders.text_reader import Reader
from dupq.errors import SettingError
from dupq.links.split import Split
from dupq.settings.config import Settings
from dupq.settings.training import TitleBodySettings
from dupq.text.keys import ID_BITS
from dupq.text.questions import Vocabulary, token_ids
from dupq.text.token_arrays import TokenIds
from dupq.training.loop import Sequences, epoch_examples, train_epoch
from dupq.training.mining import mine
from dupq.training.optimisation import as_training, falling, optimizer_for, rates, seed_dropout
from dupq.training.pairs import Rankings, site_batches
from dupq.training.start import new_network
from dupq.training.word_vectors import WordVectors, words_of

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


QUALITY = "quality"  # what the best epoch has most of
# What is measured of an epoch: figures by name, QUALITY among them
Measured = Callable[[Reader], Mapping[str, float]]


@dataclass(frozen=True)
class KnownPairs:
    """What is learned from (keys, int64)."""

    positives: np.ndarray  # (m, 2), known duplicates of the training part
    wrong: np.ndarray  # (m, 2), pairs of it labelled as no duplicates
    split: Split
    pool: np.ndarray  # sorted, the questions that negatives are drawn from


def train(
    texts: pa.Table, known: KnownPairs, settings: Settings, vectors: WordVectors, measured: Measured
) -> tuple[Reader, list[dict[str, float]]]:
    """The encoder of the best epoch, and the learning curve: a row an epoch, from 0, before any pair is learned.

    `texts` are rows of TEXTS sorted by key: all questions of the archive. An encoder that learns nothing by gradients
    has only epoch 0. The same for the same rows, seed and machine. Raises SettingError if there is to be a teacher.
    """
    if settings.teacher.encoder:
        raise SettingError(f"setting 'teacher.encoder' is {settings.teacher.encoder!r}; experiments have no teacher")
    vocabulary = Vocabulary(vectors.words, settings.text, settings.word_vectors.hashed)
    ids = token_ids(texts, vocabulary, settings)[0]
    sequences: Sequences = dict(zip(texts["key"].to_pylist(), ids, strict=True))
    pairs = [(sequences[left], sequences[right]) for left, right in known.positives.tolist()]
    counted = ids
    if counts_training_texts_only(settings):
        read = np.setdiff1d(texts["key"].to_numpy(), known.split.questions_of("development", "test"))
        counted = TokenIds.of([sequences[key] for key in read.tolist()])
    network = new_network(vocabulary, vectors.table, counted, pairs, settings)
    reader = Reader(network, vocabulary, settings)
    with torch.random.fork_rng(devices=[]):
        if settings.title_body.epochs and network.trainable:
            train_title_body(network, titles_and_bodies(texts, vocabulary, settings), settings)
        curve = _train_pairs(network, reader, sequences, known, measured)
    network.eval().tune(lambda: measured(reader)[QUALITY])
    return reader, curve


def _train_pairs(
    network: Encoder, reader: Reader, sequences: Sequences, known: KnownPairs, measured: Measured
) -> list[dict[str, float]]:
    """Train `network`, which `reader` reads for, in place; it has the weights of the best epoch then."""
    settings = reader.settings
    training = settings.training
    curve = [{"epoch": 0.0, **measured(reader)}]
    if not network.trainable or not len(known.positives):
        return curve
    optimizer = optimizer_for(network, training)
    best, best_epoch = _weights(network), 0
    mined: np.ndarray | None = None
    for epoch in range(1, training.epochs + 1):
        seed_dropout(training.seed, settings.title_body.epochs + epoch)
        if training.mined_negatives:
            mined = mine(network, sequences, known.positives, known.pool, known.split, settings, epoch)
        examples = epoch_examples(known.positives, known.pool, known.split, training, epoch, mined, known.wrong)
        losses = train_epoch(network, optimizer, sequences, examples, training, rates=rates(epoch, training))
        curve.append({"epoch": float(epoch), "loss": losses.mean, **measured(reader)})
        if curve[-1][QUALITY] > curve[best_epoch][QUALITY]:
            best, best_epoch = _weights(network), epoch
        elif 0 < training.patience <= epoch - best_epoch:
            break
    network.load_state_dict(best)
    return curve


def _weights(network: Encoder) -> dict[str, torch.Tensor]:
    return {name: value.clone() for name, value in network.state_dict().items()}
