"""The choice of a system's parameters on the development part."""

from collections.abc import Callable, Iterable, Mapping
from typing import Generic, NamedTuple, Protocol, TypeVar

import numpy as np

from dupq.evaluation.measures import best_accuracy, retrieval_measures
from dupq.training.pairs import Pairs

Parameters = TypeVar("Parameters")
System = TypeVar("System")


class Ranks(Protocol):
    """What can be tuned on queries: see Ranker."""

    def rank(self, queries: np.ndarray, k: int) -> list[list[int]]:
        """See Ranker."""
        ...


class Scores(Protocol):
    """What can be tuned on pairs: see Ranker."""

    def score(self, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        """See Ranker."""
        ...


class Tried(NamedTuple, Generic[Parameters, System]):
    """A system, its parameters and its value on the development part."""

    parameters: Parameters
    system: System
    value: float


def best_of(
    candidates: Iterable[tuple[Parameters, System]], measure: Callable[[System], float]
) -> Tried[Parameters, System]:
    """The one of `candidates` with the highest `measure`, of several such the first.

    They may be made one by one: beside the new one only the best so far is kept. Raises ValueError if there is none.
    """
    tried = (Tried(parameters, system, measure(system)) for parameters, system in candidates)
    return max(tried, key=lambda one: one.value)


def mean_average_precision(queries: Mapping[int, set[int]], k: int) -> Callable[[Ranks], float]:
    """The measure for ranking systems: MAP@k over questions and their known duplicates (keys)."""
    keys = np.array(sorted(queries), np.int64)
    relevant = [queries[key] for key in keys.tolist()]
    return lambda system: retrieval_measures(system.rank(keys, k), relevant, k)["map"]


def accuracy_at_best_threshold(pairs: Pairs) -> Callable[[Scores], float]:
    """The measure for pair systems: the accuracy on `pairs` at the threshold that is best there."""
    return lambda system: best_accuracy(system.score(pairs.left, pairs.right), pairs.labels)[1]
