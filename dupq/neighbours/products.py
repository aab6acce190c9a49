"""Approximate ("quick") scores of whole blocks, each within a known margin of the exact one.

A cosine, and a weighted sum of a cosine of vectors and one of bags of words, is one product of two matrices: the unit
vectors beside the frequent words, each times the square root of its weight. The matrices are of float32 numbers, or of
bfloat16 numbers (by torch) if the processor multiplies these faster. Distances are computed from differences in
float32, since a product would lose small distances of long vectors.
"""

import functools
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy import sparse

from dupq.kernel_cache import numba as nb
from dupq.neighbours.candidates import GROUP, NO_REST, Rest
from dupq.neighbours.exact import MANHATTAN, Rule, Side
from dupq.system import is_installed

# Cosines of bags of words: frequent words are dimensions of the product, the others are added from lists (Rest), and
# nothing is left out. A word that a tenth of the questions have costs less as one more dimension than as a list that is
# read for each of these questions; nearly all other words are so rare that their lists are short.
#
# A word is multiplied if at least this share of the questions have it. For a pair of questions, a dimension of a
# product costs some 0.002 ns in bfloat16 tiles (AMX), 0.01 ns in bfloat16 and 0.02 ns in float32; an entry of a list
# 1 to 2 ns.
FREQUENT_FOR_TILES, FREQUENT_FOR_BFLOAT16, FREQUENT = 0.03, 0.06, 0.1


class Lexical(NamedTuple):
    """The bags of one side, as rows of unit length times a scale (float32)."""

    frequent: sparse.csr_array  # (n, words that are multiplied)
    rest: sparse.csr_array  # (n, other words that both sides have)


def lexical_parts(left: Side, right: Side, rule: Rule, least_share: float) -> tuple[Lexical | None, Lexical | None]:
    """Return both sides' bags over the words that both have; None if a side has no words or the rule ignores them.

    A word is frequent if its share of the questions, the geometric mean of both sides, is at least `least_share`.
    Memory: 8 bytes per word of each side's bags, and as much again while they are made.
    """
    if not (rule.lexical and len(left.words) and len(right.words)):
        return None, None
    scale = abs(rule.lexical) ** 0.5
    width = 1 + max(int(side.words.max(initial=-1)) for side in (left, right))
    shares = [np.bincount(side.words, minlength=width) / max(1, len(side.bag_squares)) for side in (left, right)]
    share = np.sqrt(shares[0] * shares[1])
    is_frequent = share >= least_share
    is_other = (share > 0) & ~is_frequent

    def of_side(side: Side) -> Lexical:
        return Lexical(*(_scaled_bags(side, scale, chosen) for chosen in (is_frequent, is_other)))

    first = of_side(left)
    return first, first if left is right else of_side(right)


def _scaled_bags(side: Side, scale: float, chosen: np.ndarray) -> sparse.csr_array:
    """Return the bags' entries of the chosen words (a mask), which become columns in their order."""
    is_chosen = chosen[side.words]
    starts = np.concatenate([np.zeros(1, np.int32), np.cumsum(is_chosen, dtype=np.int32)])[side.starts]
    factors = (scale / np.sqrt(np.where(side.bag_squares > 0, side.bag_squares, 1.0))).astype(np.float32)
    values = side.weights[is_chosen] * np.repeat(factors, np.diff(starts))
    columns = (np.cumsum(chosen, dtype=np.int32) - 1)[side.words[is_chosen]]
    return sparse.csr_array((values, columns, starts), shape=(len(factors), int(chosen.sum())))


STEP = 4  # dimensions that are summed at a time: a row of sums is read and written once for all of them


