"""An inverted file: questions in lists that lie near each other, so that one is only searched among the nearest lists.

A list holds the questions that are nearest to its centre; the centres are found by k-means on a sample. All of it is
done in whole numbers: vectors are scaled and rounded so that no sum of products reaches 2^24, and float32 holds such
sums exactly. The lists therefore depend on the questions alone: not on blocks, threads, order or machine.
"""

from typing import NamedTuple

import numpy as np
from scipy import sparse

from dupq.neighbours.exact import COSINE, Rule, Side
from dupq.neighbours.nearest import Nearest, merge, nobody
from dupq.neighbours.tiles import NO_PAIRS, Block, Pairs, Search, search_tile

_LENGTH = 2048.0  # of the longest vectors, once scaled: their squares are 2^22, and rounding adds little
_ROUNDS = 10  # of k-means; it ends before if nothing moves
_ROWS = 1_024  # questions that are compared with all centres at once
_QUERIES = 8_192  # questions that are searched for in a list at once
_MOST_LISTS = 1 << 20
_NO_LIMIT = 1 << 62


class Centres(NamedTuple):
    """The middle of each list (float32, (lists, d), whole numbers), and what vectors are scaled by (see `points`)."""

    points: np.ndarray
    longest: float


class Listed(NamedTuple):
    """Questions and the lists that each is searched for in (int32, (n, probes)); the nearest first: it is in that."""

    block: Block
    lists: np.ndarray

    def take(self, rows: np.ndarray) -> "Listed":
        """Some of the questions, by their places in ascending order."""
        return Listed(_taken(self.block, rows), self.lists[rows])


class Found(NamedTuple):
    """What a search of some lists gives: the places of the questions that look into them, their best, and pairs.

    Of the pairs over the threshold all are counted, and kept while there are no more than the search's limit. `over`
    counts what a question itself has found.
    """

    rows: np.ndarray
    nearest: Nearest
    pairs: Pairs
    pair_count: int


def hash_places(keys: np.ndarray) -> np.ndarray:
    """A place from 0 to 1 (float64) for each key, by its hash: a share of it holds that share of any questions."""
    mixed = keys.astype(np.uint64)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
    return ((mixed ^ (mixed >> np.uint64(31))) >> np.uint64(11)) / 2.0**53


def points(side: Side, longest: float) -> np.ndarray:
    """The dense vectors as whole numbers (float32, (n, d)), of length 2048 at most.

    Those that are as long as `longest` or longer get that length. Without (0), all do: cosines know no lengths.
    """
    divisors = np.maximum(np.sqrt(side.squares), longest)
    factors = _LENGTH / np.where(divisors > 0, divisors, 1.0)
    return np.rint(side.vectors * factors.astype(np.float32)[:, None])


def centres(sample: Side, rule: Rule, lists: int) -> Centres:
    """At most as many centres as `lists`, at least one, by k-means that starts at the first vectors of the sample.

    By Euclidean distance, whatever the measure: of vectors of one length it orders as their cosine. Memory: 4 bytes a
    dimension, of the sample and twice of the centres, and 8 of the centres.
    """
    longest = 0.0
    if rule.kind != COSINE:
        lengths = np.sqrt(sample.squares[sample.squares > 0])
        longest = 2.0 * float(np.median(lengths)) if len(lengths) else 1.0
    made = points(sample, longest)
    if not len(made):
        return Centres(np.zeros((1, made.shape[1]), np.float32), longest)
    return Centres(_k_means(made, min(lists, len(made), _MOST_LISTS)), longest)


def _k_means(sample: np.ndarray, lists: int) -> np.ndarray:
    """The means of what is nearest to each of them, rounded. A centre that nothing is nearest to stays where it is."""
    middle = sample[:lists].copy()
    for _ in range(_ROUNDS):
        sums, counts = np.zeros(middle.shape), np.zeros(lists, np.int64)
        for start in range(0, len(sample), _ROWS):
            piece = sample[start : start + _ROWS]
            nearest = _closeness(piece, middle).argmax(axis=1)
            ones, ends = np.ones(len(piece)), np.arange(len(piece) + 1)
            sums += sparse.csr_array((ones, nearest, ends), shape=(len(piece), lists)).T @ piece.astype(np.float64)
            counts += np.bincount(nearest, minlength=lists)
        moved = np.where(counts[:, None] > 0, np.rint(sums / np.maximum(counts, 1)[:, None]), middle)
        moved = moved.astype(np.float32)
        if np.array_equal(moved, middle):
            break
        middle = moved
    return middle


def _closeness(some: np.ndarray, middle: np.ndarray) -> np.ndarray:
    """Numbers (float32, (n, lists)), exact, that are higher the nearer a centre is: x y - y y / 2."""
    return some @ middle.T - (middle * middle).sum(axis=1) / np.float32(2)


