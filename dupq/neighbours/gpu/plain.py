"""The functions of kernels.py in plain torch: for a GPU without Triton, for a CPU, and for the kernels' tests."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from dupq.neighbours.embeddings import Measure
from dupq.neighbours.gpu.device_questions import Lists, Questions, Quick

_SCORES_AT_ONCE = 1 << 26
_NUMBERS_AT_ONCE = 1 << 23  # dimensions and words of pairs, each of which takes some 60 bytes
_GROUP = 256  # scores of which only the highest is kept
Span = tuple[int, int]  # the first row, and the one after the last


def find(left: Quick, right: Quick, rows: Span, columns: Span, of_rows: Lists, of_columns: Lists | None) -> None:
    """Add each pair of a span of both sides to the buffers of its questions whose bounds it reaches.

    `of_columns` is None if only the left side's questions get neighbours. If a span is compared with itself for the
    same lists, each pair is looked at once, and no question is paired with itself.
    """
    is_diagonal = of_columns is of_rows and rows == columns
    for batch, others, scores in _batches(left, right, rows, columns):
        if is_diagonal:
            i, j = (torch.arange(*span, device=scores.device) for span in (batch, others))
            scores.masked_fill_(j[None, :] <= i[:, None], torch.nan)
        sides = [(of_rows, batch, others, scores)]
        if of_columns is not None:
            sides.append((of_columns, others, batch, scores.T))
        for lists, own, theirs, values in sides:
            i, j = torch.nonzero(values >= lists.bounds[slice(*own), None], as_tuple=True)
            _push(lists, i + own[0], j + theirs[0])


def _push(lists: Lists, rows: torch.Tensor, others: torch.Tensor) -> None:
    """Add candidates to the buffers of `rows`, which are ascending."""
    counts = torch.bincount(rows, minlength=len(lists.counts))
    indices = torch.arange(len(rows), device=rows.device) - (counts.cumsum(0) - counts - lists.counts)[rows]
    fits = indices < lists.room
    lists.buffer[rows[fits], indices[fits]] = others[fits].int()
    lists.counts.add_(counts.int())


def highest(left: Quick, right: Quick, rows: Span) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the highest quick score of each row of the span in each group of the right side, and its right row."""
    values = torch.cat([scores for _, _, scores in _batches(left, right, rows, (0, right.size), right.size)])
    padded = torch.nn.functional.pad(values, (0, -right.size % _GROUP), value=-torch.inf)
    best, columns = padded.view(len(values), -1, _GROUP).max(2)
    return best, columns + torch.arange(0, padded.shape[1], _GROUP, device=values.device)


