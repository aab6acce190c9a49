"""embeddings → neighbours: each question's k nearest, exactly.

    tiles         a task a tile     two blocks against each other: the k best of each side's questions (waves.py)
    merge         a task a block    the lists of its questions so far
    neighbours    a task a block    its questions' lists, and rows for the pairs stage, partitioned by the pair's left
                                    key, so that both directions of a pair are in one part

Where a GPU is faster, one task that has it takes the place of all these: it holds all questions that are compared with
each other (on_gpus.py). On CPUs a worker keeps the two blocks of its last tile for the next one, and more where they
are small. With an earlier run only what is new since then is searched (increment.py), and the answer is the same.
Pairs above the floor that are in no list are found later (beyond_lists.py).
"""

from collections.abc import Sequence

from dupq import storage
from dupq.execution import cluster
from dupq.execution.tasks import Report, run_tasks
from dupq.execution.units import Counts, skip_or
from dupq.runs.layout import NeighbourFiles
from dupq.shards import Shard
from dupq.side_by_side import side_by_side
from dupq.stages.neighbours.blocks import block_name, known_scores, ready_block
from dupq.stages.neighbours.on_gpus import gpus_of_search, search_on_gpus
from dupq.stages.neighbours.plan import Plan, block_rows, bytes_a_question, plan_of
from dupq.stages.neighbours.tables import SearchRequest, write_tile
from dupq.stages.neighbours.waves import Tiles, search_in_waves


def find_neighbours(files: NeighbourFiles, shards: Sequence[Shard], request: SearchRequest) -> Report:
    """Write the neighbours of every embedded question."""
    plan = planned(files, shards, request)
    report, written = search_blocks(files, request, plan, range(len(plan.blocks)))
    finish(report, written, files, request)
    return report


def search_blocks(
    files: NeighbourFiles, request: SearchRequest, plan: Plan, numbers: Sequence[int]
) -> tuple[Report, Report]:
    """Write the neighbours of blocks that are compared with no others: the report of tiles, that of what is written."""
    groups = [[number for number in group if number in numbers] for group in plan.groups]
    gpus = gpus_of_search(files, request, plan, [sum(map(plan.rows, group)) for group in groups])
    if gpus:
        return search_on_gpus(files, request, plan, [group for group in groups if group], gpus)
    names = [[block_name(number) for number in group] for group in groups]
    return search_in_waves(files, request, names, lambda tiles, wave: search_tiles(files, request, plan, tiles, wave))


def finish(report: Report, written: Report, files: NeighbourFiles, request: SearchRequest) -> None:
    """Add the last step to the report, and store the request."""
    report.add(written)
    report.rows_in, report.rows_out = written.rows_in, written.rows_out
    storage.write_json(files.request, {**request.lasting(), "sites_of_keys": request.sites})


def planned(files: NeighbourFiles, shards: Sequence[Shard], request: SearchRequest) -> Plan:
    """The plan of this run's blocks."""

    def rows_of(searched: Sequence[Shard], questions: int) -> int:
        if request.settings.block_rows:
            return request.settings.block_rows
        uris = [storage.join(files.embeddings, shard.file) for shard in searched]
        dimensions = storage.read_schema(uris[0]).field("embedding").type.list_size
        read = uris if request.measure.lexical else []
        words = max(side_by_side(lambda uri: storage.values_a_row(uri, "words"), read), default=0.0)
        each = bytes_a_question(dimensions, request.settings.k, words)
        return block_rows(questions, each, cluster.memory(), cluster.cpus())

    return plan_of(files, shards, request.settings, rows_of)


def search_tiles(files: NeighbourFiles, request: SearchRequest, plan: Plan, tiles: Tiles, wave: int = 1) -> Report:
    """Write what each tile of two blocks finds, a core a tile."""
    return run_tasks("tiles", _search_tile, [(files, request, plan, left, right, wave) for left, right in tiles])


def _search_tile(files: NeighbourFiles, request: SearchRequest, plan: Plan, left: str, right: str, wave: int) -> Counts:
    """Memory: two blocks, and their tile (tiles.search_tile)."""
    output = files.tile(left, right, "left")

    def make() -> Counts:
        import torch

        from dupq.neighbours.tiles import Search, search_tile

        torch.set_num_threads(1)
        one, other = (ready_block(files, request, plan, name) for name in (left, right))
        known = [known_scores(files, request, name, wave) if left != right else None for name in (left, right)]
        search = Search(request.measure, request.settings.k)
        of_left, of_right, _ = search_tile(one, other, search, known=(known[0], known[1]))
        write_tile(files, (left, right), (one.keys, of_left), (other.keys, of_right))
        return {}

    return skip_or(output, make)