def nearest_lists(side: Side, middle: Centres, probes: int) -> np.ndarray:
    """The lists (int32, (n, probes)) with the nearest centres, the nearest first, ties by number.

    Memory: 12 bytes a centre for each of 1,024 questions.
    """
    count = len(middle.points)
    probes = min(probes, count)
    result = np.empty((len(side.squares), probes), np.int32)
    for start in range(0, len(result), _ROWS):
        rows = slice(start, start + _ROWS)
        piece = points(side._replace(vectors=side.vectors[rows], squares=side.squares[rows]), middle.longest)
        # multiples of 1/2 and numbers of lists: no two are equal, and float64 holds them exactly
        order = np.arange(count) - _closeness(piece, middle.points).astype(np.float64) * (2 * _MOST_LISTS)
        chosen = np.argpartition(order, probes - 1, axis=1)[:, :probes]
        by_order = np.argsort(np.take_along_axis(order, chosen, axis=1), axis=1)
        result[rows] = np.take_along_axis(chosen, by_order, axis=1)
    return result


def search_lists(queries: Listed, members: Listed, span: tuple[int, int], search: Search) -> Found:
    """Search questions in those of the lists span[0] to span[1] - 1 that they look into; `members` are all of these.

    Scores are exact, and so is the order of what is found. A pair over the threshold that both of its questions find is
    given by the search of its smaller one alone, wherever that happens.
    """
    nearest = nobody(len(queries.block.keys), search.k)
    is_inside = (queries.lists >= span[0]) & (queries.lists < span[1])
    rows = np.nonzero(is_inside)[0]
    kept, count = [NO_PAIRS], 0
    by_list = (_places_by_list(lists, span) for lists in (queries.lists[is_inside], members.lists[:, 0]))
    for places, of_list in zip(*by_list, strict=True):
        theirs, mine = members.take(of_list), rows[places]
        for start in range(0, len(mine), _QUERIES):
            part = mine[start : start + _QUERIES]
            asked = queries.take(part)
            of_asked, _, pairs = search_tile(asked.block, theirs.block, search._replace(pair_limit=_NO_LIMIT), False)
            merge_rows(nearest, part, of_asked)
            pairs = _each_once(pairs, asked, theirs)
            count += len(pairs.left)
            if count <= search.pair_limit:
                kept.append(pairs)
    inside = np.unique(rows)
    found = Nearest(*(column[inside] for column in nearest))
    return Found(inside, found, Pairs(*map(np.concatenate, zip(*kept, strict=True))), count)


def _places_by_list(lists: np.ndarray, span: tuple[int, int]) -> list[np.ndarray]:
    """Where each list of a span stands in `lists`, in ascending order."""
    order = np.argsort(lists, kind="stable")
    bounds = np.searchsorted(lists[order], np.arange(span[0], span[1] + 1))
    return np.split(order, bounds)[1:-1]


def merge_rows(nearest: Nearest, rows: np.ndarray, more: Nearest) -> None:
    """Put lists of the questions at `rows` (distinct places) into those of all."""
    some = Nearest(*(column[rows] for column in nearest))
    merge(some, more)
    for column, changed in zip(nearest, some, strict=True):
        column[rows] = changed


def _each_once(pairs: Pairs, queries: Listed, members: Listed) -> Pairs:
    """The pairs that the search of `queries` in the list of `members` is to give.

    Those that the smaller question has found, once each; and those of a larger one that the smaller does not find,
    since it does not look into the list of the larger.
    """
    if not len(pairs.left):
        return pairs
    by_smaller = np.isin(pairs.left, queries.block.keys) & np.isin(pairs.right, members.block.keys)
    others = np.flatnonzero(~by_smaller)
    smaller = np.searchsorted(members.block.keys, pairs.left[others])
    larger = np.searchsorted(queries.block.keys, pairs.right[others])
    finds = (members.lists[smaller] == queries.lists[larger, :1]).any(axis=1)
    chosen = np.concatenate([np.flatnonzero(by_smaller), others[~finds]])
    _, first = np.unique(np.stack([pairs.left[chosen], pairs.right[chosen]]), axis=1, return_index=True)
    return Pairs(*(column[chosen[first]] for column in pairs))


def _taken(block: Block, rows: np.ndarray) -> Block:
    """Some of a block's questions, in ascending order."""
    side = block.side
    counts = np.diff(side.starts)[rows]
    starts = np.concatenate([[0], np.cumsum(counts)])
    words = np.repeat(side.starts[rows] - starts[:-1], counts) + np.arange(starts[-1])
    bags = starts, side.words[words], side.weights[words], side.bag_squares[rows]
    return Block(block.keys[rows], Side(side.vectors[rows], side.squares[rows], *bags))
