"""embeddings → neighbours: each question's k nearest, exactly.

    plan          one task           how the archive is cut into blocks: for the machines at hand, and kept
    tiles/own     a task per block   what each block's questions find in it
    tiles/wave-N  a task per tile    two blocks against each other: the k best of each side's questions
    tiles/lists-N a task per block   after each wave but the last: the lists of its questions so far
    directed      a task per block   its questions' lists (`nearest`), and rows for `pairs`, partitioned by the pair's
                                     left key, so that both directions of a pair are in one partition

Waves (blocks.waves): after each the lists of every question are merged, and the tiles of the next wave look only for
what is better. So a wave writes about k neighbours a question, however many tiles it has. All tiles at once would each
write as many: bytes that grow with the square of the questions.

Where a GPU is faster, one task that has it takes the place of all these. On CPUs a worker keeps the
two blocks of its last tile for the next one, and more where they are small. With an earlier run only what is new since
then is searched (search_changes.py), and the answer is the same. Pairs above the floor that are in no list are found
later (search_beyond_lists.py).
"""

import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import numpy as np
import pyarrow as pa

from dupq import storage, system
from dupq.archive import Shard, in_scope
from dupq.job import cluster
from dupq.job.gpus import are_given
from dupq.job.run import Run
from dupq.job.step import Counted, Counts, unless_finished, write_shuffled
from dupq.job.table import Files, Partition, Partitions, PerTask, Shuffled, Table
from dupq.job.tasks import run_tasks
from dupq.neighbours.candidates import Nearest, found_table, merged, nearest_in, nearest_table
from dupq.neighbours.embeddings import Embeddings, Measure
from dupq.neighbours.exact import gpu_can_search
from dupq.neighbours.steps.blocks import (
    Questions,
    SearchRequest,
    Tiles,
    block_rows,
    blocks_of,
    bytes_a_question,
    cut,
    groups_of,
    listed,
    one_thread,
    waves,
)
from dupq.runs.question_tables import read_embeddings
from dupq.runs.records import RunFiles
from dupq.system import Written, note, recording, side_by_side
from dupq.tables import BLOCKS, NEAREST, NEIGHBOURS
from dupq.text.keys import Sites

if TYPE_CHECKING:
    from dupq.neighbours.tiles import Block

# embeddings → neighbours by a GPU, which holds all questions that are compared with each other.
#
#     search    a task per group    the lists of all its questions (neighbours/gpu/), and rows for `pairs`
#
# A group is all blocks or, with neighbours.scope=site, those of a site; several GPUs search several groups. A search
# that is interrupted begins again: it takes minutes at most.

_CPU_RATE, _GPU_RATE = 0.22e12, 4e14  # operations a second, of a core and of a GPU: 2 for each dimension of each pair
_GPU_SECONDS, _SECONDS_A_QUESTION = 8.0, 5e-6  # to start its process, and to read, upload and write
_AT_ONCE = 8  # files that are read or written, by as many threads
Result = TypeVar("Result")
_log = logging.getLogger(__name__)


def gpus_of_search(request: SearchRequest, blocks: Sequence[Questions], changed: int | None = None) -> int:
    """Return how many GPUs search everything; 0: CPUs do, as GPUs cannot or, with `auto`, are not faster.

    Where CPUs need only compare questions that are `changed` with all, they search unless a GPU is faster nevertheless.
    """
    gpus = request.gpus.now() if blocks and gpu_can_search(request.measure) else 0
    if not gpus or (changed is None and request.gpus.wanted is not None):
        return gpus
    questions = sum(block.size for block in blocks)
    pairs = sum(sum(blocks[number].size for number in group) ** 2 for group in groups_of(blocks))  # in both directions
    operations = 2.0 * pairs * storage.read_schema(blocks[0].spans[0].file).field("embedding").type.list_size
    on_gpus = _GPU_SECONDS + _SECONDS_A_QUESTION * questions + operations / _GPU_RATE
    share = 1.0 if changed is None else 2.0 * changed / max(1, questions)
    on_cpus = share * operations / (_CPU_RATE * cluster.cpus())
    if on_cpus < on_gpus:
        _log.info(f"searched by CPUs, some {on_cpus:.0f} s; a GPU would take {on_gpus:.0f} s")
        return 0
    return gpus


def search_on_gpus(run: Run, blocks: Sequence[Questions], request: SearchRequest, gpus: int) -> None:
    """Make the lists of all blocks (`nearest`, `directed`)."""
    directed = run.shuffled("directed", NEIGHBOURS, len(blocks), request.parts, by="left")
    nearest, k = run.table("nearest", NEAREST, len(blocks)), request.settings.k
    calls = [(directed, nearest, k, [(number, blocks[number]) for number in group]) for group in groups_of(blocks)]
    report = run_tasks("search", _search_group, calls, gpus=gpus)
    run.report.add(report)
    run.report.rows_in += report.rows_in


