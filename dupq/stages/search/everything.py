"""embeddings → neighbours: each question's k nearest, exactly.

    plan          one task        the blocks that the archive is searched in, which depend on the machines
    tiles/own     task per block  the neighbours of each block's questions in it
    tiles/wave-N  task per tile   two blocks against each other: the k best of each side's questions
    tiles/lists-N task per block  after each wave but the last: the lists of its questions so far
    tiles/gpu-S…  task per GPU    if GPUs are faster, in place of these three: the lists that a share of the pairs gives
    directed      task per block  its questions' lists (`nearest`), and rows for `pairs`, partitioned by the pair's left
                                  key, so that both directions of a pair are in one partition

After each wave (blocks.waves) the lists of every question are merged, and the tiles of the next wave look only for
better neighbours. So a wave writes about k neighbours per question, however many tiles it has. All tiles at once would
each write as many: bytes that grow with the square of the questions.

With an earlier run only what is new since then is searched (changes.py), and the answer is the same. Pairs above the
floor that are in no list are found later (above_threshold.py).
"""

import functools
import logging
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa

from dupq import kinds, storage, system
from dupq.archive import Shard, in_scope
from dupq.clusters.decision import ranked
from dupq.job import cluster
from dupq.job.gpus import has_gpu
from dupq.job.run import Run
from dupq.job.step import Counts, StepResult, step, unless_finished
from dupq.job.table import Partition, Shuffled, Streamed, Table, zipped
from dupq.job.tasks import run_tasks
from dupq.kinds import streamed
from dupq.neighbours import tiles
from dupq.neighbours.candidates import Nearest, empty_nearest, merged, nearest_in, nearest_table, nonempty_table
from dupq.neighbours.embeddings import Measure
from dupq.neighbours.exact import gpu_can_search
from dupq.stages.search.blocks import (
    BLOCK,
    Questions,
    SearchRequest,
    SizedFile,
    Tiles,
    block_rows,
    blocks_of,
    bytes_per_question,
    groups_of,
    pack,
    plan_blocks,
    waves,
    with_left,
)
from dupq.system import prefetch, thread_map
from dupq.tables import NEAREST, NEIGHBOURS

if TYPE_CHECKING:
    import torch

# Search by GPUs. A GPU holds all questions that are compared with each other (all blocks or, with
# neighbours.scope=site, those of a site), or batches of them. Of several GPUs each takes sites, or a share of a site's
# pairs, and CPUs merge what all found of a question's neighbours. GPUs need not exchange bounds: with 1, 2, 4 and 8
# shares, each scores 32, 22, 13 and 7 candidates per question (60,000 questions of 64 dimensions). A task that is
# interrupted begins again: it takes minutes.

_CPU_RATE, _GPU_RATE = 0.22e12, 4e14  # operations per second, of a core and of a GPU: 2 per dimension of each pair
_GPU_SECONDS, _SECONDS_PER_QUESTION = 8.0, 5e-6  # to start its process, and to read, upload and write
_BLOCKS_AT_ONCE = 8  # that are read or written, by as many threads
_log = logging.getLogger(__name__)
TABLES_OF_PLAN = ("tiles", "nearest", "directed")  # useless under another plan
Lists = list[list[Partition[kinds.Nearest]]]  # tables that together have the lists of a block, for each block


class NearestTables(NamedTuple):
    """The nearest questions of each question."""

    plan: Table[kinds.BlockRows]
    nearest: Table[kinds.Nearest]
    directed: Shuffled[kinds.Neighbour]  # the same as rows for `pairs`
    embeddings: Table[kinds.Embedded]  # that were searched
    sites: tuple[str, ...]  # by which keys are numbered


