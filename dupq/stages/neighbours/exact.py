"""embeddings → neighbours: each question's k nearest, and every pair above the floor, exactly.

    tiles     a task a tile     two blocks against each other: the k best of each side's questions, and the pairs over
                                the threshold; first each block against itself, which spares the others candidates
    nearest   a task a block    its tiles put together: its questions' lists, and rows for the clusters stage, spread
                                over parts by the pair's left key, so that both directions of a pair meet in one part

A worker keeps the blocks that it has read for its next tile, as far as they take a gigabyte. With an earlier run only
what is new since then is searched (increment.py), and the answer is the same.
"""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from dupq import storage
from dupq.execution import cluster
from dupq.execution.tasks import Counts, Report, run_tasks, skip_or
from dupq.neighbours.nearest import merge
from dupq.runs.layout import NeighbourFiles
from dupq.shards import Shard
from dupq.stages.neighbours.blocks import block_name, forget_blocks, known_scores, ready_block
from dupq.stages.neighbours.plan import Plan, block_rows, bytes_a_question, plan_of
from dupq.stages.neighbours.tables import Asked, nearest_table, read_nearest, write_found
from dupq.tables import NEAREST, SIMILAR_PAIRS

OVER = "pairs above the floor"
LEFT_OUT = "pairs above the floor, more than neighbours.pairs_per_question"


def find_exactly(files: NeighbourFiles, shards: Sequence[Shard], asked: Asked) -> Report:
    """Write the neighbours of every embedded question."""
    plan = planned(files, shards, asked)
    names = [block_name(number) for number in range(len(plan.blocks))]
    report = search_tiles(files, asked, plan, [(name, name) for name in names])
    report.add(search_tiles(files, asked, plan, [(names[left], names[right]) for left, right in plan.pairs]))
    keeps_pairs = report.counts.get(OVER, 0) <= pair_limit(plan, asked)
    calls = [(files, asked, plan, number, keeps_pairs) for number in range(len(plan.blocks))]
    finish(report, run_tasks("neighbours", _nearest_of_block, calls), files, asked, keeps_pairs)
    return report


def finish(report: Report, written: Report, files: NeighbourFiles, asked: Asked, keeps_pairs: bool) -> None:
    """Count the last step in, and write down what was asked for and whether all pairs are there."""
    report.add(written)
    report.rows_in, report.rows_out = written.rows_in, written.rows_out
    report.caps[LEFT_OUT] = 0 if keeps_pairs else report.counts[OVER]
    storage.write_json(files.asked, {**asked.lasting(), "sites_of_keys": asked.sites, "has_all_pairs": keeps_pairs})


def pair_limit(plan: Plan, asked: Asked) -> int:
    """How many pairs above the floor are kept."""
    return plan.questions * asked.settings.pairs_per_question


def planned(files: NeighbourFiles, shards: Sequence[Shard], asked: Asked) -> Plan:
    """The plan of this run."""
    return plan_of(files.plan, shards, files.embeddings, asked.settings, _rows_at_hand(files, shards, asked))


def _rows_at_hand(files: NeighbourFiles, shards: Sequence[Shard], asked: Asked) -> int:
    if asked.settings.block_rows:
        return asked.settings.block_rows
    counts = [storage.read_counts(storage.join(files.embeddings, shard.file))["rows_out"] for shard in shards]
    schema = storage.read_schema(storage.join(files.embeddings, shards[0].file))
    dimensions = schema.field("embedding").type.list_size
    each = bytes_a_question(dimensions, asked.settings.k, asked.measure.lexical != 0)
    return block_rows(sum(counts), each, cluster.memory(), cluster.cpus())


def search_tiles(files: NeighbourFiles, asked: Asked, plan: Plan, tiles: Sequence[tuple[str, str]]) -> Report:
    """Write what each tile of two blocks finds, on a GPU each if there are any that help, else on a core each."""
    calls = [(files, asked, plan, left, right) for left, right in tiles]
    return run_tasks("tiles", _search_tile, calls, gpus=int(is_for_gpus(asked)))


def is_for_gpus(asked: Asked) -> bool:
    """Whether there are GPUs, and they help."""
    if not cluster.gpus():
        return False
    from dupq.neighbours.bounds import has_gpu_way  # with torch, which the driver needs for nothing else
    from dupq.neighbours.exact import rule_of

    return has_gpu_way(rule_of(asked.measure))


def _search_tile(files: NeighbourFiles, asked: Asked, plan: Plan, left: str, right: str) -> Counts:
    output = files.tile(left, right, "pairs")

    def make() -> Counts:
        import torch

        from dupq.neighbours.tiles import Search, search_tile

        torch.set_num_threads(1)
        search = Search(asked.measure, asked.settings.k, asked.threshold, pair_limit(plan, asked))
        one, other = (ready_block(files, asked, plan, name) for name in (left, right))
        known = (None, None) if left == right else (known_scores(files, asked, left), known_scores(files, asked, right))
        of_left, of_right, pairs = search_tile(one, other, search, known=known)
        storage.write_table(files.tile(left, right, "left"), nearest_table(one.keys, of_left), NEAREST)
        if left != right:
            storage.write_table(files.tile(left, right, "right"), nearest_table(other.keys, of_right), NEAREST)
        order = np.lexsort((pairs.right, pairs.left))
        table = pa.table([pa.array(column[order]) for column in pairs], schema=SIMILAR_PAIRS)
        counts = {OVER: int(of_left.over.sum()) // (2 if left == right else 1)}
        storage.write_table(output, table, SIMILAR_PAIRS, counts)
        return counts

    return skip_or(output, make)


def _nearest_of_block(files: NeighbourFiles, asked: Asked, plan: Plan, number: int, keeps_pairs: bool) -> Counts:
    name = block_name(number)

    def make() -> Counts:
        forget_blocks()
        keys, nearest = read_nearest(files.tile(name, name, "left"), asked.settings.k)
        pairs = [files.tile(name, name, "pairs")]
        for other in map(block_name, plan.compared_with(number)):
            left, right, side = (name, other, "left") if name < other else (other, name, "right")
            merge(nearest, read_nearest(files.tile(left, right, side), asked.settings.k)[1])
            if side == "left":
                pairs.append(files.tile(left, right, "pairs"))
        return write_found(files, asked, name, (keys, nearest), pairs if keeps_pairs else [])

    return skip_or(files.list_of(name), make)
