"""An inverted file (IVF): lists of questions round centroids; a query probes only the lists with the nearest centroids.

The centroids are found by k-means on a sample, and each question is in the list of its nearest one. All of it is done
in integers: vectors are scaled and rounded so that no sum of products reaches 2^24, and float32 holds such sums
exactly. The lists therefore depend on the questions alone: not on blocks, threads, order or machine.
"""

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from scipy import sparse

from dupq.neighbours.exact import COSINE, Rule, Side

_LENGTH = 2048.0  # of the longest vectors, once scaled: their squares are 2^22, and rounding adds little
_ROUNDS = 10  # of k-means, which ends earlier if nothing moves
_ROWS = 1_024  # questions that are compared with all centroids at once
_MOST_LISTS = 1 << 20


class Centroids(NamedTuple):
    """The centroid of each list (float32, (lists, d), integers), and what vectors are scaled by (see `points`).

    Lists near each other have numbers near each other; `sizes` (int64) is how many of the sample are in each.
    """

    points: np.ndarray
    longest: float
    sizes: np.ndarray


def unit_hashes(keys: np.ndarray) -> np.ndarray:
    """A hash of each key, uniform between 0 and 1 (float64): an interval selects as large a share of any questions."""
    mixed = keys.astype(np.uint64)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
    return ((mixed ^ (mixed >> np.uint64(31))) >> np.uint64(11)) / 2.0**53


def points(side: Side, longest: float) -> np.ndarray:
    """The dense vectors as integers (float32, (n, d)), of length 2048 at most.

    Vectors as long as `longest` or longer get that length. If it is 0 all do: a cosine ignores lengths.
    """
    divisors = np.maximum(np.sqrt(side.squares), longest)
    factors = _LENGTH / np.where(divisors > 0, divisors, 1.0)
    return np.rint(side.vectors * factors.astype(np.float32)[:, None])


def centroids(sample: Side, rule: Rule, lists: int) -> Centroids:
    """At most `lists` centroids, at least one, by k-means that starts at the first vectors of the sample.

    By Euclidean distance, whatever the measure: for vectors of one length it orders as their cosine does. Memory: 4
    bytes a dimension for the sample, 16 for the centroids.
    """
    longest = 0.0
    if rule.kind != COSINE:
        lengths = np.sqrt(sample.squares[sample.squares > 0])
        longest = 2.0 * float(np.median(lengths)) if len(lengths) else 1.0
    made = points(sample, longest)
    if not len(made):
        return Centroids(np.zeros((1, made.shape[1]), np.float32), longest, np.zeros(1, np.int64))
    middle = _k_means(made, min(lists, len(made), _MOST_LISTS))
    regions = _nearest(middle, _k_means(middle, math.isqrt(len(middle))))
    middle = middle[np.argsort(regions, kind="stable")]
    return Centroids(middle, longest, np.bincount(_nearest(made, middle), minlength=len(middle)))


def _k_means(sample: np.ndarray, lists: int) -> np.ndarray:
    """The mean of the vectors nearest to each centroid, rounded. A centroid that is nearest to none does not move."""
    middle = sample[:lists].copy()
    for _ in range(_ROUNDS):
        nearest = _nearest(sample, middle)
        ones, ends = np.ones(len(sample), np.float32), np.arange(len(sample) + 1)
        members = sparse.csr_array((ones, nearest, ends), shape=(len(sample), lists))
        sums, counts = np.zeros(middle.shape), np.bincount(nearest, minlength=lists)
        for start in range(0, len(sample), _ROWS):
            rows = slice(start, start + _ROWS)
            sums += members[rows].T @ sample[rows].astype(np.float64)
        moved = np.where(counts[:, None] > 0, np.rint(sums / np.maximum(counts, 1)[:, None]), middle)
        moved = moved.astype(np.float32)
        if np.array_equal(moved, middle):
            break
        middle = moved
    return middle


def _nearest(some: np.ndarray, middle: np.ndarray) -> np.ndarray:
    """The number (int64, (n,)) of the nearest centroid of each point."""
    pieces = [_closeness(some[start : start + _ROWS], middle).argmax(axis=1) for start in range(0, len(some), _ROWS)]
    return np.concatenate(pieces)


def _closeness(some: np.ndarray, middle: np.ndarray) -> np.ndarray:
    """Exact numbers (float32, (n, lists)) that are higher the nearer a centroid is: x y - y y / 2."""
    return some @ middle.T - (middle * middle).sum(axis=1) / np.float32(2)


def spans(sizes: np.ndarray, count: int) -> list[tuple[int, int]]:
    """Cut the lists into at most `count` ranges of about as many questions, each of one list at least."""
    ends = np.cumsum(np.maximum(sizes, 1))
    inner = np.searchsorted(ends, ends[-1] * np.arange(1, count) / count) + 1
    cuts = np.unique([0, *inner[inner < len(sizes)], len(sizes)])
    return list(zip(cuts[:-1].tolist(), cuts[1:].tolist(), strict=True))


def nearest_lists(side: Side, middle: Centroids, probes: int) -> np.ndarray:
    """The lists (int32, (n, probes)) with the nearest centroids, the nearest first, ties by number.

    Memory: 12 bytes a centroid for each of 1,024 questions.
    """
    probes = min(probes, len(middle.points))
    result = np.empty((len(side.squares), probes), np.int32)
    for rows, order in _orders(side, middle):
        chosen = np.argpartition(order, probes - 1, axis=1)[:, :probes]
        by_order = np.argsort(np.take_along_axis(order, chosen, axis=1), axis=1)
        result[rows] = np.take_along_axis(chosen, by_order, axis=1)
    return result


def nearer_lists(side: Side, middle: Centroids, lists: np.ndarray) -> np.ndarray:
    """How many lists (int64, (n,)) come before a given one of each question, in the order of `nearest_lists`."""
    result = np.empty(len(lists), np.int64)
    for rows, order in _orders(side, middle):
        result[rows] = (order < np.take_along_axis(order, lists[rows, None], axis=1)).sum(axis=1)
    return result


def _orders(side: Side, middle: Centroids) -> Iterator[tuple[slice, np.ndarray]]:
    """Some questions at a time, and numbers (float64, (rows, lists)) that are lower the nearer a centroid is.

    They are multiples of 1/2 and have the list's number to break ties: no two are equal, and float64 holds them.
    """
    for start in range(0, len(side.squares), _ROWS):
        rows = slice(start, start + _ROWS)
        piece = points(side._replace(vectors=side.vectors[rows], squares=side.squares[rows]), middle.longest)
        closeness = _closeness(piece, middle.points).astype(np.float64)
        yield rows, np.arange(len(middle.points)) - closeness * (2 * _MOST_LISTS)
