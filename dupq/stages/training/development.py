"""How good a network is on development questions after an epoch: MAP, and where it is asked for accuracy on pairs.

Both over the same pool: some questions of the archive by a hash of their keys, and all development questions.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from dupq.evaluation.known_duplicates import chosen
from dupq.evaluation.measures import best_accuracy
from dupq.links.known import Known
from dupq.links.split import Split
from dupq.settings.config import Settings
from dupq.settings.training import TrainingSettings

if TYPE_CHECKING:
    from dupq.encoders.protocol import Encoder
    from dupq.evaluation.rankers import EncoderRanker


def measures(training: TrainingSettings) -> tuple[str, ...]:
    """What an epoch is measured by, as the learning curve names it."""
    return ("development_map", "development_accuracy") if training.best_epoch == "accuracy" else ("development_map",)


def measure(
    network: "Encoder", sequences: Mapping[int, np.ndarray], known: Known, settings: Settings
) -> dict[str, float]:
    """The `measures` of the network as it is, between 0 and 1; `sequences` are token ids by key."""
    training = settings.training
    ranker, pool = _ranker(network, sequences, known, settings)
    found = {"development_map": _map(ranker, pool, known.split, settings)}
    if training.best_epoch == "accuracy":
        found["development_accuracy"] = best_accuracy(*scored_pairs(ranker, pool, known, training))[1]
    return found


def development_map(network: "Encoder", sequences: Mapping[int, np.ndarray], known: Known, settings: Settings) -> float:
    """The first of these alone."""
    return _map(*_ranker(network, sequences, known, settings), known.split, settings)


def _ranker(
    network: "Encoder", sequences: Mapping[int, np.ndarray], known: Known, settings: Settings
) -> tuple["EncoderRanker", np.ndarray]:
    """The pool (keys, ascending), as the network encodes it."""
    from dupq.encoders.encode import encode
    from dupq.evaluation.rankers import EncoderRanker
    from dupq.neighbours.embeddings import Embeddings

    everything = np.array(sorted(sequences), np.int64)
    pool = np.union1d(chosen(everything, settings.training.development_pool), known.split.questions_of("development"))
    encoded = encode(network, [sequences[int(key)] for key in pool], settings.encode.batch_size)
    return EncoderRanker(Embeddings(pool, *encoded), network.measure), pool


def _map(ranker: "EncoderRanker", pool: np.ndarray, split: Split, settings: Settings) -> float:
    from dupq.evaluation.known_duplicates import retrieval

    as_test = Split(split.questions, split.sets, np.where(split.parts == "development", "test", "train"))
    measured = retrieval({"encoder": ranker}, as_test, len(pool), settings.evaluation)
    return measured["retrieval"]["encoder"]["map"]


def scored_pairs(
    ranker: "EncoderRanker", pool: np.ndarray, known: Known, training: TrainingSettings
) -> tuple[np.ndarray, np.ndarray]:
    """Scores and labels of the development links and as many random pairs of `pool`, the same ones each time."""
    from dupq.training.pairs import with_random_negatives

    links = known.split.links_of("development", known.links)
    generator = np.random.default_rng(training.seed)
    pairs = with_random_negatives(links, pool, known.split, 1, generator, kind=training.negative_pairs)
    return ranker.score(pairs.left, pairs.right), pairs.labels