def score(
    measure: Measure, left: Questions, right: Questions, rows: torch.Tensor, lists: Lists, selves: torch.Tensor
) -> torch.Tensor:
    """Return the exact scores (float64, (n, room)) of the candidates in the buffers; -inf of a question with itself.

    `rows` (n,) are the lists' questions on the left side. `selves` are the right rows of each left question, or -1.
    """
    scores = torch.full(lists.buffer.shape, -torch.inf, dtype=torch.float64, device=rows.device)
    is_filled = torch.arange(lists.room, device=rows.device) < lists.counts[:, None]
    i, j = torch.nonzero(is_filled, as_tuple=True)
    per_pair = left.vectors.shape[1] + sum(int(side.starts.diff().max()) for side in (left, right)) + 1
    for batch in torch.arange(len(i), device=rows.device).split(max(1, _NUMBERS_AT_ONCE // per_pair)):
        own, others = rows[i[batch]], lists.buffer[i[batch], j[batch]].long()
        values = _exact(measure, left, right, own, others)
        scores[i[batch], j[batch]] = values.masked_fill_(selves[own] == others, -torch.inf)
    return scores


def settle(lists: Lists, scores: torch.Tensor, ranks: torch.Tensor, keeps: bool) -> torch.Tensor:
    """Merge the buffers into the lists, and return the k-th best score of each question (float64).

    A list of which candidates were lost does not change; without `keeps` none does. `scores` are those of the
    candidates. Equal scores go by the `ranks` (int32) of the other side's questions.
    """
    k = lists.scores.shape[1]
    is_filled = torch.arange(lists.room, device=scores.device) < lists.counts[:, None]
    values = torch.cat([lists.scores, scores.masked_fill(~is_filled, -torch.inf)], 1)
    others = torch.cat([lists.others, lists.buffer], 1).masked_fill(values == -torch.inf, -1)
    order = ranks[others.clamp_min(0).long()].masked_fill_(others < 0, len(ranks)).argsort(1)
    order = order.gather(1, values.gather(1, order).argsort(dim=1, descending=True, stable=True))[:, :k]
    values, others = values.gather(1, order), others.gather(1, order)
    if keeps:
        is_whole = lists.counts <= lists.room
        lists.scores[is_whole], lists.others[is_whole] = values[is_whole], others[is_whole]
    return values[:, -1]


def _batches(
    left: Quick, right: Quick, rows: Span, columns: Span, width: int = 1 << 13
) -> Iterator[tuple[Span, Span, torch.Tensor]]:
    """Yield the quick scores of all pairs in batches: their rows, their columns, and the scores."""
    height = max(1, _SCORES_AT_ONCE // width)
    for top in range(*rows, height):
        batch = top, min(top + height, rows[1])
        for start in range(*columns, width):
            others = start, min(start + width, columns[1])
            yield batch, others, product(left.rows[slice(*batch)], right.rows[slice(*others)])


def product(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """Return left @ right.T with float32 sums and results, whatever precision this process has set for products."""
    if left.is_cuda:
        return torch.mm(left, right.T, out_dtype=torch.float32)
    backend: Any = torch.backends.mkldnn
    before, backend.matmul.fp32_precision = backend.matmul.fp32_precision, "ieee"
    try:
        return torch.mm(left.float(), right.float().T)
    finally:
        backend.matmul.fp32_precision = before


def _exact(
    measure: Measure, left: Questions, right: Questions, rows: torch.Tensor, others: torch.Tensor
) -> torch.Tensor:
    """Return the scores of pairs, equal to exact.py's as sums are exact in any order."""
    products = (left.vectors[rows].float() * right.vectors[others].float()).sum(1, dtype=torch.float64)
    scores = measure.dense * _over(products, left.squares[rows] * right.squares[others])
    if len(left.words) and len(right.words):
        squares = left.bag_squares[rows] * right.bag_squares[others]
        scores = scores + measure.lexical * _over(_common(left, right, rows, others), squares)
    return scores


def _common(left: Questions, right: Questions, rows: torch.Tensor, others: torch.Tensor) -> torch.Tensor:
    """Return the products of pairs of bags. Memory: 60 bytes per word of these, however many questions there are."""
    (pairs, mine), (pairs_of_theirs, theirs) = _entries(left, rows), _entries(right, others)
    numbers = pairs << 32 | left.words[mine]  # ascending, a number per entry of a pair's left bag
    wanted = pairs_of_theirs << 32 | right.words[theirs]
    products = torch.zeros(len(rows), dtype=torch.float64, device=rows.device)
    if not len(numbers):
        return products
    nearest = torch.searchsorted(numbers, wanted).clamp_max(len(numbers) - 1)
    values = left.weights[mine[nearest]].double() * right.weights[theirs].double()
    return products.index_add_(0, pairs_of_theirs, values.where(numbers[nearest] == wanted, 0.0))


def _entries(side: Questions, rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the index in `rows` of each word of their bags, and the word's index in those of the side."""
    counts = side.starts[rows + 1] - side.starts[rows]
    owners = torch.repeat_interleave(counts)
    firsts = side.starts[rows] - (counts.cumsum(0) - counts)
    return owners, torch.arange(len(owners), device=rows.device) + firsts[owners]


def _over(products: torch.Tensor, squares: torch.Tensor) -> torch.Tensor:
    """Return cosines from products and products of squared lengths; 0 if a length is zero."""
    # the roots are rounded correctly, as torch's own on CPUs are not
    lengths = squares.sqrt() if squares.is_cuda else torch.from_numpy(np.sqrt(squares.numpy()))
    return torch.where(squares > 0, products / lengths, 0.0)
