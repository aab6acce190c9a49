"""Planning which rows of a site's parts make which shard, so that shards are sorted and none is too large.

A part is a piece of a dump, its rows sorted by key. Where each part's keys follow those of the part before, as in
every dump, a shard is planned as soon as its last row is there; else all keys are gone through in order first
(`dupq/dump/shards/range_planning.py`). Both give the same shards: they depend on the rows alone.

A plan names keys, not rows, so that it is small however many parts have a row of a shard.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np


class PartKeys(NamedTuple):
    """The rows of a part."""

    part: str
    keys: np.ndarray  # int64, ascending
    sizes: np.ndarray  # int32, about the bytes that each row takes


class KeyRange(NamedTuple):
    """All keys from `first` to `last`; both are those of a row."""

    first: int
    last: int


class ShardPlan(NamedTuple):
    """A shard: the keys of each of its row groups, and where their rows are.

    They are in `parts`, named in their order; or in those that the file `catalogue` lists (see
    `dupq/dump/shards/range_planning.py`), where each of many shards may have rows of each of many parts.
    """

    number: int
    groups: tuple[KeyRange, ...]
    parts: tuple[str, ...] = ()
    catalogue: str | None = None


class ShardLimits(NamedTuple):
    """A shard or row group ends before the key that would make it larger; one key may be too large by itself."""

    shard_rows: int
    shard_bytes: int = 256 << 20
    group_rows: int = 65_536
    group_bytes: int = 64 << 20


class DistinctKeys(NamedTuple):
    """Keys in order, each once, and how many rows and bytes each will have."""

    keys: np.ndarray
    rows: np.ndarray
    sizes: np.ndarray

    def cut(self, start: int, stop: int | None = None) -> "DistinctKeys":
        """Those from the place `start` up to `stop`."""
        return DistinctKeys(*(column[start:stop] for column in self))

    def followed_by(self, others: "DistinctKeys") -> "DistinctKeys":
        """These, and then others, all of which are higher."""
        return DistinctKeys(*(np.concatenate(columns) for columns in zip(self, others, strict=True)))


class CutShard(NamedTuple):
    """The keys of a shard's row groups, and the place of its first key among those that were cut."""

    start: int
    groups: tuple[KeyRange, ...]


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
            self._pending = _from_key(last.groups[0].first, self._pending)
        return whole

    def finish(self) -> list[ShardPlan]:
        """The rest of the shards, if all parts were in order; else `plan_parts` has to plan all of them."""
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
    keys = distinct(filled, is_unique)
    lowest = np.array([part.keys[0] for part in filled])
    highest = np.array([part.keys[-1] for part in filled])
    shards: list[ShardPlan] = []
    for _, groups in cut_shards(keys, limits):
        first, last = groups[0].first, groups[-1].last
        near = np.flatnonzero((lowest <= last) & (highest >= first)).tolist()
        touched = tuple(filled[index].part for index in near if _has_key(filled[index], first, last))
        shards.append(ShardPlan(first_number + len(shards), groups, touched))
    return shards


def distinct(parts: Sequence[PartKeys], is_unique: bool) -> DistinctKeys:
    """The keys of `parts`, of which there is one at least. Memory: some 55 bytes a row."""
    keys = np.concatenate([part.keys for part in parts])
    sizes = np.concatenate([part.sizes for part in parts])
    if not (keys[1:] > keys[:-1]).all():
        order = np.argsort(keys, kind="stable")
        keys, sizes = keys[order], sizes[order]
        del order
    is_first = np.append(True, keys[1:] != keys[:-1])
    if is_first.all():
        return DistinctKeys(keys, np.ones(len(keys), np.int32), sizes)
    first = np.flatnonzero(is_first)
    rows = np.diff(np.append(first, len(keys)))
    if is_unique:
        return DistinctKeys(keys[first], np.ones(len(first), np.int32), sizes[first + rows - 1])
    return DistinctKeys(keys[first], rows, np.add.reduceat(sizes, first, dtype=np.int64))


def cut_shards(keys: DistinctKeys, limits: ShardLimits) -> Iterator[CutShard]:
    """The shards of `keys`. All but the last stay what they are, whatever keys come after."""
    for start, stop in _cut(keys, limits.shard_rows, limits.shard_bytes):
        shard = keys.cut(start, stop)
        groups = _cut(shard, limits.group_rows, limits.group_bytes)
        yield CutShard(start, tuple(KeyRange(int(shard.keys[a]), int(shard.keys[b - 1])) for a, b in groups))


def _cut(keys: DistinctKeys, most_rows: int, most_bytes: int) -> list[tuple[int, int]]:
    """Ranges of keys with at most so many rows and bytes, each as long as may be, but at least one key."""
    row_ends, size_ends = np.cumsum(keys.rows, dtype=np.int64), np.cumsum(keys.sizes, dtype=np.int64)
    ranges, start = [], 0
    rows_before = sizes_before = 0
    while start < len(row_ends):
        by_rows = int(np.searchsorted(row_ends, rows_before + most_rows, "right"))
        by_bytes = int(np.searchsorted(size_ends, sizes_before + most_bytes, "right"))
        stop = max(start + 1, min(by_rows, by_bytes))
        ranges.append((start, stop))
        rows_before, sizes_before, start = int(row_ends[stop - 1]), int(size_ends[stop - 1]), stop
    return ranges


def _has_key(part: PartKeys, first: int, last: int) -> bool:
    start, stop = np.searchsorted(part.keys, first), np.searchsorted(part.keys, last, "right")
    return bool(start < stop)


def _from_key(key: int, parts: Sequence[PartKeys]) -> list[PartKeys]:
    """What `parts`, in order of their keys, hold from `key` on."""
    index = next(index for index, part in enumerate(parts) if part.keys[-1] >= key)
    part = parts[index]
    skipped = int(np.searchsorted(part.keys, key))
    return [PartKeys(part.part, part.keys[skipped:].copy(), part.sizes[skipped:].copy()), *parts[index + 1 :]]