def _search_group(directed: Shuffled, nearest: Table, k: int, group: Sequence[tuple[int, Questions]]) -> Counts:
    """Make the partitions of a group's blocks.

    Memory of the host: some files of embeddings, and of some blocks the lists.
    """
    measure = group[0][1].measure

    def make() -> Counts:
        from dupq.neighbours.gpu.search import nearest_of_all

        device = system.usable(system.GPU if are_given() else system.CPU)
        found = nearest_of_all(_embeddings_of([block for _, block in group]), measure, k, device)

        def write(number: int, pieces: list[tuple[np.ndarray, Nearest]]) -> tuple[int, dict[str, Written]]:
            keys = np.concatenate([some for some, _ in pieces])
            order = np.argsort(keys)
            columns = (np.concatenate(column)[order] for column in zip(*(lists for _, lists in pieces), strict=True))
            rows = listed(keys[order], Nearest(*columns), measure)
            with recording() as written:  # by this thread
                storage.write_table(nearest.file(number), rows.second, NEAREST)
                write_shuffled(directed, number, rows.table)
            return len(keys), written

        rows = 0
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            calls = ((number, [next(found) for _ in block.spans]) for number, block in group)
            for count, written in _ahead(pool, write, calls):
                note(written)
                rows += count
        return {"rows_in": rows, "rows_out": rows}

    return unless_finished(directed.files[group[-1][0]], make)


def _embeddings_of(blocks: Sequence[Questions]) -> Iterator[Embeddings]:
    """Yield the embeddings of each span of each block; each file is read once."""
    spans = [span for block in blocks for span in block.spans]
    names, name, whole = dict.fromkeys(span.file for span in spans), "", None
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        read = _ahead(pool, read_embeddings, ((file, Sites([*blocks[0].sites])) for file in names))
        for span in spans:
            if whole is None or span.file != name:
                whole, name = next(read), span.file
            yield whole.take(slice(span.start, span.stop))


def _ahead(
    pool: ThreadPoolExecutor, work: Callable[..., Result], calls: Iterable[tuple[object, ...]]
) -> Iterator[Result]:
    """What `work` gives for each call, in their order, some calls ahead."""
    waiting: deque[Future[Result]] = deque()
    for call in calls:
        if len(waiting) == _AT_ONCE:
            yield waiting.popleft().result()
        waiting.append(pool.submit(work, *call))
    while waiting:
        yield waiting.popleft().result()


OF_A_PLAN = ("tiles", "nearest", "directed")  # tables that mean nothing under another plan


class Side(NamedTuple):
    """Questions, and what they have found so far (NEAREST)."""

    questions: Questions
    lists: Partition


def find_neighbours(run: Run, shards: Sequence[Shard], request: SearchRequest) -> None:
    """Make the lists of every embedded question (`nearest`, `directed`)."""
    blocks = planned(run, shards, request)
    run.discard_stale({"blocks": [block.size for block in blocks], "since": None}, *OF_A_PLAN)
    gpus = gpus_of_search(request, blocks)
    if gpus:
        search_on_gpus(run, blocks, request, gpus)
    else:
        search_in_waves(run, searched_alone(run, blocks, request), waves(groups_of(blocks)), request)
    finish(run, request)


def search_in_waves(run: Run, sides: Sequence[Side], tiles: Sequence[Tiles], request: SearchRequest) -> None:
    """Compare pairs of sides, wave by wave, and make the tables `nearest`, a partition per side, and `directed`."""
    k, found = request.settings.k, [Partitions(())] * len(sides)
    for wave, of_wave in enumerate(tiles, 1):
        if wave > 1:
            lists = run.map(f"tiles/lists-{wave - 1}", merged_lists, *_lists_of(sides, found), k, into=NEAREST)
            sides = [side._replace(lists=Partition(lists, number)) for number, side in enumerate(sides)]
        found = _search_tiles(run, f"tiles/wave-{wave}", sides, of_wave, request)
    inputs, nearest = (*_lists_of(sides, found), request.measure, k), run.table("nearest", NEAREST, len(sides))
    run.shuffle("directed", final_lists, *inputs, into=NEIGHBOURS, partitions=request.parts, by="left", second=nearest)


def _lists_of(sides: Sequence[Side], found: Sequence[Partitions]) -> tuple[PerTask, PerTask]:
    return PerTask(tuple(side.lists for side in sides)), PerTask(tuple(found))


