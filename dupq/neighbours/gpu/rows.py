"""Rows whose product is no less than the score: unit vectors beside columns that hold all words of a bag.

Words share columns, and a column has the length of what a bag has in it. By Cauchy and Schwarz the product of two such
lengths is at least the product of the two bags over the words of the column, and is that product where the column has
one word in common. So the product of two rows is at least dense * cosine + lexical * cosine of bags, for lexical >= 0,
and at most what Cauchy and Schwarz give for whole bags. Rounding is the margin's part (matrices.py).

Measured on 6,108 questions of cs.stackexchange.com with bags of 70 stems, weights 1 and .8: candidates for the ten best
with 128, 256, 384, 512 columns: 170, 45, 25, 19; sums of weights in place of lengths: 405, 67, 30, 20; and the least of
sums times greatest weights, which takes two products: 182, 45, 24, 18.
"""

import numpy as np
import torch

from dupq.neighbours.exact import Rule, Side
from dupq.neighbours.gpu.sides import DeviceSide, row_of_each_word
from dupq.neighbours.matrices import Matrix, signs
from dupq.neighbours.rounded import NO_WORDS, Words, matrix

_COLUMNS = 384
_STEP = 64  # dimensions that the kernel takes at a time: columns fill the last step


def product_rows(
    sides: tuple[Side, Side], on_device: tuple[DeviceSide, DeviceSide], rule: Rule, columns: int | None = None
) -> tuple[Matrix, Matrix]:
    """The rows (float16) of both sides, given on the host and on a device; `columns` are for words, 384 or some more.

    float16 rounds unit vectors eight times as finely as bfloat16, and is multiplied at the same speed.
    """
    dimensions = sides[0].vectors.shape[1]
    words = [NO_WORDS, NO_WORDS]
    if rule.lexical and all(len(side.words) for side in sides):
        columns = columns or _COLUMNS + -(dimensions + _COLUMNS) % _STEP
        column = columns_of_words(*on_device, columns)
        scale = abs(rule.lexical) ** 0.5
        words = [
            _words(device_side, side.starts, column, columns, scale)
            for side, device_side in zip(sides, on_device, strict=True)
        ]
    left, right = on_device
    one = matrix(left.vectors, left.squares, rule, torch.float16, words[0])
    other = one if left is right else matrix(right.vectors, right.squares, rule, torch.float16, words[1])
    negative = signs(rule, dimensions, one.rows.shape[1])
    return one if negative is None else one._replace(rows=one.rows * torch.from_numpy(negative).to(one.rows)), other


def columns_of_words(left: DeviceSide, right: DeviceSide, columns: int) -> torch.Tensor:
    """The column (int64) of each word, by its number: words that both sides have are dealt out, the heaviest first.

    There and back, so that no column gets the heavier word in every round. Other words have no column: `columns`.
    """
    count = 1 + int(torch.maximum(left.words.max(), right.words.max()))
    loads = []
    for side in (left, right):
        lengths = side.bag_squares.clamp_min(torch.finfo(torch.float64).tiny).sqrt()
        weights = side.weights.abs() / lengths[row_of_each_word(side.starts)]
        loads.append(torch.bincount(side.words, weights, count))
    load = loads[0] * loads[1]
    order = load.argsort(descending=True, stable=True)
    place = torch.arange(count, device=load.device) % (2 * columns)
    column = torch.empty_like(order)
    column[order] = torch.minimum(place, 2 * columns - 1 - place)
    return column.masked_fill_(load == 0, columns)


def _words(side: DeviceSide, starts: np.ndarray, column: torch.Tensor, columns: int, scale: float) -> Words:
    """The columns of a side's bags of unit length, times a scale; `starts` is the side's, on the host."""

    def of_rows(rows: slice) -> torch.Tensor:
        words = slice(int(starts[rows.start]), int(starts[rows.stop]))
        places = row_of_each_word(side.starts[rows.start : rows.stop + 1]) * (columns + 1) + column[side.words[words]]
        squares = torch.zeros((rows.stop - rows.start) * (columns + 1), dtype=torch.float64, device=column.device)
        squares.index_add_(0, places, side.weights[words].double().square())
        of_bags = side.bag_squares[rows, None]
        lengths = (squares.view(-1, columns + 1)[:, :columns] / of_bags.where(of_bags > 0, 1.0)).sqrt()
        return (scale * lengths).float()

    return Words(columns, of_rows)
