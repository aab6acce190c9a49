"""The plan of a search: blocks of embedded questions, tiles of two blocks each, and waves of tiles.

Each worker keeps the blocks of its last tile for its next one; with few workers that saves half of the reading. The
neighbours that are found do not depend on the plan.
"""

import functools
import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from dupq import kinds, storage
from dupq.job.gpus import NO_GPUS, Gpus
from dupq.job.run import Run
from dupq.job.step import as_is, step
from dupq.job.table import Computed, Input, Table
from dupq.job.tasks import at_next_step
from dupq.kinds import Schema, open_schema
from dupq.neighbours import tiles
from dupq.neighbours.embeddings import COSINE, Embeddings, Measure, embeddings_of, keys_in
from dupq.neighbours.exact import EMPTY
from dupq.neighbours.scopes import entries_of
from dupq.settings.sections import NeighbourSettings
from dupq.stages.scopes import SCOPED, Scopes
from dupq.system import thread_map
from dupq.tables import BLOCKS, EMBEDDED, SCOPES
from dupq.text.keys import Sites, are_among

# Questions of a block: smaller blocks waste start-up time, larger ones lose more work if a worker dies.
_FEWEST, _MOST = 8_192, 131_072
_TILE_BYTES = 11 << 27  # the most memory for a tile, so that a task with Ray and the libraries takes some 2 GB
_TILES_PER_CPU = 4
_WORD_BYTES = 82  # of a word in a tile: 6,000 for the 73 stems of a question of cs, with the matrix

Tiles = list[tuple[int, int]]  # pairs of blocks

BLOCK: Schema[kinds.Block] = open_schema(pa.schema([]))  # a step reads a tiles.Block
FINGERPRINTS: Schema[kinds.Embedded] = EMBEDDED.remove_metadata()  # of embeddings, only these columns


@dataclass(frozen=True)
class SearchRequest:
    """What to search for, and how."""

    sites: list[str]
    settings: NeighbourSettings
    measure: Measure
    partitions: int  # of the rows for `pairs`
    gpus: Gpus = NO_GPUS  # that the search may use
    scopes: Scopes | None = None  # with them only CPUs search; None: any two questions of a group are compared

    def identity(self) -> dict[str, object]:
        """Return what must be equal in an earlier run for its neighbours to be valid."""
        return {
            "measure": asdict(self.measure),
            "method": "exact" if self.measure.kind == COSINE else "similarity",  # what lists are ordered by
            "k": self.settings.k,
            "scope": self.settings.scope,
            "sites": list(self.settings.sites),
            **({"window": self.settings.window} if self.settings.window else {}),
        }


class SizedFile(NamedTuple):
    """A file of a table of embeddings, its site, and its rows."""

    name: str
    site: str
    rows: int


class Span(NamedTuple):
    """Rows of a file of embeddings."""

    file: str
    start: int
    stop: int


@dataclass(frozen=True)
class Questions(Input[kinds.Block]):
    """Embedded questions that are searched together; a step gets them as a Block."""

    spans: tuple[Span, ...]
    sites: tuple[str, ...]
    measure: Measure
    group: str  # only questions of one group are compared
    window: int | None = None  # milliseconds; None: without scopes
    excluded: Table[kinds.Key] | None = None
    is_partitioned = False

    @property
    def size(self) -> int:
        """The number of questions, with those that are excluded."""
        return sum(span.stop - span.start for span in self.spans)

    def read(self, partition: int = 0) -> tiles.Block:
        """Return the block, cached."""
        return read_block(self)

    def embeddings(self) -> Embeddings:
        """Return the embeddings of the questions."""
        read = embeddings_of(self.rows(), Sites([*self.sites]), "embeddings")
        if self.excluded is None:
            return read
        return read.take(~are_among(self.excluded.read()["key"].to_numpy(), read.keys))

    def rows(self, *names: str) -> pa.Table:
        """Return the rows of the questions, with all columns if no names are given."""
        tables = ((storage.read_table(span.file, columns=[*names] or None), span) for span in self.spans)
        return pa.concat_tables([table.slice(span.start, span.stop - span.start) for table, span in tables])


@functools.lru_cache(maxsize=2)  # so that the tiles of a wave, row by row, read about one block each
def read_block(questions: Questions) -> tiles.Block:
    """Return the block of questions; on one thread, as each core has a task."""
    import torch

    torch.set_num_threads(1)
    made = tiles.block(questions.embeddings(), questions.measure)
    if questions.window is not None:
        rows = questions.rows("site", "question_id", *SCOPED.names)
        scopes = pa.table([keys_in(rows, questions.sites), *(rows[name] for name in SCOPED.names)], schema=SCOPES)
        own = entries_of(scopes.filter(pa.array(are_among(made.keys, scopes["key"].to_numpy()))))
        made = made._replace(entries=own, window=questions.window)
    pa.default_memory_pool().release_unused()  # Arrow would keep 300 MB of the tables of a block of 89,000
    return made


forget_blocks = at_next_step(read_block.cache_clear)


