"""The encoders of the experiments: a preset's network, trained on a data set's training part."""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from dupq.encoders.encoding import network_settings
from dupq.encoders.saved import Reader
from dupq.evaluation.measures import accuracy, best_accuracy, retrieval_measures
from dupq.evaluation.rankers import EncoderRanker
from dupq.neighbours.embeddings import Embeddings
from dupq.settings.config import Settings
from dupq.text.keys import sample_by_hash
from dupq.training.pairs import NEGATIVE_POOL, Pairs
from dupq.training.word_vectors import WordVectors
from dupq_papers.data.examples import Experiment
from dupq_papers.experiments.data_sets import DataSet
from dupq_papers.experiments.fitting import Fitted
from dupq_papers.experiments.in_memory import QUALITY, KnownPairs, train
from dupq_papers.experiments.samples import evenly, some_queries
from dupq_papers.networks.mappsent import MappSentSettings
from dupq_papers.settings import PaperTraining

_CUT = 100
_EPOCH_QUERIES = 200  # that an epoch is measured on
_EPOCH_PAIRS = 500  # of the training part, likewise


class Taught(NamedTuple):
    """The data set that is learned from, and its parts."""

    data: DataSet
    parts: Experiment


def fitted_network(taught: Taught, tested: DataSet, settings: Settings, vectors: WordVectors, ranks: bool) -> Fitted:
    """An encoder that learned from one data set, and knows the questions of another, or of the same.

    The best epoch is that with the best MAP on development queries where it is to rank, else with the best accuracy on
    development pairs, both of the data set that it learns from. A loss of pairs learns from the training pairs as they
    are; one of rankings draws its negatives itself, and takes the labelled ones too.
    """
    parts, split, training = taught.parts, taught.data.split(), taught.parts.examples.training
    pairs = np.sort(np.stack([training.left, training.right], axis=1), axis=1)
    wrong = pairs[training.labels < 0.5]
    if _is_of_pairs(settings):
        settings = settings.changed(training=settings.training.changed(negatives=0))
    elif not len(taught.data.known.labels.others):
        wrong = wrong[:0]
    held_out = split.questions_of("development", "test")
    pool = sample_by_hash(np.setdiff1d(taught.data.collection.keys, held_out), NEGATIVE_POOL)
    known = KnownPairs(pairs[training.labels > 0.5], wrong, split, pool)
    table = taught.data.texts
    seen = _Seen(table, parts, ranks, settings)
    reader, curve = train(table, known, settings, vectors, seen.measured)
    return Fitted(_ranker(reader, tested.texts), _learned_from(reader, known), curve=tuple(curve))


def _is_of_pairs(settings: Settings) -> bool:
    training = settings.training
    return isinstance(training, PaperTraining) and training.loss in ("squared_error", "mean_squared_error")


def _learned_from(reader: Reader, known: KnownPairs) -> int:
    """How many labelled pairs changed the network: one without gradients is made of duplicates, or of texts alone."""
    if reader.network.trainable:
        return len(known.positives) + len(known.wrong)
    network = network_settings(reader.settings.encoder)
    return len(known.positives) if isinstance(network, MappSentSettings) and network.mapping != "none" else 0


def _ranker(reader: Reader, texts: pa.Table) -> EncoderRanker:
    return EncoderRanker([Embeddings(texts["key"].to_numpy(), *reader.encode(texts))], reader.network.measure)


class _Seen:
    """What is measured of an epoch."""

    def __init__(self, texts: pa.Table, parts: Experiment, ranks: bool, settings: Settings) -> None:
        self._parts, self._ranks = parts, ranks
        self._is_regression = _is_of_pairs(settings)
        self._queries = some_queries(parts.examples.development_queries, _EPOCH_QUERIES) if ranks else {}
        self._pool = np.setdiff1d(texts["key"].to_numpy(), np.array(list(parts.test_queries), np.int64))
        training = parts.examples.training
        rows = evenly(np.arange(len(training.labels)), _EPOCH_PAIRS)
        self._training = Pairs(*(column[rows] for column in training))
        self._texts = texts.filter(pa.array(np.isin(texts["key"].to_numpy(), self._wanted(settings))))

    def _wanted(self, settings: Settings) -> np.ndarray:
        """The questions that are read to measure an epoch: the pool is of no other part."""
        development = self._parts.examples.development
        wanted = [development.left, development.right]
        if self._is_regression:
            wanted += [self._training.left, self._training.right]
        if self._ranks:
            pool = sample_by_hash(self._pool, settings.training.development_pool)
            wanted += [pool, *map(_keys, self._queries.items())]
        return np.unique(np.concatenate(wanted))

    def measured(self, reader: Reader) -> Mapping[str, float]:
        """QUALITY, the accuracy on development pairs, and what figures 8 and 9 of Othman et al. draw."""
        ranker = _ranker(reader, self._texts)
        found: dict[str, float] = {}
        development = self._parts.examples.development
        if len(development.labels):
            scores = ranker.score(development.left, development.right)
            at_best = best_accuracy(scores, development.labels)[1]
            found = {QUALITY: at_best, "best_validation_accuracy": at_best}
            if self._is_regression:
                found |= _as_regression(ranker, development)
                found["training_accuracy"] = _accuracy(ranker, self._training)
        if self._queries:
            rankings = ranker.rank(np.array(list(self._queries), np.int64), _CUT)
            found[QUALITY] = retrieval_measures(rankings, list(self._queries.values()), _CUT)["map"]
        return found or {QUALITY: 0.0}


def _as_regression(ranker: EncoderRanker, pairs: Pairs) -> dict[str, float]:
    """The mean square error, and the accuracy of a threshold of 0.5."""
    error = ranker.score(pairs.left, pairs.right) - pairs.labels
    return {"validation_loss": float(np.mean(error**2)), "validation_accuracy": _accuracy(ranker, pairs)}


def _accuracy(ranker: EncoderRanker, pairs: Pairs) -> float:
    return accuracy(ranker.score(pairs.left, pairs.right), pairs.labels, 0.5)


def _keys(query: tuple[int, set[int]]) -> np.ndarray:
    return np.array([query[0], *query[1]], np.int64)
