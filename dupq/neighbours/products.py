"""Approximate ("quick") scores of whole blocks, each within a known margin of the exact one.

A cosine, and a weighted sum of a cosine of vectors and one of bags of words, is one product of two matrices: the unit
vectors beside the frequent words, each part times the square root of its weight. Products are of float32 numbers, or by
torch, where it is there and the processor multiplies these twice as fast, of bfloat16 numbers (rounded.py).
Distances are computed from differences, in float32: a product would lose small distances of long vectors.

How far from the exact ones: matrices.py and distances.py. The lists of words add gamma_n of at most the product of the
bags' lengths.
"""

from typing import Protocol

import numpy as np
import numpy.typing as npt
from scipy import sparse

from dupq.neighbours.distances import columns_of, distance_margin, distances, longest_distance
from dupq.neighbours.exact import MANHATTAN, Rule, Side
from dupq.neighbours.lexical import FREQUENT, Lexical, lexical_parts
from dupq.neighbours.matrices import FLOAT32_ERROR, Matrix, float32_matrix, margin, signs
from dupq.neighbours.scan import GROUP, NO_REST, Rest


class Quick(Protocol):
    """Quick scores of the questions of two sides."""

    margin: float  # the largest difference of a quick score from the exact one

    def scores(self, rows: slice, columns: slice, width: int) -> np.ndarray:
        """The scores of a block: uint16, the bits of bfloat16 numbers, or float32; (rows, width).

        Columns beyond those of `columns` pad the last group with -inf. The next call overwrites the result.
        """
        ...

    def rest(self, rows: slice, columns: slice) -> Rest:
        """What `scan` adds to them."""
        ...


class Products:
    """Quick scores of cosines, alone or mixed with bags of words."""

    result_error = FLOAT32_ERROR  # of a product, relative to it
    least_share = FREQUENT  # of the questions, from which on a word is multiplied

    def __init__(self, left: Side, right: Side, rule: Rule) -> None:
        """Memory: a matrix for each side."""
        bags = _lexical(left, right, rule, self.least_share)
        self._left = self.matrix(left, bags[0], rule)
        self._right = self._left if left is right else self.matrix(right, bags[1], rule)
        self._signs = signs(rule, left.vectors.shape[1], self._left.rows.shape[1])
        self._lists = Lists(*bags, rule)
        self._buffer = np.empty(0, np.uint8)
        self.margin = margin(self._left, self._right, FLOAT32_ERROR, self.result_error) + self._lists.margin

    def matrix(self, side: Side, bags: Lexical | None, rule: Rule) -> Matrix:
        """The rows of a side, with the frequent words of its bags."""
        return float32_matrix(side, None if bags is None else bags.frequent, rule)

    def scores(self, rows: slice, columns: slice, width: int) -> np.ndarray:
        """See Quick."""
        left, right = self._left.rows[rows], self._right.rows[columns]
        if self._signs is not None:
            left = left * self._signs
        scores = self._room((len(left), width), np.float32)
        np.matmul(left, right.T, out=scores[:, : len(right)])
        scores[:, len(right) :] = -np.inf
        return scores

    def rest(self, rows: slice, columns: slice) -> Rest:
        """See Quick."""
        return self._lists.between(rows, columns)

    def _room(self, shape: tuple[int, int], kind: npt.DTypeLike) -> np.ndarray:
        """An array in memory that every call uses again."""
        size = shape[0] * shape[1] * np.dtype(kind).itemsize
        if len(self._buffer) < size:
            self._buffer = np.empty(size, np.uint8)
        return self._buffer[:size].view(kind).reshape(shape)


class Distances:
    """Quick scores of distances, alone or mixed with bags of words."""

    def __init__(self, left: Side, right: Side, rule: Rule) -> None:
        """Memory: 4 bytes a dimension."""
        self._left = columns_of(left.vectors)
        self._right = self._left if left is right else columns_of(right.vectors)
        self._rule = rule
        self._lists = Lists(*_lexical(left, right, rule, np.inf), rule)
        off = distance_margin(left.vectors.shape[1], longest_distance(left.vectors, right.vectors))
        # exp has a slope of at most 1 here
        off = off if rule.is_distance else abs(rule.dense) * (off + 16 * FLOAT32_ERROR)
        self.margin = off + self._lists.margin

    def scores(self, rows: slice, columns: slice, width: int) -> np.ndarray:
        """See Quick."""
        left, right = (np.ascontiguousarray(part) for part in (self._left[:, rows], self._right[:, columns]))
        scores = np.full((left.shape[1], width), np.inf, np.float32)
        distances(left, right, self._rule.kind == MANHATTAN, scores)
        np.negative(scores, out=scores)
        if not self._rule.is_distance:
            inside = scores[:, : right.shape[1]]
            inside[:] = np.float32(self._rule.dense) * np.exp(inside)
        return scores

    def rest(self, rows: slice, columns: slice) -> Rest:
        """See Quick."""
        return self._lists.between(rows, columns)


class Lists:
    """The words that are not multiplied, as `scan` adds them."""

    def __init__(self, left: Lexical | None, right: Lexical | None, rule: Rule) -> None:
        """Either both sides have bags or neither."""
        self._left = self._right = None
        self.margin = 0.0
        if left is None or right is None or not (left.rest.nnz and right.rest.nnz):
            return
        self._left, self._right = sparse.csr_array(left.rest), sparse.csr_array(right.rest)
        self._sign = -1.0 if rule.lexical < 0 else 1.0
        self._postings: dict[int, tuple[np.ndarray, np.ndarray, np.ndarray]] = {}
        longest = int(np.diff(self._left.indptr).max(initial=0))
        self.margin = (longest + 8) * FLOAT32_ERROR * 2.0 * (abs(rule.lexical) + abs(rule.dense))

    def between(self, rows: slice, columns: slice) -> Rest:
        """The lists of a block; those of a range of columns are kept, as every block of rows needs them."""
        if self._left is None or self._right is None:
            return NO_REST
        if columns.start not in self._postings:
            right = self._right[columns].tocsc()
            self._postings[columns.start] = (
                right.indptr.astype(np.int32),
                right.indices.astype(np.uint32),
                right.data,
            )
        starts = self._left.indptr[rows.start : rows.stop + 1].astype(np.int64)
        mine = slice(starts[0], starts[-1])
        words = self._left.indices[mine].astype(np.int32)
        weights = np.float32(self._sign) * self._left.data[mine]
        return Rest(starts - starts[0], words, weights, *self._postings[columns.start])


def _lexical(left: Side, right: Side, rule: Rule, least_share: float) -> tuple[Lexical | None, Lexical | None]:
    if not (rule.lexical and len(left.words) and len(right.words)):
        return None, None
    return lexical_parts(left, right, abs(rule.lexical) ** 0.5, least_share)


def padded(columns: int) -> int:
    """`columns` rounded up to a multiple of the group size."""
    return -(-columns // GROUP) * GROUP
