"""How the all-pairs search is cut: into blocks of embeddings, tiles of two blocks each, and waves of tiles.

The neighbours found do not depend on it.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from dupq.archive import Shard
from dupq.errors import SettingError
from dupq.neighbours.candidates import Nearest, empty_nearest, merge_rows
from dupq.settings.sections import NeighbourSettings
from dupq.tables import BLOCKS, NEAREST


def nearest_table(keys: np.ndarray, nearest: Nearest) -> pa.Table:
    """Return the lists of the questions `keys` as rows."""
    count, k = nearest.others.shape
    inside = nearest.others >= 0
    if inside.all():  # as a rule, and ten times as fast
        offsets, columns = np.arange(count + 1) * k, [column.ravel() for column in nearest[:2]]
    else:
        offsets = np.concatenate([[0], np.cumsum(inside.sum(axis=1))])
        columns = [column[inside] for column in nearest[:2]]
    lists = [pa.ListArray.from_arrays(pa.array(offsets.astype(np.int32)), pa.array(column)) for column in columns]
    return pa.table([pa.array(keys), *lists], schema=NEAREST)


def found_table(keys: np.ndarray, nearest: Nearest) -> pa.Table:
    """Return the same without questions that have found none; k is 1 at least."""
    rows = nearest.others[:, 0] >= 0
    return nearest_table(keys[rows], Nearest(*(column[rows] for column in nearest)))


def nearest_in(table: pa.Table, k: int) -> tuple[np.ndarray, Nearest]:
    """Return the keys and lists in rows of NEAREST."""
    table = table.combine_chunks()
    nearest = empty_nearest(len(table), k)
    lists = table["neighbours"].combine_chunks() if len(table) else None
    if lists is not None:
        inside = np.arange(k) < lists.value_lengths().to_numpy()[:, None]
        nearest.others[inside] = lists.flatten().to_numpy()
        nearest.scores[inside] = table["scores"].combine_chunks().flatten().to_numpy()
    return table["key"].to_numpy(), nearest


def merged(lists: pa.Table, found: Iterable[pa.Table], k: int) -> tuple[np.ndarray, Nearest]:
    """Return the keys of `lists`, ascending, and their lists with those in `found` of the same questions merged in."""
    keys, nearest = nearest_in(lists, k)
    for table in found:
        some, more = nearest_in(table, k)
        merge_rows(nearest, np.searchsorted(keys, some), more)
    return keys, nearest


# questions of a block: smaller blocks waste start-up time, larger ones lose more work if a worker dies
_FEWEST, _MOST = 8_192, 131_072
_TILE_BYTES = 11 << 27  # the most memory for a tile, so that a task with Ray and the libraries takes some 2 GB
_TILES_EACH = 4
_WORD_BYTES = 82  # in a tile, with what is multiplied, 6,000 for the 73 stems of a question of cs

Tiles = list[tuple[int, int]]  # pairs of blocks


class Span(NamedTuple):
    """Rows of a file of embeddings."""

    file: str
    start: int
    stop: int

    @property
    def rows(self) -> int:
        """The number of rows."""
        return self.stop - self.start


@dataclass(frozen=True)
class Plan:
    """The blocks, each of consecutive rows, and whether only blocks of one site are compared."""

    blocks: list[list[Span]]
    sites: list[str]  # of each block's first row
    scope: str

    @property
    def sizes(self) -> list[int]:
        """The number of questions of each block."""
        return [sum(span.rows for span in spans) for spans in self.blocks]

    @property
    def questions(self) -> int:
        """The number of questions."""
        return sum(self.sizes)

    @property
    def groups(self) -> list[list[int]]:
        """The blocks, grouped by which are compared with each other."""
        groups: dict[str, list[int]] = {}
        for number in range(len(self.blocks)):
            groups.setdefault(self.group_of(number), []).append(number)
        return list(groups.values())

    def group_of(self, block: int) -> str:
        """Return a name that blocks have in common whose questions are compared."""
        return self.sites[block] if self.scope == "site" else ""

    def filled(self, rows: Sequence[int]) -> list[list[int]]:
        """Group consecutive blocks of which `rows` (of each block) are searched together.

        A group has at most as many of them as the largest block has questions, or one block's, and of one site if only
        blocks of one site are compared.
        """
        room, groups, free = max(self.sizes, default=0), list[list[int]](), 0
        for number, count in enumerate(rows):
            if not groups or count > free or self.group_of(groups[-1][0]) != self.group_of(number):
                groups.append([])
                free = room
            groups[-1].append(number)
            free -= count
        return groups


def in_scope(shards: Sequence[Shard], settings: NeighbourSettings) -> list[Shard]:
    """Return the shards of the sites that are searched. Raises SettingError for a site that is not there."""
    absent = set(settings.sites) - {shard.site for shard in shards}
    if absent:
        raise SettingError(f"setting 'neighbours.sites': there are no questions of {', '.join(sorted(absent))}")
    return [shard for shard in shards if not settings.sites or shard.site in settings.sites]


def plan_in(table: pa.Table, scope: str) -> Plan:
    """Return the plan that `cut` made (BLOCKS)."""
    blocks: dict[int, list[Span]] = {}
    sites: dict[int, str] = {}
    for block, site, *span in zip(*(column.to_pylist() for column in table.columns), strict=True):
        blocks.setdefault(block, []).append(Span(*span))
        sites.setdefault(block, site)
    return Plan(list(blocks.values()), list(sites.values()), scope)


def cut(files: Sequence[tuple[str, str, int]], scope: str, rows: int) -> pa.Table:
    """Cut files of embeddings (name, site, rows) into blocks of at most `rows` questions (BLOCKS)."""
    made: list[tuple[int, str, str, int, int]] = []
    room, last = 0, ""
    for file, site, count in files:
        if scope == "site" and site != last:
            room = 0
        start, last = 0, site
        while start < count:
            block = made[-1][0] if made else -1
            if not room:
                block, room = block + 1, rows
            stop = min(count, start + room)
            made.append((block, site, file, start, stop))
            room -= stop - start
            start = stop
    return pa.Table.from_pylist([dict(zip(BLOCKS.names, row, strict=True)) for row in made], schema=BLOCKS)


def block_rows(questions: int, bytes_each: int, memory: int, cpus: int) -> int:
    """Return the questions of a block: as many as half of a CPU's `memory` (bytes) holds of both sides.

    Each takes `bytes_each`. Small archives are cut so that each CPU has a few tiles.
    """
    budget = min(_TILE_BYTES, memory // (2 * cpus))
    fitting = min(_MOST, max(1_024, budget // (2 * bytes_each)))
    spread = math.ceil(questions / math.ceil(math.sqrt(2 * _TILES_EACH * cpus)))
    return max(1, min(fitting, max(_FEWEST, spread)))


def bytes_a_question(dimensions: int, k: int, words: float) -> int:
    """Return the memory of a question in a tile: as read, for exact scores, for products, for candidates.

    `words` are what it has on average.
    """
    return 2 * dimensions + 4 * dimensions + 2 * dimensions + 12 * (4 * k + 24) + math.ceil(_WORD_BYTES * words)


def waves(groups: Iterable[Sequence[int]]) -> list[Tiles]:
    """Return all pairs of blocks of each group, by wave; row by row in each.

    With its blocks in a circle, the first wave compares those side by side, the second those two or three blocks apart,
    the third those up to seven, and so on.
    """
    found: dict[int, Tiles] = {}
    for group in groups:
        for index, left in enumerate(group):
            for apart, right in enumerate(group[index + 1 :], 1):
                found.setdefault(min(apart, len(group) - apart).bit_length(), []).append((left, right))
    return [found[wave] for wave in sorted(found)]
