"""Which rows of a site's parts make which shard, so that shards are sorted and none is too large.

A part is a piece of a dump, its rows sorted by key. Where each part's keys follow those of the part before, as in
every dump, a shard is planned as soon as its last row is there; else all keys are sorted first. Both give the
same shards: they depend on the rows alone.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np


class PartKeys(NamedTuple):
    """The rows of a part from its row `offset` on."""

    part: str
    offset: int
    keys: np.ndarray  # int64, ascending
    sizes: np.ndarray  # int32, about the bytes that each row takes


class Slice(NamedTuple):
    """Rows `start` up to `stop` of a part."""

    part: str
    start: int
    stop: int


class ShardPlan(NamedTuple):
    """A shard, and the slices that each of its row groups is merged from, in the order of the parts."""

    number: int
    groups: tuple[tuple[Slice, ...], ...]


class ShardLimits(NamedTuple):
    """A shard or row group ends before the key that would make it larger; one key may be too large by itself."""

    shard_rows: int
    shard_bytes: int = 256 << 20
    group_rows: int = 65_536
    group_bytes: int = 64 << 20


class Planner:
    """Plans the shards of one table while its parts come in, in their order."""

    def __init__(self, is_unique: bool, limits: ShardLimits) -> None:
        """`is_unique`: of rows with the same key only the last one counts."""
        self._is_unique = is_unique
        self._limits = limits
        self._pending: list[PartKeys] = []
        self._planned = 0
        self._last_key = -1
        self.is_ordered = True  # False once a part had keys that should have come before

    def add(self, part: PartKeys) -> list[ShardPlan]:
        """The shards that are now known whole; none once the parts are out of order."""
        if not len(part.keys) or not self.is_ordered:
            return []
        if part.keys[0] <= self._last_key:
            self.is_ordered, self._pending = False, []
            return []
        self._last_key = int(part.keys[-1])
        self._pending.append(part)
        *whole, last = plan_shards(self._pending, self._is_unique, self._limits, self._planned)
        if whole:
            self._planned += len(whole)
            self._pending = _from_slices(last.groups[0], self._pending)
        return whole

    def finish(self) -> list[ShardPlan]:
        """The rest of the shards, if all parts were in order; else use `plan_shards` on all of them."""
        if not self._pending:
            return []
        return plan_shards(self._pending, self._is_unique, self._limits, self._planned)


def plan_shards(
    parts: Sequence[PartKeys], is_unique: bool, limits: ShardLimits, first_number: int = 0
) -> list[ShardPlan]:
    """All shards of the rows of `parts`, whatever their order. Memory: some 55 bytes a row."""
    filled = [part for part in parts if len(part.keys)]
    if not filled:
        return []
    keys, rows, sizes = _distinct(filled, is_unique)
    lowest = np.array([part.keys[0] for part in filled])
    highest = np.array([part.keys[-1] for part in filled])
    shards: list[ShardPlan] = []
    for start, stop in _cut(rows, sizes, limits.shard_rows, limits.shard_bytes):
        groups = []
        for first, last in _cut(rows[start:stop], sizes[start:stop], limits.group_rows, limits.group_bytes):
            low, high = keys[start + first], keys[start + last - 1]
            touched = np.flatnonzero((lowest <= high) & (highest >= low)).tolist()
            slices = (_slice(filled[index], low, high) for index in touched)
            groups.append(tuple(piece for piece in slices if piece.start < piece.stop))
        shards.append(ShardPlan(first_number + len(shards), tuple(groups)))
    return shards


def _distinct(parts: Sequence[PartKeys], is_unique: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The keys in order, each once, and how many rows and bytes each will have."""
    keys = np.concatenate([part.keys for part in parts])
    sizes = np.concatenate([part.sizes for part in parts])
    if not (keys[1:] > keys[:-1]).all():
        order = np.argsort(keys, kind="stable")
        keys, sizes = keys[order], sizes[order]
        del order
    if (keys[1:] != keys[:-1]).all():
        return keys, np.ones(len(keys), np.int32), sizes
    first = np.flatnonzero(np.append(True, keys[1:] != keys[:-1]))
    rows = np.diff(np.append(first, len(keys)))
    if is_unique:
        return keys[first], np.ones(len(first), np.int32), sizes[first + rows - 1]
    return keys[first], rows, np.add.reduceat(sizes, first, dtype=np.int64)


def _cut(rows: np.ndarray, sizes: np.ndarray, most_rows: int, most_bytes: int) -> list[tuple[int, int]]:
    """Ranges of keys with at most so many rows and bytes, each as long as may be, but at least one key."""
    row_ends, size_ends = np.cumsum(rows, dtype=np.int64), np.cumsum(sizes, dtype=np.int64)
    ranges, start = [], 0
    rows_before = sizes_before = 0
    while start < len(rows):
        by_rows = int(np.searchsorted(row_ends, rows_before + most_rows, "right"))
        by_bytes = int(np.searchsorted(size_ends, sizes_before + most_bytes, "right"))
        stop = max(start + 1, min(by_rows, by_bytes))
        ranges.append((start, stop))
        rows_before, sizes_before, start = int(row_ends[stop - 1]), int(size_ends[stop - 1]), stop
    return ranges


def _slice(part: PartKeys, low: int, high: int) -> Slice:
    start, stop = np.searchsorted(part.keys, low), np.searchsorted(part.keys, high, "right")
    return Slice(part.part, part.offset + int(start), part.offset + int(stop))


def _from_slices(slices: Sequence[Slice], parts: Sequence[PartKeys]) -> list[PartKeys]:
    """What `parts`, in order of their keys, hold from the first of `slices` on."""
    first = slices[0]
    index = next(index for index, part in enumerate(parts) if part.part == first.part)
    part = parts[index]
    skipped = first.start - part.offset
    rest = PartKeys(part.part, first.start, part.keys[skipped:].copy(), part.sizes[skipped:].copy())
    return [rest, *parts[index + 1 :]]
