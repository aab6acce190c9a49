"""Exact scores of single pairs, compiled, in float64: every decision of the search rests on these.

Embeddings are float16 numbers, multiples of 2^-24, so their products are multiples of 2^-48, and a sum whose terms
come to less than 32 is exact in float64, whatever their order: sums of products of unit vectors always are, and so are
sums of absolute differences. A pair therefore has the same score in both directions, in any block, and on any machine.
(Euclidean distances of long vectors are rounded, and their last bits depend on the machine's SIMD width.)

Beside them what a score is made of, and a hash of each embedding, by which a later run knows which have changed.
"""

from typing import NamedTuple

import numpy as np
from scipy import sparse

from dupq.errors import DupqError
from dupq.kernel_cache import numba as nb
from dupq.neighbours.embeddings import Embeddings, Measure

COSINE, MANHATTAN, EUCLIDEAN = 0, 1, 2
_KINDS = {"cosine": COSINE, "manhattan": MANHATTAN, "euclidean": EUCLIDEAN}


class Rule(NamedTuple):
    """A Measure as compiled code takes it. A distance alone is ordered by -distance and has no weights.

    exp(-distance) underflows float32 for most distances above 88, but they still have an order.
    """

    kind: int
    is_distance: bool
    dense: float
    lexical: float

    def similarities(self, scores: np.ndarray) -> np.ndarray:
        """The measure's similarities (float32) for scores (float64) that neighbours are ordered by."""
        return (np.exp(scores) if self.is_distance else scores).astype(np.float32)

    def lowest_score(self, similarity: float) -> float:
        """A lower bound on the score of any pair whose similarity, rounded to float32, is at least this."""
        if np.isinf(similarity):
            return similarity
        with np.errstate(divide="ignore"):
            score = float(np.log(max(similarity, 0.0))) if self.is_distance else similarity
        return score - 1e-6 * max(1.0, abs(score)) if np.isfinite(score) else -np.inf


def gpu_can_search(measure: Measure) -> bool:
    """Whether GPUs search by this measure: negative weights are left to CPUs, and so is a distance with a weight."""
    rule = rule_of(measure)
    return rule.is_distance or (rule.kind == COSINE and rule.dense >= 0 and rule.lexical >= 0)


def rule_of(measure: Measure) -> Rule:
    """The rule of a measure."""
    is_distance = measure.kind != "cosine" and (measure.dense, measure.lexical) == (1.0, 0.0)
    return Rule(_KINDS[measure.kind], is_distance, float(measure.dense), float(measure.lexical))


