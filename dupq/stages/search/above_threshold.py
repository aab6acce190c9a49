"""lists of neighbours, floor → the pairs above the floor that neither question lists, as rows for `pairs`.

    beyond/all-full  task per file of lists  the questions whose k neighbours are all above the floor, in one partition
    beyond/chosen    task per block          their embeddings
    beyond/ranges    task per tile           ranges of rows with some four million pairs above the floor each
    directed/beyond  task per range          its pairs as rows for `pairs`, unless there are too many: 0.6 GB in memory

Other questions are in no such pair: whatever a list of k lacks scores no more than its k-th. Usually very few questions
are compared again.
"""

import math
from itertools import combinations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dupq.job.run import Run
from dupq.job.step import Counted
from dupq.job.table import Files, PerTask
from dupq.neighbours.candidates import nearest_in
from dupq.neighbours.embeddings import Measure
from dupq.neighbours.exact import rule_of
from dupq.neighbours.tiles import Block, Search, search_tile
from dupq.stages.search.blocks import SearchRequest, blocks_of, select, with_left
from dupq.system import side_by_side
from dupq.tables import KEYS, NEIGHBOURS, ROW_RANGES

FULL = "questions whose neighbours are all above the floor"
ABOVE_FLOOR = "pairs of these above the floor"
PAIRS_PER_QUESTION = 100  # on average; with more, any two questions score above the floor, which says nothing
LEFT_OUT = "pairs above the floor, more than the limit per question"
_AT_ONCE = 1 << 22  # pairs of a tile in memory, and at most those of a row besides


def find_beyond_lists(run: Run, nearest: Files, request: SearchRequest, floor: float) -> None:
    """Make rows of all pairs with a similarity of at least `floor` that are in neither question's list.

    Some pairs that are in one list are among them. `run` is that of `find_neighbours`, and `nearest` the lists that it
    made. If there are more than PAIRS_PER_QUESTION pairs on average, none are made.
    """
    blocks = blocks_of(run, request)
    run.report.rows_in = questions = sum(block.size for block in blocks)
    if math.isinf(floor):
        return
    full = run.gather("beyond/all-full", full_in, nearest, request.measure, request.settings.k, floor, into=KEYS)
    if not full.rows:
        return
    selected = select(run, "beyond/chosen", blocks, full)
    others = [(left, right) for left, right in combinations(selected, 2) if left.group == right.group]
    tiles = [*zip(selected, selected, strict=True), *others]
    sides = map(PerTask, zip(*tiles, strict=True))
    counted = run.map("beyond/ranges", count_pairs, *sides, request.measure, floor, into=ROW_RANGES)
    total = run.report.counts[ABOVE_FLOOR]
    too_many = total > PAIRS_PER_QUESTION * questions
    run.report.caps[LEFT_OUT] = total if too_many else 0
    if too_many or not total:
        return
    ranges = side_by_side(counted.read, range(counted.partitions))
    calls = [(*tile, rows) for tile, table in zip(tiles, ranges, strict=True) for rows in table.to_pylist()]
    inputs = *map(PerTask, zip(*calls, strict=True)), request.measure, floor
    made = run.shuffle(
        "directed/beyond", pairs_of_rows, *inputs, into=NEIGHBOURS, partitions=request.partitions, by="left"
    )
    run.report.rows_out = made.rows


def full_in(nearest: pa.Table, measure: Measure, k: int, floor: float) -> Counted:
    """Return the questions (KEYS) of lists (NEAREST) whose k neighbours all have a similarity of at least `floor`."""
    keys, lists = nearest_in(nearest, k)
    last = rule_of(measure).similarities(lists.scores[:, -1])
    full = keys[(lists.others[:, -1] >= 0) & (last >= np.float32(floor))]
    return Counted(pa.table([full], schema=KEYS), {FULL: len(full)})


def count_pairs(left: Block, right: Block, measure: Measure, floor: float) -> Counted:
    """Return ranges of the rows of `left` with about _AT_ONCE pairs each (ROW_RANGES).

    Memory: two blocks, and their tile without k (tiles.search_tile).
    """
    counts = search_tile(left, right, Search(measure, 0, floor, keeps_pairs=False))[3]
    starts = np.flatnonzero(np.diff((np.cumsum(counts) - counts) // _AT_ONCE, prepend=-1))
    sums = np.add.reduceat(counts, starts) if len(starts) else starts
    ranges = pa.table([starts, np.append(starts[1:], len(counts))[: len(starts)], sums], schema=ROW_RANGES)
    return Counted(
        ranges.filter(pc.greater(ranges["pairs"], 0)), {ABOVE_FLOOR: int(counts.sum()) // (1 + (left is right))}
    )


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
