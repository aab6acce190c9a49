"""The search of inverted lists: the exact search (tiles.py) of the pairs of which one question probes the other's list.

A pair serves both of its questions, whichever of the two probes: on real titles that finds with 8 lists a question as
much as with 32 where it serves only the question that probes.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from dupq.neighbours.nearest import Nearest
from dupq.neighbours.tiles import Block, Known, Search, Tile, Wanted

_MEMBERS = 256  # of a list, that its questions are first compared with: without bounds all of them become candidates
_MOST = 1 << 30


class Listed(NamedTuple):
    """The questions of the lists from `first` to `stop` - 1, and those that each probes, its own first (int32)."""

    block: Block
    lists: np.ndarray  # (n, probes)
    first: int
    stop: int

    @property
    def places(self) -> np.ndarray:
        """Which of these lists each question is in, counted from `first`."""
        return self.lists[:, 0] - self.first

    def members(self) -> list[np.ndarray]:
        """The rows of each list, in ascending order."""
        order = np.argsort(self.places, kind="stable")
        return np.split(order, np.searchsorted(self.places[order], np.arange(1, self.stop - self.first)))

    def probed_by(self, other: "Listed") -> np.ndarray:
        """Which of these lists each of another's questions probes (bool, (lists, n))."""
        probed = np.zeros((self.stop - self.first, len(other.lists)), bool)
        rows, columns = np.nonzero((other.lists >= self.first) & (other.lists < self.stop))
        probed[other.lists[rows, columns] - self.first, rows] = True
        return probed


def search_listed(left: Listed, right: Listed, search: Search, known: Known = (None, None)) -> tuple[Nearest, Nearest]:
    """The nearest of `left` in `right`, and of `right` in `left`, among the pairs of which one probes the other's list.

    If `left is right` both are the same; else they have no list in common. `known`, memory: see tiles.search_tile.
    """
    tile = Tile(left.block, right.block, search, known=known)
    by_left, by_right = right.probed_by(left), left.probed_by(right)
    if len(left.block.keys) and len(right.block.keys) and (by_left.any() or by_right.any()):
        found = tile.begin()
        for rows, columns, is_wanted, width in _pieces(left, right, by_left, by_right):
            for column in range(0, len(columns), min(width, found.columns)):
                some = columns[column : column + min(width, found.columns)]
                for row in range(0, len(rows), found.rows):
                    tile.search_some(found, rows[row : row + found.rows], some, is_wanted)
    of_left, of_right, _ = tile.finish()
    return of_left, of_right


def _pieces(
    left: Listed, right: Listed, by_left: np.ndarray, by_right: np.ndarray
) -> Iterator[tuple[np.ndarray, np.ndarray, Wanted, int]]:
    """Rows, columns, which of their pairs are searched, and how many columns at once; no pair comes twice."""
    if left is right:
        yield from _pieces_of_diagonal(left, by_left)
        return
    for members, asking in zip(right.members(), by_left, strict=True):
        yield np.flatnonzero(asking), members, _all, _MOST
    places = right.places

    def is_new(rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
        return ~by_left[places[columns], rows]

    for members, asking in zip(left.members(), by_right, strict=True):
        yield members, np.flatnonzero(asking), is_new, _MOST


def _pieces_of_diagonal(mine: Listed, probed: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray, Wanted, int]]:
    """First each list with itself, which gives its questions bounds."""
    places, members = mine.places, mine.members()
    for rows in members:
        yield rows, rows, np.less, _MEMBERS

    def is_new(rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
        return (rows < columns) | ~probed[places[rows], columns]

    for number, asking in enumerate(probed):
        yield np.flatnonzero(asking & (places != number)), members[number], is_new, _MOST


def _all(rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
    return np.ones(len(rows), bool)
