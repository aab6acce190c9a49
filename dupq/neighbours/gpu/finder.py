"""Finding the scores of a tile that reach their bounds on a GPU."""

import functools
from collections.abc import Iterator

import numpy as np
import torch

from dupq.neighbours.distances import distance_margin
from dupq.neighbours.exact import COSINE, Rule, Side
from dupq.neighbours.gpu import kernels
from dupq.neighbours.gpu.found import Best, best_by_torch, found_by_torch
from dupq.neighbours.gpu.rows import product_rows
from dupq.neighbours.gpu.scores import ExactScores
from dupq.neighbours.gpu.sides import DeviceSide, on_device
from dupq.neighbours.matrices import FLOAT32_ERROR, margin
from dupq.neighbours.products import Part
from dupq.neighbours.scan import Places

_ROWS = 32_768
_PAIRS = 1 << 20  # that are scored exactly at a time
_TENSOR_CORE_ERROR = 2.0**-22  # of each step of a sum, which they may truncate instead of rounding
_SLACK = 1e-4


class OnGpu:
    """Quick scores that never leave the chip unless they reach their bounds, and exact ones of those (see Finder).

    A quick score may be above the exact one by any amount, but is below it by no more than a slack.
    """

    rows = columns = _ROWS

    def __init__(self, left: Side, right: Side, rule: Rule, device: torch.device) -> None:
        """Memory of the device, for both sides: 6 bytes a dimension, 768 for columns of words and 16 a word."""
        ours = on_device(left, device)
        theirs = ours if left is right else on_device(right, device)
        self._exact = ExactScores(ours, theirs, rule)
        if rule.kind == COSINE:
            one, other = product_rows((left, right), (ours, theirs), rule)
            self._left, self._right = one.rows, other.rows
            self._slack = margin(one, other, _TENSOR_CORE_ERROR, _TENSOR_CORE_ERROR)
            highest = abs(rule.dense) + abs(rule.lexical)
        else:
            self._left, self._right = ours.vectors, theirs.vectors
            highest = _longest(ours) + _longest(theirs)
            self._slack = distance_margin(left.vectors.shape[1], highest)
        self.margin = 4.0 * FLOAT32_ERROR * highest + 1e-30  # exact scores are handed over in float32
        find = kernels.found_by_triton if kernels.is_available() else found_by_torch
        self._find = functools.partial(find, kind=rule.kind)
        self._kind, self._device = rule.kind, device

    def bounds(self, rows: slice, columns: slice, rank: int, diagonal: int) -> tuple[np.ndarray, np.ndarray]:
        """See Finder."""
        of_rows, of_columns = best_by_torch(self._left[rows], self._right[columns], rank, diagonal, self._kind)
        return self._lowest(of_rows, rows, columns), self._lowest(of_columns, columns, rows, is_left=False)

    def _lowest(self, best: Best, mine: slice, theirs: slice, is_left: bool = True) -> np.ndarray:
        """The lowest exact score of the best pairs of each question."""
        scores = torch.full(best.values.shape, -torch.inf, dtype=torch.float64, device=self._device)
        rows, ranks = torch.nonzero(best.values > -torch.inf, as_tuple=True)
        pair = rows + mine.start, best.others[rows, ranks] + theirs.start
        scores[rows, ranks] = self._exact.of(*(pair if is_left else pair[::-1]))
        lowest: np.ndarray = scores.amin(dim=1).float().cpu().numpy()
        return lowest

    def places(
        self, rows: Part, columns: Part, bounds: tuple[np.ndarray, np.ndarray], diagonal: int
    ) -> Iterator[Places]:
        """See Finder."""
        ours, theirs = (self._there(part) for part in (rows, columns))
        quick = [torch.from_numpy(_below(part, self._slack)).to(self._device) for part in bounds]
        of_rows, of_columns = (torch.from_numpy(part).to(self._device) for part in bounds)
        found = self._find(self._left[ours], self._right[theirs], *quick, diagonal)
        for start in range(0, len(found.rows), _PAIRS):
            i, j = found.rows[start : start + _PAIRS].long(), found.columns[start : start + _PAIRS].long()
            values = self._exact.of(_numbers(i, ours), _numbers(j, theirs)).float()
            reached = torch.nonzero(values >= torch.minimum(of_rows[i], of_columns[j]))[:, 0]
            yield Places(*(column[reached].cpu().numpy() for column in (i.int(), j.int(), values)))

    def _there(self, part: Part) -> slice | torch.Tensor:
        return part if isinstance(part, slice) else torch.from_numpy(part).to(self._device)


def _numbers(places: torch.Tensor, part: slice | torch.Tensor) -> torch.Tensor:
    """The row numbers of places in a part of a side."""
    return places + part.start if isinstance(part, slice) else part[places]


def _below(bounds: np.ndarray, slack: float) -> np.ndarray:
    """The bounds (float32) less a slack, rounded down."""
    return np.nextafter((bounds.astype(np.float64) - slack).astype(np.float32), np.float32(-np.inf))


def _longest(side: DeviceSide) -> float:
    """At least the length of any vector, Manhattan or Euclidean."""
    return float(side.vectors.abs().sum(1).max()) * (1.0 + _SLACK)
