"""Exact scores (exact.py) on a device, in float64: of many pairs at once, in plain torch.

As on the host, sums of embeddings' products are exact whatever their order, as long as they come to less than 32; but
roots, and other sums, may differ in their last bits. The host has the last word on the pairs that are left.
"""

import itertools
from collections.abc import Iterator

import torch

from dupq.neighbours.exact import COSINE, MANHATTAN, Rule
from dupq.neighbours.gpu.sides import DeviceSide, row_of_each_word

_NUMBERS_AT_ONCE = 1 << 23  # dimensions and words of pairs, each of which takes some 60 bytes


class ExactScores:
    """Of pairs of questions of two sides."""

    def __init__(self, left: DeviceSide, right: DeviceSide, rule: Rule) -> None:
        """Memory: 8 bytes a word of the right side."""
        self._left, self._right, self._rule = left, right, rule
        self._has_words = bool(rule.lexical and len(left.words) and len(right.words))
        if self._has_words:
            self._width = 1 + int(torch.maximum(left.words.max(), right.words.max()))
            self._words = row_of_each_word(right.starts) * self._width + right.words  # ascending

    def of(self, rows: torch.Tensor, columns: torch.Tensor) -> torch.Tensor:
        """The score (float64) of each pair: of row `rows[i]` of the left side and `columns[i]` of the right."""
        found = [self._of_some(rows[piece], columns[piece]) for piece in self._pieces(rows)]
        return torch.cat(found) if found else self._left.squares.new_zeros(0)

    def _pieces(self, rows: torch.Tensor) -> Iterator[slice]:
        """Of about as many numbers each."""
        sizes = torch.full_like(rows, self._left.vectors.shape[1], dtype=torch.int64)
        if self._has_words:
            sizes += self._left.starts[rows + 1] - self._left.starts[rows]
        ends = sizes.cumsum(0)
        total = int(ends[-1]) if len(rows) else 0
        cuts = torch.tensor(range(_NUMBERS_AT_ONCE, total, _NUMBERS_AT_ONCE), dtype=torch.int64, device=rows.device)
        places = [0, *(torch.searchsorted(ends, cuts) + 1).tolist(), len(rows)]
        for start, stop in itertools.pairwise(places):
            if start < stop:
                yield slice(start, stop)

    def _of_some(self, rows: torch.Tensor, columns: torch.Tensor) -> torch.Tensor:
        left, right, rule = self._left, self._right, self._rule
        x, y = left.vectors[rows], right.vectors[columns]
        if rule.kind == COSINE:
            scores = rule.dense * _over(
                (x * y).sum(1, dtype=torch.float64), left.squares[rows] * right.squares[columns]
            )
        else:
            differences = x.double() - y.double()
            scores = differences.abs().sum(1) if rule.kind == MANHATTAN else differences.square().sum(1).sqrt()
            scores = scores.neg() if rule.is_distance else rule.dense * scores.neg().exp()
        if self._has_words:
            squares = left.bag_squares[rows] * right.bag_squares[columns]
            scores += rule.lexical * _over(self._common(rows, columns), squares)
        return scores

    def _common(self, rows: torch.Tensor, columns: torch.Tensor) -> torch.Tensor:
        """The products of two bags each: every word of the left one is looked up in the right one."""
        left, right = self._left, self._right
        counts = left.starts[rows + 1] - left.starts[rows]
        pairs = torch.repeat_interleave(counts)
        first = left.starts[rows] - (counts.cumsum(0) - counts)
        places = torch.arange(len(pairs), device=pairs.device) + first[pairs]
        wanted = columns[pairs] * self._width + left.words[places]
        there = torch.searchsorted(self._words, wanted).clamp_max_(len(self._words) - 1)
        products = left.weights[places].double() * right.weights[there].double()
        products.masked_fill_(self._words[there] != wanted, 0.0)
        return products.new_zeros(len(rows)).index_add_(0, pairs, products)


def _over(products: torch.Tensor, squares: torch.Tensor) -> torch.Tensor:
    """Cosines; 0 where one of the two is zero."""
    return torch.where(squares > 0, products / squares.sqrt(), 0.0)
