"""Finding the scores of a tile that reach their bounds: on a CPU in cache-sized pieces, on a GPU in large ones."""

from collections.abc import Iterator
from typing import Protocol

import numpy as np
import torch

from dupq.devices import CPU
from dupq.neighbours import gpu
from dupq.neighbours.exact import COSINE, Rule, Side
from dupq.neighbours.products import Part, margin, matrix, padded, quick_scores
from dupq.neighbours.scan import Places, bounds_of_columns, bounds_of_rows, complete, scan

_ROWS, _COLUMNS = 1_024, 2_048
_ROOM = 1 << 18
_GPU_ROWS = 32_768
_TENSOR_CORE_ERROR = 2.0**-22  # of each step of a sum, which they may truncate instead of rounding


class Finder(Protocol):
    """Finds candidates in a piece of a tile, of at most `rows` by `columns` questions."""

    rows: int
    columns: int
    margin: float  # the largest difference of a score found from the exact one

    def bounds(self, rows: slice, columns: slice, rank: int, diagonal: int) -> tuple[np.ndarray, np.ndarray]:
        """Lower bounds (float32) on the `rank`-th best score of each row and of each column of a piece, or -inf."""
        ...

    def places(
        self, rows: Part, columns: Part, bounds: tuple[np.ndarray, np.ndarray], diagonal: int
    ) -> Iterator[Places]:
        """The positions (relative to the piece) of scores that reach the bound of their row or of their column.

        Only columns > row + `diagonal` count.
        """
        ...


def finder(left: Side, right: Side, rule: Rule, device: str) -> Finder:
    """The fastest finder on a device: a GPU is left alone if it cannot score by this rule."""
    if device != CPU and gpu_can_score(rule):
        return OnGpu(left, right, rule, torch.device(device))
    return OnCpu(left, right, rule)


def gpu_can_score(rule: Rule) -> bool:
    """Whether a GPU can find candidates: for plain cosines only. Distances and bags of words are left to CPUs."""
    return rule.kind == COSINE and not rule.lexical


class OnCpu:
    """Approximate scores of a piece, then compiled scans of them."""

    rows, columns = _ROWS, _COLUMNS

    def __init__(self, left: Side, right: Side, rule: Rule) -> None:
        """Memory: what `quick_scores` holds."""
        self._quick = quick_scores(left, right, rule)
        self.margin = self._quick.margin
        self._room = Places(np.empty(_ROOM, np.int32), np.empty(_ROOM, np.int32), np.empty(_ROOM, np.float32))

    def bounds(self, rows: slice, columns: slice, rank: int, diagonal: int) -> tuple[np.ndarray, np.ndarray]:
        """See Finder."""
        width = padded(columns.stop - columns.start)
        scores = complete(self._quick.scores(rows, columns, width), self._quick.rest(rows, columns))
        below = np.arange(width) <= np.arange(len(scores))[:, None] + diagonal
        scores[below] = -np.inf
        count = columns.stop - columns.start
        return bounds_of_rows(scores, rank), bounds_of_columns(scores, rank)[:count]

    def places(
        self, rows: Part, columns: Part, bounds: tuple[np.ndarray, np.ndarray], diagonal: int
    ) -> Iterator[Places]:
        """See Finder."""
        width = padded(len(bounds[1]))
        scores, rest = self._quick.scores(rows, columns, width), self._quick.rest(rows, columns)
        of_columns = np.full(width, np.inf, np.float32)
        of_columns[: len(bounds[1])] = bounds[1]
        start = 0
        while start < len(scores):
            found, start = scan(scores, rest, bounds[0], of_columns, diagonal, start, self._room)
            yield Places(*(column[:found] for column in self._room))


class OnGpu:
    """Scores that never leave the chip unless they reach their bounds (gpu.py).

    In float16, which rounds unit vectors eight times as finely as bfloat16, at the same speed.
    """

    rows = columns = _GPU_ROWS

    def __init__(self, left: Side, right: Side, rule: Rule, device: torch.device) -> None:
        """Memory of the device: 2 bytes a dimension, of the vectors of both sides."""
        one, other = (matrix(side, None, rule, torch.float16) for side in (left, right))
        self._left, self._right = one.rows.to(device), other.rows.to(device)
        if rule.dense < 0:
            self._left = -self._left
        self.margin = margin(one, other, _TENSOR_CORE_ERROR, _TENSOR_CORE_ERROR)
        self._device = device
        self._find = gpu.found_by_triton if gpu.is_available() else gpu.found_by_torch

    def bounds(self, rows: slice, columns: slice, rank: int, diagonal: int) -> tuple[np.ndarray, np.ndarray]:
        """See Finder."""
        of_rows, of_columns = gpu.group_bounds_by_torch(self._left[rows], self._right[columns], rank, diagonal)
        return of_rows.cpu().numpy(), of_columns.cpu().numpy()

    def places(
        self, rows: Part, columns: Part, bounds: tuple[np.ndarray, np.ndarray], diagonal: int
    ) -> Iterator[Places]:
        """See Finder."""
        of_rows, of_columns = (torch.from_numpy(part).to(self._device) for part in bounds)
        yield Places(*self._find(self._left[rows], self._right[columns], of_rows, of_columns, diagonal))
