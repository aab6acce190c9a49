"""Planning the shards of unsorted parts, in bounded memory.

A sample of the keys cuts them into ranges of about as many rows, and the shards are planned range by range. For that
the keys of all parts, 12 bytes a row, are copied once into a temporary file on this machine's disk.

The plan is small, as it names keys only. Which parts may have rows of a shard is in a file beside the parts, the
catalogue, with the lowest and the highest key of each.
"""

import contextlib
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from typing import IO, NamedTuple

import numpy as np
import pyarrow as pa

from dupq import storage
from dupq.dump.parsing import Kind
from dupq.dump.shards.parts import in_turn, keys_of, requests
from dupq.dump.shards.planning import DistinctKeys, KeyRange, PartKeys, ShardLimits, ShardPlan, cut_shards, distinct
from dupq.errors import DupqError

_RANGE_ROWS = 2_000_000  # some 55 bytes of memory each
_SAMPLE = 64  # one key of so many is in the sample: a range has up to so many rows a part more

_CATALOGUE = pa.schema(
    [
        pa.field("part", pa.string(), nullable=False),
        pa.field("lowest", pa.int64(), nullable=False),
        pa.field("highest", pa.int64(), nullable=False),
    ]
)


class SpooledPart(NamedTuple):
    """A part's place in the temporary file, in rows, and its lowest and highest key."""

    part: str
    start: int
    stop: int
    lowest: int
    highest: int


def plan_parts(parts: Sequence[str], kind: Kind, limits: ShardLimits, catalogue: str) -> list[ShardPlan]:
    """All shards of the files `parts`, and the file `catalogue`, which their rows are found by.

    Memory: some 130 MB, 64 bytes a part, and the keys of a shard.
    """
    with key_spool() as spool:
        for keys in in_turn(keys_of, parts, requests(catalogue)):
            spool.add(keys)
        shards = [shard._replace(catalogue=catalogue) for shard in plan_spooled(spool, kind.is_unique, limits)]
        columns = [[getattr(part, name) for part in spool.parts] for name in _CATALOGUE.names]
    storage.write_table(catalogue, pa.table(columns, schema=_CATALOGUE), _CATALOGUE)
    return shards


def parts_of(shard: ShardPlan) -> tuple[str, ...]:
    """The parts that may have rows of a shard, in their order."""
    if shard.catalogue is None or not shard.groups:
        return shard.parts
    listed = storage.read_table(shard.catalogue, _CATALOGUE)
    lowest, highest = (listed.column(name).to_numpy() for name in ("lowest", "highest"))
    is_near = (lowest <= shard.groups[-1].last) & (highest >= shard.groups[0].first)
    return tuple(listed.column("part").filter(pa.array(is_near)).to_pylist())


def plan_spooled(
    spool: "KeySpool", is_unique: bool, limits: ShardLimits, range_rows: int = _RANGE_ROWS
) -> list[ShardPlan]:
    """The shards that `plan_shards` gives for the same parts, but that they do not say where their rows are."""
    shards: list[ShardPlan] = []
    rest: DistinctKeys | None = None  # of the last shard, which the next range may go on with
    for parts in spool.ranges(range_rows):
        keys = distinct(parts, is_unique)
        rest = keys if rest is None else rest.followed_by(keys)
        *whole, last = cut_shards(rest, limits)
        shards += _numbered((shard.groups for shard in whole), len(shards))
        rest = DistinctKeys(*(column.copy() for column in rest.cut(last.start)))
    if rest is not None:
        shards += _numbered((shard.groups for shard in cut_shards(rest, limits)), len(shards))
    return shards


def _numbered(groups: Iterable[tuple[KeyRange, ...]], first_number: int) -> list[ShardPlan]:
    return [ShardPlan(number, keys) for number, keys in enumerate(groups, first_number)]


@contextlib.contextmanager
def key_spool(sample: int = _SAMPLE) -> Iterator["KeySpool"]:
    """An empty spool, whose files are removed in the end."""
    with tempfile.TemporaryFile(prefix="dupq-keys-") as keys, tempfile.TemporaryFile(prefix="dupq-sizes-") as sizes:
        yield KeySpool(keys, sizes, sample)


class KeySpool:
    """The keys and sizes of many parts in files; memory: one key in 64, and the keys that are read."""

    def __init__(self, keys: IO[bytes], sizes: IO[bytes], sample: int = _SAMPLE) -> None:
        """Two empty files; one key of `sample` decides on how they are cut into ranges."""
        self._keys, self._sizes, self._sample = keys, sizes, sample
        self._sampled: list[np.ndarray] = []
        self.parts: list[SpooledPart] = []  # those that have rows

    def add(self, part: PartKeys) -> None:
        """Keep the keys of one more part. Raises DupqError if the disk is full."""
        if not len(part.keys):
            return
        start = self.parts[-1].stop if self.parts else 0
        lowest, highest = int(part.keys[0]), int(part.keys[-1])
        self.parts.append(SpooledPart(part.part, start, start + len(part.keys), lowest, highest))
        self._sampled.append(part.keys[:: self._sample].astype(np.int64))
        try:
            self._keys.write(part.keys.astype(np.int64, copy=False).tobytes())
            self._sizes.write(part.sizes.astype(np.int32, copy=False).tobytes())
            self._keys.flush()
            self._sizes.flush()
        except OSError as error:
            raise DupqError(
                f"{tempfile.gettempdir()}: cannot hold the ids of rows that are not sorted ({error.strerror}); "
                "TMPDIR names another folder"
            ) from error

    def ranges(self, rows: int) -> Iterator[list[PartKeys]]:
        """The parts' rows in the order of their keys, about `rows` at a time; those of a key are together."""
        if not self.parts:
            return
        borders = self._borders(rows)
        for number in range(borders.shape[1] - 1):
            touched = np.flatnonzero(borders[:, number] < borders[:, number + 1]).tolist()
            if touched:
                places = ((self.parts[index], *borders[index, number : number + 2].tolist()) for index in touched)
                yield [PartKeys(part.part, *self._read(start, stop)) for part, start, stop in places]

    def _borders(self, rows: int) -> np.ndarray:
        """For each part (a row) where each range begins in the files, and where the last one ends."""
        sampled = np.sort(np.concatenate(self._sampled))
        step = max(1, rows // self._sample)
        splitters = np.unique(sampled[step::step])
        borders = np.empty((len(self.parts), len(splitters) + 2), np.int64)
        for index, part in enumerate(self.parts):
            keys = _read(self._keys, np.dtype(np.int64), part.start, part.stop)
            borders[index] = [part.start, *(part.start + np.searchsorted(keys, splitters)), part.stop]
        return borders

    def _read(self, start: int, stop: int) -> tuple[np.ndarray, np.ndarray]:
        return (
            _read(self._keys, np.dtype(np.int64), start, stop),
            _read(self._sizes, np.dtype(np.int32), start, stop),
        )


def _read(file: IO[bytes], kind: np.dtype, start: int, stop: int) -> np.ndarray:
    file.seek(start * kind.itemsize)
    return np.frombuffer(file.read((stop - start) * kind.itemsize), kind)
