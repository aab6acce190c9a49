"""The search of inverted lists: each question against the members of the lists that it probes, exactly.

Lists are searched as the tiles of the exact search are: quick scores of a whole list's questions and members in one
product (products.py), of which only those that may be among the k best are scored exactly, once, at the end.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from dupq.neighbours.bounds import Finder, finder
from dupq.neighbours.candidates import finish, no_candidates, push
from dupq.neighbours.exact import rule_of, scoring, taken
from dupq.neighbours.nearest import Nearest
from dupq.neighbours.tiles import Block, Search, as_nearest, rounded_down

_MEMBERS = 256  # that questions without a bound are compared with at once: all of them become candidates


class Listed(NamedTuple):
    """Questions and the lists that each probes (int32, (n, probes)), nearest first; a question is in its first list."""

    block: Block
    lists: np.ndarray

    def take(self, rows: np.ndarray) -> "Listed":
        """Some of the questions, by their row numbers in ascending order."""
        return Listed(Block(self.block.keys[rows], taken(self.block.side, rows)), self.lists[rows])


def search_lists(queries: Listed, members: Listed, span: tuple[int, int], search: Search) -> tuple[np.ndarray, Nearest]:
    """Search for questions in those of the lists span[0] to span[1] - 1 that they probe; `members` are all in these.

    Returns the rows of the questions that probe them, and the nearest of these, with exact scores and in exact order.
    Memory: as a tile of these questions and the members (tiles.search_tile).
    """
    inside = np.flatnonzero(((queries.lists >= span[0]) & (queries.lists < span[1])).any(axis=1))
    asked, k, rule = queries.take(inside), search.k, rule_of(search.measure)
    mine, theirs = asked.block.side, members.block.side
    best, margin, pairs = no_candidates(len(inside), k), 0.0, scoring(mine, theirs, rule)
    if len(inside) and len(members.block.keys):
        found = finder(mine, theirs, rule, search.device)
        margin = found.margin
        for rows, columns in _pieces(asked.lists, members.lists[:, 0], span, found):
            bounds = rounded_down(best.bounds[rows]), np.full(len(columns), np.inf, np.float32)
            for places in found.places(rows, columns, bounds, -found.rows - 1):
                ours, others = rows[places.rows], columns[places.columns]
                is_other = asked.block.keys[ours] != members.block.keys[others]
                chosen = ours[is_other], others[is_other], places.values[is_other]
                push(best, *chosen, k, margin, pairs)
    finish(best, k, margin, pairs)
    return inside, as_nearest(best, k, members.block.keys, np.zeros(len(inside), np.int64))


def _pieces(
    lists: np.ndarray, of_members: np.ndarray, span: tuple[int, int], found: Finder
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Rows of questions that probe a list, and of its members, of every list of a span, in pieces for the finder."""
    width = min(_MEMBERS, found.columns)
    probing, places = np.nonzero((lists >= span[0]) & (lists < span[1]))
    asking = _rows_by_list(probing, lists[probing, places], span)
    for rows, columns in zip(asking, _rows_by_list(np.arange(len(of_members)), of_members, span), strict=True):
        for column in range(0, len(columns), width):
            for row in range(0, len(rows), found.rows):
                yield rows[row : row + found.rows], columns[column : column + width]


def _rows_by_list(rows: np.ndarray, lists: np.ndarray, span: tuple[int, int]) -> list[np.ndarray]:
    """The rows of each list of a span, in ascending order; `lists` are theirs."""
    order = np.argsort(lists, kind="stable")
    ends = np.searchsorted(lists[order], np.arange(span[0], span[1] + 1))
    return np.split(rows[order], ends)[1:-1]