def find_nearest(
    run: Run, files: Sequence[SizedFile], request: SearchRequest, embeddings: Table[kinds.Embedded]
) -> NearestTables:
    """Find the nearest of each question in files of `embeddings`, which have the scopes if there are any."""
    plan = plan_search(run, files, request, embeddings)
    blocks = blocks_of(plan, embeddings, request)
    run.discard_stale({"blocks": [block.size for block in blocks], "since": None}, *TABLES_OF_PLAN)
    gpus = gpus_for_search(request, blocks)
    if gpus:
        lists = search_on_gpus(run, blocks, request, gpus)
    else:
        lists = search_in_waves(run, blocks, search_each(run, blocks, request), waves(groups_of(blocks)), request)
    return merge_lists(run, lists, request, plan, embeddings)


def files_in_scope(
    embeddings: Table[kinds.Embedded], shards: Sequence[Shard], request: SearchRequest
) -> list[SizedFile]:
    """Return the files of embeddings of the shards in scope. Raises SettingError for a site that does not exist."""
    searched = in_scope(shards, request.settings.sites)
    counts = thread_map(lambda shard: embeddings.rows_of(shard.number), searched)
    return [SizedFile(shard.file, shard.site, count) for shard, count in zip(searched, counts, strict=True)]


def plan_search(
    run: Run, files: Sequence[SizedFile], request: SearchRequest, embeddings: Table[kinds.Embedded]
) -> Table[kinds.BlockRows]:
    """Plan blocks of the questions in files of `embeddings`, of which there is at least one."""
    rows = request.settings.block_rows
    if not rows:
        uris = [storage.join(embeddings.folder, file.name) for file in files]
        each = bytes_per_question(_dimensions(uris), request.settings.k, _words(uris, request.measure))
        rows = block_rows(sum(file.rows for file in files), each, cluster.memory(), cluster.cpus())
    return run.map("plan", plan_blocks)(files, request.settings.scope, rows)


def _dimensions(uris: Sequence[str]) -> int:
    """Return the length of the vectors in files of embeddings."""
    return int(storage.read_schema(uris[0]).field("embedding").type.list_size)


def _words(uris: Sequence[str], measure: Measure) -> float:
    """Return the mean size of a bag in the file of embeddings that has the largest ones; 0 if words do not count."""
    return max(thread_map(lambda uri: storage.mean_length(uri, "words"), uris if measure.lexical else []), default=0.0)


def gpus_for_search(request: SearchRequest, blocks: Sequence[Questions], changed: int | None = None) -> int:
    """Return how many GPUs search everything; 0 if they cannot, as within scopes, or with `auto` are no faster.

    If CPUs need only compare `changed` questions with all, GPUs must be faster than that in any case.
    """
    gpus = request.gpus.now() if blocks and gpu_can_search(request.measure) and request.scopes is None else 0
    if not gpus or (changed is None and request.gpus.requested is not None):
        return gpus
    questions = sum(block.size for block in blocks)
    pairs = sum(sum(blocks[number].size for number in group) ** 2 for group in groups_of(blocks))  # in both directions
    operations = 2.0 * pairs * _dimensions([blocks[0].spans[0].file])
    on_gpus = _GPU_SECONDS + _SECONDS_PER_QUESTION * questions + operations / (_GPU_RATE * gpus)
    share = 1.0 if changed is None else 2.0 * changed / max(1, questions)
    on_cpus = share * operations / (_CPU_RATE * cluster.cpus())
    if on_cpus < on_gpus:
        _log.info(f"searched by CPUs, some {on_cpus:.0f} s; a GPU would take {on_gpus:.0f} s")
        return 0
    return gpus


