"""Exact scores of single pairs, compiled, in float64: every decision of the search rests on these.

Embeddings are float16 numbers, multiples of 2^-24, so their products are multiples of 2^-48. A sum of such terms is
exact in float64, in any order, while it is less than 32, as sums of products of unit vectors always are. A pair
therefore has the same score in both directions, in any block, and on any machine.

The module also explains a score, and hashes embeddings so that a later run knows which have changed.
"""

from dataclasses import replace
from typing import NamedTuple

import numpy as np
from scipy import sparse

from dupq.kernel_cache import Integer, numba, read_only
from dupq.neighbours.embeddings import COSINE, Embeddings, Measure
from dupq.system import papers

_ANY_ORDER = {"reassoc", "nsz"}  # lets the compiler vectorise sums, which are exact in any order
_ODD = np.uint64(0x9E3779B97F4A7C15)
EMPTY = 0  # the fingerprint of a question with a zero vector and no words


def gpu_can_search(measure: Measure) -> bool:
    """Return whether GPUs search by this measure: CPUs do by other ones than cosines, and by negative weights."""
    return measure.kind == COSINE and measure.dense >= 0 and measure.lexical >= 0


class Side(NamedTuple):
    """One side of a block of pairs, for exact scores.

    `vectors` (n, d) float32, with their squared lengths `squares` (n,) float64. Bags of words: row i has `words`
    (ascending) and `weights` from `starts[i]` to `starts[i + 1]`, with squared lengths `bag_squares`.
    """

    vectors: np.ndarray
    squares: np.ndarray
    starts: np.ndarray
    words: np.ndarray
    weights: np.ndarray
    bag_squares: np.ndarray


def side_of(embeddings: Embeddings, measure: Measure) -> Side:
    """Return the questions of `embeddings`, which are finite, in their order."""
    vectors = np.ascontiguousarray(embeddings.vectors, np.float32)
    squares = np.einsum("ij,ij->i", vectors, vectors, dtype=np.float64)
    starts, words, weights = _bags(embeddings if measure.lexical else embeddings._replace(words=None))
    rows = len(vectors)
    bag_squares = np.bincount(np.repeat(np.arange(rows), np.diff(starts)), weights.astype(np.float64) ** 2, rows)
    # without any word they are integers, for which all would be recompiled
    return Side(vectors, squares, starts, words, weights, bag_squares.astype(np.float64))


def _bags(embeddings: Embeddings) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the `starts`, `words` and `weights` of a Side."""
    bags = embeddings.words
    if bags is None:
        bags = sparse.csr_array((len(embeddings.keys), 0), dtype=np.float32)
    elif not bags.has_sorted_indices:
        bags = bags.sorted_indices()
    return bags.indptr.astype(np.int64), bags.indices.astype(np.int32), bags.data.astype(np.float32)


class Scoring(NamedTuple):
    """Two sides, and the weights by which rows of one are scored with rows of the other; `scoring` makes one.

    `spread` (float32) has a zero for each word of either side. The bag of a row is laid out in it while that is scored.
    """

    left: Side
    right: Side
    dense: float
    lexical: float
    spread: np.ndarray


def scoring(left: Side, right: Side, measure: Measure) -> Scoring:
    """Return the Scoring of two sides by cosines. Memory: 4 bytes for each word up to the highest, if words count."""
    words = max(int(side.words.max(initial=-1)) for side in (left, right)) if measure.lexical else -1
    return Scoring(left, right, float(measure.dense), float(measure.lexical), np.zeros(words + 1, np.float32))


def pair_scores(
    measure: Measure, left: Embeddings, right: Embeddings, rows: tuple[np.ndarray, np.ndarray] | None = None
) -> np.ndarray:
    """Return the measure's scores (float64, (m,)) of pairs: row i of `left` and of `right` for each i, or `rows`."""
    one, other = (np.arange(len(left.keys)),) * 2 if rows is None else rows
    if measure.kind != COSINE:
        scores: np.ndarray = papers("distances")[0].pair_scores(measure.kind, left.vectors[one], right.vectors[other])
        return scores
    sides = scoring(side_of(left, measure), side_of(right, measure), measure)
    return exact_scores(sides, one.astype(np.int32), other.astype(np.int32))


