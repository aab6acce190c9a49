"""Approximate ("quick") scores of whole blocks, each within a known margin of the exact one.

A cosine, and a weighted sum of a cosine of vectors and one of bags of words, is one product of two matrices: the unit
vectors next to the frequent words, each times the square root of its weight. The matrices are of float32 numbers, or of
bfloat16 numbers (by torch) if the processor multiplies these faster.
"""

import functools
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy import sparse

from dupq.neighbours.candidates import GROUP, NO_REST, Rest
from dupq.neighbours.embeddings import Measure
from dupq.neighbours.exact import Side
from dupq.system import is_installed

# Cosines of bags of words: frequent words are dimensions of the product, the others are added from lists (Rest), and
# nothing is left out. A word that a tenth of the questions have costs less as one more dimension than as a list that is
# read for each of these questions; nearly all other words are so rare that their lists are short.
#
# A word is multiplied if at least this share of the questions have it. For a pair of questions, a dimension of a
# product costs some 0.002 ns in bfloat16 tiles (AMX), 0.01 ns in bfloat16 and 0.02 ns in float32; an entry of a list
# 1 to 2 ns.
FREQUENT_FOR_TILES, FREQUENT_FOR_BFLOAT16, FREQUENT = 0.03, 0.06, 0.1


def divided_bags(left: Side, right: Side, measure: Measure, least_share: float) -> list[list[sparse.csr_array]]:
    """Return for each side the frequent words of its bags, and the other words that both sides have.

    Bags are rows of unit length times the root of the measure's weight; those of the left side have its sign. A word is
    frequent if its share of the questions, the geometric mean of both sides, is at least `least_share`. Memory: 8 bytes
    per word of each side's bags, and as much again while they are made.
    """
    width = 1 + max(int(side.words.max(initial=-1)) for side in (left, right))
    shares = [np.bincount(side.words, minlength=width) / max(1, len(side.bag_squares)) for side in (left, right)]
    share = np.sqrt(shares[0] * shares[1])
    is_frequent = share >= least_share
    is_other = (share > 0) & ~is_frequent
    root, divided = abs(measure.lexical) ** 0.5, []
    for side, scale in ((left, np.copysign(root, measure.lexical)), (right, root)):
        factors = (scale / np.sqrt(np.where(side.bag_squares > 0, side.bag_squares, 1.0))).astype(np.float32)
        values = side.weights * np.repeat(factors, np.diff(side.starts))
        bags = sparse.csr_array((values, side.words, side.starts), shape=(len(factors), width))
        divided.append([bags[:, is_chosen] for is_chosen in (is_frequent, is_other)])
    return divided


# The margin of a product. Let a, b be the exact rows and a', b' the rounded ones. Then
# |<a, b> - <a', b'>| <= |a - a'| |b| + |a'| |b - b'| by Cauchy and Schwarz; rounding errors and lengths are measured
# when rows are rounded. Sums in float32 add gamma_n |a'| |b'| (Higham 2002, section 3.1), twice that as processors may
# flush and pair terms, and a result in bfloat16 2^-9 of itself. The lists of words add gamma_n of at most the product
# of the bags' lengths.

FLOAT32_ERROR = 2.0**-24
_ROWS_AT_ONCE = 1_024  # rows that are rounded at a time: more leave more memory with malloc
_TINY = 1e-30
_SLACK = 1e-4


class Matrix(NamedTuple):
    """Rows (n, d) to be multiplied, the largest rounding error of a row, and the greatest length of one."""

    rows: Any  # an array or a tensor
    error: float
    length: float

    @property
    def size(self) -> int:
        """The number of rows."""
        return len(self.rows)

    def take(self, chosen: object) -> "Matrix":
        """Return some of the rows, by number."""
        return self._replace(rows=self.rows[chosen])


def with_slack(error: float, length: float) -> tuple[float, float]:
    """Return the error and length of a Matrix from the same next to its float32 rows."""
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