def search_on_gpus(run: Run, blocks: Sequence[Questions], request: SearchRequest, gpus: int) -> Lists:
    """Return the blocks' lists by GPUs: a task per group of blocks, or several for a group with most pairs.

    Whether a group fits on a GPU is decided once for all of its shares, and their tables are named by it.
    """
    k, groups, calls = request.settings.k, groups_of(blocks), []
    uris = [block.spans[0].file for block in blocks]
    room = run_tasks("room", _room, [(uris, request.measure, k)], gpus=1).counts
    pairs = [sum(blocks[number].size for number in group) ** 2 for group in groups]
    lists: Lists = [[] for _ in blocks]
    for group, own in zip(groups, pairs, strict=True):
        shares = max(1, round(gpus * own / max(1, sum(pairs))))
        of_group = {number: blocks[number] for number in group}
        per_side = None if sum(block.size for block in of_group.values()) <= room["all"] else room["per side"]
        how = "shares" if per_side is None else "batches"
        for share in range(shares):
            table = run.table(f"tiles/gpu-{share}-of-{shares}-{how}", NEAREST, len(blocks))
            calls.append((table, of_group, k, (share, shares), per_side))
            for number in group:
                lists[number].append(Partition(table, number))
    run.report.add(run_tasks("search", _search_share, calls, gpus=gpus))
    return lists


def _device() -> "torch.device":
    return system.usable(system.GPU if has_gpu() else system.CPU)


def _room(uris: Sequence[str], measure: Measure, k: int) -> Counts:
    """Return how many questions a GPU can search, and how many per side; see room_on."""
    from dupq.neighbours.gpu import search

    rooms = search.room_on(_device(), _dimensions(uris), _words(uris, measure), measure, k)
    return dict(zip(("all", "per side"), rooms, strict=True))


def _search_share(
    made: Table[kinds.Nearest], group: dict[int, Questions], k: int, share: tuple[int, int], per_side: int | None
) -> Counts:
    """Write the lists of a group's blocks that a share of its pairs gives. Memory of the host: some blocks' rows."""

    def write(call: tuple[int, tuple[np.ndarray, Nearest]]) -> int:
        number, (keys, lists) = call
        order = np.argsort(keys)
        table = nearest_table(keys[order], Nearest(*(column[order] for column in lists)))
        storage.write_table(made.file(number), table, NEAREST)
        return len(keys)

    def make() -> Counts:
        found = _lists_of_share([*group.values()], k, share, per_side)
        return {"rows_out": sum(prefetch(write, zip(group, found, strict=True), _BLOCKS_AT_ONCE))}

    return unless_finished(made.file(min(group)), make)