def columns_of(vectors: np.ndarray) -> np.ndarray:
    """Return vectors (n, d) as columns (float32, (d', n)); d' is d rounded up to a multiple of STEP, with zeros."""
    count, dimensions = vectors.shape
    result = np.zeros((-(-dimensions // STEP) * STEP, count), np.float32)
    result[:dimensions] = vectors.T
    return result


@nb.njit(nogil=True, cache=True, fastmath={"contract"})
def distances(left: np.ndarray, right: np.ndarray, is_manhattan: bool, result: np.ndarray) -> None:
    """Write the distances (float32) of the columns of `left` (d', m) and `right` (d', n) to `result` (m, n)."""
    dimensions, count = right.shape
    for row in range(left.shape[1]):
        sums = result[row, :count]
        sums[:] = np.float32(0)
        for start in range(0, dimensions, STEP):
            a, b, c, d = left[start, row], left[start + 1, row], left[start + 2, row], left[start + 3, row]
            p, q, r, s = right[start], right[start + 1], right[start + 2], right[start + 3]
            if is_manhattan:
                for column in range(count):
                    sums[column] += (abs(a - p[column]) + abs(b - q[column])) + (
                        abs(c - r[column]) + abs(d - s[column])
                    )
            else:
                for column in range(count):
                    w, x, y, z = a - p[column], b - q[column], c - r[column], d - s[column]
                    sums[column] += (w * w + x * x) + (y * y + z * z)
        if not is_manhattan:
            for column in range(count):
                sums[column] = np.sqrt(sums[column])


def longest_distance(left: np.ndarray, right: np.ndarray) -> float:
    """Return an upper bound on the distance, Manhattan or Euclidean, of any two rows."""
    return sum(float(np.abs(side).sum(axis=1).max(initial=0.0)) for side in (left, right))


def distance_margin(dimensions: int, longest: float) -> float:
    """Return the largest error of a distance of at most `longest`, summed in float32 in any order."""
    return 2.0 * (dimensions + 8) * 2.0**-24 * longest + 1e-30


# The margin of a product. Let a, b be the exact rows and a', b' the rounded ones. Then
# |<a, b> - <a', b'>| <= |a - a'| |b| + |a'| |b - b'| by Cauchy and Schwarz; rounding errors and lengths are measured
# when rows are rounded. Sums in float32 add gamma_n |a'| |b'| (Higham 2002, section 3.1), twice that as processors may
# flush and pair terms, and a result in bfloat16 2^-9 of itself. The lists of words add gamma_n of at most the product
# of the bags' lengths.

FLOAT32_ERROR = 2.0**-24
_ROWS_AT_ONCE = 4_096  # rows that are rounded at a time
_TINY = 1e-30
_SLACK = 1e-4


class Matrix(NamedTuple):
    """Rows (n, d) to be multiplied, the largest rounding error of a row, and the greatest length of one."""

    rows: Any  # an array or a tensor
    error: float
    length: float


def with_slack(error: float, length: float) -> tuple[float, float]:
    """Return the error and length of a Matrix from those beside its float32 rows, computed in float32."""
    longest = length * (1.0 + _SLACK)
    # the float32 rows themselves are within three roundings of the exact ones
    return error * (1.0 + _SLACK) + 4.0 * FLOAT32_ERROR * longest, longest


def margin(left: Matrix, right: Matrix, summed: float, result: float) -> float:
    """Return the largest error of a product.

    `summed` and `result` are the relative errors of each step of a sum and of the result.
    """
    one, other = left.length + left.error, right.length + right.error
    rounded = left.error * right.length + one * right.error
    return rounded + (2.0 * (left.rows.shape[1] + 2) * summed + result) * one * other + _TINY


def signs(rule: Rule, dimensions: int, width: int) -> np.ndarray | None:
    """Return the signs of the weights (float32, (width,)), by which left rows are multiplied; None if all are 1."""
    if rule.dense >= 0 and rule.lexical >= 0:
        return None
    result = np.ones(width, np.float32)
    result[:dimensions] = -1.0 if rule.dense < 0 else 1.0
    result[dimensions:] = -1.0 if rule.lexical < 0 else 1.0
    return result


class Products:
    """Quick scores of cosines, alone or mixed with bags of words.

    `margin` is the largest error of a quick score. `lists` has the words that a scan adds. Memory: a matrix per side.
    """

    result_error = FLOAT32_ERROR  # relative, of a product
    least_share = FREQUENT

    def __init__(self, left: Side, right: Side, rule: Rule) -> None:
        """Prepare the questions of two sides."""
        bags = lexical_parts(left, right, rule, self.least_share)
        self._left = self.matrix(left, bags[0], rule)
        self._right = self._left if left is right else self.matrix(right, bags[1], rule)
        self._signs = signs(rule, left.vectors.shape[1], self._left.rows.shape[1])
        self.lists = Lists(*bags, rule)
        self._buffer = np.empty(0, np.uint8)
        self.margin = margin(self._left, self._right, FLOAT32_ERROR, self.result_error) + self.lists.margin

    def matrix(self, side: Side, bags: Lexical | None, rule: Rule) -> Matrix:
        """Return a side's unit vectors times the square root of their weight, beside the frequent words of its bags."""
        count, dimensions = side.vectors.shape
        rows = np.empty((count, dimensions + (0 if bags is None else bags.frequent.shape[1])), np.float32)
        scales = (abs(rule.dense) ** 0.5 / np.sqrt(np.where(side.squares > 0, side.squares, 1.0))).astype(np.float32)
        longest = 0.0
        for start in range(0, count, _ROWS_AT_ONCE):
            batch = slice(start, start + _ROWS_AT_ONCE)
            np.multiply(side.vectors[batch], scales[batch, None], out=rows[batch, :dimensions])
            if bags is not None:
                rows[batch, dimensions:] = bags.frequent[batch].toarray()
            longest = max(longest, float(np.linalg.norm(rows[batch], axis=1).max()))
        return Matrix(rows, *with_slack(0.0, longest))

    def scores(self, rows: slice, columns: slice, width: int) -> np.ndarray:
        """Return the scores (rows, width) of a block: float32, or bfloat16 numbers as uint16.

        Columns beyond `columns` pad the last group with -inf. The next call overwrites the result.
        """
        left, right = self._left.rows[rows], self._right.rows[columns]
        if self._signs is not None:
            left = left * self._signs
        scores = self._room((len(left), width), np.float32)
        np.matmul(left, right.T, out=scores[:, : len(right)])
        scores[:, len(right) :] = -np.inf
        return scores

    def _room(self, shape: tuple[int, int], kind: npt.DTypeLike) -> np.ndarray:
        """Return an array in memory that every call reuses."""
        size = shape[0] * shape[1] * np.dtype(kind).itemsize
        if len(self._buffer) < size:
            self._buffer = np.empty(size, np.uint8)
        return self._buffer[:size].view(kind).reshape(shape)


class Bfloat16Products(Products):
    """Quick scores of cosines as products of bfloat16 numbers, with sums in float32."""

    result_error = 2.0**-9

    def __init__(self, left: Side, right: Side, rule: Rule) -> None:
        """Prepare the questions of two sides."""
        self.least_share = FREQUENT_FOR_TILES if _capabilities().get("amx_bf16") else FREQUENT_FOR_BFLOAT16
        super().__init__(left, right, rule)

    def matrix(self, side: Side, bags: Lexical | None, rule: Rule) -> Matrix:
        """Return a side's rows as Products.matrix does, rounded."""
        import torch

        count, dimensions = side.vectors.shape
        vectors, squares = torch.from_numpy(side.vectors), torch.from_numpy(side.squares)
        rows = torch.empty((count, dimensions + (0 if bags is None else bags.frequent.shape[1])), dtype=torch.bfloat16)
        scales = (abs(rule.dense) ** 0.5 / squares.where(squares > 0, 1.0).sqrt()).float()
        error, length = (torch.zeros(()) for _ in range(2))
        for start in range(0, count, _ROWS_AT_ONCE):
            batch = slice(start, min(start + _ROWS_AT_ONCE, count))
            near = vectors[batch] * scales[batch].unsqueeze(1)
            if bags is not None:
                near = torch.cat([near, torch.from_numpy(bags.frequent[batch].toarray())], dim=1)
            rounded = near.bfloat16()
            rows[batch] = rounded
            error = torch.maximum(error, (rounded.float() - near).norm(dim=1).max())
            length = torch.maximum(length, near.norm(dim=1).max())
        return Matrix(rows, *with_slack(float(error), float(length)))

    def scores(self, rows: slice, columns: slice, width: int) -> np.ndarray:
        """Return the scores of a block: bfloat16 numbers as uint16."""
        import torch

        left, right = self._left.rows[rows], self._right.rows[columns]
        if self._signs is not None:
            left = left * torch.from_numpy(self._signs).to(left.dtype)
        scores = torch.from_numpy(self._room((len(left), width), np.uint16)).view(torch.bfloat16)
        torch.mm(left, right.T, out=scores[:, : len(right)])  # much slower if `out` is a range of columns
        scores[:, len(right) :] = -torch.inf
        return scores.view(torch.uint16).numpy()


@functools.cache
def fastest_products() -> type[Products]:
    """Return the class for the numbers that this processor multiplies fastest."""
    has_bfloat16 = bool(_capabilities().get("avx512_bf16") or _capabilities().get("amx_bf16"))
    return Bfloat16Products if has_bfloat16 else Products


def _capabilities() -> Mapping[str, Any]:
    """Return what torch knows of this processor; nothing if torch is not installed."""
    if not is_installed("torch"):
        return {}
    import torch

    return torch.cpu.get_capabilities()


class Distances:
    """Quick scores of distances, alone or mixed with bags of words. Memory: 4 bytes per dimension of a question."""

    def __init__(self, left: Side, right: Side, rule: Rule) -> None:
        """Prepare the questions of two sides."""
        self._left = columns_of(left.vectors)
        self._right = self._left if left is right else columns_of(right.vectors)
        self._rule = rule
        self.lists = Lists(*lexical_parts(left, right, rule, np.inf), rule)
        error = distance_margin(left.vectors.shape[1], longest_distance(left.vectors, right.vectors))
        if not rule.is_distance:
            error = abs(rule.dense) * (error + 16 * FLOAT32_ERROR)  # the slope of exp is at most 1 here
        self.margin = error + self.lists.margin

    def scores(self, rows: slice, columns: slice, width: int) -> np.ndarray:
        """Return the scores (rows, width) of a block (float32); columns beyond `columns` are -inf."""
        left, right = (np.ascontiguousarray(side) for side in (self._left[:, rows], self._right[:, columns]))
        scores = np.full((left.shape[1], width), np.inf, np.float32)
        distances(left, right, self._rule.kind == MANHATTAN, scores)
        np.negative(scores, out=scores)
        if not self._rule.is_distance:
            inside = scores[:, : right.shape[1]]
            inside[:] = np.float32(self._rule.dense) * np.exp(inside)
        return scores


class Lists:
    """The words that are not multiplied; a scan adds their share of the scores."""

    def __init__(self, left: Lexical | None, right: Lexical | None, rule: Rule) -> None:
        """Either both sides have bags or neither."""
        self._left = self._right = None
        self.margin = 0.0
        if left is None or right is None or not (left.rest.nnz and right.rest.nnz):
            return
        self._left, self._right = left.rest, right.rest
        self._sign = -1.0 if rule.lexical < 0 else 1.0
        self._postings: dict[int, tuple[np.ndarray, np.ndarray, np.ndarray]] = {}
        longest = int(np.diff(self._left.indptr).max(initial=0))
        self.margin = (longest + 8) * FLOAT32_ERROR * 2.0 * (abs(rule.lexical) + abs(rule.dense))

    def between(self, rows: slice, columns: slice) -> Rest:
        """Return the lists of a block. Those of its columns are kept, as every block of rows needs them."""
        if self._left is None or self._right is None:
            return NO_REST
        if columns.start not in self._postings:
            right = self._right[columns].tocsc()
            indices = right.indices.astype(np.uint32)
            self._postings[columns.start] = right.indptr.astype(np.int32), indices, right.data
        starts = self._left.indptr[rows.start : rows.stop + 1].astype(np.int64)
        entries = slice(starts[0], starts[-1])
        words = self._left.indices[entries].astype(np.int32)
        weights = np.float32(self._sign) * self._left.data[entries]
        return Rest(starts - starts[0], words, weights, *self._postings[columns.start])


def padded(columns: int) -> int:
    """Return `columns` rounded up to a multiple of GROUP."""
    return -(-columns // GROUP) * GROUP
