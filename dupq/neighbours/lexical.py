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

    frequent: sparse.csr_array  # float32, (n, words that are multiplied)
    rest: sparse.csr_array  # float32, (n, other words that both sides have)


def lexical_parts(left: Side, right: Side, scale: float, least_share: float) -> tuple[Lexical, Lexical]:
    """Both sides' bags over the words that both have.

    Multiplied are those whose share of the questions, the geometric mean of both sides, is at least `least_share`.
    Memory: 8 bytes a word of each side's bags, and as much again while they are made.
    """
    width = 1 + max(int(side.words.max(initial=-1)) for side in (left, right))
    shares = [np.bincount(side.words, minlength=width) / max(1, len(side.bag_squares)) for side in (left, right)]
    share = np.sqrt(shares[0] * shares[1])
    is_frequent = share >= least_share
    is_other = (share > 0) & ~is_frequent

    def parts(side: Side) -> Lexical:
        return Lexical(*(_over(side, scale, chosen) for chosen in (is_frequent, is_other)))

    first = parts(left)
    return first, first if left is right else parts(right)


def _over(side: Side, scale: float, chosen: np.ndarray) -> sparse.csr_array:
    """The entries of the chosen words (a mask); each word's column is its place among them."""
    is_there = chosen[side.words]
    starts = np.concatenate([np.zeros(1, np.int32), np.cumsum(is_there, dtype=np.int32)])[side.starts]
    factors = (scale / np.sqrt(np.where(side.bag_squares > 0, side.bag_squares, 1.0))).astype(np.float32)
    values = side.weights[is_there] * np.repeat(factors, np.diff(starts))
    columns = (np.cumsum(chosen, dtype=np.int32) - 1)[side.words[is_there]]
    return sparse.csr_array((values, columns, starts), shape=(len(factors), int(chosen.sum())))
