"""Triton kernels: a tile of scores is computed and filtered on the chip, and only pairs that reach a bound leave it."""

import functools
import logging
import os
from pathlib import Path
from typing import Any, NamedTuple

import torch

from dupq.neighbours.exact import COSINE, MANHATTAN
from dupq.neighbours.gpu.found import Found, room_for
from dupq.own_folder import can_write, own_folder

try:
    import triton
    import triton.language as tl
    from triton.tools.tensor_descriptor import TensorDescriptor
except ImportError:  # torch for the CPU brings none
    triton = tl = None
if triton is not None and not can_write(Path(os.path.expanduser("~/.triton"))):  # where it keeps what it compiles
    _own = own_folder()
    if _own is not None:
        os.environ.setdefault("TRITON_CACHE_DIR", str(_own / "triton"))

_ALIGNMENT = 16  # bytes, of rows that bulk copies read
_LEAST_CAPABILITY, _HOPPER = (8, 0), (9, 0)
_log = logging.getLogger(__name__)


class Tiles(NamedTuple):
    """How a kernel cuts its work: rows, columns and depth are powers of two, for products 16 at least."""

    rows: int = 128
    columns: int = 256
    depth: int = 64  # dimensions at a time, of a product
    group: int = 8  # tiles of rows that run together and share columns in the L2 cache
    warps: int = 8
    stages: int = 4  # steps of `depth` that are prefetched, 48 KiB of shared memory each: most of 300 dimensions
    is_bulk: bool = True  # rows are read by bulk copies, which chips before Hopper lack: there in pieces of 16 bytes


_SMALL_TILES = Tiles(128, 128, 32, stages=3)  # for chips with less shared memory than Hopper's
_FLOAT32_TILES = Tiles(64, 64, 32, stages=3)  # sums in registers, without tensor cores: larger tiles would not fit
_DISTANCE_TILES = Tiles(128, 64, 1, warps=4)  # 64 sums a thread: eight differences for each number that is loaded
_SHARED_MEMORY = 200 << 10  # bytes, for Tiles()


@functools.cache
def is_available() -> bool:
    """Whether `found_by_triton` runs, tried once a process; where it does not, a CUDA device uses `found_by_torch`.

    Its products need tensor cores as Triton has them from compute capability 8.0 on, and its first launch a C compiler.
    """
    if triton is None or not torch.cuda.is_available() or torch.cuda.get_device_capability() < _LEAST_CAPABILITY:
        return False
    try:
        ones, bounds = torch.ones(2, 16, dtype=torch.float16, device="cuda"), torch.zeros(2, device="cuda")
        found = found_by_triton(ones, ones, bounds, bounds, diagonal=0)
    except Exception as error:  # whatever Triton, its compilers or the driver raise
        _log.warning(f"tiles are searched by torch, as Triton fails: {str(error).strip().partition(chr(10))[0]}")
        return False
    return len(found.rows) == 1


def found_by_triton(
    left: torch.Tensor,
    right: torch.Tensor,
    row_bounds: torch.Tensor,
    column_bounds: torch.Tensor,
    diagonal: int,
    kind: int = COSINE,
    room: int | None = None,
    tiles: Tiles | None = None,
) -> Found:
    """See found_by_torch; scores that do not reach their bounds never leave the chip.

    `room` is how many pairs there is memory for at first, 12 bytes each; if more are found, they are counted, and the
    search is repeated with room for all. What is multiplied and has other dimensions than a multiple of tiles.depth is
    copied and padded with zeros, which change no score; what is subtracted is copied as columns, padded likewise.
    """
    tiles = tiles or _tiles_for(left, kind)
    rows, columns = len(left), len(right)
    if not rows or max(0, diagonal + 1) >= columns:
        return room_for(0, left.device)
    bounds = row_bounds.contiguous(), column_bounds.contiguous()
    count = torch.zeros(1, dtype=torch.int64, device=left.device)
    room = max(1, room if room is not None else 4 * (rows + columns))
    grid = (triton.cdiv(rows, tiles.rows) * triton.cdiv(columns, tiles.columns),)
    options = {"num_warps": tiles.warps, "num_stages": tiles.stages}
    kernel = _find_products if kind == COSINE else _find_distances
    one, other, constants = _multiplied(left, right, tiles) if kind == COSINE else _subtracted(left, right, kind, tiles)
    while True:
        found = room_for(room, left.device)
        with torch.cuda.device_of(left):  # Triton starts kernels on the current device
            kernel[grid](
                *(one, other, *bounds, count, *found, rows, columns, max(diagonal, -rows), room),
                *(*constants, tiles.rows, tiles.columns, tiles.depth, tiles.group),
                **options,
            )
        reached = int(count.item())
        if reached <= room:
            return Found(*(column[:reached] for column in found))
        room = reached
        del found  # before larger ones are allocated
        count.zero_()


