"""The choice of parameters on the development part."""

from collections.abc import Iterator

import numpy as np
import pytest

from dupq.training.pairs import Pairs
from dupq_papers.systems.tuning import accuracy_at_best_threshold, best_of, mean_average_precision


class Ranks:
    """Answers each query with the same keys."""

    def __init__(self, *keys: int) -> None:
        self.keys = list(keys)

    def rank(self, queries: np.ndarray, k: int) -> list[list[int]]:
        return [self.keys[:k] for _ in queries]


class Scores:
    """Scores pairs by the distance of their keys."""

    def __init__(self, power: int) -> None:
        self.power = power

    def score(self, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        return -(np.abs(left - right).astype(float) ** self.power) + 1.0


def test_the_best_mean_average_precision_on_the_queries_is_chosen() -> None:
    measure = mean_average_precision({1: {7}, 2: {8, 9}}, k=3)
    best = best_of([("a", Ranks(5, 7, 8)), ("b", Ranks(8, 7, 9)), ("c", Ranks(7, 5, 6))], measure)
    assert (best.parameters, best.system.keys) == ("b", [8, 7, 9])
    assert best.value == pytest.approx((1 / 2 + (1 + 2 / 3) / 2) / 2)


def test_the_best_accuracy_at_its_own_threshold_is_chosen() -> None:
    pairs = Pairs(np.array([1, 1, 1, 1]), np.array([2, 3, 6, 9]), np.array([1, 1, 0, 0], np.float32))
    measure = accuracy_at_best_threshold(pairs)
    best = best_of([({"power": 0}, Scores(0)), ({"power": 1}, Scores(1)), ({"power": 2}, Scores(2))], measure)
    assert (best.parameters, best.value) == ({"power": 1}, 1.0)  # the first of two that are equally good
    assert measure(Scores(0)) == 0.5


def test_systems_are_made_one_by_one() -> None:
    made: list[int] = []

    def candidates() -> Iterator[tuple[int, int]]:
        for number in range(3):
            made.append(number)
            yield number, number

    assert best_of(candidates(), lambda number: len(made) - number).parameters == 0
    with pytest.raises(ValueError, match="empty"):
        best_of([], len)