class Products:
    """Quick scores of cosines, alone or mixed with bags of words, as products of float32 numbers.

    `margin` is the largest error of a quick score. Memory: a matrix per side, and the bags.
    """

    kind: npt.DTypeLike = np.float32  # of rows and scores
    result_error = FLOAT32_ERROR  # relative, of a product
    least_share = FREQUENT

    def __init__(self, left: Side, right: Side, measure: Measure) -> None:
        """Prepare the questions of two sides."""
        (of_left, self._left_rest), (of_right, self._right_rest) = divided_bags(left, right, measure, self.least_share)
        root = abs(measure.dense) ** 0.5
        self._left = self._matrix(left, np.copysign(root, measure.dense), of_left)
        is_same = left is right and min(measure.dense, measure.lexical) >= 0
        self._right = self._left if is_same else self._matrix(right, root, of_right)
        self._postings: dict[int, tuple[np.ndarray, np.ndarray, np.ndarray]] = {}
        self._buffer = np.empty(0, self.kind)
        self.margin = margin(self._left, self._right, FLOAT32_ERROR, self.result_error)
        if self._right_rest.nnz:
            longest = int(np.diff(self._left_rest.indptr).max(initial=0))
            self.margin += (longest + 8) * FLOAT32_ERROR * 2.0 * (abs(measure.lexical) + abs(measure.dense))

    def _matrix(self, side: Side, scale: float, bags: sparse.csr_array) -> Matrix:
        """Return a side's unit vectors times `scale`, next to the frequent words of its bags."""
        count, dimensions = side.vectors.shape
        rows = np.empty((count, dimensions + bags.shape[1]), self.kind)
        scales = (scale / np.sqrt(np.where(side.squares > 0, side.squares, 1.0))).astype(np.float32)
        error = length = 0.0
        for start in range(0, count, _ROWS_AT_ONCE):
            batch = slice(start, start + _ROWS_AT_ONCE)
            near = np.hstack([side.vectors[batch] * scales[batch, None], bags[batch].toarray()])
            rows[batch], largest = self._rounded(near)
            error, length = max(error, largest), max(length, float(np.linalg.norm(near, axis=1).max()))
        return Matrix(rows, *with_slack(error, length))

    def _rounded(self, rows: np.ndarray) -> tuple[np.ndarray, float]:
        """Return rows (float32) as they are multiplied, and the largest rounding error of one."""
        return rows, 0.0

    def scores(self, rows: slice, columns: slice, width: int) -> np.ndarray:
        """Return the scores (rows, width) of a block: float32, or bfloat16 numbers as uint16.

        Columns beyond `columns` pad the last group with -inf. The next call overwrites the result.
        """
        left, right = self._left.rows[rows], self._right.rows[columns]
        scores = self._room(len(left), width)
        np.matmul(left, right.T, out=scores[:, : len(right)])
        scores[:, len(right) :] = -np.inf
        return scores

    def rest(self, rows: slice, columns: slice) -> Rest:
        """Return the words of a block that a scan adds. The columns' are kept, as every block of rows needs them."""
        if not self._right_rest.nnz:
            return NO_REST
        if columns.start not in self._postings:
            right = self._right_rest[columns].tocsc()
            self._postings[columns.start] = right.indptr.astype(np.int32), right.indices.astype(np.uint32), right.data
        left = self._left_rest[rows]
        starts, words = left.indptr.astype(np.int64), left.indices.astype(np.int32)
        return Rest(starts, words, left.data, *self._postings[columns.start])

    def _room(self, rows: int, columns: int) -> np.ndarray:
        """Return an array in memory that every call reuses."""
        if self._buffer.size < rows * columns:
            self._buffer = np.empty(rows * columns, self.kind)
        return self._buffer[: rows * columns].reshape(rows, columns)


class Bfloat16Products(Products):
    """Quick scores of cosines as products of bfloat16 numbers, with sums in float32."""

    kind = np.uint16  # numpy has no bfloat16
    result_error = 2.0**-9

    def __init__(self, left: Side, right: Side, measure: Measure) -> None:
        """Prepare the questions of two sides."""
        self.least_share = FREQUENT_FOR_TILES if _capabilities().get("amx_bf16") else FREQUENT_FOR_BFLOAT16
        super().__init__(left, right, measure)

    def _rounded(self, rows: np.ndarray) -> tuple[np.ndarray, float]:
        import torch

        near = torch.from_numpy(rows)
        rounded = near.bfloat16()
        return rounded.view(torch.uint16).numpy(), float((rounded.float() - near).norm(dim=1).max())

    def scores(self, rows: slice, columns: slice, width: int) -> np.ndarray:
        """Return the scores of a block: bfloat16 numbers as uint16."""
        import torch

        sides = self._left.rows[rows], self._right.rows[columns]
        left, right = (torch.from_numpy(side).view(torch.bfloat16) for side in sides)
        scores = torch.from_numpy(self._room(len(left), width)).view(torch.bfloat16)
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


def padded(columns: int) -> int:
    """Return `columns` rounded up to a multiple of GROUP."""
    return -(-columns // GROUP) * GROUP