def _tiles_for(left: torch.Tensor, kind: int) -> Tiles:
    if kind != COSINE:
        return _DISTANCE_TILES
    products = _FLOAT32_TILES if left.dtype == torch.float32 else Tiles()
    if not left.is_cuda:
        return products
    chip: Any = torch.cuda.get_device_properties(left.device)
    if products == Tiles() and chip.shared_memory_per_block_optin < _SHARED_MEMORY:
        products = _SMALL_TILES
    return products._replace(is_bulk=(chip.major, chip.minor) >= _HOPPER)


def _multiplied(
    left: torch.Tensor, right: torch.Tensor, tiles: Tiles
) -> tuple["torch.Tensor | TensorDescriptor", "torch.Tensor | TensorDescriptor", tuple[int, bool]]:
    """What the kernel of products reads; how many steps it takes, and whether by bulk copies."""
    one, other = (_widened(side, tiles.depth) for side in (left, right))
    constants = one.shape[1] // tiles.depth, tiles.is_bulk
    if not tiles.is_bulk:
        return one.contiguous(), other.contiguous(), constants
    described = TensorDescriptor.from_tensor
    return described(one, [tiles.rows, tiles.depth]), described(other, [tiles.columns, tiles.depth]), constants


def _subtracted(
    left: torch.Tensor, right: torch.Tensor, kind: int, tiles: Tiles
) -> tuple[torch.Tensor, torch.Tensor, tuple[int, int, int, bool]]:
    """What the kernel of distances reads; how far its columns are apart, how many steps, and by which distance."""
    one, other = _as_columns(left, tiles.rows), _as_columns(right, tiles.columns)
    return one, other, (one.shape[1], other.shape[1], left.shape[1], kind == MANHATTAN)


