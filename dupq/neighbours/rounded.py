"""Rows that torch rounds to bfloat16 and multiplies, on CPUs that have it."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch

from dupq.neighbours.exact import Rule, Side
from dupq.neighbours.products import (
    FREQUENT_FOR_BFLOAT16,
    FREQUENT_FOR_TILES,
    PIECE,
    Lexical,
    Matrix,
    Products,
    with_slack,
)


class Words(NamedTuple):
    """Columns of words beside the vectors: how many, and those of some rows (float32)."""

    width: int
    of_rows: Callable[[slice], torch.Tensor]


NO_WORDS = Words(0, lambda rows: torch.empty(0))


def matrix(vectors: torch.Tensor, squares: torch.Tensor, rule: Rule, words: Words = NO_WORDS) -> Matrix:
    """The unit vectors times the square root of their weight, beside the words' columns; in pieces, to bound memory."""
    count, dimensions = vectors.shape
    rows = torch.empty((count, dimensions + words.width), dtype=torch.bfloat16)
    scales = (abs(rule.dense) ** 0.5 / squares.where(squares > 0, 1.0).sqrt()).float()
    error, length = (torch.zeros(()) for _ in range(2))
    for start in range(0, count, PIECE):
        piece = slice(start, min(start + PIECE, count))
        near = vectors[piece] * scales[piece].unsqueeze(1)
        if words.width:
            near = torch.cat([near, words.of_rows(piece)], dim=1)
        rounded = near.bfloat16()
        rows[piece] = rounded
        error = torch.maximum(error, (rounded.float() - near).norm(dim=1).max())
        length = torch.maximum(length, near.norm(dim=1).max())
    return Matrix(rows, *with_slack(float(error), float(length)))


def is_fast() -> bool:
    """Whether this processor multiplies bfloat16 numbers faster than float32 ones."""
    capabilities = torch.cpu.get_capabilities()
    return bool(capabilities.get("avx512_bf16") or capabilities.get("amx_bf16"))


class Bfloat16Products(Products):
    """Products of bfloat16 numbers, with sums in float32."""

    result_error = 2.0**-9
    least_share = FREQUENT_FOR_TILES if torch.cpu.get_capabilities().get("amx_bf16") else FREQUENT_FOR_BFLOAT16

    def matrix(self, side: Side, bags: Lexical | None, rule: Rule) -> Matrix:
        """See Products."""
        words = NO_WORDS
        if bags is not None:
            frequent = bags.frequent
            words = Words(frequent.shape[1], lambda rows: torch.from_numpy(frequent[rows].toarray()))
        return matrix(torch.from_numpy(side.vectors), torch.from_numpy(side.squares), rule, words)

    def scores(self, rows: slice, columns: slice, width: int) -> np.ndarray:
        """See Products: the bits of bfloat16 numbers, as uint16."""
        left, right = self._left.rows[rows], self._right.rows[columns]
        if self._signs is not None:
            left = left * torch.from_numpy(self._signs).to(left.dtype)
        scores = torch.from_numpy(self._room((len(left), width), np.uint16)).view(torch.bfloat16)
        torch.mm(left, right.T, out=scores[:, : len(right)])  # much slower where these are not all columns
        scores[:, len(right) :] = -torch.inf
        return scores.view(torch.uint16).numpy()
