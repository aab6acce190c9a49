"""Encoders without gradients (SIF, MappSent) over a collection in memory: fitted, and its embeddings."""

from typing import Literal

import numpy as np
import torch
from torch import nn

from dupq.encoders.protocol import Encoder
from dupq.encoders.words import word_table
from dupq.evaluation.systems.collection import Collection, Examples
from dupq.evaluation.systems.vectors import WordVectors
from dupq.settings.text import TextSettings
from dupq.text.token_ids import TokenIds
from dupq.text.vocabulary import FIRST_WORD, Vocabulary

FittedOn = Literal["training", "archive"]
_ALL_WORDS = 1 << 30  # of a text: none is cut


def table_of(vectors: WordVectors) -> nn.Embedding:
    """The table that an encoder reads: padding and unknown words, which it leaves out, and then the words."""
    unknown = np.zeros((FIRST_WORD, vectors.table.shape[1]), np.float32)
    return word_table(np.concatenate([unknown, vectors.table]), is_updated=False)


def fitted_embeddings(
    network: Encoder,
    collection: Collection,
    words: tuple[str, ...],
    reading: TextSettings,
    fitted_on: FittedOn,
    examples: Examples,
) -> np.ndarray:
    """The embeddings (float64, (n, d)) of the collection by `network`, whose words are those of `table_of`.

    It is prepared on the questions of the training pairs, or on all, and on the training duplicates; in float64.
    """
    texts, _ = Vocabulary(list(words), reading).sequences(collection.texts, _ALL_WORDS)
    each = list(texts)
    training = examples.training
    seen = collection.rows(np.unique(np.concatenate([training.left, training.right])))
    known = training.labels > 0
    sides = (collection.rows(keys[known]).tolist() for keys in (training.left, training.right))
    network.double().prepare(
        each if fitted_on == "archive" else [each[row] for row in seen.tolist()],
        [(each[row], each[other]) for row, other in zip(*sides, strict=True)],
    )
    return embeddings(network, texts)


def embeddings(network: Encoder, texts: TokenIds) -> np.ndarray:
    """The embeddings (n, d) of texts, in the precision of the network."""
    with torch.inference_mode():
        found = network.dense_of(texts)
    assert found is not None
    return found.numpy()
