"""A function as a judge in Python."""

import dupq
from dupq.api.result import Duplicates
from dupq.judging.prompt import Asked

TITLES = [
    "How do I cook rice without a pot?",
    "Cooking rice when there is no pot",
    "How do I bake bread without an oven?",
    "Baking bread when there is no oven",
    "Where can I buy tickets for the train to Rome?",
    "What is the best time of the year to plant garlic?",
    "Why does my bicycle chain fall off on the smallest gear?",
    "Can I take a guitar on board of a plane as hand luggage?",
]
RIGHT = {frozenset(TITLES[:2]), frozenset(TITLES[2:4])}


def test_it_is_asked_about_each_pair_once_and_moves_probabilities() -> None:
    calls: list[frozenset[str]] = []

    def judge(left: Asked, right: Asked) -> float:
        calls.append(frozenset({left.title, right.title}))
        return 97 if calls[-1] in RIGHT else 2

    before, after = (dupq.find_duplicates(TITLES, reranker=None, judge=given) for given in (None, judge))
    assert len(calls) == len(set(calls)) == len(before.pairs)

    def rows(found: Duplicates) -> dict[frozenset[str], float]:
        columns = ["title_left", "title_right", "probability"]
        return {frozenset({a, b}): p for a, b, p in zip(*found.pairs.arrow(columns).to_pydict().values(), strict=True)}

    moved = {pair: (p, rows(after)[pair]) for pair, p in rows(before).items()}
    for pair, (was, now) in moved.items():
        assert now > was if pair in RIGHT else now < was
