"""Triton kernels: a tile of scores is computed and filtered on the chip, and only pairs that reach a bound leave it.

The functions do what plain.py's do, faster. Exact scores are computed without fused multiplication and addition, so
that they are exact.py's to the last bit.
"""

import functools
import logging
import os
from pathlib import Path
from typing import Any, NamedTuple

import torch

from dupq.local_files import can_write, own_folder
from dupq.neighbours.embeddings import Measure
from dupq.neighbours.gpu.device_questions import STEP, Lists, Questions, Quick
from dupq.neighbours.gpu.plain import Span

try:
    import triton
    import triton.language as tl
    from triton.tools.tensor_descriptor import TensorDescriptor
except ImportError:  # torch for the CPU brings none
    triton = tl = None
if triton is not None and not can_write(Path(os.path.expanduser("~/.triton"))):  # Triton's usual cache of kernels
    _own = own_folder()
    if _own is not None:
        os.environ.setdefault("TRITON_CACHE_DIR", str(_own / "triton"))

_LEAST_CAPABILITY, _HOPPER = (8, 0), (9, 0)
_log = logging.getLogger(__name__)


class Tiles(NamedTuple):
    """The tiles of a kernel. Rows, columns and depth are powers of two, at least 16."""

    rows: int = 128
    columns: int = 256
    depth: int = STEP  # dimensions at a time
    group: int = 8  # tiles of rows that run together and share columns in the L2 cache
    warps: int = 8
    stages: int = 4  # steps of `depth` that are prefetched, 48 KiB of shared memory each: most of 300 dimensions
    is_bulk: bool = True  # rows are read by bulk copies; chips before Hopper lack these, and read 16 bytes at a time


_SMALL_TILES = Tiles(128, 128, 32, stages=3)  # for chips with less shared memory than Hopper's
_SHARED_MEMORY = 200 << 10  # bytes that Tiles() needs
_CANDIDATES, _DIMENSIONS, _WORDS = 4, 64, 64  # that a program of exact scores takes at a time
_ONE, _BOTH, _HIGHEST = 0, 1, 2  # modes: candidates for one side's questions, for both; the highest scores of a sample


@functools.cache
def is_available(device: torch.device) -> bool:
    """Return whether the kernels run on a device, which each process tries once; if not, plain.py serves.

    Products need tensor cores that Triton supports: from capability 8.0 on. The first launch needs a C compiler.
    """
    if triton is None or device.type != "cuda" or torch.cuda.get_device_capability() < _LEAST_CAPABILITY:
        return False
    try:
        ones = Quick(torch.ones(2, STEP, dtype=torch.float16, device=device), 0.0, 0.0)
        values, _ = highest(ones, ones, (0, 2))
    except Exception as error:  # whatever Triton, its compilers or the driver raise
        _log.warning(f"the search is torch's, as Triton fails: {str(error).strip().partition(chr(10))[0]}")
        return False
    return bool((values > STEP - 1).all())


def find(left: Quick, right: Quick, rows: Span, columns: Span, of_rows: Lists, of_columns: Lists | None) -> None:
    """Add pairs to buffers as plain.find does."""
    is_diagonal = of_columns is of_rows and rows == columns
    theirs = of_rows if of_columns is None else of_columns
    lists = of_rows.bounds, theirs.bounds, of_rows.counts, theirs.counts, of_rows.buffer, theirs.buffer
    numbers, mode = (int(is_diagonal), of_rows.room, theirs.room), _ONE if of_columns is None else _BOTH
    _launch(left, right, rows, columns, lists, numbers, mode, tiles_for(left))


def highest(left: Quick, right: Quick, rows: Span) -> tuple[torch.Tensor, torch.Tensor]:
    """Return what plain.highest does. A value lacks its last bits, where the kernel keeps the column in its tile."""
    tiles = tiles_for(left)
    groups = triton.cdiv(right.size, tiles.columns)
    best = torch.empty((rows[1] - rows[0], groups), device=left.rows.device)
    _launch(left, right, rows, (0, right.size), (best,) * 6, (0, groups, 0), _HIGHEST, tiles)
    first_columns = torch.arange(0, groups * tiles.columns, tiles.columns, device=best.device)
    return best, (best.view(torch.int32) & (tiles.columns - 1)) + first_columns


