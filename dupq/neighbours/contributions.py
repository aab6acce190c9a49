"""What the score of a pair is made of: the dense part, and what each word adds to the lexical one."""

from typing import NamedTuple

import numpy as np

from dupq.neighbours.embeddings import Embeddings
from dupq.neighbours.exact import pair_scores
from dupq.neighbours.measure import Measure


class Parts(NamedTuple):
    """`score` is `dense` and all words' contributions together."""

    score: float
    dense: float
    words: list[tuple[int, float]]  # columns of the bags, those that add most first


def parts_of(measure: Measure, embeddings: Embeddings, left: int, right: int) -> Parts:
    """The parts of the score of two rows of `embeddings`."""
    sides = embeddings.take(slice(left, left + 1)), embeddings.take(slice(right, right + 1))
    score, dense = (
        float(pair_scores(Measure(measure.kind, measure.dense, lexical), *sides)[0])
        for lexical in (measure.lexical, 0.0)
    )
    return Parts(score, dense, contributions(measure, embeddings, left, right))


def contributions(measure: Measure, embeddings: Embeddings, left: int, right: int) -> list[tuple[int, float]]:
    """The words of both rows with what they add to the score, the highest first; none without a lexical part."""
    if embeddings.words is None or not measure.lexical:
        return []
    one, other = (_bag(embeddings, row) for row in (left, right))
    length = float(np.sqrt(_squares(one) * _squares(other)))
    found = [(word, measure.lexical * weight * other[word] / length) for word, weight in one.items() if word in other]
    return sorted(found, key=lambda entry: (-entry[1], entry[0]))


def _bag(embeddings: Embeddings, row: int) -> dict[int, float]:
    bags = embeddings.words
    assert bags is not None
    some = slice(bags.indptr[row], bags.indptr[row + 1])
    return dict(zip(bags.indices[some].tolist(), bags.data[some].astype(np.float64).tolist(), strict=True))


def _squares(bag: dict[int, float]) -> float:
    return float(np.square(list(bag.values())).sum())
