"""The data sets of the experiments in memory, and their parts: what is learned from, and what is measured on."""

import functools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from dupq.errors import DupqError
from dupq.links import Split, split_links
from dupq.settings.sections import TextSettings, TrainingSettings
from dupq.tables import TEXTS
from dupq_papers.data import pair_sets
from dupq_papers.data.examples import ExampleSettings, Experiment, experiment, official_experiment
from dupq_papers.data.pair_sets import PairSet
from dupq_papers.data.semeval import Original, read_csv, read_xml
from dupq_papers.data.semeval_scores import Candidates
from dupq_papers.experiments.settings import searched_text
from dupq_papers.experiments.sources import Source, is_test_file
from dupq_papers.systems.bm25 import BM25
from dupq_papers.systems.collection import Collection
from dupq_papers.systems.term_counts import term_counts

_HELD = 2  # data sets that a worker keeps
_CANDIDATES = 10
_MOST_KNOWN = 5
_DEPTH = 100
_EVERY = 5  # of SemEval's training questions, one is tuned on


@dataclass(frozen=True)
class Given:
    """The candidates that a data set gives, of each of its parts."""

    training: list[Candidates]
    development: list[Candidates]
    test: list[Candidates]


@dataclass(frozen=True)
class DataSet:
    """Questions, read in one way, and what is known of their pairs."""

    known: PairSet
    given: Given | None

    @property
    def collection(self) -> Collection:
        """The questions."""
        return self.known.collection

    @property
    def texts(self) -> pa.Table:
        """The questions as rows of TEXTS, sorted by key."""
        columns = [pa.array(self.collection.keys), self.collection.titles, self.collection.texts]
        return pa.table(columns, schema=TEXTS)

    def split(self) -> Split:
        """The sets of known duplicates, in parts."""
        split = split_links(self.known.labels.duplicates, TrainingSettings())
        if self.given is None:
            return split
        tested = [np.concatenate([[one.query], one.keys]) for one in self.given.test]
        tuned = [np.concatenate([[one.query], one.keys]) for one in self.given.development]
        parts = np.full(len(split.questions), "train", split.parts.dtype)
        for part, questions in (("development", tuned), ("test", tested)):
            parts[np.isin(split.questions, np.concatenate([np.zeros(0, np.int64), *questions]))] = part
        return Split(split.questions, split.sets, parts)


def parts_of(data: DataSet, limits: ExampleSettings) -> Experiment:
    """What systems learn from, are tuned on and are measured on. Raises DupqError where a part has too few pairs."""
    if data.given is None:
        made = experiment(data.known, limits)
    else:
        made = official_experiment(data.given.training, data.given.development, data.given.test)
    learned, tuned, tested = made.examples.training.labels, made.examples.development.labels, made.test.labels
    if len(np.unique(learned)) < 2 or not len(tuned) or not len(tested):
        raise DupqError(
            f"too few known pairs: {int(learned.sum())} duplicates and {int((learned == 0).sum())} others to learn "
            f"from, {len(tuned)} pairs to tune on, {len(tested)} to measure on"
        )
    return made


def training_pairs(source: Source) -> int:
    """How many pairs of a label can be learned from, of that which has more: a limit above it leaves none out."""
    labels = parts_of(read(source, searched_text(source)), ExampleSettings()).examples.training.labels
    return int(max(np.sum(labels > 0.5), np.sum(labels < 0.5)))


@functools.lru_cache(maxsize=_HELD)
def read(source: Source, text: TextSettings) -> DataSet:
    """The data set, whole. Raises DupqError for what is missing or damaged."""
    match source.kind:
        case "site":
            return DataSet(pair_sets.archive(source.files[0], source.files[1], text), None)
        case "questions":
            return DataSet(pair_sets.quora(source.files[0], source.files[1], text), None)
        case "pairs":
            return DataSet(pair_sets.arabic(source.files[0], text), None)
        case "semeval":
            return _semeval(source, text)


def _semeval(source: Source, text: TextSettings) -> DataSet:
    training: list[Original] = []
    test: list[Original] = []
    for uri in source.files:
        originals = read_csv(uri) if uri.lower().endswith(".csv") else read_xml(uri)
        (test if is_test_file(uri) else training).extend(originals)
    known, candidates = pair_sets.semeval([*training, *test], text)
    learned, tested = candidates[: len(training)], candidates[len(training) :]
    tuned = learned[::_EVERY]
    rest = [one for place, one in enumerate(learned) if place % _EVERY]
    return DataSet(known, Given(rest, tuned, tested))


@functools.lru_cache(maxsize=_HELD)
def candidates_of(source: Source, limits: ExampleSettings) -> list[Candidates]:
    """Ten candidates of each test query, in the order of a search engine: the same ones for every system.

    Where the data set gives none, they are up to five known duplicates, and those that BM25 ranks best of the others,
    in its order; known duplicates that it does not rank come last.
    """
    data = read(source, searched_text(source))
    if data.given is not None:
        return data.given.test
    parts = parts_of(data, limits)
    engine = BM25(term_counts(data.collection))
    queries = np.array(sorted(parts.test_queries), np.int64)
    ranked = engine.rank(queries, _DEPTH)
    return [
        _candidates(query, found, parts.test_queries[query])
        for query, found in zip(queries.tolist(), ranked, strict=True)
    ]


def _candidates(query: int, ranked: Sequence[int], known: set[int]) -> Candidates:
    right = sorted(known)[:_MOST_KNOWN]
    others = [one for one in ranked if one not in known][: _CANDIDATES - len(right)]
    kept = set(right).union(others)
    found = [one for one in ranked if one in kept]
    keys = np.array(found + [one for one in right if one not in found], np.int64)
    return Candidates(query, keys, np.isin(keys, right))