def _launch(
    left: Quick, right: Quick, rows: Span, columns: Span, lists: tuple[torch.Tensor, ...],
    numbers: tuple[int, int, int], mode: int, tiles: Tiles,
) -> None:  # fmt: skip
    """Run the kernel on all tiles of two spans."""
    if rows[0] >= rows[1] or columns[0] >= columns[1]:
        return
    grid = (triton.cdiv(rows[1] - rows[0], tiles.rows) * triton.cdiv(columns[1] - columns[0], tiles.columns),)
    one: Any = left.rows
    other: Any = right.rows
    with torch.cuda.device_of(one):  # Triton starts kernels on the current device
        shape = len(one), len(other), one.shape[1] // tiles.depth
        if tiles.is_bulk:
            one = TensorDescriptor.from_tensor(one, [tiles.rows, tiles.depth])
            other = TensorDescriptor.from_tensor(other, [tiles.columns, tiles.depth])
        _find[grid](
            one, other, *lists, *rows, *columns, *numbers, *shape, tiles.is_bulk, mode,
            tiles.rows, tiles.columns, tiles.depth, tiles.group, num_warps=tiles.warps, num_stages=tiles.stages,
        )  # fmt: skip


def tiles_for(left: Quick) -> Tiles:
    """Return the tiles for the chip that the rows are on."""
    if not left.rows.is_cuda:
        return Tiles()
    chip: Any = torch.cuda.get_device_properties(left.rows.device)
    tiles = Tiles() if chip.shared_memory_per_block_optin >= _SHARED_MEMORY else _SMALL_TILES
    return tiles._replace(is_bulk=(chip.major, chip.minor) >= _HOPPER)


def score(
    measure: Measure, left: Questions, right: Questions, rows: torch.Tensor, lists: Lists, selves: torch.Tensor
) -> torch.Tensor:
    """Return what plain.score does, with any score for entries of buffers that are no candidates."""
    scores = torch.empty(lists.buffer.shape, dtype=torch.float64, device=rows.device)
    weights = torch.tensor([measure.dense, measure.lexical], dtype=torch.float64, device=rows.device)
    has_words = bool(len(left.words) and len(right.words))
    with torch.cuda.device_of(rows):
        _score[(len(rows),)](
            *left, *right, weights, rows, selves, lists.counts, lists.buffer, scores, lists.room, left.vectors.shape[1],
            has_words, _CANDIDATES, _DIMENSIONS, _WORDS, num_warps=1, enable_fp_fusion=False,
        )  # fmt: skip
    return scores