def _as_columns(vectors: torch.Tensor, size: int) -> torch.Tensor:
    """Vectors (n, d) as columns (d, n'), where n' is a multiple of a tile's size."""
    columns = vectors.new_zeros((vectors.shape[1], -(-len(vectors) // size) * size))
    columns[:, : len(vectors)] = vectors.T
    return columns


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
    _NUMBERS = ["m", "n", "diagonal", "room"]

    @triton.jit(do_not_specialize=_NUMBERS)
    def _find_products(
        left: tl.tensor, right: tl.tensor, row_bounds: tl.tensor, column_bounds: tl.tensor,
        count: tl.tensor, found_rows: tl.tensor, found_columns: tl.tensor, found_values: tl.tensor,
        m: tl.tensor, n: tl.tensor, diagonal: tl.tensor, room: tl.tensor,
        steps: tl.constexpr, is_bulk: tl.constexpr,
        height: tl.constexpr, width: tl.constexpr, depth: tl.constexpr, group: tl.constexpr,
    ) -> None:  # fmt: skip
        """One tile of scores, (height, width), in `steps` of `depth` dimensions; `count` is of all tiles' pairs."""
        top, start = _corner(m, n, height, width, group)
        if tl.minimum(start + width, n) - 1 <= top + diagonal:
            return
        row_bound, column_bound = _bounds(row_bounds, column_bounds, top, start, m, n, height, width)
        if not is_bulk:  # strides that the compiler knows
            left = tl.make_tensor_descriptor(left, [m, steps * depth], [steps * depth, 1], [height, depth])
            right = tl.make_tensor_descriptor(right, [n, steps * depth], [steps * depth, 1], [width, depth])
        scores = tl.zeros((height, width), tl.float32)
        for step in range(steps):
            here, there = left.load([top, step * depth]), right.load([start, step * depth])
            scores = tl.dot(here, there.T, scores, input_precision="ieee")  # of float32: no TensorFloat32
        _keep(
            *(scores, row_bound, column_bound, count, found_rows, found_columns, found_values),
            *(top, start, m, n, diagonal, room, height, width),
        )

    @triton.jit(do_not_specialize=[*_NUMBERS, "steps"])
    def _find_distances(
        left: tl.tensor, right: tl.tensor, row_bounds: tl.tensor, column_bounds: tl.tensor,
        count: tl.tensor, found_rows: tl.tensor, found_columns: tl.tensor, found_values: tl.tensor,
        m: tl.tensor, n: tl.tensor, diagonal: tl.tensor, room: tl.tensor,
        left_width: tl.tensor, right_width: tl.tensor, steps: tl.tensor, is_manhattan: tl.constexpr,
        height: tl.constexpr, width: tl.constexpr, depth: tl.constexpr, group: tl.constexpr,
    ) -> None:  # fmt: skip
        """The same for minus the distances of vectors: columns of `left` (steps, left_width), and of `right`."""
        top, start = _corner(m, n, height, width, group)
        if tl.minimum(start + width, n) - 1 <= top + diagonal:
            return
        row_bound, column_bound = _bounds(row_bounds, column_bounds, top, start, m, n, height, width)
        rows, columns = (top + tl.arange(0, height))[:, None], (start + tl.arange(0, width))[None, :]
        sums = tl.zeros((height, width), tl.float32)
        for _ in range(steps):
            differences = tl.load(left + rows) - tl.load(right + columns)
            if is_manhattan:
                sums += tl.abs(differences)
            else:
                sums += differences * differences
            left += left_width
            right += right_width
        if not is_manhattan:
            sums = tl.sqrt(sums)
        _keep(
            *(-sums, row_bound, column_bound, count, found_rows, found_columns, found_values),
            *(top, start, m, n, diagonal, room, height, width),
        )

    @triton.jit
    def _corner(
        m: tl.tensor, n: tl.tensor, height: tl.constexpr, width: tl.constexpr, group: tl.constexpr
    ) -> tuple[tl.tensor, tl.tensor]:
        """The first row and column of this program's tile."""
        program = tl.program_id(0)
        in_group = group * tl.cdiv(n, width)
        first = program // in_group * group
        tiles_down = tl.minimum(tl.cdiv(m, height) - first, group)
        return (first + program % in_group % tiles_down) * height, program % in_group // tiles_down * width

    @triton.jit
    def _bounds(
        row_bounds: tl.tensor, column_bounds: tl.tensor, top: tl.tensor, start: tl.tensor,
        m: tl.tensor, n: tl.tensor, height: tl.constexpr, width: tl.constexpr,
    ) -> tuple[tl.tensor, tl.tensor]:  # fmt: skip
        """Of a tile; read before its scores, so that both overlap."""
        rows, columns = top + tl.arange(0, height), start + tl.arange(0, width)
        return (
            tl.load(row_bounds + rows, rows < m, float("inf")),
            tl.load(column_bounds + columns, columns < n, float("inf")),
        )

    @triton.jit
    def _keep(
        scores: tl.tensor, row_bound: tl.tensor, column_bound: tl.tensor,
        count: tl.tensor, found_rows: tl.tensor, found_columns: tl.tensor, found_values: tl.tensor,
        top: tl.tensor, start: tl.tensor, m: tl.tensor, n: tl.tensor, diagonal: tl.tensor, room: tl.tensor,
        height: tl.constexpr, width: tl.constexpr,
    ) -> None:  # fmt: skip
        """Store the scores of a tile that reach their bounds, as far as there is room, and count them."""
        rows, columns = top + tl.arange(0, height), start + tl.arange(0, width)
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
