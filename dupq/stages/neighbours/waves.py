"""Tiles in waves: what one wave has found spares the next ones candidates, and bytes.

    tiles         a task a tile     first of each block with itself, then in waves: see below
    merge         a task a block    after each wave but the last: the lists of its questions so far
    neighbours    a task a block    the same after the last wave, and rows for the pairs stage (tables.write_lists)

With its blocks in a circle, the first wave compares those side by side, the second those two or three places apart, the
third those up to seven, and so on. After each the lists of every question are merged, and the tiles of the next wave
look only for what is better. So a wave writes about k neighbours a question, however many tiles it has. All tiles at
once would each write as many: bytes that grow with the square of the questions.
"""

from collections.abc import Callable, Iterable, Sequence

import numpy as np

from dupq import storage
from dupq.execution.tasks import Report, run_tasks
from dupq.execution.units import Counts, skip_or
from dupq.neighbours.nearest import Nearest
from dupq.runs.layout import NeighbourFiles
from dupq.stages.neighbours.tables import (
    SearchRequest,
    lists_after,
    merge_found,
    nearest_table,
    read_nearest,
    write_lists,
)
from dupq.tables import NEAREST

Tiles = Sequence[tuple[str, str]]  # the names of both blocks, in alphabetical order


def search_in_waves(
    files: NeighbourFiles,
    request: SearchRequest,
    groups: Sequence[Sequence[str]],
    search: Callable[[Tiles, int], Report],
) -> tuple[Report, Report]:
    """Write the neighbours of the blocks in `groups`, each compared with its own: the report of tiles, that of lists.

    `search` writes tiles of a wave (tables.write_tile), of wave 0 those of blocks with themselves.
    """
    names = [name for group in groups for name in group]
    report = search([(name, name) for name in names], 0)
    cut = waves(groups)
    for wave, tiles in enumerate(cut, 1):
        report.add(search(tiles, wave))
        if wave < len(cut):
            calls = [(files, request, name, tiles_of(name, tiles), wave) for name in names]
            report.add(run_tasks("merge", _merge, calls))
    last = [(files, request, name, tiles_of(name, cut[-1]) if cut else [], len(cut)) for name in names]
    return report, run_tasks("neighbours", _write_lists, last)


def waves(groups: Iterable[Sequence[str]]) -> list[Tiles]:
    """All pairs of names of a group (in alphabetical order), by wave; row by row in each."""
    found: dict[int, list[tuple[str, str]]] = {}
    for group in groups:
        for place, left in enumerate(group):
            for apart, right in enumerate(group[place + 1 :], 1):
                found.setdefault(min(apart, len(group) - apart).bit_length(), []).append((left, right))
    return [found[wave] for wave in sorted(found)]


def tiles_of(name: str, tiles: Tiles) -> list[tuple[str, str]]:
    """Those in which a block is compared."""
    return [tile for tile in tiles if name in tile]


def _merged(
    files: NeighbourFiles, request: SearchRequest, name: str, tiles: Tiles, wave: int
) -> tuple[np.ndarray, Nearest]:
    """The keys of a block and their lists after a wave, in whose `tiles` it was compared."""
    keys, nearest = read_nearest(lists_after(files, name, max(wave - 1, 0)), request.settings.k)
    merge_found(nearest, keys, [files.tile(*tile, "left" if tile[0] == name else "right") for tile in tiles])
    return keys, nearest


def _merge(files: NeighbourFiles, request: SearchRequest, name: str, tiles: Tiles, wave: int) -> Counts:
    output = lists_after(files, name, wave)

    def make() -> Counts:
        keys, nearest = _merged(files, request, name, tiles, wave)
        storage.write_table(output, nearest_table(keys, nearest), NEAREST)
        return {}

    return skip_or(output, make)


def _write_lists(files: NeighbourFiles, request: SearchRequest, name: str, tiles: Tiles, wave: int) -> Counts:
    def make() -> Counts:
        return write_lists(files, request, name, *_merged(files, request, name, tiles, wave))

    return skip_or(files.list_of(name), make)
