"""embeddings → neighbours: each question's k nearest, and every pair above the floor, exactly.

    tiles     a task a tile     two blocks against each other: the k best of each side's questions, and the pairs above
                                the floor; first each block against itself, which spares the others candidates
    nearest   a task a block    its tiles merged: its questions' lists, and rows for the clusters stage, partitioned by
                                the pair's left key, so that both directions of a pair are in one part

A worker keeps the blocks that it has read for its next tile, up to a gigabyte. With an earlier run only what is new
since then is searched (increment.py), and the answer is the same.
"""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from dupq import storage
from dupq.execution import cluster
from dupq.execution.tasks import Report, run_tasks
from dupq.execution.units import Counts, skip_or
from dupq.neighbours.nearest import merge
from dupq.runs.layout import NeighbourFiles
from dupq.shards import Shard
from dupq.stages.neighbours.blocks import block_name, forget_blocks, known_scores, ready_block
from dupq.stages.neighbours.plan import Plan, block_rows, bytes_a_question, plan_of
from dupq.stages.neighbours.tables import SearchRequest, nearest_table, read_nearest, write_found
from dupq.tables import NEAREST, SIMILAR_PAIRS

ABOVE_FLOOR = "pairs above the floor"
LEFT_OUT = "pairs above the floor, more than neighbours.pairs_per_question"


def find_exactly(files: NeighbourFiles, shards: Sequence[Shard], request: SearchRequest) -> Report:
    """Write the neighbours of every embedded question."""
    plan = planned(files, shards, request)
    names = [block_name(number) for number in range(len(plan.blocks))]
    report = search_tiles(files, request, plan, [(name, name) for name in names])
    report.add(search_tiles(files, request, plan, [(names[left], names[right]) for left, right in plan.pairs]))
    keeps_pairs = report.counts.get(ABOVE_FLOOR, 0) <= pair_limit(plan, request)
    calls = [(files, request, plan, number, keeps_pairs) for number in range(len(plan.blocks))]
    finish(report, run_tasks("neighbours", _nearest_of_block, calls), files, request, keeps_pairs)
    return report


def finish(report: Report, written: Report, files: NeighbourFiles, request: SearchRequest, keeps_pairs: bool) -> None:
    """Add the last step to the report, and store the request and whether all pairs were kept."""
    report.add(written)
    report.rows_in, report.rows_out = written.rows_in, written.rows_out
    report.caps[LEFT_OUT] = 0 if keeps_pairs else report.counts[ABOVE_FLOOR]
    storage.write_json(
        files.request, {**request.lasting(), "sites_of_keys": request.sites, "has_all_pairs": keeps_pairs}
    )


def pair_limit(plan: Plan, request: SearchRequest) -> int:
    """The largest number of pairs above the floor that are kept."""
    return plan.questions * request.settings.pairs_per_question


def planned(files: NeighbourFiles, shards: Sequence[Shard], request: SearchRequest) -> Plan:
    """The plan of this run's blocks."""
    return plan_of(files, shards, request.settings, _rows_at_hand(files, shards, request))


def _rows_at_hand(files: NeighbourFiles, shards: Sequence[Shard], request: SearchRequest) -> int:
    if request.settings.block_rows:
        return request.settings.block_rows
    counts = [storage.read_counts(storage.join(files.embeddings, shard.file))["rows_out"] for shard in shards]
    schema = storage.read_schema(storage.join(files.embeddings, shards[0].file))
    dimensions = schema.field("embedding").type.list_size
    each = bytes_a_question(dimensions, request.settings.k, request.measure.lexical != 0)
    return block_rows(sum(counts), each, cluster.memory(), cluster.cpus())


def search_tiles(files: NeighbourFiles, request: SearchRequest, plan: Plan, tiles: Sequence[tuple[str, str]]) -> Report:
    """Write what each tile of two blocks finds: one GPU a tile if there are any that can score it, else one core."""
    calls = [(files, request, plan, left, right) for left, right in tiles]
    return run_tasks("tiles", _search_tile, calls, gpus=int(is_for_gpus(request)))


def is_for_gpus(request: SearchRequest) -> bool:
    """Whether there are GPUs, and they help."""
    if not cluster.gpus():
        return False
    from dupq.neighbours.bounds import gpu_can_score  # with torch, which the driver needs for nothing else
    from dupq.neighbours.exact import rule_of

    return gpu_can_score(rule_of(request.measure))


def _search_tile(files: NeighbourFiles, request: SearchRequest, plan: Plan, left: str, right: str) -> Counts:
    output = files.tile(left, right, "pairs")

    def make() -> Counts:
        import torch

        from dupq.neighbours.tiles import Search, search_tile

        torch.set_num_threads(1)
        search = Search(request.measure, request.settings.k, request.threshold, pair_limit(plan, request))
        one, other = (ready_block(files, request, plan, name) for name in (left, right))
        known = (
            (None, None) if left == right else (known_scores(files, request, left), known_scores(files, request, right))
        )
        of_left, of_right, pairs = search_tile(one, other, search, known=known)
        storage.write_table(files.tile(left, right, "left"), nearest_table(one.keys, of_left), NEAREST)
        if left != right:
            storage.write_table(files.tile(left, right, "right"), nearest_table(other.keys, of_right), NEAREST)
        order = np.lexsort((pairs.right, pairs.left))
        table = pa.table([pa.array(column[order]) for column in pairs], schema=SIMILAR_PAIRS)
        counts = {ABOVE_FLOOR: int(of_left.above.sum()) // (2 if left == right else 1)}
        storage.write_table(output, table, SIMILAR_PAIRS, counts)
        return counts

    return skip_or(output, make)


def _nearest_of_block(
    files: NeighbourFiles, request: SearchRequest, plan: Plan, number: int, keeps_pairs: bool
) -> Counts:
    name = block_name(number)

    def make() -> Counts:
        forget_blocks()
        keys, nearest = read_nearest(files.tile(name, name, "left"), request.settings.k)
        pairs = [files.tile(name, name, "pairs")]
        for other in map(block_name, plan.compared_with(number)):
            left, right, side = (name, other, "left") if name < other else (other, name, "right")
            merge(nearest, read_nearest(files.tile(left, right, side), request.settings.k)[1])
            if side == "left":
                pairs.append(files.tile(left, right, "pairs"))
        return write_found(files, request, name, (keys, nearest), pairs if keeps_pairs else [])

    return skip_or(files.list_of(name), make)
