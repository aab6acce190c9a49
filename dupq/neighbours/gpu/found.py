"""Pairs with high quick scores, in plain torch: on a GPU without Triton, and as what the tests compare kernels with.

A quick score is the product of two rows, or minus the distance of two vectors. Products of bfloat16 or float16 numbers
are exact in float32, and sums are float32; but tensor cores may truncate them instead of rounding, so a margin should
allow 2**-22 instead of 2**-24 for each step. Callers subtract the margin from the bounds.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch

from dupq.neighbours.exact import COSINE, MANHATTAN

_GROUP_SIZE = 64  # scores of which one maximum is kept
_EACH = "donot_use_mm_for_euclid_dist"  # of torch.cdist: by differences, as a product would lose small distances


class Found(NamedTuple):
    """The scores that reach their bounds, in no particular order, on the device: a row of `left`, a row of `right`."""

    rows: torch.Tensor  # int32, (found,)
    columns: torch.Tensor  # int32, (found,)
    values: torch.Tensor  # float32, (found,), the scores


class Best(NamedTuple):
    """Of each question high scores (float32, (n, rank)), -inf where there are fewer, and who has them (int64)."""

    values: torch.Tensor
    others: torch.Tensor


def room_for(pairs: int, device: torch.device) -> Found:
    """Memory for so many."""
    kinds = torch.int32, torch.int32, torch.float32
    return Found(*(torch.empty(pairs, dtype=kind, device=device) for kind in kinds))


def found_by_torch(
    left: torch.Tensor,
    right: torch.Tensor,
    row_bounds: torch.Tensor,
    column_bounds: torch.Tensor,
    diagonal: int,
    kind: int = COSINE,
    scores_at_once: int = 1 << 26,
) -> Found:
    """All (i, j) with j > i + diagonal and a score of left[i] and right[j] >= min(row_bounds[i], column_bounds[j]).

    `left` (m, d) and `right` (n, d) are bfloat16, float16 or float32, for distances float32; the bounds float32, (m,)
    and (n,); all on one device. By `kind` the score is a product (COSINE) or minus a distance. The memory of the
    device: 7 bytes times `scores_at_once`, and 20 for each pair found among them.
    """
    parts = [room_for(0, left.device)]
    for rows, columns, scores in _pieces(left, right, diagonal, kind, scores_at_once):
        reached = scores >= row_bounds[rows, None]
        reached |= scores >= column_bounds[None, columns]
        i, j = torch.nonzero(reached, as_tuple=True)
        parts.append(Found((i + rows.start).to(torch.int32), (j + columns.start).to(torch.int32), scores[i, j]))
    return Found(*(torch.cat(column) for column in zip(*parts, strict=True)))


def best_by_torch(
    left: torch.Tensor,
    right: torch.Tensor,
    rank: int,
    diagonal: int | None = None,
    kind: int = COSINE,
    scores_at_once: int = 1 << 26,
) -> tuple[Best, Best]:
    """`rank` high scores of each row, and of each column: the highest of as many groups.

    A row's scores fall into groups, none in two, and only the maximum of a group counts: the last of them is a lower
    bound on the rank-th best score. Only scores with j > i + diagonal count (all of them without a diagonal). The rest:
    see found_by_torch.
    """
    sides = len(left), len(right)
    best = [
        Best(torch.full((side, rank), -torch.inf, device=left.device), left.new_zeros((side, rank), dtype=torch.int64))
        for side in sides
    ]
    # several groups for each rank, so that the best scores seldom share one
    sizes = [min(_GROUP_SIZE, max(1, others // (8 * rank))) for others in reversed(sides)]
    for rows, columns, scores in _pieces(
        left, right, -len(left) if diagonal is None else diagonal, kind, scores_at_once
    ):
        scores.nan_to_num_(-torch.inf, torch.inf, -torch.inf)
        for side, size, mine, theirs, values in zip(
            best, sizes, (rows, columns), (columns, rows), (scores, scores.T), strict=True
        ):
            maxima, places = _group_maxima(values, size)
            top = torch.cat([side.values[mine], maxima], dim=1).topk(rank, dim=1)
            others = torch.cat([side.others[mine], places + theirs.start], dim=1)
            side.values[mine], side.others[mine] = top.values, others.gather(1, top.indices)
    return best[0], best[1]


def _group_maxima(scores: torch.Tensor, size: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The maxima (rows, groups) of groups of at most `size` scores of a row, and their columns.

    A group's columns are far apart: adjacent questions may be alike, and a diagonal must not empty a group.
    """
    groups = -(-scores.shape[1] // size)
    whole = scores.shape[1] // groups * groups
    maxima, members = scores[:, :whole].unflatten(1, (-1, groups)).max(1)
    places = members * groups + torch.arange(groups, device=scores.device)
    more = scores[:, whole:]
    is_better = more > maxima[:, : more.shape[1]]
    last = torch.arange(whole, scores.shape[1], device=scores.device)
    places[:, : more.shape[1]] = torch.where(is_better, last, places[:, : more.shape[1]])
    maxima[:, : more.shape[1]].clamp_min_(more)
    return maxima, places


def _pieces(
    left: torch.Tensor, right: torch.Tensor, diagonal: int, kind: int, scores_at_once: int
) -> Iterator[tuple[slice, slice, torch.Tensor]]:
    """The pieces of all scores that have an entry with j > i + diagonal; entries that do not count are NaN."""
    height = max(1, min(len(left), int(scores_at_once**0.5)))
    width = max(1, scores_at_once // height)
    for top in range(0, len(left), height):
        rows = slice(top, min(top + height, len(left)))
        for start in range(max(0, top + diagonal + 1), len(right), width):
            columns = slice(start, min(start + width, len(right)))
            scores = _scores(left[rows], right[columns], kind)
            if columns.start <= rows.stop - 1 + diagonal:
                i = torch.arange(rows.start, rows.stop, device=left.device)
                j = torch.arange(columns.start, columns.stop, device=left.device)
                scores.masked_fill_(j[None, :] <= i[:, None] + diagonal, torch.nan)
            yield rows, columns, scores


def _scores(left: torch.Tensor, right: torch.Tensor, kind: int) -> torch.Tensor:
    if kind == COSINE:
        return _product(left, right)
    return torch.cdist(left, right, 1.0 if kind == MANHATTAN else 2.0, _EACH).neg_()


def _product(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """left @ right.T with float32 sums and a float32 result, whatever precision this process has set for products."""
    if left.is_cuda and left.dtype != torch.float32:
        return torch.mm(left, right.T, out_dtype=torch.float32)
    backend: Any = torch.backends.cuda if left.is_cuda else torch.backends.mkldnn
    before, backend.matmul.fp32_precision = backend.matmul.fp32_precision, "ieee"
    try:
        return torch.mm(left.float(), right.float().T)
    finally:
        backend.matmul.fp32_precision = before
