"""An encoder learned from texts alone, in one process: the first phase of preset dupq (docs/encoders.md).

Where there are titles and bodies it learns which belong together. Titles alone give it only what can be counted: how
rare each word is. Skip-gram vectors of 6,118 titles of cs.stackexchange.com found no more of its known duplicates than
random ones (73 and 76 of 212 among the ten nearest, 21 and 21 among the 300 likeliest pairs).
"""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch

from dupq.encoders.protocol import Encoder
from dupq.encoders.reader import Reader
from dupq.settings.config import Settings
from dupq.text.questions import token_ids
from dupq.text.vocabulary import Vocabulary
from dupq.training.counted import words_of
from dupq.training.epochs import as_training, falling, seed_dropout
from dupq.training.loop import train_epoch
from dupq.training.optimizers import optimizer_for
from dupq.training.start import new_network
from dupq.training.title_body import LEARNING_RATE, TitlesAndBodies, title_body_examples


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
    """The rows of TEXTS that have both."""
    table = texts.filter(pc.and_(pc.not_equal(texts["title"], ""), pc.not_equal(texts["title"], texts["text"])))
    rows = zip(table["title"].to_pylist(), table["text"].to_pylist(), strict=True)
    bodies = pa.array([text[len(title) + 1 :] for title, text in rows], pa.string())
    most = settings.encoder.maximum_tokens
    sides = (vocabulary.sequences(column, most)[0] for column in (table["title"], bodies))
    return TitlesAndBodies(np.arange(len(table)), *sides)  # as questions of one site


def train_title_body(network: Encoder, titles: TitlesAndBodies, settings: Settings) -> None:
    """The phase of titles and bodies, all of its epochs."""
    phase = settings.title_body
    training = as_training(settings.training, phase.batch_size, LEARNING_RATE)
    optimizer = optimizer_for(network, training)
    for epoch in range(1, phase.epochs + 1):
        sequences, examples = title_body_examples(titles, phase, training.seed, epoch)
        seed_dropout(training.seed, epoch)
        train_epoch(network, optimizer, sequences, examples, training, rates=falling(epoch, phase.epochs))