def fingerprints_in(table: pa.Table, sites: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """Return the keys and fingerprints in a table of embeddings, without empty embeddings."""
    fingerprints = table["fingerprint"].to_numpy()
    return keys_in(table, sites)[fingerprints != EMPTY], fingerprints[fingerprints != EMPTY]


def blocks_of(
    plan: Table[kinds.BlockRows], embeddings: Table[kinds.Embedded], request: SearchRequest
) -> list[Questions]:
    """Return the questions of each block of a plan."""
    spans: dict[int, list[Span]] = {}
    groups: dict[int, str] = {}
    for row in plan.read().to_pylist():
        uri = storage.join(embeddings.folder, row["file"])
        spans.setdefault(row["block"], []).append(Span(uri, row["start"], row["stop"]))
        groups.setdefault(row["block"], row["site"] if request.settings.scope == "site" else "")
    sites, measure = tuple(request.sites), request.measure
    window = request.scopes.window if request.scopes else None
    return [Questions(tuple(own), sites, measure, groups[block], window) for block, own in spans.items()]


@step(makes=BLOCKS)
def plan_blocks(files: Sequence[SizedFile], scope: str, rows: int) -> pa.Table:
    """Return blocks (BLOCKS) of at most `rows` questions from files of embeddings."""
    planned: list[tuple[int, str, str, int, int]] = []
    block, room, last = -1, 0, ""
    for file, site, count in files:
        if scope == "site" and site != last:
            room = 0
        start, last = 0, site
        while start < count:
            if not room:
                block, room = block + 1, rows
            stop = min(count, start + room)
            planned.append((block, site, file, start, stop))
            room -= stop - start
            start = stop
    return pa.Table.from_pylist([dict(zip(BLOCKS.names, row, strict=True)) for row in planned], schema=BLOCKS)


def block_rows(questions: int, bytes_each: int, memory: int, cpus: int) -> int:
    """Return the number of questions in a block, of `bytes_each` bytes in a tile.

    Half of each CPU's share of `memory` (bytes) holds a tile, and in a small archive each CPU has a few tiles.
    """
    budget = min(_TILE_BYTES, memory // (2 * cpus))
    fitting = min(_MOST, max(1_024, budget // (2 * bytes_each)))
    spread = math.ceil(questions / math.ceil(math.sqrt(2 * _TILES_PER_CPU * cpus)))
    return max(1, min(fitting, max(_FEWEST, spread)))


def bytes_per_question(dimensions: int, k: int, words: float) -> int:
    """Return the memory of a question in a tile, with `words` on average.

    That is the embedding as it is read, for exact scores and for products; and the candidates.
    """
    return 2 * dimensions + 4 * dimensions + 2 * dimensions + 12 * (4 * k + 24) + math.ceil(_WORD_BYTES * words)


def groups_of(blocks: Sequence[Questions]) -> list[list[int]]:
    """Return the indices of the blocks of each group, whose blocks are compared with each other."""
    groups: dict[str, list[int]] = {}
    for number, block in enumerate(blocks):
        groups.setdefault(block.group, []).append(number)
    return list(groups.values())


def waves(groups: Iterable[Sequence[int]]) -> list[Tiles]:
    """Return the tiles of all pairs of blocks of each group, by wave; in a wave row by row.

    With the blocks of a group in a circle, the first wave compares neighbours, the second blocks that are two or three
    apart, the third up to seven, and so on.
    """
    result: dict[int, Tiles] = {}
    for group in groups:
        for index, left in enumerate(group):
            for distance, right in enumerate(group[index + 1 :], 1):
                wave = min(distance, len(group) - distance).bit_length()
                result.setdefault(wave, []).append((left, right))
    return [result[wave] for wave in sorted(result)]


def select(run: Run, name: str, blocks: Sequence[Questions], keys: Table[kinds.Key]) -> list[Questions]:
    """Return the questions that are among `keys` (KEYS), in blocks of at most the size of the largest."""
    if not blocks:
        return []
    schema = storage.read_schema(blocks[0].spans[0].file).remove_metadata()
    made = run.map(name, as_is, schema)(Computed(_selected_rows, (blocks, keys), len(blocks)))
    counts = enumerate(thread_map(made.rows_of, range(made.partitions)))
    spans = [(Span(made.file(number), 0, rows),) for number, rows in counts]
    selected = [replace(block, spans=own) for block, own in zip(blocks, spans, strict=True)]
    packed = pack(selected, max(block.size for block in blocks))
    return [replace(batch[0], spans=tuple(block.spans[0] for block in batch)) for batch in packed]


def _selected_rows(blocks: Sequence[Questions], keys: Table[kinds.Key], number: int) -> pa.Table:
    """Return the rows of a block's questions that are among `keys`. If none are, only keys are read."""
    block, selected = blocks[number], np.sort(keys.read()["key"].to_numpy())
    is_selected = are_among(selected, keys_in(block.rows("site", "question_id"), block.sites))
    if is_selected.any():
        return block.rows().filter(pa.array(is_selected))
    return storage.read_schema(block.spans[0].file).empty_table()


def pack(blocks: Sequence[Questions], room: int) -> list[list[Questions]]:
    """Return batches of consecutive blocks of one group, with at most `room` questions each or one block."""
    result, free = list[list[Questions]](), 0
    for block in blocks:
        if not result or block.size > free or result[-1][0].group != block.group:
            result.append([])
            free = room
        result[-1].append(block)
        free -= block.size
    return result


def with_left(directed: pa.Table) -> pa.Table:
    """Return rows of NEIGHBOURS with the smaller key of each pair as column `left`."""
    return directed.append_column("left", pa.array(np.minimum(directed["query"], directed["neighbour"])))
