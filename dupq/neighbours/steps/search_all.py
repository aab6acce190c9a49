"""embeddings → neighbours: each question's k nearest, exactly.

    plan          one task        the blocks that the archive is searched in, which depend on the machines
    tiles/own     task per block  the neighbours of each block's questions in it
    tiles/wave-N  task per tile   two blocks against each other: the k best of each side's questions
    tiles/lists-N task per block  after each wave but the last: the lists of its questions so far
    directed      task per block  its questions' lists (`nearest`), and rows for `pairs`, partitioned by the pair's left
                                  key, so that both directions of a pair are in one partition

After each wave (blocks.waves) the lists of every question are merged, and the tiles of the next wave look only for
better neighbours. So a wave writes about k neighbours per question, however many tiles it has. All tiles at once would
each write as many: bytes that grow with the square of the questions.

If a GPU is faster, it replaces all steps after the plan. With an earlier run only what is new since then is searched
(search_changes.py), and the answer is the same. Pairs above the floor that are in no list are found later
(search_beyond_lists.py).
"""

import logging
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa

from dupq import storage, system
from dupq.archive import Shard, in_scope
from dupq.job import cluster
from dupq.job.gpus import has_gpu
from dupq.job.run import Run
from dupq.job.step import Counted, Counts, unless_finished, write_shuffled
from dupq.job.table import Files, Partition, Partitions, PerTask, Shuffled, Table
from dupq.job.tasks import run_tasks
from dupq.neighbours.candidates import Nearest, merged, nearest_in, nearest_table, nonempty_table
from dupq.neighbours.embeddings import Measure
from dupq.neighbours.exact import gpu_can_search
from dupq.neighbours.steps.blocks import (
    Questions,
    SearchRequest,
    Tiles,
    block_rows,
    blocks_of,
    bytes_per_question,
    groups_of,
    lists_as_pairs,
    plan_blocks,
    waves,
)
from dupq.runs.records import RunFiles
from dupq.system import Written, ahead, note, recording, side_by_side
from dupq.tables import BLOCKS, NEAREST, NEIGHBOURS

if TYPE_CHECKING:
    from dupq.neighbours.tiles import Block

# Search by GPUs. A GPU holds all questions that are compared with each other: all blocks or, with
# neighbours.scope=site, those of a site. Several GPUs search several sites. A search that is interrupted begins again:
# it takes minutes at most.

_CPU_RATE, _GPU_RATE = 0.22e12, 4e14  # operations per second, of a core and of a GPU: 2 per dimension of each pair
_GPU_SECONDS, _SECONDS_PER_QUESTION = 8.0, 5e-6  # to start its process, and to read, upload and write
_BLOCKS_AT_ONCE = 8  # that are read or written, by as many threads
_log = logging.getLogger(__name__)


def gpus_for_search(request: SearchRequest, blocks: Sequence[Questions], changed: int | None = None) -> int:
    """Return how many GPUs search everything; 0 if GPUs cannot or, with `auto`, are not faster than CPUs.

    If CPUs need only compare `changed` questions with all, GPUs must be faster than that in any case.
    """
    gpus = request.gpus.now() if blocks and gpu_can_search(request.measure) else 0
    if not gpus or (changed is None and request.gpus.requested is not None):
        return gpus
    questions = sum(block.size for block in blocks)
    pairs = sum(sum(blocks[number].size for number in group) ** 2 for group in groups_of(blocks))  # in both directions
    operations = 2.0 * pairs * storage.read_schema(blocks[0].spans[0].file).field("embedding").type.list_size
    on_gpus = _GPU_SECONDS + _SECONDS_PER_QUESTION * questions + operations / _GPU_RATE
    share = 1.0 if changed is None else 2.0 * changed / max(1, questions)
    on_cpus = share * operations / (_CPU_RATE * cluster.cpus())
    if on_cpus < on_gpus:
        _log.info(f"searched by CPUs, some {on_cpus:.0f} s; a GPU would take {on_gpus:.0f} s")
        return 0
    return gpus


def search_on_gpus(run: Run, blocks: Sequence[Questions], request: SearchRequest, gpus: int) -> None:
    """Make `nearest` and `directed` by GPUs."""
    directed = run.shuffled("directed", NEIGHBOURS, len(blocks), request.partitions, by="left")
    nearest, k = run.table("nearest", NEAREST, len(blocks)), request.settings.k
    calls = [(directed, nearest, k, [(number, blocks[number]) for number in group]) for group in groups_of(blocks)]
    report = run_tasks("search", _search_group, calls, gpus=gpus)
    run.report.add(report)


