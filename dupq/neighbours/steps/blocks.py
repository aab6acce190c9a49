"""How the search is cut into blocks of embedded questions, tiles of two blocks each, and waves of tiles; and what each
worker keeps of its blocks for its next tile. The neighbours found do not depend on it.
"""

import math
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa

from dupq import storage
from dupq.clusters.decision import ranked
from dupq.job.gpus import NO_GPUS, Gpus
from dupq.job.run import Run
from dupq.job.step import Counted
from dupq.job.table import PerTask, Readable, Table
from dupq.job.tasks import at_next_step
from dupq.neighbours.candidates import Nearest, nearest_table
from dupq.neighbours.embeddings import Measure
from dupq.neighbours.exact import EMPTY
from dupq.runs.question_tables import embeddings_of
from dupq.runs.records import DEDUP_VERSIONS
from dupq.settings.sections import NeighbourSettings
from dupq.system import side_by_side
from dupq.tables import BLOCKS
from dupq.text.keys import Sites, are_among

if TYPE_CHECKING:
    from dupq.neighbours.tiles import Block

# questions of a block: smaller blocks waste start-up time, larger ones lose more work if a worker dies
_FEWEST, _MOST = 8_192, 131_072
_TILE_BYTES = 11 << 27  # the most memory for a tile, so that a task with Ray and the libraries takes some 2 GB
_TILES_EACH = 4
_WORD_BYTES = 82  # in a tile, with what is multiplied, 6,000 for the 73 stems of a question of cs

Tiles = list[tuple[int, int]]  # pairs of blocks

MARKS = ("site", "question_id", "fingerprint")
_KEPT_QUESTIONS = 1 << 17  # of all blocks before another is made
_kept: dict[Hashable, "Block"] = {}  # the one used last at the end


@dataclass(frozen=True)
class SearchRequest:
    """What to search for: by which measure, and into how many partitions the rows for `pairs` are spread."""

    sites: list[str]
    settings: NeighbourSettings
    measure: Measure
    parts: int
    gpus: Gpus = NO_GPUS  # that may be taken

    def lasting(self) -> dict[str, object]:
        """Return what must be equal in an earlier run for its neighbours to be valid."""
        return {
            "measure": self.measure.to_dict(),
            "method": "exact",  # an earlier run may have searched by lists, and missed some
            "k": self.settings.k,
            "scope": self.settings.scope,
            "sites": list(self.settings.sites),
            "algorithm": DEDUP_VERSIONS["neighbours"],
        }


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
class Questions(Readable):
    """Embedded questions that are searched together; a step gets them as a Block, ready to be searched."""

    spans: tuple[Span, ...]  # of files by their URIs
    sites: tuple[str, ...]
    measure: Measure
    group: str  # only questions of one group are compared
    without: Table | None = None  # KEYS of those that are left out

    @property
    def size(self) -> int:
        """The number of questions, with those that are left out."""
        return sum(span.rows for span in self.spans)

    def read(self) -> "Block":
        """Return the block; see `kept`."""
        return kept(self, self._block)

    def _block(self) -> "Block":
        from dupq.neighbours.tiles import block

        made = embeddings_of(self.rows(), Sites([*self.sites]), "embeddings")
        if self.without is not None:
            made = made.take(~are_among(self.without.read(0)["key"].to_numpy(), made.keys))
        pa.default_memory_pool().release_unused()  # what Arrow would keep of the tables, 300 MB of a block of 89,000
        return block(made, self.measure)

    def rows(self, *columns: str) -> pa.Table:
        """Return the rows of the questions; without names all columns."""
        tables = (storage.read_table(span.file, columns=[*columns] or None) for span in self.spans)
        return pa.concat_tables(
            [some.slice(span.start, span.rows) for some, span in zip(tables, self.spans, strict=True)]
        )


@dataclass(frozen=True)
class Marked(Readable):
    """The keys (int64, ascending) of the questions whose embeddings are not empty."""

    questions: Questions

    def read(self) -> np.ndarray:
        """Return the keys."""
        return np.sort(marks_in(self.questions.rows(*MARKS), self.questions.sites)[0])


@dataclass(frozen=True)
class Among(Readable):
    """Rows of the questions that are among `keys`. Where none is, only keys are read."""

    questions: Questions
    keys: Table

    def read(self) -> pa.Table:
        """Return the rows."""
        wanted = np.sort(self.keys.read(0)["key"].to_numpy())
        are_wanted = are_among(wanted, keys_in(self.questions.rows(*MARKS[:2]), self.questions.sites))
        if are_wanted.any():
            return self.questions.rows().filter(pa.array(are_wanted))
        return storage.read_schema(self.questions.spans[0].file).empty_table()


