"""Measures as their definitions read, one query at a time."""

import math
from collections.abc import Sequence


def slow_measure(name: str, ranking: Sequence[int], relevant: set[int]) -> float:
    """The value of NAME@CUT for one query."""
    kind, _, cut = name.partition("@")
    hits = [question in relevant for question in ranking[: int(cut)]]
    if kind == "P":
        return sum(hits) / int(cut)
    if kind == "R":
        return sum(hits) / len(relevant)
    if kind == "Success":
        return float(any(hits))
    if kind == "RR":
        return next((1 / rank for rank, hit in enumerate(hits, 1) if hit), 0.0)
    if kind == "AP":
        return sum(sum(hits[:rank]) / rank for rank, hit in enumerate(hits, 1) if hit) / len(relevant)
    assert kind == "nDCG"
    ideal = sum(1 / math.log2(rank + 1) for rank in range(1, min(int(cut), len(relevant)) + 1))
    return sum(1 / math.log2(rank + 1) for rank, hit in enumerate(hits, 1) if hit) / ideal


def official_semeval(rankings: Sequence[Sequence[bool]], cut: int = 10) -> tuple[float, float, float]:
    """MAP, AvgRec and MRR as the scorer of SemEval-2016 and 2017 Task 3 computes them, step by step.

    Each ranking tells which of a question's candidates are relevant. A question without a relevant one adds nothing
    and is counted; average precision is over the relevant ones found; recall is pooled over the questions at each rank.
    """
    total_ap = total_rr = 0.0
    found, possible = [0.0] * cut, [0.0] * cut
    for labels in rankings:
        precisions, correct = [], 0
        for place in range(min(cut, len(labels))):
            if labels[place]:
                correct += 1
                precisions.append(correct / (place + 1))
                found[place] += 1
        if precisions:
            total_ap += sum(precisions) / len(precisions)
        for place in range(min(cut, len(labels))):
            if labels[place]:
                total_rr += 1 / (place + 1)
                break
        for place in range(cut):
            possible[place] += min(place + 1, sum(labels))
    for place in range(1, cut):
        found[place] += found[place - 1]
    recalls = [one / most for one, most in zip(found, possible, strict=True)]
    return total_ap / len(rankings), sum(recalls) / cut, total_rr / len(rankings)
