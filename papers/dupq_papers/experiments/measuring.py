"""What is measured of a part: its system on the test part of its data set, with a value for each pair or query."""

import time
from collections.abc import Callable, Mapping

import numpy as np

from dupq.evaluation.measures import best_threshold
from dupq.settings.config import Settings
from dupq.training.pairs import Pairs
from dupq.training.word_vectors import WordVectors
from dupq_papers.data.examples import Experiment
from dupq_papers.data.query_measures import query_measures
from dupq_papers.data.semeval_scores import Candidates, official_average_precisions, reranked
from dupq_papers.experiments.data_sets import candidates_of, parts_of, read
from dupq_papers.experiments.fitting import Fitted, Material, fitted
from dupq_papers.experiments.networks import Taught, fitted_network
from dupq_papers.experiments.results import Result
from dupq_papers.experiments.rows import PRESET, Part, VectorSource, source_of
from dupq_papers.experiments.settings import limits_of, settings_of
from dupq_papers.experiments.sources import Source

_CUT = 100
_RANKING = {
    "accuracy_at_1": "Success@1",
    "accuracy_at_5": "Success@5",
    "accuracy_at_10": "Success@10",
    "precision_at_5": "P@5",
    "precision_at_10": "P@10",
    "recall_at_10": "R@10",
    "map": f"AP@{_CUT}",
    "mrr": f"RR@{_CUT}",
    "ndcg_at_10": "nDCG@10",
}


Drawn = Callable[[], list[Candidates]]  # the candidates of the test queries
# The word vectors of a source by settings; data sets are given by their names
Vectors = Callable[[VectorSource, Settings], WordVectors]


def measure(part: Part, sources: Mapping[str, Source], vectors: Vectors) -> Result:
    """The result of a part."""
    start = time.monotonic()
    settings = settings_of(part, sources[part.data])
    tested = read(sources[part.data], settings.text)
    limits = limits_of(part)
    parts = parts_of(tested, limits)
    caps: dict[str, int] = {}  # of word vectors

    def noted(source: VectorSource, settings: Settings) -> WordVectors:
        found = vectors(source, settings)
        caps.update(found.caps)
        return found

    system = _fitted(part, sources, settings, Taught(tested, parts), noted)
    each = _MEASURED[part.task](system, parts, lambda: candidates_of(sources[part.data], limits))
    values = {name: float(np.mean(column)) for name, column in each.items() if len(column)}
    values |= _of_curve(system) | _validation(part, system, parts)
    return {
        "values": values,
        "each": {name: np.asarray(column, float).round(6).tolist() for name, column in each.items()},
        "parameters": dict(system.parameters),
        "curve": [dict(row) for row in system.curve],
        "sizes": {
            "questions": len(tested.collection.keys),
            "training_pairs": system.training_pairs,
            "development_pairs": len(parts.examples.development.labels),
            "test_pairs": len(parts.test.labels),
            "test_queries": len(parts.test_queries),
        },
        "counts": {name: count for name, count in (parts.counts | caps).items() if count},
        "seconds": round(time.monotonic() - start, 1),
    }


def _fitted(part: Part, sources: Mapping[str, Source], settings: Settings, tested: Taught, vectors: Vectors) -> Fitted:
    ranks, source = part.task != "pairs", source_of(part)
    if not part.system.startswith(PRESET):
        given = Material(tested.data.collection, settings, tested.parts, ranks, lambda: vectors(source, settings))
        return fitted(part.system, given)
    taught = tested
    if part.trained_on == "other":
        other = read(sources[part.learned_from], settings.text)
        taught = Taught(other, parts_of(other, limits_of(part)))
    return fitted_network(taught, tested.data, settings, vectors(source, settings), ranks)


def _test_pairs(system: Fitted, parts: Experiment, drawn: Drawn) -> dict[str, np.ndarray]:
    """Which test pairs are called right, by the threshold of the development pairs unless the system has its own."""
    return {"test_accuracy": _is_right(system, parts.test, _threshold(system, parts))} if len(parts.test.labels) else {}


def _test_queries(system: Fitted, parts: Experiment, drawn: Drawn) -> dict[str, np.ndarray]:
    queries = np.array(list(parts.test_queries), np.int64)
    rankings = system.system.rank(queries, _CUT)
    found = query_measures(rankings, list(parts.test_queries.values()), list(_RANKING.values()))
    return {name: found[measure] for name, measure in _RANKING.items()}


def _test_candidates(system: Fitted, parts: Experiment, drawn: Drawn) -> dict[str, np.ndarray]:
    """The ten candidates of each query, by the official scorer's definition."""
    rankings = reranked(drawn(), system.system.score)
    return {"map": official_average_precisions(rankings)}


_MEASURED: dict[str, Callable[[Fitted, Experiment, Drawn], dict[str, np.ndarray]]] = {
    "pairs": _test_pairs,
    "ranking": _test_queries,
    "candidates": _test_candidates,
}


def _validation(part: Part, system: Fitted, parts: Experiment) -> dict[str, float]:
    development = parts.examples.development
    if part.task != "pairs" or not len(development.labels):
        return {}
    return {"validation_accuracy": float(np.mean(_is_right(system, development, _threshold(system, parts))))}


def _threshold(system: Fitted, parts: Experiment) -> float:
    """The system's own, or the best on training pairs: a network has fitted those, so on development pairs for it."""
    if system.threshold is not None:
        return system.threshold
    pairs = parts.examples.development if system.curve else parts.examples.training
    return best_threshold(system.system.score(pairs.left, pairs.right), pairs.labels)


def _is_right(system: Fitted, pairs: Pairs, threshold: float) -> np.ndarray:
    scores = system.system.score(pairs.left, pairs.right)
    right: np.ndarray = (scores >= threshold) == (pairs.labels > 0.5)
    return right.astype(float)


def _of_curve(system: Fitted) -> dict[str, float]:
    """What the last epoch reached, for the figures that are drawn over epochs."""
    names = ("loss", "training_accuracy", "validation_loss", "validation_accuracy")
    last = system.curve[-1] if system.curve else {}
    return {name: last[name] for name in names if name in last}
