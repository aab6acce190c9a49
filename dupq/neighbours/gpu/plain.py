"""What kernels.py does, in plain torch: on a GPU without Triton, on a CPU, and as what the tests compare kernels with.

A quick score is the product of two rows, less both halves where there are any, or minus a Manhattan distance.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from dupq.neighbours.exact import COSINE, MANHATTAN, Rule
from dupq.neighbours.gpu.device_questions import Lists, Questions, Quick

_SCORES_AT_ONCE = 1 << 26
_NUMBERS_AT_ONCE = 1 << 23  # dimensions and words of pairs, each of which takes some 60 bytes
_GROUP = 256  # scores of which only the highest is kept
Span = tuple[int, int]  # the first of some questions, and the one after the last


def find(left: Quick, right: Quick, rows: Span, columns: Span, of_rows: Lists, of_columns: Lists | None) -> None:
    """Add the pairs of some questions of both sides that reach a bound to the buffers of those whose bound it is.

    `of_columns` is None if only the left side's questions get neighbours. Of a span with itself, in the lists of both,
    each pair is looked at once, and no question with itself.
    """
    is_diagonal = of_columns is of_rows and rows == columns
    for some, others, scores in _pieces(left, right, rows, columns):
        if is_diagonal:
            i, j = (torch.arange(*span, device=scores.device) for span in (some, others))
            scores.masked_fill_(j[None, :] <= i[:, None], torch.nan)
        sides = [(of_rows, some, others, scores)]
        if of_columns is not None:
            sides.append((of_columns, others, some, scores.T))
        for lists, mine, theirs, values in sides:
            i, j = torch.nonzero(values >= lists.bounds[slice(*mine), None], as_tuple=True)
            _push(lists, i + mine[0], j + theirs[0])


def _push(lists: Lists, rows: torch.Tensor, others: torch.Tensor) -> None:
    """Add candidates to the buffers of `rows`, which are ascending."""
    found = torch.bincount(rows, minlength=len(lists.counts))
    places = torch.arange(len(rows), device=rows.device) - (found.cumsum(0) - found - lists.counts)[rows]
    fits = places < lists.room
    lists.buffer[rows[fits], places[fits]] = others[fits].int()
    lists.counts.add_(found.int())


def highest(left: Quick, right: Quick, rows: Span) -> tuple[torch.Tensor, torch.Tensor]:
    """The highest quick score of some questions in each group of the right side's: values, row numbers of the right."""
    (values,) = (
        torch.cat(parts)
        for parts in [[scores for _, _, scores in _pieces(left, right, rows, (0, right.size), right.size)]]
    )
    padded = torch.nn.functional.pad(values, (0, -right.size % _GROUP), value=-torch.inf)
    best, places = padded.view(len(values), -1, _GROUP).max(2)
    return best, places + torch.arange(0, padded.shape[1], _GROUP, device=values.device)


