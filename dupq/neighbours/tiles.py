"""The exact search: of a tile (each question of one block with each of another), and of queries among targets.

Scores are symmetric, so each product of two blocks serves the questions of both: half the work of a plain search.
Quick scores only choose candidates (products.py). Those that may be among the k best, or above the threshold, are
scored again in float64 (exact.py), which decides. So the answer depends on the embeddings alone, not on blocks, threads
or order.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np

from dupq.neighbours.candidates import (
    Candidates,
    Hits,
    Nearest,
    as_neighbours,
    empty_candidates,
    empty_nearest,
    finish,
    merge,
    push,
    scan,
)
from dupq.neighbours.embeddings import Embeddings, Measure, Neighbours
from dupq.neighbours.exact import COSINE, Side, exact_scores, gpu_can_search, rule_of, scoring, side_of
from dupq.neighbours.products import Distances, fastest_products, padded
from dupq.system import CPU

_ROWS, _COLUMNS = 1_024, 2_048  # of a tile that are scored and scanned at a time
_ROOM = 1 << 18  # hits of a scan at a time
_LOWEST = np.float32(-1e30)  # below every score of a pair


class Block(NamedTuple):
    """Questions prepared for the search: their keys (int64, ascending), and what their scores are computed from.

    Questions with a zero vector and no words are left out: they have no neighbours.
    """

    keys: np.ndarray
    side: Side

    def between(self, start: int, stop: int) -> "Block":
        """Return the questions in rows from `start` to `stop` - 1."""
        side, rows = self.side, slice(start, stop)
        starts = side.starts[start : stop + 1]
        words = slice(starts[0], starts[-1])
        bags = starts - starts[0], side.words[words], side.weights[words], side.bag_squares[rows]
        return Block(self.keys[rows], Side(side.vectors[rows], side.squares[rows], *bags))


class Search(NamedTuple):
    """What to search for: the k best of each question (0: none), and all pairs whose similarity reaches the threshold.

    Similarities are compared in float32, as they are stored. Without `keeps_pairs`, pairs are only counted.
    """

    measure: Measure
    k: int
    threshold: float = np.inf
    keeps_pairs: bool = True


# For each side, the k-th best score of its questions in other tiles (float64; -inf: not known)
Known = tuple[np.ndarray | None, np.ndarray | None]


class Pairs(NamedTuple):
    """Pairs above the threshold, each once: smaller keys, larger keys, similarities (float32)."""

    left: np.ndarray
    right: np.ndarray
    similarities: np.ndarray


Found = tuple[Nearest, Nearest, Pairs, np.ndarray]  # what `search_tile` returns
NO_PAIRS = Pairs(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0, np.float32))


def block(embeddings: Embeddings, measure: Measure) -> Block:
    """Prepare embeddings (distinct keys) for the search. Memory: 4 bytes per dimension and 8 per word."""
    inside = np.flatnonzero(~embeddings.is_empty)
    chosen = embeddings.take(inside[np.argsort(embeddings.keys[inside], kind="stable")])
    return Block(chosen.keys, side_of(chosen, rule_of(measure)))


def search_tile(left: Block, right: Block, search: Search, both: bool = True, known: Known = (None, None)) -> Found:
    """Return the nearest of `left` among `right`, those of `right` among `left`, the pairs above the threshold, and in
    how many such pairs each question of `left` is (int64).

    For a block with itself (`left is right`) both lists are the same. Other blocks may have keys in common: a question
    is not its own neighbour. Without `both` only the questions of `left` get neighbours. Neighbours below the `known`
    scores of a side's questions may be missing from their lists. Memory: the blocks' rows to be multiplied (2 or 4
    bytes per dimension), 12 bytes for each of 4 k + 24 candidates of a question, and 40 bytes per pair that is kept.
    """
    return _Tile(left, right, search, both).found(known)


class _Tile:
    """The state of a search of a tile: the candidates of both sides, and the pairs above the threshold."""

    def __init__(self, left: Block, right: Block, search: Search, both: bool) -> None:
        self._left, self._right, self._search = left, right, search
        self._rule = rule_of(search.measure)
        self._sides = scoring(left.side, right.side, self._rule)
        self._swapped = scoring(right.side, left.side, self._rule)
        products = fastest_products() if self._rule.kind == COSINE else Distances
        self._quick = products(left.side, right.side, self._rule)
        self._margin = self._quick.margin
        self._is_diagonal = left is right
        self._lowest = self._rule.lowest_score(float(np.float32(search.threshold)))
        self._of_left = empty_candidates(len(left.keys), search.k)
        self._of_right = self._of_left
        if not self._is_diagonal:
            self._of_right = empty_candidates(len(right.keys), search.k if both else 0)
        self._above = np.zeros(len(left.keys), np.int64)
        self._pairs: list[Pairs] = []
        self._serves_right = both or self._is_diagonal

    def found(self, known: Known) -> Found:
        """Search the whole tile."""
        k, left, right, quick = self._search.k, self._left, self._right, self._quick
        for best, scores in zip((self._of_left, self._of_right), known, strict=True):
            if scores is not None and k:
                best.bounds[:] = np.maximum(best.bounds, scores - self._margin)
        hits = Hits(np.empty(_ROOM, np.int32), np.empty(_ROOM, np.int32), np.empty(_ROOM, np.float32))
        for rows, columns in self._ranges():
            diagonal = rows.start - columns.start if self._is_diagonal else -_ROWS - 1
            row_bounds, bounds = self._bounds(self._of_left, rows), self._bounds(self._of_right, columns)
            width = padded(len(bounds))
            column_bounds = np.full(width, np.inf, np.float32)
            column_bounds[: len(bounds)] = bounds
            scores, rest = quick.scores(rows, columns, width), quick.rest(rows, columns)
            start = 0
            while start < len(scores):
                count, start = scan(scores, rest, row_bounds, column_bounds, diagonal, start, hits)
                self._add(hits.rows[:count] + rows.start, hits.columns[:count] + columns.start, hits.values[:count])
        if k:
            finish(self._of_left, k, self._margin, self._sides)
            if self._serves_right and not self._is_diagonal:
                finish(self._of_right, k, self._margin, self._swapped)
        pairs = Pairs(*(np.concatenate(column) for column in zip(NO_PAIRS, *self._pairs, strict=True)))
        return _nearest(self._of_left, k, right.keys), _nearest(self._of_right, k, left.keys), pairs, self._above

    def _ranges(self) -> Iterator[tuple[slice, slice]]:
        """Yield the rows and columns that are scored at a time; on the diagonal those that reach above it."""
        for row in range(0, len(self._left.keys), _ROWS):
            first = row // _COLUMNS * _COLUMNS if self._is_diagonal else 0
            for column in range(first, len(self._right.keys), _COLUMNS):
                yield (
                    slice(row, min(row + _ROWS, len(self._left.keys))),
                    slice(column, min(column + _COLUMNS, len(self._right.keys))),
                )

    def _bounds(self, best: Candidates, questions: slice) -> np.ndarray:
        """Return the bounds of some questions for a scan (float32), rounded down."""
        bounds = np.maximum(np.minimum(best.bounds[questions], self._lowest - self._margin), _LOWEST)
        return np.nextafter(bounds.astype(np.float32), np.float32(-np.inf))

    def _add(self, rows: np.ndarray, columns: np.ndarray, values: np.ndarray) -> None:
        """Add pairs: rows of the left and of the right side, and their quick scores."""
        left, right = self._left, self._right
        if not self._is_diagonal:
            others = left.keys[rows] != right.keys[columns]
            rows, columns, values = rows[others], columns[others], values[others]
        k, margin = self._search.k, self._margin
        if k:
            push(self._of_left, rows, columns, values, k, margin, self._sides)
            if self._serves_right:
                push(self._of_right, columns, rows, values, k, margin, self._swapped)
        near = values >= self._lowest - margin
        if not near.any():
            return
        rows, columns = rows[near], columns[near]
        scores = exact_scores(self._sides, rows, columns)
        similarities = self._rule.similarities(scores)
        above = similarities >= np.float32(self._search.threshold)
        rows, columns, similarities = rows[above], columns[above], similarities[above]
        for ends in (rows, columns) if self._is_diagonal else (rows,):
            self._above += np.bincount(ends, minlength=len(self._above))
        if self._search.keeps_pairs:
            left, right = left.keys[rows], right.keys[columns]
            self._pairs.append(Pairs(np.minimum(left, right), np.maximum(left, right), similarities))


def _nearest(best: Candidates, k: int, keys: np.ndarray) -> Nearest:
    """Return the lists of finished candidates; `keys` are those of the other side's rows."""
    nearest = empty_nearest(len(best.sizes), k)
    if best.values.shape[1]:  # 0 for a side that gets no neighbours
        inside = np.arange(k) < best.sizes[:, None]
        nearest.others[inside] = keys[best.others[:, :k][inside]]
        nearest.scores[inside] = best.values[:, :k][inside]
    return nearest


def top_k(
    queries: Embeddings, targets: Iterable[Embeddings], k: int, measure: Measure, device: str = CPU
) -> Neighbours:
    """Return the k nearest targets of each query by `measure`, ties by key; a question is not its own neighbour.

    Zero embeddings (empty texts) neither have neighbours nor are any. Fewer than k targets give fewer rows. CPUs
    search if a GPU cannot by this measure. Memory: see `search_tile`, for the queries and the largest target block.
    """
    if device != CPU and gpu_can_search(measure):
        import torch

        from dupq.neighbours.gpu.search import nearest_of_share  # with Triton, which takes 70 MB

        by_key, each = queries.take(np.argsort(queries.keys)), ([target] for target in targets)
        return as_neighbours(*next(nearest_of_share([by_key], each, measure, k, torch.device(device))), measure)
    left, search = block(queries, measure), Search(measure, k)
    nearest = empty_nearest(len(left.keys), k)
    for target in targets:
        merge(nearest, search_tile(left, block(target, measure), search, both=False)[0])
    return as_neighbours(left.keys, nearest, measure)
