"""Finding the scores of a tile that reach their bounds, in pieces that fit a cache."""

import functools
from collections.abc import Iterator

import numpy as np

from dupq.extras import is_installed
from dupq.neighbours.exact import COSINE, Rule, Side
from dupq.neighbours.products import Distances, Products, padded
from dupq.neighbours.scan import Places, bounds_of_columns, bounds_of_rows, complete, scan

_ROWS, _COLUMNS = 1_024, 2_048
_ROOM = 1 << 18


@functools.cache
def fastest_products() -> type[Products]:
    """Those of the numbers that this processor multiplies fastest."""
    if not is_installed("torch"):
        return Products
    from dupq.neighbours import rounded

    return rounded.Bfloat16Products if rounded.is_fast() else Products


class Finder:
    """Finds candidates in a piece of a tile, of at most `rows` by `columns` questions: quick scores, and scans of them.

    `margin` is the largest difference of a score found from the exact one.
    """

    rows, columns = _ROWS, _COLUMNS

    def __init__(self, left: Side, right: Side, rule: Rule) -> None:
        """Memory: what the quick scores hold."""
        self._quick = (fastest_products() if rule.kind == COSINE else Distances)(left, right, rule)
        self.margin = self._quick.margin
        self._room = Places(np.empty(_ROOM, np.int32), np.empty(_ROOM, np.int32), np.empty(_ROOM, np.float32))

    def bounds(self, rows: slice, columns: slice, rank: int, diagonal: int) -> tuple[np.ndarray, np.ndarray]:
        """Lower bounds (float32) on the `rank`-th best score of each row and of each column of a piece, or -inf."""
        width = padded(columns.stop - columns.start)
        scores = complete(self._quick.scores(rows, columns, width), self._quick.rest(rows, columns))
        below = np.arange(width) <= np.arange(len(scores))[:, None] + diagonal
        scores[below] = -np.inf
        count = columns.stop - columns.start
        return bounds_of_rows(scores, rank), bounds_of_columns(scores, rank)[:count]

    def places(
        self, rows: slice, columns: slice, bounds: tuple[np.ndarray, np.ndarray], diagonal: int
    ) -> Iterator[Places]:
        """The positions (relative to the piece) of scores that reach the bound of their row or of their column.

        Only columns > row + `diagonal` count.
        """
        width = padded(len(bounds[1]))
        scores, rest = self._quick.scores(rows, columns, width), self._quick.rest(rows, columns)
        of_columns = np.full(width, np.inf, np.float32)
        of_columns[: len(bounds[1])] = bounds[1]
        start = 0
        while start < len(scores):
            found, start = scan(scores, rest, bounds[0], of_columns, diagonal, start, self._room)
            yield Places(*(column[:found] for column in self._room))