def _search_group(directed: Shuffled, nearest: Table, k: int, group: Sequence[tuple[int, Questions]]) -> Counts:
    """Make the partitions of a group's blocks. Memory of the host: some blocks, and some blocks' lists."""
    measure = group[0][1].measure

    def write(call: tuple[int, tuple[np.ndarray, Nearest]]) -> tuple[int, dict[str, Written]]:
        number, (keys, lists) = call
        order = np.argsort(keys)
        pairs = lists_as_pairs(keys[order], Nearest(*(column[order] for column in lists)), measure)
        with recording() as written:  # by this thread
            storage.write_table(nearest.file(number), pairs.second, NEAREST)
            write_shuffled(directed, number, pairs.table)
        return len(keys), written

    def make() -> Counts:
        from dupq.neighbours.gpu.search import nearest_of_all

        device, rows = system.usable(system.GPU if has_gpu() else system.CPU), 0
        embeddings = ahead(Questions.embeddings, [block for _, block in group], _BLOCKS_AT_ONCE)
        lists = nearest_of_all(embeddings, measure, k, device)
        for count, written in ahead(write, zip((number for number, _ in group), lists, strict=True), _BLOCKS_AT_ONCE):
            note(written)
            rows += count
        return {"rows_in": rows, "rows_out": rows}

    return unless_finished(directed.files[group[-1][0]], make)


TABLES_OF_PLAN = ("tiles", "beyond", "nearest", "directed")  # useless under another plan


class Side(NamedTuple):
    """Questions, and their lists so far (NEAREST)."""

    questions: Questions
    lists: Partition


def find_neighbours(run: Run, shards: Sequence[Shard], request: SearchRequest) -> None:
    """Make the lists of every embedded question: `nearest`, `directed`."""
    blocks = plan_search(run, shards, request)
    run.discard_stale({"blocks": [block.size for block in blocks], "since": None}, *TABLES_OF_PLAN)
    gpus = gpus_for_search(request, blocks)
    if gpus:
        search_on_gpus(run, blocks, request, gpus)
    else:
        search_in_waves(run, search_each(run, blocks, request), waves(groups_of(blocks)), request)
    finish(run, request)


def search_in_waves(run: Run, sides: Sequence[Side], tiles: Sequence[Tiles], request: SearchRequest) -> None:
    """Compare pairs of sides, wave by wave, and make the tables `nearest`, a partition per side, and `directed`."""
    k, more = request.settings.k, [Partitions(())] * len(sides)
    for wave, of_wave in enumerate(tiles, 1):
        if wave > 1:
            lists = run.map(f"tiles/lists-{wave - 1}", merged_lists, *_lists_of(sides, more), k, into=NEAREST)
            sides = [side._replace(lists=Partition(lists, number)) for number, side in enumerate(sides)]
        more = _search_tiles(run, f"tiles/wave-{wave}", sides, of_wave, request)
    inputs, nearest = (*_lists_of(sides, more), request.measure, k), run.table("nearest", NEAREST, len(sides))
    run.shuffle(
        "directed", final_lists, *inputs, into=NEIGHBOURS, partitions=request.partitions, by="left", second=nearest
    )


def _lists_of(sides: Sequence[Side], more: Sequence[Partitions]) -> tuple[PerTask, PerTask]:
    return PerTask(tuple(side.lists for side in sides)), PerTask(tuple(more))


def plan_search(run: Run, shards: Sequence[Shard], request: SearchRequest) -> list[Questions]:
    """Plan blocks of the embeddings of the shards in scope. Raises SettingError for a site that does not exist."""
    searched = in_scope(shards, request.settings.sites)
    uris = [storage.join(run.uri, "embeddings", shard.file) for shard in searched]
    counts = side_by_side(lambda uri: storage.read_counts(uri)["rows_out"], uris)
    files = [(shard.file, shard.site, count) for shard, count in zip(searched, counts, strict=True)]
    rows = request.settings.block_rows or _block_rows(uris, sum(counts), request)
    run.map("plan", plan_blocks, files, request.settings.scope, rows, into=BLOCKS)
    return blocks_of(run, request)


