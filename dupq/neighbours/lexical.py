"""Cosines of bags of words for whole blocks: frequent words by a matrix product, the others from lists.

A word that a tenth of the questions have costs less as one more dimension of the product than as a list that is walked
for each question that has it; nearly all other words are so rare that their lists are short. The sum of both
parts is the cosine, so nothing is left out.
"""

from typing import NamedTuple

import numpy as np
from scipy import sparse

from dupq.neighbours.exact import Side

# A word is multiplied from this share of the questions on: for a pair of questions, a dimension of a product costs
# some 0.002 ns in bfloat16 tiles (AMX), 0.01 ns in bfloat16, 0.02 ns in float32; an entry of a list 1 to 2 ns
FREQUENT_FOR_TILES, FREQUENT_FOR_BFLOAT16, FREQUENT = 0.03, 0.06, 0.1


class Lexical(NamedTuple):
    """The bags of one side, as rows of unit length times a scale: what is multiplied, and the lists (CSR)."""

    frequent: sparse.csr_array  # float64, (n, words that are multiplied)
    rest: sparse.csr_array  # float64, (n, other words that both sides have)


def lexical_parts(left: Side, right: Side, scale: float, least_share: float) -> tuple[Lexical, Lexical]:
    """Both sides' bags over the words that both have.

    Multiplied are those whose share of the questions, the geometric mean of both sides, is at least `least_share`.
    """
    width = 1 + max(int(side.words.max(initial=-1)) for side in (left, right))
    shares = [np.bincount(side.words, minlength=width) / max(1, len(side.bag_squares)) for side in (left, right)]
    share = np.sqrt(shares[0] * shares[1])
    is_frequent = share >= least_share
    is_other = (share > 0) & ~is_frequent

    def parts(side: Side) -> Lexical:
        rows = np.repeat(np.arange(len(side.bag_squares)), np.diff(side.starts))
        values = scale * side.weights / np.sqrt(side.bag_squares[rows])
        return Lexical(*(_over(side, rows, values, chosen) for chosen in (is_frequent, is_other)))

    first = parts(left)
    return first, first if left is right else parts(right)


def _over(side: Side, rows: np.ndarray, values: np.ndarray, chosen: np.ndarray) -> sparse.csr_array:
    """The entries of the chosen words (a mask); each word's column is its place among them."""
    is_there = chosen[side.words]
    count = len(side.bag_squares)
    starts = np.concatenate([[0], np.cumsum(np.bincount(rows[is_there], minlength=count))])
    columns = (np.cumsum(chosen) - 1)[side.words[is_there]]
    return sparse.csr_array((values[is_there], columns, starts), shape=(count, int(chosen.sum())))
