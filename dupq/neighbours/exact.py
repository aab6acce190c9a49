"""Exact scores of single pairs, in float64 and compiled: what decides, everywhere.

Embeddings are float16 numbers, so their products are exact in float64 and sums of some hundred of them nearly or
wholly so; sums are taken in one fixed order. A pair therefore has the same score in both directions, in any block, and
on any machine.
"""

from typing import NamedTuple

import numba as nb
import numpy as np

from dupq.encoders.measure import Measure
from dupq.errors import DupqError
from dupq.neighbours.embeddings import Embeddings

_LANES = 8
COSINE, MANHATTAN, EUCLIDEAN = 0, 1, 2
_KINDS = {"cosine": COSINE, "manhattan": MANHATTAN, "euclidean": EUCLIDEAN}


class Rule(NamedTuple):
    """A Measure as compiled code takes it. A distance alone is ordered by -distance and has no weights.

    exp(-distance) is no float32 number for most distances over 88, but they still have an order.
    """

    kind: int
    is_distance: bool
    dense: float
    lexical: float

    def similarities(self, scores: np.ndarray) -> np.ndarray:
        """The measure's scores (float32) of what these scores (float64) order."""
        return (np.exp(scores) if self.is_distance else scores).astype(np.float32)

    def order_of(self, similarity: float) -> float:
        """A score that nothing is under which has at least this similarity when that is rounded to float32."""
        if np.isinf(similarity):
            return similarity
        with np.errstate(divide="ignore"):
            score = float(np.log(max(similarity, 0.0))) if self.is_distance else similarity
        return score - 1e-6 * max(1.0, abs(score)) if np.isfinite(score) else -np.inf


def rule_of(measure: Measure) -> Rule:
    """The rule of a measure."""
    is_distance = measure.kind != "cosine" and (measure.dense, measure.lexical) == (1.0, 0.0)
    return Rule(_KINDS[measure.kind], is_distance, float(measure.dense), float(measure.lexical))


class Side(NamedTuple):
    """Some questions as exact scores are computed from them.

    `vectors` (n, d) float32 with `squares` (n,) float64, their squared lengths; bags of words: row i has `words` and
    `weights` from `starts[i]` to `starts[i + 1]`, words ascending, with squared lengths `bag_squares`.
    """

    vectors: np.ndarray
    squares: np.ndarray
    starts: np.ndarray
    words: np.ndarray
    weights: np.ndarray
    bag_squares: np.ndarray


def side_of(embeddings: Embeddings, rule: Rule) -> Side:
    """The questions of `embeddings`, in their order. Raises DupqError for vectors that are no finite numbers."""
    vectors = np.ascontiguousarray(embeddings.vectors, np.float32)
    squares = np.einsum("ij,ij->i", vectors, vectors, dtype=np.float64)
    if not np.isfinite(squares).all():
        raise DupqError(f"the embedding of question {embeddings.keys[~np.isfinite(squares)][0]} is not finite")
    rows = len(vectors)
    if not rule.lexical or embeddings.words is None:
        empty = np.zeros(0, np.float32)
        return Side(vectors, squares, np.zeros(rows + 1, np.int64), empty.astype(np.int32), empty, np.zeros(rows))
    bags = embeddings.words
    if not bags.has_sorted_indices:
        bags = bags.sorted_indices()
    weights = bags.data.astype(np.float32)
    counts = np.diff(bags.indptr)
    bag_squares = np.bincount(np.repeat(np.arange(rows), counts), weights.astype(np.float64) ** 2, minlength=rows)
    return Side(vectors, squares, bags.indptr.astype(np.int64), bags.indices.astype(np.int32), weights, bag_squares)


def pair_scores(measure: Measure, left: Embeddings, right: Embeddings) -> np.ndarray:
    """The measure's scores (float64, shape (m,)) of pairs: row i of `left` with row i of `right`."""
    rule, rows = rule_of(measure), np.arange(len(left.keys), dtype=np.int32)
    scores = exact_scores(rows, rows, side_of(left, rule), side_of(right, rule), rule)
    return np.exp(scores) if rule.is_distance else scores


@nb.njit(nogil=True, cache=True)
def exact_scores(rows, columns, left, right, rule):  # type: ignore[no-untyped-def]
    """The score (float64) of each pair: of row `rows[i]` of the side `left` and `columns[i]` of `right`."""
    scores = np.empty(len(rows), np.float64)
    for place in range(len(rows)):
        scores[place] = exact_score(left, right, rows[place], columns[place], rule)
    return scores


@nb.njit(nogil=True, cache=True)
def exact_score(left, right, i, j, rule):  # type: ignore[no-untyped-def]
    """The score (float64) of row `i` of the side `left` and row `j` of `right`."""
    kind, is_distance, dense, lexical = rule
    score = 0.0
    if dense != 0.0:
        total = _sum(left.vectors[i], right.vectors[j], kind)
        if kind == COSINE:
            squares = left.squares[i] * right.squares[j]
            score = dense * (total / np.sqrt(squares)) if squares > 0.0 else 0.0
        else:
            distance = total if kind == MANHATTAN else np.sqrt(total)
            score = -distance if is_distance else dense * np.exp(-distance)
    if lexical != 0.0:
        squares = left.bag_squares[i] * right.bag_squares[j]
        if squares > 0.0:
            score += lexical * (_common(left, right, i, j) / np.sqrt(squares))
    return score


@nb.njit(nogil=True, cache=True)
def _sum(x, y, kind):  # type: ignore[no-untyped-def]
    """The sum over dimensions of x y, |x - y| or (x - y)^2, in eight lanes."""
    a = b = c = d = e = f = g = h = 0.0
    whole = len(x) // _LANES * _LANES
    for start in range(0, whole, _LANES):
        p, q = x[start : start + _LANES], y[start : start + _LANES]
        a += _term(p[0], q[0], kind)
        b += _term(p[1], q[1], kind)
        c += _term(p[2], q[2], kind)
        d += _term(p[3], q[3], kind)
        e += _term(p[4], q[4], kind)
        f += _term(p[5], q[5], kind)
        g += _term(p[6], q[6], kind)
        h += _term(p[7], q[7], kind)
    for place in range(whole, len(x)):
        a += _term(x[place], y[place], kind)
    return ((a + b) + (c + d)) + ((e + f) + (g + h))


@nb.njit(inline="always")
def _term(x, y, kind):  # type: ignore[no-untyped-def]
    p, q = np.float64(x), np.float64(y)
    if kind == COSINE:
        return p * q
    return abs(p - q) if kind == MANHATTAN else (p - q) * (p - q)


@nb.njit(nogil=True, cache=True)
def _common(left, right, i, j):  # type: ignore[no-untyped-def]
    """The product of two bags of words."""
    place, stop = left.starts[i], left.starts[i + 1]
    other, other_stop = right.starts[j], right.starts[j + 1]
    total = 0.0
    while place < stop and other < other_stop:
        if left.words[place] == right.words[other]:
            total += np.float64(left.weights[place]) * np.float64(right.weights[other])
            place += 1
            other += 1
        elif left.words[place] < right.words[other]:
            place += 1
        else:
            other += 1
    return total
