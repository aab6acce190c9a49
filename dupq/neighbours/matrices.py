"""Rows that are multiplied for quick scores: unit vectors beside columns of words, rounded, with what that may change.

The margin. Let a, b be the exact rows and a', b' the rounded ones. Then
|<a, b> - <a', b'>| <= |a - a'| |b| + |a'| |b - b'| by Cauchy and Schwarz; the rounding errors and lengths are measured
when rows are rounded. Sums in float32 add gamma_n |a'| |b'| (Higham 2002, section 3.1), twice that as processors may
flush and pair terms, and a result in bfloat16 2^-9 of itself.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch

from dupq.neighbours.exact import Rule

FLOAT32_ERROR = 2.0**-24
_PIECE = 4_096  # rows that are rounded at a time
_TINY = 1e-30
_SLACK = 1e-4


class Matrix(NamedTuple):
    """Rows (n, d) as they are multiplied; the largest rounding error of a row; the greatest length of one."""

    rows: torch.Tensor
    error: float
    length: float


class Words(NamedTuple):
    """Columns of words beside the vectors: how many, and those of some rows (float32)."""

    width: int
    of_rows: Callable[[slice], torch.Tensor]


NO_WORDS = Words(0, lambda rows: torch.empty(0))


def matrix(
    vectors: torch.Tensor, squares: torch.Tensor, rule: Rule, kind: torch.dtype, words: Words = NO_WORDS
) -> Matrix:
    """The unit vectors times the square root of their weight, beside the words' columns; in pieces, to bound memory."""
    count, dimensions = vectors.shape
    rows = torch.empty((count, dimensions + words.width), dtype=kind, device=vectors.device)
    scales = (abs(rule.dense) ** 0.5 / squares.where(squares > 0, 1.0).sqrt()).float()
    error, length = (torch.zeros((), device=vectors.device) for _ in range(2))
    for start in range(0, count, _PIECE):
        piece = slice(start, min(start + _PIECE, count))
        near = vectors[piece] * scales[piece].unsqueeze(1)
        if words.width:
            near = torch.cat([near, words.of_rows(piece)], dim=1)
        rounded = near.to(kind)
        rows[piece] = rounded
        error = torch.maximum(error, (rounded.float() - near).norm(dim=1).max())
        length = torch.maximum(length, near.norm(dim=1).max())
    # `near` itself is within three roundings of the exact row, and norms are taken in float32
    longest = float(length) * (1.0 + _SLACK)
    return Matrix(rows, float(error) * (1.0 + _SLACK) + 4.0 * FLOAT32_ERROR * longest, longest)


def margin(left: Matrix, right: Matrix, summed: float, result: float) -> float:
    """The largest difference of a product from the exact one; `summed` and `result` are the relative errors of each
    step of a sum and of the result.
    """
    one, other = left.length + left.error, right.length + right.error
    rounded = left.error * right.length + one * right.error
    return rounded + (2.0 * (left.rows.shape[1] + 2) * summed + result) * one * other + _TINY


def signs(rule: Rule, dimensions: int, rows: torch.Tensor) -> torch.Tensor | None:
    """What the left rows are multiplied by where a weight is negative."""
    if rule.dense >= 0 and rule.lexical >= 0:
        return None
    result = torch.ones(rows.shape[1], dtype=rows.dtype, device=rows.device)
    result[:dimensions] = -1.0 if rule.dense < 0 else 1.0
    result[dimensions:] = -1.0 if rule.lexical < 0 else 1.0
    return result
