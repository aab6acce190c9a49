"""Training in memory for the experiments: on titles and bodies, then on known duplicates.

The caller measures each epoch of known duplicates, and the weights of the best epoch are kept; that may be the start,
before any pair is learned. Epochs of titles and bodies are not measured, and there is no teacher.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import torch

from dupq.encoders.encoding import counts_training_texts_only
from dupq.encoders.protocol import Encoder
from dupq.encoders.saved import Reader
from dupq.errors import SettingError
from dupq.links import Split
from dupq.settings.config import Settings
from dupq.text.questions import Vocabulary, titles_and_bodies, token_ids
from dupq.text.token_arrays import TokenIds
from dupq.training.loop import epoch_examples, mine_negatives, train_epoch, train_title_body
from dupq.training.optimisation import decay, optimizer_for, seed_dropout
from dupq.training.pairs import Sequences
from dupq.training.start import new_network
from dupq.training.word_vectors import WordVectors

QUALITY = "quality"  # the best epoch has the highest value
# Measures an epoch: values by name, including QUALITY
Measured = Callable[[Reader], Mapping[str, float]]


@dataclass(frozen=True)
class KnownPairs:
    """The pairs and questions to learn from (keys, int64)."""

    positives: np.ndarray  # (m, 2), known duplicates of the training part
    wrong: np.ndarray  # (m, 2), pairs of it labelled as no duplicates
    split: Split
    pool: np.ndarray  # the questions to draw negatives from, sorted


def train(
    texts: pa.Table, known: KnownPairs, settings: Settings, vectors: WordVectors, measured: Measured
) -> tuple[Reader, list[dict[str, float]]]:
    """Return the encoder of the best epoch, and the learning curve: a row per epoch, from 0, before any pair.

    `texts` are rows of TEXTS sorted by key: all questions of the archive. An encoder without gradients has epoch 0
    only. The result is the same for the same rows, seed and machine. Raises SettingError if settings name a teacher.
    """
    if settings.teacher.encoder:
        raise SettingError(f"setting 'teacher.encoder' is {settings.teacher.encoder!r}; experiments have no teacher")
    vocabulary = Vocabulary(vectors.words, settings.text)
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
    """Train the reader's `network` in place, load the weights of its best epoch, and return the learning curve."""
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
            mined = mine_negatives(network, sequences, known.positives, known.pool, known.split, settings, epoch)
        examples = epoch_examples(known.positives, known.pool, known.split, training, epoch, mined, known.wrong)
        losses = train_epoch(network, optimizer, sequences, examples, training, rates=decay(epoch, training))
        curve.append({"epoch": float(epoch), "loss": losses.mean, **measured(reader)})
        if curve[-1][QUALITY] > curve[best_epoch][QUALITY]:
            best, best_epoch = _weights(network), epoch
    network.load_state_dict(best)
    return curve


def _weights(network: Encoder) -> dict[str, torch.Tensor]:
    return {name: value.clone() for name, value in network.state_dict().items()}