def _lists_of_share(
    group: Sequence[Questions], k: int, share: tuple[int, int], per_side: int | None
) -> Iterator[tuple[np.ndarray, Nearest]]:
    """Yield the keys and lists of each block of a group, as a share of the group's pairs gives them.

    What does not fit on the device is searched in batches of `per_side` questions: some blocks, batch by batch, with
    all, which multiplies each pair twice, and gives no lists of other blocks.
    """
    from dupq.neighbours.gpu import search

    measure, device = group[0].measure, _device()
    read = functools.partial(prefetch, Questions.embeddings, most=_BLOCKS_AT_ONCE)
    if per_side is None:
        yield from search.nearest_of_all(read(group), measure, k, device, share)
        return
    nothing = np.zeros(0, np.int64), empty_nearest(0, k)
    start, stop = (len(group) * (share[0] + end) // share[1] for end in (0, 1))
    yield from (nothing for _ in group[:start])
    for batch in pack(group[start:stop], per_side):
        rest = [block for block in group if block not in batch]  # later, as the nearest are mostly of the same site
        yield from search.nearest_of_share(read(batch), map(read, pack([*batch, *rest], per_side)), measure, k, device)
    yield from (nothing for _ in group[stop:])


def search_each(run: Run, blocks: Sequence[Questions], request: SearchRequest) -> list[Partition[kinds.Nearest]]:
    """Compare the questions of each block with each other, and return their lists."""
    return partitions_of(run.map("tiles/own", search_block)(zipped(blocks), request.measure, request.settings.k))


@step(BLOCK, makes=NEAREST)
def search_block(block: tiles.Block, measure: Measure, k: int) -> pa.Table:
    """Return the lists of a block's questions among themselves (NEAREST). Memory: the block and tiles.search_tile's."""
    return nearest_table(block.keys, tiles.search_tile(block, block, tiles.Search(measure, k))[0])


def search_in_waves(
    run: Run,
    blocks: Sequence[Questions],
    own: Sequence[Partition[kinds.Nearest]],
    plan: Sequence[Tiles],
    request: SearchRequest,
) -> Lists:
    """Compare the blocks of each wave's tiles, and return the blocks' lists; `own` are their lists so far."""
    measure, k, lists = request.measure, request.settings.k, [[of_block] for of_block in own]
    for wave, of_wave in enumerate(plan, 1):
        if wave > 1:
            made = run.map(f"tiles/lists-{wave - 1}", merged_lists)(_per_task(lists), k)
            lists = [[of_block] for of_block in partitions_of(made)]
        sides = [[tile[side] for tile in of_wave] for side in (0, 1)]
        left, right = (zipped([blocks[number] for number in side]) for side in sides)
        of_left, of_right = (zipped([lists[number][0] for number in side]) for side in sides)
        in_left = run.table(f"tiles/wave-{wave}-right", NEAREST, len(of_wave))
        in_right = run.map(f"tiles/wave-{wave}", search_tile, second=in_left)(
            left, right, of_left, of_right, measure, k
        )
        for numbers, found in zip(sides, (in_right, in_left), strict=True):
            for number, of_tile in zip(numbers, partitions_of(found), strict=True):
                lists[number].append(of_tile)
    return lists


@step(BLOCK, BLOCK, NEAREST, NEAREST, makes=NEAREST, second=NEAREST)
def search_tile(
    left: tiles.Block, right: tiles.Block, of_left: pa.Table, of_right: pa.Table, measure: Measure, k: int
) -> StepResult[pa.Table]:
    """Return the neighbours of `left` in `right` (NEAREST), and those of `right` in `left` as second table.

    `of_left` and `of_right` are their lists so far: neighbours that are worse may be missing. Questions without
    neighbours have no row. Memory: two blocks, and their tile (tiles.search_tile).
    """
    known = nearest_in(of_left, k)[1].scores[:, -1], nearest_in(of_right, k)[1].scores[:, -1]
    in_right, in_left, *_ = tiles.search_tile(left, right, tiles.Search(measure, k), known=known)
    return StepResult(nonempty_table(left.keys, in_right), second=nonempty_table(right.keys, in_left))


@step(streamed(NEAREST), makes=NEAREST)
def merged_lists(lists: Iterable[pa.Table], k: int) -> pa.Table:
    """Return the first lists with the neighbours that the others have of their questions (all NEAREST)."""
    return nearest_table(*merged(lists, k))


def merge_lists(
    run: Run, lists: Lists, request: SearchRequest, plan: Table[kinds.BlockRows], embeddings: Table[kinds.Embedded]
) -> NearestTables:
    """Merge the lists of each block."""
    nearest = run.table("nearest", NEAREST, len(lists))
    merge = run.shuffle("directed", final_lists, request.partitions, by="left", second=nearest)
    directed = merge(_per_task(lists), request.measure, request.settings.k)
    return NearestTables(plan, nearest, directed, embeddings, tuple(request.sites))


def _per_task(lists: Lists) -> Streamed[kinds.Nearest]:
    return zipped([Streamed(zipped(of_block)) for of_block in lists])


def partitions_of(table: Table[kinds.Nearest]) -> list[Partition[kinds.Nearest]]:
    """Return the partitions of a table."""
    return [Partition(table, number) for number in range(table.partitions)]


@step(streamed(NEAREST), makes=NEIGHBOURS, second=NEAREST)
def final_lists(lists: Iterable[pa.Table], measure: Measure, k: int) -> StepResult[pa.Table]:
    """Return the merged lists as rows for `pairs` (NEIGHBOURS and the left key), and as second table (NEAREST)."""
    keys, nearest = merged(lists, k)
    directed = with_left(ranked(keys, nearest, measure))
    return StepResult(directed, {"rows_in": len(keys)}, nearest_table(keys, nearest))
