"""Cosines of bags of words for whole blocks: frequent words by a matrix product, the others from lists.

A word that a tenth of the questions have costs less as one more dimension of the product than as a list that is walked
for each question that has it; nearly all other words are so rare that their lists are short. The sum of both
parts is the cosine, so nothing is left out.
"""

from typing import NamedTuple

import numpy as np
from scipy import sparse

from dupq.neighbours.exact import Side

# For a pair of questions, a dimension of a product costs some 0.01 ns, an entry of a list 1 ns
_FREQUENT = 0.1


class Lexical(NamedTuple):
    """The bags of one side, as rows of unit length times a scale: what is multiplied, and the lists (CSR)."""

    frequent: sparse.csr_array  # float64, (n, words that are multiplied)
    rest: sparse.csr_array  # float64, (n, other words that both sides have)


def lexical_parts(left: Side, right: Side, scale: float, is_product: bool) -> tuple[Lexical, Lexical]:
    """Both sides' bags over the words that both have. Without a product all words are in lists."""
    shared = np.intersect1d(left.words, right.words)
    bags = [_units(side, shared, scale) for side in (left, right)]
    shares = [np.diff(bag.tocsc().indptr) / max(1, bag.shape[0]) for bag in bags]
    is_frequent = np.sqrt(shares[0] * shares[1]) >= (_FREQUENT if is_product else np.inf)
    first, second = (Lexical(bag[:, is_frequent], bag[:, ~is_frequent]) for bag in bags)
    return first, second


def _units(side: Side, words: np.ndarray, scale: float) -> sparse.csr_array:
    """The bags over `words` (ascending) alone; each has the length `scale` over all words."""
    rows = np.repeat(np.arange(len(side.bag_squares)), np.diff(side.starts))
    indices = np.searchsorted(words, side.words)
    is_shared = np.append(words, -1)[indices] == side.words
    rows, indices = rows[is_shared], indices[is_shared]
    values = scale * side.weights[is_shared] / np.sqrt(side.bag_squares[rows])
    starts = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=len(side.bag_squares)))])
    return sparse.csr_array((values, indices, starts), shape=(len(side.bag_squares), len(words)))
