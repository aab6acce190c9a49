"""Words that are not multiplied, for some questions of each side: lists made for these alone, of words both have."""

from typing import NamedTuple

import numpy as np
from scipy import sparse

from dupq.kernel_cache import numba as nb
from dupq.neighbours.scan import Rest


class Bags(NamedTuple):
    """Row i has `words` (int32) and `weights` (float32) from `starts[i]` to `starts[i + 1]`."""

    starts: np.ndarray
    words: np.ndarray
    weights: np.ndarray


def bags_of(rows: sparse.csr_array, scale: float = 1.0) -> Bags:
    """The rows of a matrix, times `scale`."""
    return Bags(rows.indptr.astype(np.int64), rows.indices.astype(np.int32), (scale * rows.data).astype(np.float32))


@nb.njit(nogil=True, cache=True)
def rest_between(left: Bags, right: Bags, rows: np.ndarray, columns: np.ndarray, numbers: np.ndarray) -> Rest:
    """What `scan` adds for `rows` of the left side and `columns` of the right.

    `numbers` (int32) has a place for each word, all zeros, and is left so. Words get numbers of their own here, by
    where they first occur: a word that only one side has costs no more than a look.
    """
    entries, count = 0, 0
    words = np.empty(_size(right, columns), np.int32)
    for column in columns:
        for place in range(right.starts[column], right.starts[column + 1]):
            word = right.words[place]
            if numbers[word] == 0:
                words[count] = word
                count += 1
                numbers[word] = count
            entries += 1
    postings, places, values = _postings(right, columns, numbers, count, entries)
    starts = np.zeros(len(rows) + 1, np.int64)
    size = _size(left, rows)
    kept_words, kept_weights = np.empty(size, np.int32), np.empty(size, np.float32)
    kept = 0
    for index in range(len(rows)):
        for place in range(left.starts[rows[index]], left.starts[rows[index] + 1]):
            number = numbers[left.words[place]]
            if number != 0:
                kept_words[kept], kept_weights[kept] = number - 1, left.weights[place]
                kept += 1
        starts[index + 1] = kept
    for word in words[:count]:
        numbers[word] = 0
    return Rest(starts, kept_words[:kept], kept_weights[:kept], postings, places, values)


@nb.njit(nogil=True, cache=True)
def _postings(
    right: Bags, columns: np.ndarray, numbers: np.ndarray, count: int, entries: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The columns that have each of `count` words, and its weights there."""
    postings = np.zeros(count + 1, np.int32)
    for column in columns:
        for place in range(right.starts[column], right.starts[column + 1]):
            postings[numbers[right.words[place]]] += 1
    for word in range(count):
        postings[word + 1] += postings[word]
    free = postings.copy()  # the next place of each word
    places, values = np.empty(entries, np.uint32), np.empty(entries, np.float32)
    for index in range(len(columns)):
        for place in range(right.starts[columns[index]], right.starts[columns[index] + 1]):
            word = numbers[right.words[place]] - 1
            places[free[word]], values[free[word]] = index, right.weights[place]
            free[word] += 1
    return postings, places, values


@nb.njit(nogil=True, cache=True)
def _size(bags: Bags, rows: np.ndarray) -> int:
    size = 0
    for row in rows:
        size += bags.starts[row + 1] - bags.starts[row]
    return size