def scored(
    rule: Rule, left: Questions, right: Questions, rows: torch.Tensor, lists: Lists, selves: torch.Tensor
) -> torch.Tensor:
    """The exact scores (float64, (n, room)) of the candidates in some lists' buffers; -inf of a question with itself.

    `rows` (n,) are the lists' questions on the left side; `selves` those of each question of the left on the right.
    """
    scores = torch.full(lists.buffer.shape, -torch.inf, dtype=torch.float64, device=rows.device)
    is_there = torch.arange(lists.room, device=rows.device) < lists.counts[:, None]
    i, places = torch.nonzero(is_there, as_tuple=True)
    each = left.vectors.shape[1] + int(right.starts.diff().max()) + 1
    for some in torch.arange(len(i), device=rows.device).split(max(1, _NUMBERS_AT_ONCE // each)):
        mine, others = rows[i[some]], lists.buffer[i[some], places[some]].long()
        values = _exact(rule, left, right, mine, others)
        scores[i[some], places[some]] = values.masked_fill_(selves[mine] == others, -torch.inf)
    return scores


def settle(lists: Lists, scores: torch.Tensor, ranks: torch.Tensor, keeps: bool) -> torch.Tensor:
    """Put what the buffers have into the lists, unless candidates were lost: the k-th best score of each (float64).

    `scores` are those of the candidates, `ranks` (int32) of all questions of the other side: equal ones go by them.
    Without `keeps` no list changes.
    """
    k = lists.scores.shape[1]
    is_there = torch.arange(lists.room, device=scores.device) < lists.counts[:, None]
    values = torch.cat([lists.scores, scores.masked_fill(~is_there, -torch.inf)], 1)
    others = torch.cat([lists.others, lists.buffer], 1).masked_fill(values == -torch.inf, -1)
    order = ranks[others.clamp_min(0).long()].masked_fill_(others < 0, len(ranks)).argsort(1)
    order = order.gather(1, values.gather(1, order).argsort(dim=1, descending=True, stable=True))[:, :k]
    values, others = values.gather(1, order), others.gather(1, order)
    if keeps:
        is_whole = lists.counts <= lists.room
        lists.scores[is_whole], lists.others[is_whole] = values[is_whole], others[is_whole]
    return values[:, -1]


def _pieces(
    left: Quick, right: Quick, rows: Span, columns: Span, width: int = 1 << 13
) -> Iterator[tuple[Span, Span, torch.Tensor]]:
    """The quick scores of all pairs, in pieces that bound the memory."""
    for top in range(*rows, max(1, _SCORES_AT_ONCE // width)):
        some = top, min(top + max(1, _SCORES_AT_ONCE // width), rows[1])
        for start in range(*columns, width):
            others = start, min(start + width, columns[1])
            yield some, others, _scores(left, right, slice(*some), slice(*others))


def _scores(left: Quick, right: Quick, rows: slice, columns: slice) -> torch.Tensor:
    if left.rows.dtype == torch.float32:
        return torch.cdist(left.rows[:, rows].T, right.rows[:, columns].T, 1.0).neg_()
    scores = _product(left.rows[rows], right.rows[columns])
    if left.halves is not None and right.halves is not None:
        scores -= left.halves[rows, None] + right.halves[None, columns]
    return scores


def _product(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """left @ right.T with float32 sums and a float32 result, whatever precision this process has set for products."""
    if left.is_cuda:
        return torch.mm(left, right.T, out_dtype=torch.float32)
    backend: Any = torch.backends.mkldnn
    before, backend.matmul.fp32_precision = backend.matmul.fp32_precision, "ieee"
    try:
        return torch.mm(left.float(), right.float().T)
    finally:
        backend.matmul.fp32_precision = before


def _exact(rule: Rule, left: Questions, right: Questions, rows: torch.Tensor, others: torch.Tensor) -> torch.Tensor:
    """The scores of pairs: exact.py's, as sums are exact whatever their order."""
    x, y = left.vectors[rows], right.vectors[others]
    if rule.kind == COSINE:
        scores = rule.dense * _over(
            (x.float() * y.float()).sum(1, dtype=torch.float64), left.squares[rows] * right.squares[others]
        )
    else:
        differences = x.double() - y.double()
        scores = -(differences.abs().sum(1) if rule.kind == MANHATTAN else _root(differences.square().sum(1)))
    if len(left.words) and len(right.words):
        squares = left.bag_squares[rows] * right.bag_squares[others]
        scores = scores + rule.lexical * _over(_common(left, right, rows, others), squares)
    return scores


def _common(left: Questions, right: Questions, rows: torch.Tensor, others: torch.Tensor) -> torch.Tensor:
    """The products of two bags each: every word of the right one is looked up in the left one."""
    counts = right.starts[others + 1] - right.starts[others]
    pairs = torch.repeat_interleave(counts)
    places = torch.arange(len(pairs), device=pairs.device) - (counts.cumsum(0) - counts - right.starts[others])[pairs]
    words = right.words[places]
    first, last = left.starts[rows][pairs], left.starts[rows + 1][pairs] - 1
    low, high = first.clone(), last + 1  # the first of the left one's words that is no less
    while (is_open := low < high).any():
        middle = (low + high) // 2
        is_less = is_open & (left.words[middle.clamp_max(len(left.words) - 1)] < words)
        low, high = torch.where(is_less, middle + 1, low), torch.where(is_open & ~is_less, middle, high)
    there = low.clamp_max(len(left.words) - 1)
    is_common = (low <= last) & (left.words[there] == words)
    products = left.weights[there].double() * right.weights[places].double()
    return products.new_zeros(len(rows)).index_add_(0, pairs, products.masked_fill_(~is_common, 0.0))


def _over(products: torch.Tensor, squares: torch.Tensor) -> torch.Tensor:
    """Cosines; 0 where one of the two is zero."""
    return torch.where(squares > 0, products / _root(squares), 0.0)


def _root(squares: torch.Tensor) -> torch.Tensor:
    """Square roots, rounded as everywhere else: torch's own for CPUs are not."""
    return squares.sqrt() if squares.is_cuda else torch.from_numpy(np.sqrt(squares.numpy()))