@numba.njit(nogil=True, cache=True)
def exact_scores(sides: Scoring, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """Return the scores (float64) of rows `rows` of the left side with rows `columns` of the right; fastest by row."""
    scores = np.empty(len(rows), np.float64)
    start = 0
    while start < len(rows):
        stop = start + 1
        while stop < len(rows) and rows[stop] == rows[start]:
            stop += 1
        score_row(sides, np.int64(rows[start]), columns[start:stop], scores[start:stop])
        start = stop
    return scores


@numba.njit(nogil=True, cache=True)
def score_row(sides: Scoring, row: Integer, columns: np.ndarray, scores: np.ndarray) -> None:
    """Write the scores of a row of the left side with rows `columns` of the right to `scores`."""
    left, right, dense, lexical, spread = sides
    x, square, bag_square = left.vectors[row], left.squares[row], left.bag_squares[row]
    # arrays are taken out of their tuples before the loop: numba counts a reference to each at every access
    vectors, squares, starts, words, weights, bag_squares = right
    own_words = left.words[left.starts[row] : left.starts[row + 1]]
    own_weights = left.weights[left.starts[row] : left.starts[row + 1]]
    if lexical != 0.0:
        for index in range(len(own_words)):
            spread[own_words[index]] = own_weights[index]
    for index in range(len(columns)):
        column, score = columns[index], 0.0
        lengths = square * squares[column]
        if lengths > 0.0:
            score = dense * (_product(x, vectors[column]) / np.sqrt(lengths))
        bag_lengths = bag_square * bag_squares[column]
        if lexical != 0.0 and bag_lengths > 0.0:
            common = 0.0
            for entry in range(starts[column], starts[column + 1]):
                common += np.float64(spread[words[entry]] * weights[entry])  # exact, as in `_product`
            score += lexical * (common / np.sqrt(bag_lengths))
        scores[index] = score
    if lexical != 0.0:
        for word in own_words:
            spread[word] = 0.0


@numba.njit(nogil=True, cache=True, fastmath=_ANY_ORDER)
def _product(x: np.ndarray, y: np.ndarray) -> float:
    total = 0.0
    for index in range(len(x)):
        total += np.float64(x[index] * y[index])  # of float16 numbers: exact in float32
    return total


def explain_score(
    measure: Measure, embeddings: Embeddings, left: int, right: int
) -> tuple[float, float, list[tuple[int, float]]]:
    """Return the score of two rows of `embeddings`, its dense part, and the words (column, what it adds) of the rest.

    The words that add most come first; there are none without a lexical part.
    """
    sides = embeddings.take(slice(left, left + 1)), embeddings.take(slice(right, right + 1))
    score, dense = (
        float(pair_scores(replace(measure, lexical=lexical), *sides)[0]) for lexical in (measure.lexical, 0.0)
    )
    if embeddings.words is None or not measure.lexical:
        return score, dense, []
    bags = [embeddings.words[[row]].astype(np.float64) for row in (left, right)]
    length = float(np.sqrt(np.prod([bag.multiply(bag).sum() for bag in bags])))
    common = (bags[0].multiply(bags[1]) * (measure.lexical / length)).tocoo() if length else bags[0][:, :0].tocoo()
    added = zip(common.col.tolist(), common.data.tolist(), strict=True)
    return score, dense, sorted(added, key=lambda entry: (-entry[1], entry[0]))


def fingerprints(embeddings: Embeddings) -> np.ndarray:
    """Return a 64-bit hash (int64, (n,)) of each question's vector and bag of words; EMPTY if it has neither.

    Among 24 million questions one pair collides with probability 2e-5. That matters only if the two are the embeddings
    of one question, of yesterday and of today.
    """
    starts, words, weights = _bags(embeddings)
    vectors = read_only(np.ascontiguousarray(embeddings.vectors, np.float16).view(np.uint16))
    values = _hashes(vectors, starts, words, weights.view(np.uint32)).view(np.int64)
    return np.where(embeddings.is_empty, EMPTY, np.where(values == EMPTY, 1, values))


@numba.njit(nogil=True, cache=True)
def _hashes(vectors: np.ndarray, starts: np.ndarray, words: np.ndarray, weights: np.ndarray) -> np.ndarray:
    result = np.zeros(len(vectors), np.uint64)
    for row in range(len(vectors)):
        value = np.uint64(0)
        for bits in vectors[row]:
            value = _mix(value, np.uint64(bits))
        for index in range(starts[row], starts[row + 1]):
            value = _mix(value, np.uint64(words[index]) << np.uint64(32) | np.uint64(weights[index]))
        result[row] = value
    return result


@numba.njit(inline="always")
def _mix(value: np.uint64, bits: np.uint64) -> np.uint64:
    value = (value ^ bits) * _ODD
    return value ^ (value >> np.uint64(29))
