"""lists of neighbours, floor → the pairs above the floor that neither question lists, as rows for `pairs`.

    beyond/all-full  task per file of lists  the questions whose k neighbours are all above the floor, in one partition
    beyond/chosen    task per block          their embeddings
    beyond/ranges    task per tile           ranges of rows with some four million pairs above the floor each
    directed         task per range          its pairs as rows for `pairs`, unless there are too many: 0.6 GB in memory

Other questions are in no such pair: whatever a list of k lacks scores no more than its k-th. Usually very few questions
are compared again.
"""

from dataclasses import replace
from itertools import combinations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dupq import kinds
from dupq.job.run import Run
from dupq.job.stage import stage
from dupq.job.step import StepResult, step
from dupq.job.table import Shuffled, zipped
from dupq.neighbours.candidates import nearest_in
from dupq.neighbours.embeddings import Measure
from dupq.neighbours.tiles import Block, Search, search_tile
from dupq.stages.search.blocks import BLOCK, SearchRequest, blocks_of, select, with_left
from dupq.stages.search.everything import NearestTables
from dupq.system import thread_map
from dupq.tables import KEYS, NEAREST, NEIGHBOURS, ROW_RANGES

FULL = "questions whose neighbours are all above the floor"
ABOVE_FLOOR = "pairs of these above the floor"
PAIRS_PER_QUESTION = 100  # on average; with more, any two questions score above the floor, which says nothing
LEFT_OUT = "pairs above the floor, more than the limit per question"
_AT_ONCE = 1 << 22  # pairs of a tile in memory, and at most those of a row besides


@stage("beyond_lists", version=1, drops="work/beyond_lists/beyond")
def find_pairs_above(
    run: Run, found: NearestTables, request: SearchRequest, floor: float | None
) -> Shuffled[kinds.Neighbour] | None:
    """Make rows of all pairs with a similarity of at least `floor` that are in neither question's list.

    Some pairs that are in one list are among them. None are made if there is no floor, or if there are more than
    PAIRS_PER_QUESTION pairs on average.
    """
    blocks = blocks_of(found.plan, found.embeddings, request)
    run.report.rows_in = questions = sum(block.size for block in blocks)
    if floor is None:
        return None
    # an attempt that searched only changes had other lists in a partition
    made_by = {"blocks": [block.size for block in blocks], "lists": found.nearest.partitions}
    run.discard_stale(made_by, "beyond", "directed")
    full = run.gather("beyond/all-full", full_in)(found.nearest, request.settings.k, floor)
    if not full.rows:
        return None
    selected = select(run, "beyond/chosen", blocks, full)
    others = [(left, right) for left, right in combinations(selected, 2) if left.group == right.group]
    tiles = [*zip(selected, selected, strict=True), *others]
    left, right = map(zipped, zip(*tiles, strict=True))
    counted = run.map("beyond/ranges", count_pairs)(left, right, request.measure, floor)
    total = run.report.numbers["above"]
    too_many = total > PAIRS_PER_QUESTION * questions
    run.report.caps[LEFT_OUT] = total if too_many else 0
    if too_many or not total:
        return None
    ranges = thread_map(counted.read, range(counted.partitions))
    calls = [(*tile, row) for tile, table in zip(tiles, ranges, strict=True) for row in table.to_pylist()]
    left, right, rows = map(zipped, zip(*calls, strict=True))
    made = run.shuffle("directed", pairs_of_rows, request.partitions, by="left")(
        left, right, rows, request.measure, floor
    )
    run.report.rows_out = made.rows
    return made


def with_pairs_above(
    directed: Shuffled[kinds.Neighbour], others: Shuffled[kinds.Neighbour] | None
) -> Shuffled[kinds.Neighbour]:
    """Return the rows of the lists (`directed`) and those that `find_pairs_above` made."""
    if others is None:
        return directed
    return replace(directed, files=(*others.files, *directed.files), rows=others.rows + directed.rows)


@step(NEAREST, makes=KEYS)
def full_in(nearest: pa.Table, k: int, floor: float) -> StepResult[pa.Table]:
    """Return the questions (KEYS) of lists (NEAREST) whose k neighbours all have a similarity of at least `floor`."""
    keys, lists = nearest_in(nearest, k)
    full = keys[(lists.others[:, -1] >= 0) & (lists.scores[:, -1].astype(np.float32) >= np.float32(floor))]
    return StepResult(pa.table([full], schema=KEYS), {FULL: len(full)})


@step(BLOCK, BLOCK, makes=ROW_RANGES)
def count_pairs(left: Block, right: Block, measure: Measure, floor: float) -> StepResult[pa.Table]:
    """Return ranges of the rows of `left` with about _AT_ONCE pairs each (ROW_RANGES).

    Memory: two blocks, and their tile without k (tiles.search_tile).
    """
    counts = search_tile(left, right, Search(measure, 0, floor, keeps_pairs=False))[3]
    starts = np.flatnonzero(np.diff((np.cumsum(counts) - counts) // _AT_ONCE, prepend=-1))
    sums = np.add.reduceat(counts, starts) if len(starts) else starts
    ranges = pa.table([starts, np.append(starts[1:], len(counts))[: len(starts)], sums], schema=ROW_RANGES)
    above = int(counts.sum()) // (1 + (left is right))
    ranges = ranges.filter(pc.greater(ranges["pairs"], 0))
    return StepResult(ranges, {ABOVE_FLOOR: above}, numbers={"above": above})


@step(BLOCK, BLOCK, makes=NEIGHBOURS)
def pairs_of_rows(left: Block, right: Block, rows: dict[str, int], measure: Measure, floor: float) -> pa.Table:
    """Return the pairs of a range (a row of ROW_RANGES) of `left` as rows for `pairs`, each once.

    Memory: two blocks, their tile without k (tiles.search_tile), and the pairs.
    """
    start, stop = rows["start"], rows["stop"]
    others = right.between(start, len(right.keys)) if left is right else right
    pairs = search_tile(left.between(start, stop), others, Search(measure, 0, floor))[2]
    order = np.lexsort((pairs.right, pairs.left))
    smaller, larger, similarities = (column[order] for column in pairs)
    is_new = (np.diff(smaller, prepend=-1) != 0) | (np.diff(larger, prepend=-1) != 0)
    columns = [pa.array(column[is_new]) for column in (smaller, larger, similarities)]
    count = int(is_new.sum())
    lifts = pa.array(np.zeros(count, np.float32))
    return with_left(pa.table([*columns, pa.nulls(count, pa.int32()), lifts], schema=NEIGHBOURS))
