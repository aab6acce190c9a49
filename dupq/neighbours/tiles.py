"""One tile of the all-pairs search: every pair of a question of one block and one of another, exactly.

Scores are symmetric, so each product of two blocks serves the questions of both: half the work of a plain search.
Quick scores only choose candidates (products.py); those within their margin of being among the k best, or above the
threshold, are scored again in float64 (exact.py), and that decides. So the answer depends on the embeddings alone: not
on blocks, threads or order.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from dupq.neighbours.bounds import Finder
from dupq.neighbours.candidates import Candidates, finish, no_candidates, push
from dupq.neighbours.embeddings import Embeddings
from dupq.neighbours.exact import Rule, Side, exact_scores, rule_of, scoring, side_of
from dupq.neighbours.measure import Measure
from dupq.neighbours.nearest import Nearest

_TRIES = 2  # pieces from whose scores first bounds are taken
_LOWEST = np.float32(-1e30)  # below every score of a pair


class Block(NamedTuple):
    """A block of questions, ready to be searched: their keys (int64, ascending), and what their scores are made from.

    Questions with a zero vector and no words are left out: they have no neighbours.
    """

    keys: np.ndarray
    side: Side

    def part(self, start: int, stop: int) -> "Block":
        """Return the questions in rows from `start` to `stop` - 1."""
        side = self.side
        starts = side.starts[start : stop + 1]
        words = slice(starts[0], starts[-1])
        of_rows = slice(start, stop)
        bags = starts - starts[0], side.words[words], side.weights[words], side.bag_squares[of_rows]
        return Block(self.keys[of_rows], Side(side.vectors[of_rows], side.squares[of_rows], *bags))


class Search(NamedTuple):
    """What to search for: the k best of each question (0: none), and all pairs with at least this similarity.

    Similarities are compared in float32, as they are stored. At most `pair_limit` pairs of a tile are kept, any of
    them; all are counted.
    """

    measure: Measure
    k: int
    threshold: float = np.inf
    pair_limit: int = 1 << 62


# For each side, the k-th best score of its questions as far as other tiles have found it (float64; -inf: not known)
Known = tuple[np.ndarray | None, np.ndarray | None]


class Pairs(NamedTuple):
    """Pairs above the threshold, each once: smaller keys, larger keys, similarities (float32)."""

    left: np.ndarray
    right: np.ndarray
    similarities: np.ndarray


NO_PAIRS = Pairs(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0, np.float32))


def block(embeddings: Embeddings, measure: Measure) -> Block:
    """Prepare the embeddings of a block (distinct keys) for the search. Memory: 4 bytes a dimension and 8 a word."""
    inside = np.flatnonzero(~embeddings.is_empty)
    chosen = embeddings.take(inside[np.argsort(embeddings.keys[inside], kind="stable")])
    return Block(chosen.keys, side_of(chosen, rule_of(measure)))


def search_tile(
    left: Block, right: Block, search: Search, both: bool = True, known: Known = (None, None)
) -> tuple[Nearest, Nearest, Pairs]:
    """The nearest of `left` among `right`, those of `right` among `left`, and the pairs above the threshold.

    For a block with itself (`left is right`) both are the same. Other blocks may have keys in common: a question is not
    its own neighbour. Without `both` only the questions of `left` get neighbours. Neighbours below the `known` scores
    of a side's questions may be left out of their lists. Memory: the blocks' rows to be multiplied (2 or 4 bytes a
    dimension), 12 bytes for each of 4 k + 24 candidates a question, and 40 bytes for each pair that is kept.
    """
    tile = Tile(left, right, search, both, known)
    tile.search_all()
    return tile.finish()


class Tile:
    """The state of a tile: the candidates of both sides."""

    def __init__(
        self, left: Block, right: Block, search: Search, both: bool = True, known: Known = (None, None)
    ) -> None:
        """See search_tile."""
        self._left, self._right, self._search = left, right, search
        self._rule: Rule = rule_of(search.measure)
        self._scorings = scoring(left.side, right.side, self._rule), scoring(right.side, left.side, self._rule)
        self._is_diagonal = left is right
        self._lowest = self._rule.lowest_score(float(np.float32(search.threshold)))
        self._of_left = no_candidates(len(left.keys), search.k)
        self._of_right = self._of_left
        if not self._is_diagonal:
            self._of_right = no_candidates(len(right.keys), search.k if both else 0)
        self._above = np.zeros(len(left.keys), np.int64), np.zeros(len(right.keys), np.int64)
        self._pairs: list[Pairs] = []
        self._kept = 0  # pairs
        self._serves_right = both or self._is_diagonal
        self._margin, self._known = 0.0, known
        self._tries: dict[tuple[bool, int], int] = {}

    def _begin(self) -> Finder:
        """The finder for pieces of this tile; both sides have questions."""
        found = Finder(self._left.side, self._right.side, self._rule)
        self._margin = found.margin
        for best, scores in zip((self._of_left, self._of_right), self._known, strict=True):
            if scores is not None and self._search.k:
                best.bounds[:] = np.maximum(best.bounds, scores - self._margin)
        return found

    def search_all(self) -> None:
        """Search all pieces of the tile."""
        if not (len(self._left.keys) and len(self._right.keys)):
            return
        found = self._begin()
        for rows, columns in self._pieces(found):
            diagonal = rows.start - columns.start if self._is_diagonal else -found.rows - 1
            if self._search.k:
                self._raise_bounds(found, rows, columns, diagonal)
            bounds = self._bounds(self._of_left, rows), self._bounds(self._of_right, columns)
            for places in found.places(rows, columns, bounds, diagonal):
                self._take(places.rows + rows.start, places.columns + columns.start, places.values)

    def finish(self) -> tuple[Nearest, Nearest, Pairs]:
        """What was found."""
        k, left, right = self._search.k, self._left, self._right
        if k:
            finish(self._of_left, k, self._margin, self._scorings[0])
            if self._serves_right and not self._is_diagonal:
                finish(self._of_right, k, self._margin, self._scorings[1])
        above = (self._above[0] + self._above[1],) * 2 if self._is_diagonal else self._above
        return (
            _nearest(self._of_left, k, right.keys, above[0]),
            _nearest(self._of_right, k, left.keys, above[1]),
            Pairs(*(np.concatenate(column) for column in zip(NO_PAIRS, *self._pairs, strict=True))),
        )

    def _pieces(self, found: Finder) -> Iterator[tuple[slice, slice]]:
        for row in range(0, len(self._left.keys), found.rows):
            first = row // found.columns * found.columns if self._is_diagonal else 0
            for column in range(first, len(self._right.keys), found.columns):
                yield (
                    slice(row, min(row + found.rows, len(self._left.keys))),
                    slice(column, min(column + found.columns, len(self._right.keys))),
                )

    def _raise_bounds(self, found: Finder, rows: slice, columns: slice, diagonal: int) -> None:
        """Give rows and columns that have no bound yet one from this piece, if it has enough scores.

        Between different blocks a question may be on both sides and its own best, hence one rank more.
        """
        sides = (self._of_left, rows), (self._of_right, columns)
        if not any(self._wants_bounds(*side) for side in sides):
            return
        rank = self._search.k + (0 if self._is_diagonal else 1)
        for (best, part), bounds in zip(sides, found.bounds(rows, columns, rank, diagonal), strict=True):
            best.bounds[part] = np.maximum(best.bounds[part], bounds.astype(np.float64) - 2.0 * self._margin)

    def _wants_bounds(self, best: Candidates, part: slice) -> bool:
        """Two tries are enough: then there are too few scores, and bounds come from the candidates themselves."""
        if not np.isneginf(best.bounds[part]).any():
            return False
        place = (best is self._of_left, part.start)
        self._tries[place] = self._tries.get(place, 0) + 1
        return self._tries[place] <= _TRIES

    def _bounds(self, best: Candidates, part: slice) -> np.ndarray:
        """The bounds of candidates, rounded down to float32."""
        return _rounded_down(np.minimum(best.bounds[part], self._lowest - self._margin))

    def _take(self, rows: np.ndarray, columns: np.ndarray, values: np.ndarray) -> None:
        """Add pairs, each once: rows of the left and of the right side, and their scores, within the margin of the
        exact ones.
        """
        left, right = self._left, self._right
        if not self._is_diagonal:
            others = left.keys[rows] != right.keys[columns]
            rows, columns, values = rows[others], columns[others], values[others]
        k, margin = self._search.k, self._margin
        if k:
            push(self._of_left, rows, columns, values, k, margin, self._scorings[0])
            if self._serves_right:
                push(self._of_right, columns, rows, values, k, margin, self._scorings[1])
        near = values >= self._lowest - margin
        if near.any():
            self._count(rows[near], columns[near])

    def _count(self, rows: np.ndarray, columns: np.ndarray) -> None:
        """Count the pairs that are above the threshold, and keep those for which there is room."""
        scores = exact_scores(rows, columns, self._left.side, self._right.side, self._rule)
        similarities = self._rule.similarities(scores)
        above = similarities >= np.float32(self._search.threshold)
        rows, columns, similarities = rows[above], columns[above], similarities[above]
        self._above[0][:] += np.bincount(rows, minlength=len(self._above[0]))
        self._above[1][:] += np.bincount(columns, minlength=len(self._above[1]))
        room = self._search.pair_limit - self._kept
        if room:  # without room a slice of nothing would hold on to all of the batch
            one, other = self._left.keys[rows[:room]], self._right.keys[columns[:room]]
            self._pairs.append(Pairs(np.minimum(one, other), np.maximum(one, other), similarities[:room]))
            self._kept += len(one)


def _rounded_down(bounds: np.ndarray) -> np.ndarray:
    """Bounds as a finder takes them (float32), no higher than they are."""
    return np.nextafter(np.maximum(bounds, _LOWEST).astype(np.float32), np.float32(-np.inf))


def _nearest(best: Candidates, k: int, keys: np.ndarray, above: np.ndarray) -> Nearest:
    """The k best candidates of each row, once finished; `keys` are those of the other side's rows."""
    inside = np.arange(best.values.shape[1] if k else 0)[:k] < best.sizes[:, None]
    others = np.full((len(best.sizes), k), -1)
    scores = np.full((len(best.sizes), k), -np.inf)
    width = inside.shape[1]
    others[:, :width][inside] = keys[best.others[:, :width][inside]]
    scores[:, :width][inside] = best.values[:, :width][inside]
    return Nearest(others, scores, above)
