"""An inverted file (IVF): lists of questions round centroids; a query probes only the lists with the nearest centroids.

The centroids are found by k-means on a sample, and each question is in the list of its nearest one. All of it is done
in integers: vectors are scaled and rounded so that no sum of products reaches 2^24, and float32 holds such sums
exactly. The lists therefore depend on the questions alone: not on blocks, threads, order or machine.
"""

from typing import NamedTuple

import numpy as np
from scipy import sparse

from dupq.neighbours.exact import COSINE, Rule, Side

_LENGTH = 2048.0  # of the longest vectors, once scaled: their squares are 2^22, and rounding adds little
_ROUNDS = 10  # of k-means, which ends earlier if nothing moves
_ROWS = 1_024  # questions that are compared with all centroids at once
_MOST_LISTS = 1 << 20


class Centroids(NamedTuple):
    """The centroid of each list (float32, (lists, d), integers), and what vectors are scaled by (see `points`)."""

    points: np.ndarray
    longest: float


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
        return Centroids(np.zeros((1, made.shape[1]), np.float32), longest)
    return Centroids(_k_means(made, min(lists, len(made), _MOST_LISTS)), longest)


def _k_means(sample: np.ndarray, lists: int) -> np.ndarray:
    """The mean of the vectors nearest to each centroid, rounded. A centroid that is nearest to none does not move."""
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
    """Exact numbers (float32, (n, lists)) that are higher the nearer a centroid is: x y - y y / 2."""
    return some @ middle.T - (middle * middle).sum(axis=1) / np.float32(2)


def nearest_lists(side: Side, middle: Centroids, probes: int) -> np.ndarray:
    """The lists (int32, (n, probes)) with the nearest centroids, the nearest first, ties by number.

    Memory: 12 bytes a centroid for each of 1,024 questions.
    """
    count = len(middle.points)
    probes = min(probes, count)
    result = np.empty((len(side.squares), probes), np.int32)
    for start in range(0, len(result), _ROWS):
        rows = slice(start, start + _ROWS)
        piece = points(side._replace(vectors=side.vectors[rows], squares=side.squares[rows]), middle.longest)
        # a multiple of 1/2, and the list's number to break ties: no two are equal, and float64 holds them exactly
        order = np.arange(count) - _closeness(piece, middle.points).astype(np.float64) * (2 * _MOST_LISTS)
        chosen = np.argpartition(order, probes - 1, axis=1)[:, :probes]
        by_order = np.argsort(np.take_along_axis(order, chosen, axis=1), axis=1)
        result[rows] = np.take_along_axis(chosen, by_order, axis=1)
    return result
