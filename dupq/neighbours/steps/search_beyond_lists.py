"""lists of neighbours, floor → the pairs above the floor that neither question lists, as rows for `pairs`.

    tiles/full        a task per file of lists  the questions whose k neighbours are all above the floor
    tiles/all-full    one task                  these together
    tiles/chosen      a task per block          their embeddings
    tiles/pieces      a task per tile           how many pairs above the floor it has; and these, if a task holds them
    directed/beyond   a task per tile           the pairs as rows for `pairs`, if they are not too many
    directed/again    a task per piece          the same of a tile with more pairs, of some of its rows at a time

A task holds some four million pairs, 0.6 GB: a tile with more is only counted, and searched again in pieces.

No other question is in such a pair: what a list of k lacks scores no more than the k-th of it. As a rule very few
questions are compared once more.
"""

import math
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dupq.job.run import Run
from dupq.job.step import Counted
from dupq.job.table import Files, PerTask, Whole
from dupq.neighbours.candidates import nearest_in
from dupq.neighbours.embeddings import Measure
from dupq.neighbours.steps.blocks import SearchRequest, as_read, blocks_of, chosen, one_thread, with_left
from dupq.system import side_by_side
from dupq.tables import KEYS, NEIGHBOURS, PIECES, SIMILAR_PAIRS

if TYPE_CHECKING:
    from dupq.neighbours.tiles import Block, Pairs

FULL = "questions whose neighbours are all above the floor"
ABOVE_FLOOR = "pairs of these above the floor"
PAIRS_PER_QUESTION = 100  # on average; more are what any two questions score, and no news
LEFT_OUT = "pairs above the floor, more than the limit per question"
_AT_ONCE = 1 << 22  # pairs of a tile in memory


def find_beyond_lists(run: Run, nearest: Files, request: SearchRequest, floor: float) -> None:
    """Make rows of all pairs with a score of at least `floor` (similarity) that are in neither question's list.

    And of some that are in one. `run` is that of `find_neighbours`, and `nearest` the lists that it made. If there are
    more than PAIRS_PER_QUESTION on average, none is made.
    """
    blocks = blocks_of(run, request)
    run.report.rows_in = questions = sum(block.size for block in blocks)
    if math.isinf(floor):
        return
    full = run.map("tiles/full", full_in, nearest, request.measure, request.settings.k, floor, into=KEYS)
    if not full.rows:
        return
    keys = run.map("tiles/all-full", as_read, Whole(full), into=KEYS)
    groups = chosen(run, "tiles/chosen", blocks, keys)
    others = [(left, right) for left, right in combinations(groups, 2) if left.group == right.group]
    tiles = [*zip(groups, groups, strict=True), *others]
    sides = map(PerTask, zip(*tiles, strict=True))
    pairs = run.table("tiles/pairs", SIMILAR_PAIRS, len(tiles))
    cut = run.map("tiles/pieces", pieces_of, *sides, request.measure, floor, into=PIECES, second=pairs)
    pieces = side_by_side(cut.read, range(cut.partitions))
    counts = [pc.sum(some["pairs"]).as_py() or 0 for some in pieces]
    found = sum(count // (1 + (left is right)) for count, (left, right) in zip(counts, tiles, strict=True))
    too_many = found > PAIRS_PER_QUESTION * questions
    run.report.caps[LEFT_OUT] = found if too_many else 0
    if too_many:
        return
    spread = {"into": NEIGHBOURS, "partitions": request.parts, "by": "left"}
    run.report.rows_out = run.shuffle("directed/beyond", unranked, pairs, **spread).rows
    again = [
        (*tile, piece) for tile, some in zip(tiles, pieces, strict=True) if len(some) > 1 for piece in some.to_pylist()
    ]
    if again:
        columns = map(PerTask, zip(*again, strict=True))
        more = run.shuffle("directed/again", pairs_of_piece, *columns, request.measure, floor, **spread)
        run.report.rows_out += more.rows


def full_in(nearest: pa.Table, measure: Measure, k: int, floor: float) -> Counted:
    """Return the questions (KEYS) of lists (NEAREST) whose k neighbours all have a similarity of at least `floor`."""
    from dupq.neighbours.exact import rule_of

    keys, lists = nearest_in(nearest, k)
    last = rule_of(measure).similarities(lists.scores[:, -1])
    full = keys[(lists.others[:, -1] >= 0) & (last >= np.float32(floor))]
    return Counted(pa.table([full], schema=KEYS), {FULL: len(full)})


def pieces_of(left: "Block", right: "Block", measure: Measure, floor: float) -> Counted:
    """Return the rows of `left` in PIECES of some _AT_ONCE pairs; the second table are the pairs of a single piece.

    Memory: two blocks, their tile without k (tiles.search_tile), and some four million pairs.
    """
    from dupq.neighbours.tiles import NO_PAIRS, Search, search_tile

    one_thread()
    search = Search(measure, 0, floor, _AT_ONCE + len(right.keys))  # a piece ends with a row
    above, _, pairs = search_tile(left, right, search)
    counts = above.above
    starts = np.flatnonzero(np.diff((np.cumsum(counts) - counts) // _AT_ONCE, prepend=-1))
    sums = np.add.reduceat(counts, starts) if len(starts) else starts
    pieces = pa.table([starts, np.append(starts[1:], len(counts))[: len(starts)], sums], schema=PIECES)
    found = int(counts.sum()) // (1 + (left is right))
    return Counted(pieces, {ABOVE_FLOOR: found}, pairs_table(pairs if len(starts) == 1 else NO_PAIRS))


def pairs_of_piece(left: "Block", right: "Block", piece: dict[str, int], measure: Measure, floor: float) -> pa.Table:
    """Return the pairs of some rows of `left` as rows for `pairs`. Memory: as of `pieces_of`."""
    from dupq.neighbours.tiles import Search, search_tile

    one_thread()
    start, stop = piece["start"], piece["stop"]
    others = right.part(start, len(right.keys)) if left is right else right
    return unranked(pairs_table(search_tile(left.part(start, stop), others, Search(measure, 0, floor))[2]))


def pairs_table(pairs: "Pairs") -> pa.Table:
    """Return pairs, each once, by their keys (SIMILAR_PAIRS)."""
    order = np.lexsort((pairs.right, pairs.left))
    left, right, similarities = (column[order] for column in pairs)
    is_new = (np.diff(left, prepend=-1) != 0) | (np.diff(right, prepend=-1) != 0)
    return pa.table([column[is_new] for column in (left, right, similarities)], schema=SIMILAR_PAIRS)


def unranked(similar: pa.Table) -> pa.Table:
    """Return pairs that are in no list as rows for `pairs` (NEIGHBOURS), with their left key."""
    nothing = pa.array(np.zeros(len(similar), np.float32))
    return with_left(pa.table([*similar.columns, pa.nulls(len(similar), pa.int32()), nothing], schema=NEIGHBOURS))
