"""The search of inverted lists: the exact search (tiles.py) of the pairs of which one question probes the other's list,
or which share a rare word (word_lists.py).

A pair serves both of its questions, whichever of the two probes: on real titles that finds with 8 lists a question as
much as with 32 where it serves only the question that probes.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from dupq.neighbours.nearest import Nearest
from dupq.neighbours.tiles import Block, Known, Search, Tile, Wanted
from dupq.neighbours.word_lists import Probed, Shared, WordLists, shared_pairs, walk_of

_MEMBERS = 256  # of a list, that its questions are first compared with: without bounds all of them become candidates
_MOST = 1 << 30
_COLUMNS = 16_384  # questions that rare words are looked for in at once: what is read of them fits into the cache
_ROOM = 1 << 17  # pairs that are scored before they raise bounds; more than columns


class Listed(NamedTuple):
    """The questions of the lists from `first` to `stop` - 1, and those that each probes, its own first (int32)."""

    block: Block
    lists: np.ndarray  # (n, probes)
    first: int
    stop: int
    words: WordLists | None = None  # of both sides of a tile or of neither

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
    """The nearest of `left` in `right`, and of `right` in `left`, among the pairs of which one probes the other's list,
    and those that share a rare word.

    If `left is right` both are the same; else they have no list in common. `known`, memory: see tiles.search_tile; for
    words 12 bytes a rare word of the left side besides.
    """
    tile = Tile(left.block, right.block, search, known=known)
    if len(left.block.keys) and len(right.block.keys):
        probed = Probed(right.probed_by(left), left.places, left.probed_by(right), right.places)
        if probed.by_rows.any() or probed.by_columns.any():
            _search_lists(tile, left, right, probed)
        else:
            tile.begin_exactly()
        _search_words(tile, left, right, probed)
    of_left, of_right, _ = tile.finish()
    return of_left, of_right


def _search_lists(tile: Tile, left: Listed, right: Listed, probed: Probed) -> None:
    found = tile.begin()
    for rows, columns, is_wanted, width in _pieces(left, right, probed.by_rows, probed.by_columns):
        for column in range(0, len(columns), min(width, found.columns)):
            some = columns[column : column + min(width, found.columns)]
            for row in range(0, len(rows), found.rows):
                tile.search_some(found, rows[row : row + found.rows], some, is_wanted)


def _search_words(tile: Tile, left: Listed, right: Listed, probed: Probed) -> None:
    if left.words is None or right.words is None:
        return
    walk, is_diagonal = walk_of(left.words, right.words), left is right
    room = Shared(np.empty(_ROOM, np.int32), np.empty(_ROOM, np.int32), np.empty(_ROOM))
    for first in range(0, len(right.block.keys), _COLUMNS):
        columns = first, min(first + _COLUMNS, len(right.block.keys))
        row, last = 0, columns[1] if is_diagonal else len(left.block.keys)
        while row < last:
            some = walk, (row, last), columns
            found, row = shared_pairs(*some, tile.bounds, probed, tile.scoring, is_diagonal, room)
            tile.take(*(column[:found] for column in room))


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
