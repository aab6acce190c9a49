"""How the all-pairs search is cut into blocks of embeddings, and tiles of two blocks each.

The plan is made once, for the machines at hand, and stored: a job that continues elsewhere follows it. The neighbours
found do not depend on it.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from typing_extensions import TypedDict

from dupq import storage
from dupq.errors import SettingError
from dupq.execution.units import Counts, skip_or
from dupq.json_files import read_as
from dupq.runs.layout import NeighbourFiles
from dupq.settings.dedup import NeighbourSettings
from dupq.shards import Shard
from dupq.side_by_side import side_by_side

# questions of a block: smaller blocks waste start-up time, larger ones lose more work if a worker dies
_FEWEST, _MOST = 8_192, 131_072
_TILE_BYTES = 11 << 27  # the most memory for a tile, so that a task with Ray and the libraries takes some 2 GB
_TILES_EACH = 4
_WORD_BYTES = 82  # in a tile, with what is multiplied, 6,000 for the 73 stems of a question of cs


class Span(NamedTuple):
    """Rows of a file of embeddings."""

    file: str
    start: int
    stop: int


@dataclass(frozen=True)
class Plan:
    """The blocks, each of consecutive rows, and whether only blocks of one site are compared."""

    blocks: list[list[Span]]
    sites: list[str]  # of each block's first row
    scope: str

    @property
    def pairs(self) -> list[tuple[int, int]]:
        """All pairs of blocks that are compared, (left, right) with left < right, row by row."""
        return [
            (left, right)
            for left in range(len(self.blocks))
            for right in range(left + 1, len(self.blocks))
            if self.compares(left, right)
        ]

    @property
    def questions(self) -> int:
        """The number of questions."""
        return sum(self.rows(number) for number in range(len(self.blocks)))

    def rows(self, number: int) -> int:
        """The number of questions of a block."""
        return sum(span.stop - span.start for span in self.blocks[number])

    def compared_with(self, number: int) -> list[int]:
        """The other blocks that a block is compared with."""
        return [other for other in range(len(self.blocks)) if other != number and self.compares(other, number)]

    @property
    def groups(self) -> list[list[int]]:
        """The blocks, grouped by which are compared with each other."""
        groups: dict[str, list[int]] = {}
        for number, site in enumerate(self.sites):
            groups.setdefault(site if self.scope == "site" else "", []).append(number)
        return list(groups.values())

    def compares(self, left: int, right: int) -> bool:
        """Whether the questions of two blocks are compared."""
        return self.scope == "all" or self.sites[left] == self.sites[right]

    def to_json(self) -> dict[str, object]:
        """For a file."""
        return {"blocks": [[list(span) for span in spans] for spans in self.blocks], "sites": self.sites}


class _Kept(TypedDict):
    """`Plan.to_json`."""

    blocks: list[list[tuple[str, int, int]]]
    sites: list[str]


def plan_of(
    files: NeighbourFiles,
    shards: Sequence[Shard],
    settings: NeighbourSettings,
    rows_of: Callable[[Sequence[Shard], int], int],
) -> Plan:
    """The plan of a run; made first if there is none.

    `rows_of` tells from the shards that are searched, and how many questions they have, how many a block has at most.
    """

    def make() -> Counts:
        searched = in_scope(shards, settings)
        counts = side_by_side(lambda shard: _embedded(files, shard), searched)
        storage.delete_folder(files.folder)
        plan = make_plan(searched, counts, settings, rows_of(searched, sum(counts)))
        storage.write_json(files.plan, plan.to_json())
        return {}

    skip_or(files.plan, make)
    return read_plan(files.plan, settings)


def read_plan(place: str, settings: NeighbourSettings) -> Plan:
    """The plan stored at `place`."""
    kept = read_as(place, _Kept, "remove it, and the search is cut anew")
    return Plan([[Span(*span) for span in spans] for spans in kept["blocks"]], kept["sites"], settings.scope)


def _embedded(files: NeighbourFiles, shard: Shard) -> int:
    return storage.read_counts(storage.join(files.embeddings, shard.file))["rows_out"]


def in_scope(shards: Sequence[Shard], settings: NeighbourSettings) -> list[Shard]:
    """The shards of the sites that are searched. Raises SettingError for a site that is not there."""
    absent = set(settings.sites) - {shard.site for shard in shards}
    if absent:
        raise SettingError(f"setting 'neighbours.sites': there are no questions of {', '.join(sorted(absent))}")
    return [shard for shard in shards if not settings.sites or shard.site in settings.sites]


def make_plan(shards: Sequence[Shard], counts: Sequence[int], settings: NeighbourSettings, rows: int) -> Plan:
    """Cut the embeddings of shards, so many of each, into blocks of at most `rows`."""
    blocks: list[list[Span]] = []
    sites: list[str] = []
    room = 0
    for shard, count in zip(shards, counts, strict=True):
        if settings.scope == "site" and sites and sites[-1] != shard.site:
            room = 0
        start = 0
        while start < count:
            if not room:
                blocks.append([])
                sites.append(shard.site)
                room = rows
            stop = min(count, start + room)
            blocks[-1].append(Span(shard.file, start, stop))
            room -= stop - start
            start = stop
    return Plan(blocks, sites, settings.scope)


def block_rows(questions: int, bytes_each: int, memory: int, cpus: int) -> int:
    """Questions of a block: as many as half of a CPU's `memory` (bytes) holds of both sides, `bytes_each` a question.

    Small archives are cut so that each CPU has a few tiles.
    """
    budget = min(_TILE_BYTES, memory // (2 * cpus))
    fitting = min(_MOST, max(1_024, budget // (2 * bytes_each)))
    spread = math.ceil(questions / math.ceil(math.sqrt(2 * _TILES_EACH * cpus)))
    return max(1, min(fitting, max(_FEWEST, spread)))


def bytes_a_question(dimensions: int, k: int, words: float) -> int:
    """The memory of a question of so many words in a tile: as read, for exact scores, for products, for candidates."""
    return 2 * dimensions + 4 * dimensions + 2 * dimensions + 12 * (4 * k + 24) + math.ceil(_WORD_BYTES * words)
