"""Rows that are multiplied for quick scores: unit vectors beside columns of words, with what rounding may change.

The margin. Let a, b be the exact rows and a', b' the rounded ones. Then
|<a, b> - <a', b'>| <= |a - a'| |b| + |a'| |b - b'| by Cauchy and Schwarz; the rounding errors and lengths are measured
when rows are rounded. Sums in float32 add gamma_n |a'| |b'| (Higham 2002, section 3.1), twice that as processors may
flush and pair terms, and a result in bfloat16 2^-9 of itself.
"""

from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from dupq.neighbours.exact import Rule, Side

FLOAT32_ERROR = 2.0**-24
PIECE = 4_096  # rows that are made at a time
_TINY = 1e-30
_SLACK = 1e-4


class Matrix(NamedTuple):
    """Rows (n, d) as they are multiplied; the largest rounding error of a row; the greatest length of one."""

    rows: Any  # an array or a tensor
    error: float
    length: float


def float32_matrix(side: Side, frequent: sparse.csr_array | None, rule: Rule) -> Matrix:
    """The unit vectors times the square root of their weight, beside the `frequent` words; not rounded further."""
    count, dimensions = side.vectors.shape
    rows = np.empty((count, dimensions + (0 if frequent is None else frequent.shape[1])), np.float32)
    scales = (abs(rule.dense) ** 0.5 / np.sqrt(np.where(side.squares > 0, side.squares, 1.0))).astype(np.float32)
    longest = 0.0
    for start in range(0, count, PIECE):
        piece = slice(start, start + PIECE)
        np.multiply(side.vectors[piece], scales[piece, None], out=rows[piece, :dimensions])
        if frequent is not None:
            rows[piece, dimensions:] = frequent[piece].toarray()
        longest = max(longest, float(np.linalg.norm(rows[piece], axis=1).max()))
    return Matrix(rows, *with_slack(0.0, longest))


def with_slack(error: float, length: float) -> tuple[float, float]:
    """The error and length of a Matrix of rows within `error` of float32 ones of this `length`, by norms in float32."""
    longest = length * (1.0 + _SLACK)
    # the float32 rows themselves are within three roundings of the exact ones
    return error * (1.0 + _SLACK) + 4.0 * FLOAT32_ERROR * longest, longest


def margin(left: Matrix, right: Matrix, summed: float, result: float) -> float:
    """The largest difference of a product from the exact one; `summed` and `result` are the relative errors of each
    step of a sum and of the result.
    """
    one, other = left.length + left.error, right.length + right.error
    rounded = left.error * right.length + one * right.error
    return rounded + (2.0 * (left.rows.shape[1] + 2) * summed + result) * one * other + _TINY


def signs(rule: Rule, dimensions: int, width: int) -> np.ndarray | None:
    """What the left rows are multiplied by (float32, (width,)) where a weight is negative."""
    if rule.dense >= 0 and rule.lexical >= 0:
        return None
    result = np.ones(width, np.float32)
    result[:dimensions] = -1.0 if rule.dense < 0 else 1.0
    result[dimensions:] = -1.0 if rule.lexical < 0 else 1.0
    return result
