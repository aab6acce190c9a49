"""How good a network is on development questions after an epoch: MAP, and where it is asked for accuracy on pairs.

Both over the same pool: some questions of the archive by a hash of their keys, and all development questions.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from dupq.evaluation.known_duplicates import chosen
from dupq.links.known import Known
from dupq.links.split import Split
from dupq.settings.config import Settings
from dupq.settings.training import TrainingSettings

if TYPE_CHECKING:
    from dupq.encoders.protocol import Encoder
    from dupq.evaluation.rankers import EncoderRanker
    from dupq.training.pairs import Pairs


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
        found["development_accuracy"] = best_accuracy(ranker, development_pairs(known, pool, training))[1]
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


def development_pairs(known: Known, pool: np.ndarray, training: TrainingSettings) -> "Pairs":
    """The development links and as many random pairs of questions of `pool`, the same ones each time."""
    from dupq.training.pairs import with_random_negatives

    links = known.split.links_of("development", known.links)
    generator = np.random.default_rng(training.seed)
    return with_random_negatives(links, pool, known.split, 1, generator, kind=training.negative_pairs)


def best_accuracy(ranker: "EncoderRanker", pairs: "Pairs") -> tuple[float, float]:
    """The score that tells the pairs apart best, and the share of them that it tells right."""
    from dupq.evaluation.measures import accuracy, best_threshold

    scores = ranker.score(pairs.left, pairs.right)
    threshold = best_threshold(scores, pairs.labels)
    return threshold, accuracy(scores, pairs.labels, threshold)