def _block_rows(uris: Sequence[str], questions: int, request: SearchRequest) -> int:
    dimensions = storage.read_schema(uris[0]).field("embedding").type.list_size
    with_words = uris if request.measure.lexical else []
    words = max(side_by_side(lambda uri: storage.mean_length(uri, "words"), with_words), default=0.0)
    each = bytes_per_question(dimensions, request.settings.k, words)
    return block_rows(questions, each, cluster.memory(), cluster.cpus())


def search_each(run: Run, blocks: Sequence[Questions], request: SearchRequest) -> list[Side]:
    """Compare the questions of each block with each other."""
    own = run.map("tiles/own", search_block, PerTask(tuple(blocks)), request.measure, request.settings.k, into=NEAREST)
    return [Side(block, Partition(own, number)) for number, block in enumerate(blocks)]


def _search_tiles(run: Run, name: str, sides: Sequence[Side], tiles: Tiles, request: SearchRequest) -> list[Partitions]:
    """Compare pairs of sides (indices), a task per pair, and return each side's lists from all of its tiles."""
    pairs = [(sides[left], sides[right]) for left, right in tiles]
    blocks = (PerTask(tuple(pair[side].questions for pair in pairs)) for side in (0, 1))
    lists = (PerTask(tuple(pair[side].lists for pair in pairs)) for side in (0, 1))
    of_right = run.table(f"{name}-right", NEAREST, len(tiles))
    inputs = *blocks, *lists, request.measure, request.settings.k
    of_left = run.map(name, search_tile, *inputs, into=NEAREST, second=of_right)
    result: list[list[Partition]] = [[] for _ in sides]
    for number, (left, right) in enumerate(tiles):
        result[left].append(Partition(of_left, number))
        result[right].append(Partition(of_right, number))
    return [Partitions(tuple(lists)) for lists in result]


def search_block(block: "Block", measure: Measure, k: int) -> pa.Table:
    """Return the lists of a block's questions among themselves (NEAREST). Memory: the block and tiles.search_tile's."""
    from dupq.neighbours.tiles import Search, search_tile

    return nearest_table(block.keys, search_tile(block, block, Search(measure, k))[0])


def search_tile(
    left: "Block", right: "Block", of_left: pa.Table, of_right: pa.Table, measure: Measure, k: int
) -> Counted:
    """Return the neighbours of `left` in `right` (NEAREST), and those of `right` in `left` as second table.

    `of_left` and `of_right` are their lists so far: neighbours that are worse may be missing. Questions without
    neighbours have no row. Memory: two blocks, and their tile (tiles.search_tile).
    """
    from dupq.neighbours.tiles import Search, search_tile

    known = nearest_in(of_left, k)[1].scores[:, -1], nearest_in(of_right, k)[1].scores[:, -1]
    in_right, in_left, _ = search_tile(left, right, Search(measure, k), known=known)
    return Counted(nonempty_table(left.keys, in_right), second=nonempty_table(right.keys, in_left))


def merged_lists(lists: pa.Table, more: Iterable[pa.Table], k: int) -> pa.Table:
    """Return lists with `more` neighbours of their questions (all NEAREST)."""
    return nearest_table(*merged(lists, more, k))


def final_lists(lists: pa.Table, more: Iterable[pa.Table], measure: Measure, k: int) -> Counted:
    """Return the merged lists (NEAREST) as rows for `pairs`; the second table has the lists."""
    return lists_as_pairs(*merged(lists, more, k), measure)


def stored_lists(files: RunFiles) -> Files:
    """Return the lists of a run (NEAREST), a partition per file."""
    return Files(tuple(file.uri for file in storage.list_files(files.nearest, ".parquet")), NEAREST)


def directed_in(folder: str, partitions: int) -> Shuffled:
    """Return the rows for `pairs` (NEIGHBOURS), in `partitions` of the pair's left key."""
    return Shuffled(tuple(file.uri for file in storage.list_files(folder, ".arrow")), NEIGHBOURS, partitions)


def finish(run: Run, request: SearchRequest) -> None:
    """Store the request that the lists answer, so that a later run may build on them."""
    run.report.rows_out = run.report.rows_in  # the questions that have lists
    storage.write_json(RunFiles(run.uri).request, {**request.identity(), "sites_of_keys": request.sites})