def settle(lists: Lists, scores: torch.Tensor, ranks: torch.Tensor, keeps: bool) -> torch.Tensor:
    """Merge the buffers into the lists as plain.settle does."""
    count, k = lists.scores.shape
    kth = torch.full((count,), -torch.inf, dtype=torch.float64, device=scores.device)
    size = triton.next_power_of_2(k + lists.room)
    with torch.cuda.device_of(scores):
        _settle[(count,)](
            lists.scores, lists.others, lists.counts, lists.buffer, scores, ranks, kth, lists.room, k, keeps, size,
            num_warps=max(1, size // 256),
        )  # fmt: skip
    return kth


if triton is not None:
    _SPAN = ["first_row", "last_row", "first_column", "last_column"]

    @triton.jit(do_not_specialize=[*_SPAN, "is_diagonal", "row_room", "column_room", "m", "n"])
    def _find(
        left: tl.tensor, right: tl.tensor,
        row_bounds: tl.tensor, column_bounds: tl.tensor, row_counts: tl.tensor, column_counts: tl.tensor,
        row_buffer: tl.tensor, column_buffer: tl.tensor,
        first_row: tl.tensor, last_row: tl.tensor, first_column: tl.tensor, last_column: tl.tensor,
        is_diagonal: tl.tensor, row_room: tl.tensor, column_room: tl.tensor, m: tl.tensor, n: tl.tensor,
        steps: tl.constexpr, is_bulk: tl.constexpr, mode: tl.constexpr,
        height: tl.constexpr, width: tl.constexpr, depth: tl.constexpr, group: tl.constexpr,
    ) -> None:  # fmt: skip
        """Score one tile (height, width) in `steps` of `depth` dimensions; the sides have `m` and `n` rows.

        Store the highest score of each row, or the pairs that reach a bound, by `mode`.
        """
        program = tl.program_id(0)
        in_group = group * tl.cdiv(last_column - first_column, width)
        first = program // in_group * group
        tiles_down = tl.minimum(tl.cdiv(last_row - first_row, height) - first, group)
        top = first_row + (first + program % in_group % tiles_down) * height
        start = first_column + program % in_group // tiles_down * width
        if (is_diagonal != 0) & (start + width - 1 <= top):
            return

        rows, columns = top + tl.arange(0, height), start + tl.arange(0, width)
        row_bound = tl.full((height,), float("inf"), tl.float32)
        column_bound = tl.full((width,), float("inf"), tl.float32)
        if mode != 2:  # bounds are read before the scores are computed, so that both overlap
            row_bound = tl.load(row_bounds + rows, rows < last_row, float("inf"))
        if mode == 1:
            column_bound = tl.load(column_bounds + columns, columns < last_column, float("inf"))

        if not is_bulk:  # strides that the compiler knows
            left = tl.make_tensor_descriptor(left, [m, steps * depth], [steps * depth, 1], [height, depth])
            right = tl.make_tensor_descriptor(right, [n, steps * depth], [steps * depth, 1], [width, depth])
        scores = tl.zeros((height, width), tl.float32)
        for step in range(steps):
            x, y = left.load([top, step * depth]), right.load([start, step * depth])
            scores = tl.dot(x, y.T, scores)

        if (top + height > last_row) | (start + width > last_column) | ((is_diagonal != 0) & (start < top + height)):
            is_pair = (rows[:, None] < last_row) & (columns[None, :] < last_column)
            is_pair &= (is_diagonal == 0) | (columns[None, :] > rows[:, None])
            scores = tl.where(is_pair, scores, -3e38 if mode == 2 else float("nan"))  # which reaches no bound
        if mode == 2:
            packed = (scores.to(tl.int32, bitcast=True) & -width) | tl.arange(0, width)[None, :]
            best = tl.max(packed.to(tl.float32, bitcast=True), 1)
            indices = (rows - first_row).to(tl.int64) * row_room + (start - first_column) // width
            tl.store(row_bounds + indices, best, rows < last_row)
        else:
            reached = scores >= tl.minimum(row_bound[:, None], column_bound[None, :])
            if tl.reduce_or(tl.reduce_or(reached, 1), 0):  # most tiles of a large archive end here
                _push(
                    *(scores, row_bound, column_bound, row_counts, column_counts, row_buffer, column_buffer),
                    *(top, start, row_room, column_room, mode, height, width),
                )

    @triton.jit
    def _push(
        scores: tl.tensor, row_bound: tl.tensor, column_bound: tl.tensor,
        row_counts: tl.tensor, column_counts: tl.tensor, row_buffer: tl.tensor, column_buffer: tl.tensor,
        top: tl.tensor, start: tl.tensor, row_room: tl.tensor, column_room: tl.tensor,
        mode: tl.constexpr, height: tl.constexpr, width: tl.constexpr,
    ) -> None:  # fmt: skip
        """Add the pairs that reach a bound to the buffers while these have room, and count them.

        Scores become bits, 32 columns per number. So few bits are set that they can be taken one by one.
        """
        own = _bits(scores >= row_bound[:, None], height, width)
        theirs = own * 0
        if mode == 1:
            theirs = _bits(scores >= column_bound[None, :], height, width)
        nothing = tl.zeros((height, width // 32), tl.int32)
        row = top + tl.arange(0, height)[:, None] + nothing
        first = start + 32 * tl.arange(0, width // 32)[None, :] + nothing
        while tl.reduce_or(tl.reduce_or((own | theirs) != 0, 1), 0):
            column = first + _lowest(own)
            index = tl.atomic_add(row_counts + row, 1, own != 0, sem="relaxed")
            tl.store(row_buffer + row.to(tl.int64) * row_room + index, column, (own != 0) & (index < row_room))
            own &= own - 1
            if mode == 1:
                column = first + _lowest(theirs)
                index = tl.atomic_add(column_counts + column, 1, theirs != 0, sem="relaxed")
                is_kept = (theirs != 0) & (index < column_room)
                tl.store(column_buffer + column.to(tl.int64) * column_room + index, row, is_kept)
                theirs &= theirs - 1

    @triton.jit
    def _bits(reached: tl.tensor, height: tl.constexpr, width: tl.constexpr) -> tl.tensor:
        """Return 32 columns of a row at a time as the bits of one number: (height, width // 32)."""
        bits = tl.where(reached, (1 << (tl.arange(0, width) % 32))[None, :], 0)
        return tl.sum(tl.reshape(bits, (height, width // 32, 32)), 2)

    @triton.jit
    def _lowest(bits: tl.tensor) -> tl.tensor:
        """Return the index of the lowest bit that is set: the exponent of that bit as a number."""
        return (((bits & -bits).to(tl.float32).to(tl.int32, bitcast=True) >> 23) & 255) - 127

    @triton.jit(do_not_specialize=["room"])
    def _score(
        vectors: tl.tensor, squares: tl.tensor, starts: tl.tensor, words: tl.tensor, weights: tl.tensor,
        bag_squares: tl.tensor, their_vectors: tl.tensor, their_squares: tl.tensor, their_starts: tl.tensor,
        their_words: tl.tensor, their_weights: tl.tensor, their_bag_squares: tl.tensor,
        mix: tl.tensor, rows: tl.tensor, selves: tl.tensor, counts: tl.tensor, buffer: tl.tensor, scores: tl.tensor,
        room: tl.tensor, dimensions: tl.constexpr, has_words: tl.constexpr,
        at_once: tl.constexpr, depth: tl.constexpr, words_at_once: tl.constexpr,
    ) -> None:  # fmt: skip
        """Score the candidates of one question, `at_once` at a time."""
        program = tl.program_id(0)
        count = tl.minimum(tl.load(counts + program), room)
        if count == 0:
            return
        row = tl.load(rows + program).to(tl.int64)
        own_self = tl.load(selves + row)
        buffer += program.to(tl.int64) * room
        scores += program.to(tl.int64) * room
        first = 0
        while first < count:
            entries = first + tl.arange(0, at_once)
            is_one = entries < count
            other = tl.load(buffer + entries, is_one, 0)
            others = other.to(tl.int64)
            sums = tl.zeros((at_once, depth), tl.float64)
            for start in range(0, dimensions, depth):
                inside = start + tl.arange(0, depth)
                is_inside = (inside < dimensions)[None, :] & is_one[:, None]
                x = tl.load(vectors + row * dimensions + inside, inside < dimensions, 0.0)[None, :]
                y = tl.load(their_vectors + others[:, None] * dimensions + inside[None, :], is_inside, 0.0)
                sums += (x.to(tl.float32) * y.to(tl.float32)).to(tl.float64)  # exact, of float16 numbers
            both = tl.load(squares + row) * tl.load(their_squares + others, is_one, 0.0)
            cosine = tl.sum(sums, 1) / tl.sqrt(tl.where(both > 0.0, both, 1.0))
            value = tl.where(both > 0.0, tl.load(mix) * cosine, 0.0)
            if has_words:
                common = _common(
                    *(starts, words, weights, their_starts, their_words, their_weights),
                    *(row, others, is_one, at_once, words_at_once),
                )
                both = tl.load(bag_squares + row) * tl.load(their_bag_squares + others, is_one, 0.0)
                cosine = common / tl.sqrt(tl.where(both > 0.0, both, 1.0))
                value += tl.where(both > 0.0, tl.load(mix + 1) * cosine, 0.0)
            tl.store(scores + entries, tl.where(other == own_self, float("-inf"), value), is_one)
            first += at_once

    @triton.jit
    def _common(
        starts: tl.tensor, words: tl.tensor, weights: tl.tensor, their_starts: tl.tensor, their_words: tl.tensor,
        their_weights: tl.tensor, row: tl.tensor, others: tl.tensor, is_one: tl.tensor,
        at_once: tl.constexpr, words_at_once: tl.constexpr,
    ) -> tl.tensor:  # fmt: skip
        """Return the products of a question's bag with others, whose words are looked up in it by bisection."""
        own = tl.load(starts + row)
        own_count = (tl.load(starts + row + 1) - own).to(tl.int32)
        widest = tl.full((), 1, tl.int32)
        while widest * 2 <= own_count:
            widest *= 2
        first = tl.load(their_starts + others, is_one, 0)
        counts = (tl.load(their_starts + others + 1, is_one, 0) - first).to(tl.int32)
        sums = tl.zeros((at_once, words_at_once), tl.float64)
        start, longest = 0, tl.max(counts, 0)
        while start < longest:
            inside = start + tl.arange(0, words_at_once)
            is_word = inside[None, :] < counts[:, None]
            entries = first[:, None] + inside[None, :]
            word = tl.load(their_words + entries, is_word, -1)
            weight = tl.load(their_weights + entries, is_word, 0.0).to(tl.float32)
            before = tl.zeros((at_once, words_at_once), tl.int32)  # how many of the question's words are not greater
            step = widest
            while step > 0:
                further = before + step
                probe = tl.load(words + own + further - 1, is_word & (further <= own_count), 2147483647)
                before = tl.where(probe <= word, further, before)
                step //= 2
            is_common = is_word & (before > 0)
            last = tl.load(words + own + before - 1, is_common, -2)
            is_common &= last == word
            own_weight = tl.load(weights + own + before - 1, is_common, 0.0).to(tl.float32)
            sums += (own_weight * weight).to(tl.float64)  # exact, of float16 numbers
            start += words_at_once
        return tl.sum(sums, 1)

    @triton.jit(do_not_specialize=["room"])
    def _settle(
        scores: tl.tensor, others: tl.tensor, counts: tl.tensor, buffer: tl.tensor, new_scores: tl.tensor,
        ranks: tl.tensor, kth: tl.tensor, room: tl.tensor, k: tl.constexpr, keeps: tl.constexpr, size: tl.constexpr,
    ) -> None:  # fmt: skip
        """Merge one question's buffer into its list."""
        program = tl.program_id(0).to(tl.int64)
        count = tl.load(counts + program)
        if count == 0:
            return
        entry = tl.arange(0, size)
        is_new = (entry >= k) & (entry < k + tl.minimum(count, room))
        score = tl.load(scores + program * k + entry, entry < k, float("-inf"))
        other = tl.load(others + program * k + entry, entry < k, -1)
        new = program * room + entry - k
        score = tl.where(is_new, tl.load(new_scores + new, is_new, 0.0), score)
        other = tl.where(is_new, tl.load(buffer + new, is_new, 0), other)
        rank = tl.load(ranks + other, score > float("-inf"), 0)
        for index in range(k):
            best = tl.max(score, 0)
            first = tl.min(tl.where(score == best, rank, 2147483647), 0)
            is_it = (score == best) & (rank == first) & (score > float("-inf"))
            if keeps:
                chosen = tl.max(tl.where(is_it, other, -1), 0)
                tl.store(scores + program * k + index, best, count <= room)
                tl.store(others + program * k + index, chosen, count <= room)
            if index == k - 1:
                tl.store(kth + program, best)
            score = tl.where(is_it, float("-inf"), score)
