"""Measures of a network after each epoch of its training: on development questions, or if there are too few of these
by titles that training does not read and that must find their own bodies.

Both search the same pool: a sample of the archive by a hash of the keys, and all development questions.
"""

from collections.abc import Mapping

import numpy as np

from dupq.encoders import saved
from dupq.encoders.encoding import encode
from dupq.encoders.protocol import Encoder
from dupq.evaluation.known_duplicates import RANKED, retrieval
from dupq.evaluation.rankers import EncoderRanker
from dupq.links import KnownDuplicates, Split
from dupq.neighbours.embeddings import Embeddings
from dupq.settings.config import Settings
from dupq.text.keys import sample_by_hash
from dupq.training.held_out import HeldOut

FEWEST_QUESTIONS = 10  # of the development part


def has_questions(known: KnownDuplicates) -> bool:
    """Return whether there are enough development questions to compare epochs."""
    return len(known.split.questions_of("development")) >= FEWEST_QUESTIONS


def body_map(network: Encoder, held_out: HeldOut, settings: Settings) -> float:
    """Return the mean over all titles of 1 / the rank of their own body, which counts 0 beyond rank RANKED."""
    titles, bodies = (encode(network, texts, settings.encode.batch_size) for texts in held_out)
    ranks = saved.ranks_of_bodies(titles, bodies, RANKED, network.measure)
    return float((1 / ranks).sum() / len(held_out.titles))


def development_map(
    network: Encoder, sequences: Mapping[int, np.ndarray], known: KnownDuplicates, settings: Settings
) -> float:
    """Return MAP on development questions, between 0 and 1; `sequences` are token ids by key."""
    split, keys = known.split, np.array(sorted(sequences), np.int64)
    pool = np.union1d(sample_by_hash(keys, settings.training.development_pool), split.questions_of("development"))
    encoded = encode(network, [sequences[int(key)] for key in pool], settings.encode.batch_size)
    ranker = EncoderRanker([Embeddings(pool, *encoded)], network.measure)
    as_test = Split(split.questions, split.sets, np.where(split.parts == "development", "test", "train"))
    measured = retrieval({"encoder": ranker}, as_test, len(pool), settings.evaluation)
    return measured["retrieval"]["encoder"]["map"]
