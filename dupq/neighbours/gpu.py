"""Candidate pairs on a GPU: all scores of two blocks of embeddings, of which only those that reach a bound are stored.

A tile of scores is computed and filtered on the chip (`found_by_triton`); `found_by_torch` does the same in plain torch
on any device: a GPU without Triton uses it, and the tests compare the kernel with it. Products of bfloat16 or float16
numbers are exact in float32, and sums are float32; but tensor cores may truncate them instead of rounding, so a margin
should allow 2**-22 instead of 2**-24 for each step. Callers subtract the margin from the bounds.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import torch

try:
    import triton
    import triton.language as tl
    from triton.tools.tensor_descriptor import TensorDescriptor
except ImportError:  # torch for the CPU brings none
    triton = tl = None

_GROUP_SIZE = 64  # scores of which one maximum is kept
_ALIGNMENT = 16  # bytes, of rows that bulk copies read


class Found(NamedTuple):
    """The scores that reach their bounds, in no particular order: a row of `left` and a row of `right` each."""

    rows: np.ndarray  # int32, (found,)
    columns: np.ndarray  # int32, (found,)
    values: np.ndarray  # float32, (found,), the scores


_KINDS = (torch.int32, torch.int32, torch.float32)  # of the columns of Found
_NOTHING = Found(*(torch.empty(0, dtype=kind).numpy() for kind in _KINDS))


class Tiles(NamedTuple):
    """How the Triton kernel cuts its work: rows, columns and depth are powers of two, 16 at least."""

    rows: int = 128
    columns: int = 256
    depth: int = 64  # dimensions at a time
    group: int = 8  # tiles of rows that run together and share columns in the L2 cache
    warps: int = 8
    stages: int = 4  # steps of `depth` that are prefetched, 48 KiB of shared memory each: most of 300 dimensions


_SMALL_TILES = Tiles(128, 128, 32, stages=3)  # for chips with less shared memory than Hopper's
_FLOAT32_TILES = Tiles(64, 64, 32, stages=3)  # sums in registers, without tensor cores: larger tiles would not fit
_SHARED_MEMORY = 200 << 10  # bytes, for Tiles()


def is_available() -> bool:
    """Whether `found_by_triton` can run; where it cannot, a CUDA device uses `found_by_torch`."""
    return torch.cuda.is_available() and triton is not None


def found_by_torch(
    left: torch.Tensor,
    right: torch.Tensor,
    row_bounds: torch.Tensor,
    column_bounds: torch.Tensor,
    diagonal: int,
    scores_at_once: int = 1 << 26,
) -> Found:
    """All (i, j) with j > i + diagonal and left[i] · right[j] >= min(row_bounds[i], column_bounds[j]).

    `left` (m, d) and `right` (n, d) are bfloat16, float16 or float32, the bounds float32, (m,) and (n,), all on one
    device. The memory of the device: 7 bytes times `scores_at_once`, and 20 for each pair found among them.
    """
    parts = [_NOTHING]
    for rows, columns, scores in _pieces(left, right, diagonal, scores_at_once):
        reached = scores >= row_bounds[rows, None]
        reached |= scores >= column_bounds[None, columns]
        i, j = torch.nonzero(reached, as_tuple=True)
        indices = ((i + rows.start).to(torch.int32), (j + columns.start).to(torch.int32))
        parts.append(Found(*(part.cpu().numpy() for part in (*indices, scores[i, j]))))
    return Found(*(np.concatenate(column) for column in zip(*parts, strict=True)))


def group_bounds_by_torch(
    left: torch.Tensor, right: torch.Tensor, rank: int, diagonal: int | None = None, scores_at_once: int = 1 << 26
) -> tuple[torch.Tensor, torch.Tensor]:
    """Lower bounds (float32, (m,) and (n,)) on the rank-th best score of each row, and of each column.

    A row's scores fall into groups, none in two. The maxima of the groups are scores of different pairs, so that
    `rank` scores at least reach the rank-th largest maximum. With fewer groups the bound is -inf. Only scores with
    j > i + diagonal count (all of them without a diagonal). `left`, `right` and the memory: see found_by_torch.
    """
    sides = (len(left), len(right))
    best = [torch.full((side, rank), -torch.inf, device=left.device) for side in sides]
    # several groups for each rank, so that the best scores seldom share one
    sizes = [min(_GROUP_SIZE, max(1, others // (8 * rank))) for others in reversed(sides)]
    for rows, columns, scores in _pieces(left, right, -len(left) if diagonal is None else diagonal, scores_at_once):
        scores.nan_to_num_(-torch.inf, torch.inf, -torch.inf)
        for side, size, indices, values in zip(best, sizes, (rows, columns), (scores, scores.T), strict=True):
            together = torch.cat([side[indices], _group_maxima(values, size)], dim=1)
            side[indices] = together.topk(rank, dim=1).values
    return best[0][:, -1], best[1][:, -1]


def _group_maxima(scores: torch.Tensor, size: int) -> torch.Tensor:
    """The maxima (rows, groups) of groups of at most `size` scores of a row.

    A group's columns are far apart: adjacent questions may be alike, and a diagonal must not empty a group.
    """
    groups = -(-scores.shape[1] // size)
    whole = scores.shape[1] // groups * groups
    maxima = scores[:, :whole].unflatten(1, (-1, groups)).amax(1)
    maxima[:, : scores.shape[1] - whole].clamp_min_(scores[:, whole:])
    return maxima


def _pieces(
    left: torch.Tensor, right: torch.Tensor, diagonal: int, scores_at_once: int
) -> Iterator[tuple[slice, slice, torch.Tensor]]:
    """The pieces of left @ right.T that have an entry with j > i + diagonal; entries that do not count are NaN."""
    height = max(1, min(len(left), int(scores_at_once**0.5)))
    width = max(1, scores_at_once // height)
    for top in range(0, len(left), height):
        rows = slice(top, min(top + height, len(left)))
        for start in range(max(0, top + diagonal + 1), len(right), width):
            columns = slice(start, min(start + width, len(right)))
            scores = _product(left[rows], right[columns])
            if columns.start <= rows.stop - 1 + diagonal:
                i = torch.arange(rows.start, rows.stop, device=left.device)
                j = torch.arange(columns.start, columns.stop, device=left.device)
                scores.masked_fill_(j[None, :] <= i[:, None] + diagonal, torch.nan)
            yield rows, columns, scores


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


def found_by_triton(
    left: torch.Tensor,
    right: torch.Tensor,
    row_bounds: torch.Tensor,
    column_bounds: torch.Tensor,
    diagonal: int,
    room: int | None = None,
    tiles: Tiles | None = None,
) -> Found:
    """See found_by_torch; scores that do not reach their bounds never leave the chip.

    `room` is how many pairs there is memory for at first, 12 bytes each; if more are found, they are counted, and the
    search is repeated with room for all. Embeddings whose dimensions are not a multiple of tiles.depth are copied and
    padded with zeros, which change no score; a caller that searches them often pads them once.
    """
    tiles = tiles or _tiles_for(left)
    rows, columns = len(left), len(right)
    if not rows or max(0, diagonal + 1) >= columns:
        return _NOTHING
    left, right = (_widened(side, tiles.depth) for side in (left, right))
    count = torch.zeros(1, dtype=torch.int64, device=left.device)
    room = max(1, room if room is not None else 4 * (rows + columns))
    while True:
        buffers = [torch.empty(room, dtype=kind, device=left.device) for kind in _KINDS]
        with torch.cuda.device_of(left):  # Triton starts kernels on the current device
            _find[(triton.cdiv(rows, tiles.rows) * triton.cdiv(columns, tiles.columns),)](
                TensorDescriptor.from_tensor(left, [tiles.rows, tiles.depth]),
                TensorDescriptor.from_tensor(right, [tiles.columns, tiles.depth]),
                *(row_bounds.contiguous(), column_bounds.contiguous(), count, *buffers),
                *(rows, columns, max(diagonal, -rows), room, left.shape[1] // tiles.depth, *tiles[:4]),
                num_warps=tiles.warps,
                num_stages=tiles.stages,
            )
        found = int(count.item())
        if found <= room:
            return Found(*(buffer[:found].cpu().numpy() for buffer in buffers))
        room = found
        del buffers  # before larger ones are allocated
        count.zero_()


def _tiles_for(embeddings: torch.Tensor) -> Tiles:
    if embeddings.dtype == torch.float32:
        return _FLOAT32_TILES
    chip: Any = torch.cuda.get_device_properties(embeddings.device) if embeddings.is_cuda else None
    return _SMALL_TILES if chip and chip.shared_memory_per_block_optin < _SHARED_MEMORY else Tiles()


def _widened(embeddings: torch.Tensor, depth: int) -> torch.Tensor:
    """`embeddings` padded to a multiple of `depth` dimensions, and aligned so that bulk copies can read them."""
    missing = -embeddings.shape[1] % depth if embeddings.shape[1] else depth
    laid_out = embeddings.stride(1) == 1 and embeddings.stride(0) * embeddings.element_size() % _ALIGNMENT == 0
    if not missing and laid_out and embeddings.data_ptr() % _ALIGNMENT == 0:
        return embeddings
    wider = embeddings.new_zeros((embeddings.shape[0], embeddings.shape[1] + missing))
    wider[:, : embeddings.shape[1]] = embeddings
    return wider


if triton is not None:

    @triton.jit(do_not_specialize=["m", "n", "diagonal", "room"])  # type: ignore[untyped-decorator]
    def _find(
        left: tl.tensor, right: tl.tensor, row_bounds: tl.tensor, column_bounds: tl.tensor,
        count: tl.tensor, found_rows: tl.tensor, found_columns: tl.tensor, found_values: tl.tensor,
        m: tl.tensor, n: tl.tensor, diagonal: tl.tensor, room: tl.tensor,
        steps: tl.constexpr, height: tl.constexpr, width: tl.constexpr, depth: tl.constexpr, group: tl.constexpr,
    ) -> None:  # fmt: skip
        """One tile of scores, (height, width), in `steps` of `depth` dimensions; `count` is of all tiles' pairs."""
        program = tl.program_id(0)
        in_group = group * tl.cdiv(n, width)
        first = program // in_group * group
        tiles_down = tl.minimum(tl.cdiv(m, height) - first, group)
        top = (first + program % in_group % tiles_down) * height
        start = program % in_group // tiles_down * width
        if tl.minimum(start + width, n) - 1 <= top + diagonal:
            return
        rows, columns = top + tl.arange(0, height), start + tl.arange(0, width)
        row_bound = tl.load(row_bounds + rows, rows < m, float("inf"))  # overlaps with computing the scores
        column_bound = tl.load(column_bounds + columns, columns < n, float("inf"))
        scores = tl.zeros((height, width), tl.float32)
        for step in range(steps):
            here, there = left.load([top, step * depth]), right.load([start, step * depth])
            scores = tl.dot(here, there.T, scores, input_precision="ieee")  # of float32: no TensorFloat32
        if (top + height > m) | (start + width > n) | (start <= top + height - 1 + diagonal):
            counted = (rows[:, None] < m) & (columns[None, :] < n) & (columns[None, :] > rows[:, None] + diagonal)
            scores = tl.where(counted, scores, float("nan"))  # which reaches no bound, not even -inf
        reached = scores >= tl.minimum(row_bound[:, None], column_bound[None, :])
        # Most tiles end here. A scan of a whole tile would need more registers than there are: rows go one by one.
        if tl.reduce_or(tl.reduce_or(reached, 1), 0):
            left_over = tl.sum(reached.to(tl.int32), 1)
            index = tl.atomic_add(count, tl.sum(left_over, 0).to(tl.int64), sem="relaxed")
            while tl.max(left_over, 0) > 0:
                row = tl.argmax(left_over, 0)
                is_row = tl.arange(0, height) == row
                values = tl.sum(tl.where(is_row[:, None], scores, 0.0), 0)
                bounds = tl.minimum(tl.sum(tl.where(is_row, row_bound, 0.0), 0), column_bound)
                hits = (values >= bounds).to(tl.int32)
                indices = index + tl.cumsum(hits, 0) - 1
                kept = (hits > 0) & (indices < room)
                tl.store(found_rows + indices, tl.full((width,), top + row, tl.int32), kept)
                tl.store(found_columns + indices, columns, kept)
                tl.store(found_values + indices, values, kept)
                index += tl.sum(hits, 0)
                left_over = tl.where(is_row, 0, left_over)