class Side(NamedTuple):
    """One side of a block of pairs, as exact scores are computed from it.

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
    """The questions of `embeddings`, in their order. Raises DupqError for vectors that are not finite."""
    vectors = np.ascontiguousarray(embeddings.vectors, np.float32)
    squares = np.einsum("ij,ij->i", vectors, vectors, dtype=np.float64)
    if not np.isfinite(squares).all():
        raise DupqError(f"the embedding of key {embeddings.keys[~np.isfinite(squares)][0]} is not finite")
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
def exact_scores(rows: np.ndarray, columns: np.ndarray, left: Side, right: Side, rule: Rule) -> np.ndarray:
    """The score (float64) of each pair: of row `rows[i]` of the side `left` and `columns[i]` of `right`."""
    scores = np.empty(len(rows), np.float64)
    for place in range(len(rows)):
        scores[place] = exact_score(left, right, rows[place], columns[place], rule)
    return scores


@nb.njit(nogil=True, cache=True)
def exact_score(left: Side, right: Side, i: int, j: int, rule: Rule) -> float:
    """The score (float64) of row `i` of the side `left` and row `j` of `right`."""
    squares, bag_squares = left.squares[i] * right.squares[j], left.bag_squares[i] * right.bag_squares[j]
    common = _common(left, right, i, j) if rule.lexical != 0.0 else 0.0
    return _mixed(rule, left.vectors[i], right.vectors[j], squares, common, bag_squares)


class Scoring(NamedTuple):
    """What rows of the side `mine` are scored from, each with several of `theirs`: `scoring` makes one.

    `spread` has a place (float32) for each word of either side, all zeros but while a row is scored.
    """

    mine: Side
    theirs: Side
    rule: Rule
    spread: np.ndarray


def scoring(mine: Side, theirs: Side, rule: Rule) -> Scoring:
    """See Scoring. Memory: 4 bytes for each word up to the highest of either side, if the rule has a lexical part."""
    words = max(int(side.words.max(initial=-1)) for side in (mine, theirs)) if rule.lexical else -1
    return Scoring(mine, theirs, rule, np.zeros(words + 1, np.float32))


@nb.njit(nogil=True, cache=True)
def score_row(pairs: Scoring, row: int, others: np.ndarray, scores: np.ndarray) -> None:
    """Put into `scores` those of a row with `others`: `exact_score`'s, faster, as the row's bag is laid out once."""
    mine, theirs, rule, spread = pairs
    x, square, bag_square = mine.vectors[row], mine.squares[row], mine.bag_squares[row]
    # arrays are taken out of their tuples before the loop: a reference to each is counted each time
    vectors, squares, starts, words, weights, bag_squares = theirs
    my_words = mine.words[mine.starts[row] : mine.starts[row + 1]]
    if rule.lexical != 0.0:
        my_weights = mine.weights[mine.starts[row] : mine.starts[row + 1]]
        for place in range(len(my_words)):
            spread[my_words[place]] = my_weights[place]
    for index in range(len(others)):
        other, common = others[index], 0.0
        if rule.lexical != 0.0:  # `_common`'s terms in its order, and zeros between them
            for place in range(starts[other], starts[other + 1]):
                common += np.float64(spread[words[place]] * weights[place])  # exact, see `_product`
        lengths, bag_lengths = square * squares[other], bag_square * bag_squares[other]
        scores[index] = _mixed(rule, x, vectors[other], lengths, common, bag_lengths)
    if rule.lexical != 0.0:
        for word in my_words:
            spread[word] = 0.0


@nb.njit(nogil=True, cache=True)
def _mixed(rule: Rule, x: np.ndarray, y: np.ndarray, squares: float, common: float, bag_squares: float) -> float:
    """The score of two rows whose bags have the product `common`; `squares`: the products of squared lengths."""
    kind, is_distance, dense, lexical = rule
    score = 0.0
    if dense != 0.0:
        if kind == COSINE:
            score = dense * (_product(x, y) / np.sqrt(squares)) if squares > 0.0 else 0.0
        else:
            distance = _manhattan(x, y) if kind == MANHATTAN else _euclidean(x, y)
            score = -distance if is_distance else dense * np.exp(-distance)
    if lexical != 0.0 and bag_squares > 0.0:
        score += lexical * (common / np.sqrt(bag_squares))
    return score


_ANY_ORDER = {"reassoc", "nsz"}  # of sums, so that the compiler takes many terms at a time


@nb.njit(nogil=True, cache=True, fastmath=_ANY_ORDER)
def _product(x: np.ndarray, y: np.ndarray) -> float:
    total = 0.0
    for place in range(len(x)):
        total += np.float64(x[place] * y[place])  # of float16 numbers: exact in float32
    return total


@nb.njit(nogil=True, cache=True, fastmath=_ANY_ORDER)
def _manhattan(x: np.ndarray, y: np.ndarray) -> float:
    total = 0.0
    for place in range(len(x)):
        total += abs(np.float64(x[place]) - np.float64(y[place]))
    return total


@nb.njit(nogil=True, cache=True, fastmath=_ANY_ORDER)
def _euclidean(x: np.ndarray, y: np.ndarray) -> float:
    total = 0.0
    for place in range(len(x)):
        difference = np.float64(x[place]) - np.float64(y[place])
        total += difference * difference
    return np.sqrt(total)


@nb.njit(nogil=True, cache=True)
def _common(left: Side, right: Side, i: int, j: int) -> float:
    """The dot product of two bags of words."""
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


def parts_of(
    measure: Measure, embeddings: Embeddings, left: int, right: int
) -> tuple[float, float, list[tuple[int, float]]]:
    """The score of two rows of `embeddings`, its dense part, and what each word adds (none without a lexical part).

    Words are columns of the bags, those that add most first.
    """
    sides = embeddings.take(slice(left, left + 1)), embeddings.take(slice(right, right + 1))
    score, dense = (
        float(pair_scores(Measure(measure.kind, measure.dense, lexical), *sides)[0])
        for lexical in (measure.lexical, 0.0)
    )
    if embeddings.words is None or not measure.lexical:
        return score, dense, []
    one, other = (embeddings.words[[row]].astype(np.float64) for row in (left, right))
    length = float(np.sqrt(one.multiply(one).sum() * other.multiply(other).sum()))
    both = (one.multiply(other) * (measure.lexical / length)).tocoo() if length else one[:, :0].tocoo()
    found = zip(both.col.tolist(), both.data.tolist(), strict=True)
    return score, dense, sorted(found, key=lambda entry: (-entry[1], entry[0]))


_ODD = np.uint64(0x9E3779B97F4A7C15)
EMPTY = 0  # of a question with a zero vector and no words


def fingerprints(embeddings: Embeddings) -> np.ndarray:
    """64 bits (int64, (n,)) a question, of its vector and its bag of words: of 24 million, one pair collides with
    probability 2e-5, and then only matters if it is one question's embedding of yesterday and of today.
    """
    bags = embeddings.words
    if bags is None:
        bags = sparse.csr_array((len(embeddings.keys), 0), dtype=np.float32)
    elif not bags.has_sorted_indices:
        bags = bags.sorted_indices()
    vectors = np.ascontiguousarray(embeddings.vectors, np.float16).view(np.uint16)
    weights = bags.data.astype(np.float32).view(np.uint32)
    values = _hashes(vectors, bags.indptr.astype(np.int64), bags.indices.astype(np.int32), weights).view(np.int64)
    return np.where(embeddings.is_empty, EMPTY, np.where(values == EMPTY, 1, values))


@nb.njit(nogil=True, cache=True)
def _hashes(vectors: np.ndarray, starts: np.ndarray, words: np.ndarray, weights: np.ndarray) -> np.ndarray:
    result = np.zeros(len(vectors), np.uint64)
    for row in range(len(vectors)):
        value = np.uint64(0)
        for bits in vectors[row]:
            value = _fingerprints_mixed(value, np.uint64(bits))
        for place in range(starts[row], starts[row + 1]):
            value = _fingerprints_mixed(value, np.uint64(words[place]) << np.uint64(32) | np.uint64(weights[place]))
        result[row] = value
    return result


@nb.njit(inline="always")
def _fingerprints_mixed(value: np.uint64, bits: np.uint64) -> np.uint64:
    value = (value ^ bits) * _ODD
    return value ^ (value >> np.uint64(29))