def keys_in(table: pa.Table, sites: Sequence[str]) -> np.ndarray:
    """Return the keys in a table of embeddings."""
    return Sites([*sites]).pack_columns(table["site"], table["question_id"], "embeddings")


def marks_in(table: pa.Table, sites: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """Return the keys and fingerprints in a table of embeddings, without empty ones."""
    marks = table["fingerprint"].to_numpy()
    return keys_in(table, sites)[marks != EMPTY], marks[marks != EMPTY]


def blocks_of(run: Run, request: SearchRequest) -> list[Questions]:
    """Return the questions of each block that `cut` made."""
    spans: dict[int, list[Span]] = {}
    groups: dict[int, str] = {}
    for row in run.table("plan", BLOCKS).read(0).to_pylist():
        uri = storage.join(run.uri, "embeddings", row["file"])
        spans.setdefault(row["block"], []).append(Span(uri, row["start"], row["stop"]))
        groups.setdefault(row["block"], row["site"] if request.settings.scope == "site" else "")
    sites, measure = tuple(request.sites), request.measure
    return [Questions(tuple(own), sites, measure, groups[block]) for block, own in spans.items()]


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


def groups_of(blocks: Sequence[Questions]) -> list[list[int]]:
    """Return the positions of blocks, grouped by which are compared with each other."""
    groups: dict[str, list[int]] = {}
    for number, block in enumerate(blocks):
        groups.setdefault(block.group, []).append(number)
    return list(groups.values())


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


def chosen(run: Run, name: str, blocks: Sequence[Questions], keys: Table) -> list[Questions]:
    """Return the questions that are among `keys` (KEYS): together those of as many blocks as one block holds."""
    if not blocks:
        return []
    schema = storage.read_schema(blocks[0].spans[0].file).remove_metadata()
    made = run.map(name, as_read, PerTask(tuple(Among(block, keys) for block in blocks)), into=schema)
    rows = side_by_side(lambda part: storage.read_counts(made.file(part))["rows_out"], range(made.partitions))
    spans = [Span(made.file(part), 0, count) for part, count in enumerate(rows)]
    return [
        replace(blocks[numbers[0]], spans=tuple(spans[number] for number in numbers))
        for numbers in filled(blocks, rows)
    ]


def filled(blocks: Sequence[Questions], rows: Sequence[int]) -> list[list[int]]:
    """Return positions of consecutive blocks of which `rows` (of each block) are searched together.

    Together they have at most as many rows as the largest block has questions, or are one block's, and of one group.
    """
    room, result, free = max((block.size for block in blocks), default=0), list[list[int]](), 0
    for number, count in enumerate(rows):
        if not result or count > free or blocks[result[-1][0]].group != blocks[number].group:
            result.append([])
            free = room
        result[-1].append(number)
        free -= count
    return result


def as_read(rows: pa.Table) -> pa.Table:
    """Return the rows."""
    return rows


def kept(key: Hashable, make: Callable[[], "Block"]) -> "Block":
    """Return one side of a tile: what `make` gives, once for many tiles.

    The two used last are kept, and more of small ones. So tiles in the order of their rows cost one reading each, and
    memory is the tile's own.
    """
    while key not in _kept and len(_kept) > 1 and sum(len(block.keys) for block in _kept.values()) > _KEPT_QUESTIONS:
        _kept.pop(next(iter(_kept)))
    found = _kept[key] = _kept.pop(key) if key in _kept else make()
    return found


def one_thread() -> None:
    """Let torch compute on one thread: there is a task for each core."""
    import torch

    torch.set_num_threads(1)


@at_next_step
def forget_blocks() -> None:
    """Free what this worker has kept for tiles, before other work."""
    _kept.clear()


def listed(keys: np.ndarray, nearest: Nearest, measure: Measure) -> Counted:
    """Return lists as rows for `pairs`; the second table are the lists as they are."""
    counts = {"rows_in": len(keys), "rows_out": len(keys)}
    return Counted(with_left(ranked(keys, nearest, measure)), counts, nearest_table(keys, nearest))


def with_left(directed: pa.Table) -> pa.Table:
    """Return rows of NEIGHBOURS with the smaller key of each pair besides."""
    return directed.append_column("left", pa.array(np.minimum(directed["query"], directed["neighbour"])))
