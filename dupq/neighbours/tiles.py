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
from dupq.neighbours.embeddings import COSINE, Embeddings, Measure, Neighbours
from dupq.neighbours.exact import Side, exact_scores, gpu_can_search, scoring, side_of
from dupq.neighbours.products import Products, fastest_products, padded
from dupq.neighbours.scopes import Entries, are_comparable
from dupq.system import CPU, papers

_ROWS, _COLUMNS = 1_024, 2_048  # of a tile that are scored and scanned at a time
_ROOM = 1 << 18  # hits of a scan at a time
_LOWEST = np.float32(-1e30)  # below every score of a pair
_FEW = 32  # queries that are scored exactly with all targets: to prepare a block's products takes longer
# For each side, the k-th best score of its questions in other tiles (float64; -inf: not known)
Known = tuple[np.ndarray | None, np.ndarray | None]


class Block(NamedTuple):
    """Questions prepared for the search: their keys (int64, ascending), and what their scores are computed from.

    Questions with a zero vector and no words are left out: they have no neighbours.
    """

    keys: np.ndarray
    side: Side
    entries: Entries | None = None  # of the same questions; None: any two are compared
    window: int = 0  # milliseconds

    def between(self, start: int, stop: int) -> "Block":
        """Return the questions in rows from `start` to `stop` - 1."""
        side, rows = self.side, slice(start, stop)
        starts = side.starts[start : stop + 1]
        words = slice(starts[0], starts[-1])
        bags = starts - starts[0], side.words[words], side.weights[words], side.bag_squares[rows]
        own = self.entries
        entries = own and own._replace(keys=own.keys[rows], starts=own.starts[start : stop + 1])
        return Block(self.keys[rows], Side(side.vectors[rows], side.squares[rows], *bags), entries, self.window)


class Search(NamedTuple):
    """What to search for: the k best of each question (0: none), and all pairs whose similarity reaches the threshold.

    Similarities are compared in float32, as they are stored. Without `keeps_pairs`, pairs are only counted.
    """

    measure: Measure
    k: int
    threshold: float = np.inf
    keeps_pairs: bool = True


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
    return Block(chosen.keys, side_of(chosen, measure))


def search_tile(left: Block, right: Block, search: Search, both: bool = True, known: Known = (None, None)) -> Found:
    """Return the nearest of `left` among `right`, those of `right` among `left`, the pairs above the threshold, and in
    how many such pairs each question of `left` is (int64).

    For a block with itself (`left is right`) both lists are the same. Other blocks may have keys in common: a question
    is not its own neighbour. Without `both` only the questions of `left` get neighbours. Neighbours below the `known`
    scores of a side's questions may be missing from their lists. By distances the papers search. Memory: the blocks'
    rows to be multiplied (2 or 4 bytes per dimension), 12 bytes for each of 4 k + 24 candidates of a question, and 40
    bytes per pair that is kept.
    """
    if search.measure.kind != COSINE:
        found: Found = papers("distances")[0].search_tile(left, right, search)
        return found
    k, measure, is_diagonal = search.k, search.measure, left is right
    sides, swapped = scoring(left.side, right.side, measure), scoring(right.side, left.side, measure)
    quick = fastest_products()(left.side, right.side, measure)
    margin, threshold = quick.margin, np.float32(search.threshold)
    least = float(np.nextafter(threshold, -np.float32(np.inf))) - margin
    of_left = empty_candidates(len(left.keys), k)
    of_right = of_left if is_diagonal else empty_candidates(len(right.keys), k if both else 0)
    for best, scores in zip((of_left, of_right), known, strict=True):
        if scores is not None and k:
            best.bounds[:] = np.maximum(best.bounds, scores - margin)
    above, pairs = np.zeros(len(left.keys), np.int64), [NO_PAIRS]
    for rows, columns, values in _hits(left, right, quick, of_left, of_right, least):
        if k:
            push(of_left, rows, columns, values, k, margin, sides)
            if both or is_diagonal:
                push(of_right, columns, rows, values, k, margin, swapped)
        near = values >= least
        if not near.any():
            continue
        rows, columns = rows[near], columns[near]
        similarities = exact_scores(sides, rows, columns).astype(np.float32)
        is_above = similarities >= threshold
        rows, columns, similarities = rows[is_above], columns[is_above], similarities[is_above]
        for ends in (rows, columns) if is_diagonal else (rows,):
            above += np.bincount(ends, minlength=len(above))
        if search.keeps_pairs:
            keys = left.keys[rows], right.keys[columns]
            pairs.append(Pairs(np.minimum(*keys), np.maximum(*keys), similarities))
    if k:
        finish(of_left, k, margin, sides)
        if both and not is_diagonal:
            finish(of_right, k, margin, swapped)
    every = Pairs(*(np.concatenate(column) for column in zip(*pairs, strict=True)))
    return _nearest(of_left, k, right.keys), _nearest(of_right, k, left.keys), every, above


