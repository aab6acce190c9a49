"""lists of neighbours, floor → the pairs above the floor that neither question lists, as rows for `pairs`.

    tiles/all-full   task per file of lists  the questions whose k neighbours are all above the floor, in one partition
    tiles/chosen     task per block          their embeddings
    tiles/pieces     task per tile           how many pairs above the floor it has; and these, if a task can hold them
    directed/beyond  task per tile           the pairs as rows for `pairs`, unless there are too many
    directed/again   task per range of rows  the same for a tile with more pairs

A task holds some four million pairs, 0.6 GB. A tile with more is only counted, and searched again in ranges of rows.

Other questions are in no such pair: whatever a list of k lacks scores no more than its k-th. Usually very few questions
are compared again.
"""

import math
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dupq.job.run import Run
from dupq.job.step import Counted
from dupq.job.table import Files, PerTask
from dupq.neighbours.candidates import nearest_in
from dupq.neighbours.embeddings import Measure
from dupq.neighbours.steps.blocks import SearchRequest, blocks_of, one_thread, select, with_left
from dupq.system import side_by_side
from dupq.tables import KEYS, NEIGHBOURS, PIECES, SIMILAR_PAIRS

if TYPE_CHECKING:
    from dupq.neighbours.tiles import Block, Pairs

FULL = "questions whose neighbours are all above the floor"
ABOVE_FLOOR = "pairs of these above the floor"
PAIRS_PER_QUESTION = 100  # on average; with more, any two questions score above the floor, which says nothing
LEFT_OUT = "pairs above the floor, more than the limit per question"
_AT_ONCE = 1 << 22  # pairs of a tile in memory


def find_beyond_lists(run: Run, nearest: Files, request: SearchRequest, floor: float) -> None:
    """Make rows of all pairs with a similarity of at least `floor` that are in neither question's list.

    Some pairs that are in one list are among them. `run` is that of `find_neighbours`, and `nearest` the lists that it
    made. If there are more than PAIRS_PER_QUESTION pairs on average, none are made.
    """
    blocks = blocks_of(run, request)
    run.report.rows_in = questions = sum(block.size for block in blocks)
    if math.isinf(floor):
        return
    full = run.gather("tiles/all-full", full_in, nearest, request.measure, request.settings.k, floor, into=KEYS)
    if not full.rows:
        return
    selected = select(run, "tiles/chosen", blocks, full)
    others = [(left, right) for left, right in combinations(selected, 2) if left.group == right.group]
    tiles = [*zip(selected, selected, strict=True), *others]
    sides = map(PerTask, zip(*tiles, strict=True))
    pairs = run.table("tiles/pairs", SIMILAR_PAIRS, len(tiles))
    counted = run.map("tiles/pieces", count_pairs, *sides, request.measure, floor, into=PIECES, second=pairs)
    ranges = side_by_side(counted.read, range(counted.partitions))
    counts = [pc.sum(table["pairs"]).as_py() or 0 for table in ranges]
    total = sum(count // (1 + (left is right)) for count, (left, right) in zip(counts, tiles, strict=True))
    too_many = total > PAIRS_PER_QUESTION * questions
    run.report.caps[LEFT_OUT] = total if too_many else 0
    if too_many:
        return
    spread = {"into": NEIGHBOURS, "partitions": request.partitions, "by": "left"}
    run.report.rows_out = run.shuffle("directed/beyond", unranked, pairs, **spread).rows
    again = [
        (*tile, rows) for tile, table in zip(tiles, ranges, strict=True) if len(table) > 1 for rows in table.to_pylist()
    ]
    if again:
        columns = map(PerTask, zip(*again, strict=True))
        more = run.shuffle("directed/again", pairs_of_rows, *columns, request.measure, floor, **spread)
        run.report.rows_out += more.rows


def full_in(nearest: pa.Table, measure: Measure, k: int, floor: float) -> Counted:
    """Return the questions (KEYS) of lists (NEAREST) whose k neighbours all have a similarity of at least `floor`."""
    from dupq.neighbours.exact import rule_of

    keys, lists = nearest_in(nearest, k)
    last = rule_of(measure).similarities(lists.scores[:, -1])
    full = keys[(lists.others[:, -1] >= 0) & (last >= np.float32(floor))]
    return Counted(pa.table([full], schema=KEYS), {FULL: len(full)})


def count_pairs(left: "Block", right: "Block", measure: Measure, floor: float) -> Counted:
    """Return ranges of the rows of `left` with about _AT_ONCE pairs each (PIECES), and the pairs of a single range.

    The pairs are the second table. Memory: two blocks, their tile without k (tiles.search_tile), and some four million
    pairs.
    """
    from dupq.neighbours.tiles import NO_PAIRS, Search, search_tile

    one_thread()
    search = Search(measure, 0, floor, _AT_ONCE + len(right.keys))  # a range ends with a row
    of_left, _, pairs = search_tile(left, right, search)
    counts = of_left.above
    starts = np.flatnonzero(np.diff((np.cumsum(counts) - counts) // _AT_ONCE, prepend=-1))
    sums = np.add.reduceat(counts, starts) if len(starts) else starts
    ranges = pa.table([starts, np.append(starts[1:], len(counts))[: len(starts)], sums], schema=PIECES)
    total = int(counts.sum()) // (1 + (left is right))
    return Counted(ranges, {ABOVE_FLOOR: total}, pairs_table(pairs if len(starts) == 1 else NO_PAIRS))


def pairs_of_rows(left: "Block", right: "Block", rows: dict[str, int], measure: Measure, floor: float) -> pa.Table:
    """Return the pairs of a range (a row of PIECES) of `left` as rows for `pairs`. Memory: as `count_pairs`."""
    from dupq.neighbours.tiles import Search, search_tile

    one_thread()
    start, stop = rows["start"], rows["stop"]
    others = right.between(start, len(right.keys)) if left is right else right
    return unranked(pairs_table(search_tile(left.between(start, stop), others, Search(measure, 0, floor))[2]))


def pairs_table(pairs: "Pairs") -> pa.Table:
    """Return distinct pairs, sorted by their keys (SIMILAR_PAIRS)."""
    order = np.lexsort((pairs.right, pairs.left))
    left, right, similarities = (column[order] for column in pairs)
    is_new = (np.diff(left, prepend=-1) != 0) | (np.diff(right, prepend=-1) != 0)
    return pa.table([column[is_new] for column in (left, right, similarities)], schema=SIMILAR_PAIRS)


def unranked(similar: pa.Table) -> pa.Table:
    """Return pairs that are in no list as rows for `pairs` (NEIGHBOURS), with their left key."""
    zeros = pa.array(np.zeros(len(similar), np.float32))
    return with_left(pa.table([*similar.columns, pa.nulls(len(similar), pa.int32()), zeros], schema=NEIGHBOURS))