def planned(run: Run, shards: Sequence[Shard], request: SearchRequest) -> list[Questions]:
    """Cut the embeddings of the shards in scope into blocks. Raises SettingError for a site that is not there."""
    searched = in_scope(shards, request.settings.sites)
    uris = [storage.join(run.uri, "embeddings", shard.file) for shard in searched]
    counts = side_by_side(lambda uri: storage.read_counts(uri)["rows_out"], uris)
    files = [(shard.file, shard.site, count) for shard, count in zip(searched, counts, strict=True)]
    rows = request.settings.block_rows or _block_rows(uris, sum(counts), request)
    run.map("plan", cut, files, request.settings.scope, rows, into=BLOCKS)
    return blocks_of(run, request)


def _block_rows(uris: Sequence[str], questions: int, request: SearchRequest) -> int:
    dimensions = storage.read_schema(uris[0]).field("embedding").type.list_size
    with_words = uris if request.measure.lexical else []
    words = max(side_by_side(lambda uri: storage.mean_length(uri, "words"), with_words), default=0.0)
    each = bytes_a_question(dimensions, request.settings.k, words)
    return block_rows(questions, each, cluster.memory(), cluster.cpus())


def searched_alone(run: Run, questions: Sequence[Questions], request: SearchRequest) -> list[Side]:
    """Compare the questions of each block, or group, with each other."""
    how = request.measure, request.settings.k
    own = run.map("tiles/own", search_block, PerTask(tuple(questions)), *how, into=NEAREST)
    return [Side(some, Partition(own, number)) for number, some in enumerate(questions)]


def _search_tiles(run: Run, name: str, sides: Sequence[Side], tiles: Tiles, request: SearchRequest) -> list[Partitions]:
    """Compare pairs of sides (positions), a core per pair; returns what each side has found in all of its tiles."""
    pairs = [(sides[left], sides[right]) for left, right in tiles]
    blocks = (PerTask(tuple(pair[side].questions for pair in pairs)) for side in (0, 1))
    lists = (PerTask(tuple(pair[side].lists for pair in pairs)) for side in (0, 1))
    how, of_right = (request.measure, request.settings.k), run.table(f"{name}-right", NEAREST, len(tiles))
    of_left = run.map(name, search_tile, *blocks, *lists, *how, into=NEAREST, second=of_right)
    found: list[list[Partition]] = [[] for _ in sides]
    for number, (left, right) in enumerate(tiles):
        found[left].append(Partition(of_left, number))
        found[right].append(Partition(of_right, number))
    return [Partitions(tuple(some)) for some in found]


def search_block(block: "Block", measure: Measure, k: int) -> pa.Table:
    """Return the lists of a block's questions among themselves (NEAREST). Memory: the block and tiles.search_tile's."""
    from dupq.neighbours.tiles import Search, search_tile

    one_thread()
    return nearest_table(block.keys, search_tile(block, block, Search(measure, k))[0])


def search_tile(
    left: "Block", right: "Block", of_left: pa.Table, of_right: pa.Table, measure: Measure, k: int
) -> Counted:
    """Return what the questions of `left` find in `right` (NEAREST), and those of `right` in `left` as second table.

    `of_left` and `of_right` are their lists so far: what is worse is not looked for. Questions that find nothing have
    no row. Memory: two blocks, and their tile (tiles.search_tile).
    """
    from dupq.neighbours.tiles import Search, search_tile

    one_thread()
    known = nearest_in(of_left, k)[1].worst, nearest_in(of_right, k)[1].worst
    one, other, _ = search_tile(left, right, Search(measure, k), known=known)
    return Counted(found_table(left.keys, one), second=found_table(right.keys, other))


def merged_lists(lists: pa.Table, found: Sequence[pa.Table], k: int) -> pa.Table:
    """Return lists with what their questions have found besides (all NEAREST)."""
    return nearest_table(*merged(lists, found, k))


def final_lists(lists: pa.Table, found: Sequence[pa.Table], measure: Measure, k: int) -> Counted:
    """Return `listed` of the merged lists (NEAREST)."""
    return listed(*merged(lists, found, k), measure)


def lists_made(files: RunFiles) -> Files:
    """Return the lists of a run (NEAREST), a partition per file."""
    return Files(tuple(file.uri for file in storage.list_files(files.nearest, ".parquet")), NEAREST)


def directed_in(folder: str, parts: int) -> Shuffled:
    """Return the rows for `pairs` (NEIGHBOURS), in so many partitions of the pair's left key."""
    return Shuffled(tuple(file.uri for file in storage.list_files(folder, ".arrow")), NEIGHBOURS, parts)


def finish(run: Run, request: SearchRequest) -> None:
    """Store the request that is answered now: a later run may build on the lists."""
    run.report.rows_out = run.report.rows_in  # the questions that have lists
    storage.write_json(RunFiles(run.uri).request, {**request.lasting(), "sites_of_keys": request.sites})