def _hits(
    left: Block, right: Block, quick: Products, of_left: Candidates, of_right: Candidates, least: float
) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Yield pairs (rows of both sides, scores) whose quick scores reach `least`, or a question's bound at that time."""
    hits = Hits(np.empty(_ROOM, np.int32), np.empty(_ROOM, np.int32), np.empty(_ROOM, np.float32))
    is_diagonal = left is right
    for row in range(0, len(left.keys), _ROWS):
        rows = slice(row, min(row + _ROWS, len(left.keys)))
        first = row // _COLUMNS * _COLUMNS if is_diagonal else 0
        for column in range(first, len(right.keys), _COLUMNS):
            columns = slice(column, min(column + _COLUMNS, len(right.keys)))
            width = padded(columns.stop - column)
            column_bounds = np.full(width, np.inf, np.float32)
            column_bounds[: columns.stop - column] = _bounds(of_right, columns, least)
            row_bounds = _bounds(of_left, rows, least)
            scores, rest = quick.scores(rows, columns, width), quick.rest(rows, columns)
            diagonal, start = row - column if is_diagonal else -_ROWS - 1, 0
            while start < len(scores):
                count, start = scan(scores, rest, row_bounds, column_bounds, diagonal, start, hits)
                found, others, values = hits.rows[:count] + row, hits.columns[:count] + column, hits.values[:count]
                if not is_diagonal:
                    differ = left.keys[found] != right.keys[others]
                    found, others, values = found[differ], others[differ], values[differ]
                if left.entries is not None and right.entries is not None:
                    is_allowed = are_comparable(left.entries, right.entries, found, others, left.window)
                    found, others, values = found[is_allowed], others[is_allowed], values[is_allowed]
                yield found, others, values


def _bounds(best: Candidates, questions: slice, least: float) -> np.ndarray:
    """Return the bounds of some questions for a scan (float32), rounded down."""
    bounds = np.maximum(np.minimum(best.bounds[questions], least), _LOWEST)
    return np.nextafter(bounds.astype(np.float32), np.float32(-np.inf))


def _nearest(best: Candidates, k: int, keys: np.ndarray) -> Nearest:
    """Return the lists of finished candidates; `keys` are the other side's."""
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
        return as_neighbours(*next(nearest_of_share([by_key], each, measure, k, torch.device(device))))
    return nearest_in_blocks(queries, (block(target, measure) for target in targets), k, measure)


def nearest_in_blocks(queries: Embeddings, targets: Iterable[Block], k: int, measure: Measure) -> Neighbours:
    """Return the same as `top_k`, on the CPU, of targets that are prepared."""
    left, search = block(queries, measure), Search(measure, k)
    nearest, are_few = empty_nearest(len(left.keys), k), measure.kind == COSINE and len(left.keys) <= _FEW
    for target in targets:
        more = _by_all_scores(left, target, search) if are_few else search_tile(left, target, search, both=False)[0]
        merge(nearest, more)
    return as_neighbours(left.keys, nearest)


def _by_all_scores(left: Block, right: Block, search: Search) -> Nearest:
    """Return the nearest of `left` among `right`, like `search_tile`. Memory: 12 bytes per question of `right`."""
    nearest, columns = empty_nearest(len(left.keys), search.k), np.arange(len(right.keys), dtype=np.int32)
    sides = scoring(left.side, right.side, search.measure)
    for row, key in enumerate(left.keys):
        scores = exact_scores(sides, np.full(len(columns), row, np.int32), columns)
        scores[right.keys == key] = -np.inf
        count = min(search.k, int((scores > -np.inf).sum()))
        if count:
            least = np.partition(scores, len(scores) - count)[len(scores) - count]
            best = np.flatnonzero(scores >= least)  # ascending by key
            best = best[np.argsort(-scores[best], kind="stable")[:count]]
            nearest.others[row, :count], nearest.scores[row, :count] = right.keys[best], scores[best]
    return nearest
