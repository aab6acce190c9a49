"""lists of neighbours, floor → the pairs above the floor that neither question lists, as rows for the pairs stage.

    full      a task a file of lists   the questions whose k neighbours are all above the floor
    chosen    a task a block           their embeddings
    tiles     a task a tile            these questions against each other: all their pairs above the floor
    rows      a task a tile            the pairs as rows for the pairs stage, if they are not too many

A task holds four million pairs at most, 0.6 GB: a tile with more is only counted, and searched again for its rows.

No other question is in such a pair: what a list of k lacks scores no more than the k-th of it. As a rule very few
questions are compared once more.
"""

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from dupq import storage
from dupq.execution.tasks import Report, run_tasks
from dupq.execution.units import Counts, skip_or
from dupq.runs.keys import read_keys, write_keys
from dupq.runs.layout import NeighbourFiles
from dupq.stages.neighbours.blocks import forget_blocks, ready_block
from dupq.stages.neighbours.chosen import compared, groups, write_chosen
from dupq.stages.neighbours.plan import Plan, read_plan
from dupq.stages.neighbours.tables import SearchRequest, read_nearest, unranked, write_directed
from dupq.tables import SIMILAR_PAIRS

if TYPE_CHECKING:
    from dupq.neighbours.tiles import Pairs

FULL = "questions whose neighbours are all above the floor"
ABOVE_FLOOR = "pairs of these above the floor"
PAIRS_PER_QUESTION = 100  # on average; more are what any two questions score, and no news
LEFT_OUT = "pairs above the floor, more than the limit per question"
FULL_KEYS, _ALL = "full-keys", "all"  # the kind of step, and the name of the file that gathers the others
_AT_ONCE = 1 << 22  # pairs of a tile in memory


def find_beyond_lists(files: NeighbourFiles, request: SearchRequest, floor: float) -> Report:
    """Write all pairs with a score of at least `floor` (similarity) that are in neither question's list.

    And some that are in one. If there are more than PAIRS_PER_QUESTION on average, none is written.
    """
    plan = read_plan(files.plan, request.settings)
    if math.isinf(floor):
        return Report(rows_in=plan.questions)
    names = [file.relative.removesuffix(".parquet") for file in storage.list_files(files.nearest, ".parquet")]
    report = run_tasks("full", _full_of_file, [(files, request, floor, name) for name in names])
    report.rows_in = plan.questions
    if not report.counts.get(FULL):
        return report
    blocks = range(len(plan.blocks))
    report.add(run_tasks("chosen", _gather_full, [(files, names)]))
    report.add(run_tasks("chosen", _chosen_of_block, [(files, request, plan, number) for number in blocks]))
    of_blocks = groups(files, plan, "full")
    tiles = [*((name, name) for name in of_blocks), *compared(plan, of_blocks)]
    calls = [(files, request, plan, floor, *tile) for tile in tiles]
    report.add(run_tasks("tiles", _search_tile, calls))
    found = report.counts[ABOVE_FLOOR]
    report.caps[LEFT_OUT] = 0
    if found > PAIRS_PER_QUESTION * plan.questions:
        report.caps[LEFT_OUT] = found
        return report
    written = run_tasks("rows", _rows_of_tile, calls)
    report.add(written)
    report.rows_out = written.rows_out
    return report


def _full_of_file(files: NeighbourFiles, request: SearchRequest, floor: float, name: str) -> Counts:
    output = files.step(FULL_KEYS, name)

    def make() -> Counts:
        from dupq.neighbours.exact import rule_of

        keys, nearest = read_nearest(files.list_of(name), request.settings.k)
        last = rule_of(request.measure).similarities(nearest.scores[:, -1])
        full = keys[(nearest.others[:, -1] >= 0) & (last >= np.float32(floor))]
        write_keys(output, full)
        return {FULL: len(full)}

    return skip_or(output, make)


def _gather_full(files: NeighbourFiles, names: list[str]) -> Counts:
    """All files in one, so that a block's task reads one. Memory: 16 bytes a question whose list is full."""
    output = files.step(FULL_KEYS, _ALL)

    def make() -> Counts:
        write_keys(output, np.concatenate([read_keys(files.step(FULL_KEYS, name)) for name in names]))
        return {}

    return skip_or(output, make)


def _chosen_of_block(files: NeighbourFiles, request: SearchRequest, plan: Plan, number: int) -> Counts:
    return write_chosen(files, request, plan, number, "full", read_keys(files.step(FULL_KEYS, _ALL)))


def _search_tile(
    files: NeighbourFiles, request: SearchRequest, plan: Plan, floor: float, left: str, right: str
) -> Counts:
    """Memory: two blocks, their tile without k (tiles.search_tile), and up to four million pairs."""
    output = files.tile(left, right, "pairs")

    def make() -> Counts:
        import torch

        from dupq.neighbours.tiles import NO_PAIRS, Search, search_tile

        torch.set_num_threads(1)
        one, other = (ready_block(files, request, plan, name) for name in (left, right))
        of_left, _, pairs = search_tile(one, other, Search(request.measure, 0, floor, _AT_ONCE))
        found = int(of_left.above.sum()) // (2 if left == right else 1)
        table = _sorted_table(pairs if found <= _AT_ONCE else NO_PAIRS)
        storage.write_table(output, table, SIMILAR_PAIRS, {ABOVE_FLOOR: found})
        return {ABOVE_FLOOR: found}

    return skip_or(output, make)


def _rows_of_tile(
    files: NeighbourFiles, request: SearchRequest, plan: Plan, floor: float, left: str, right: str
) -> Counts:
    """Memory: see `_search_tile`; 150 bytes for each of up to four million pairs."""
    name, rows = f"{left}-{right}", 0
    storage.delete_folder(storage.join(files.directed, name))  # an attempt on another device may have cut it otherwise
    for number, pairs in enumerate(_pairs_of_tile(files, request, plan, floor, (left, right))):
        write_directed(files, request, f"{name}/{number:05d}", unranked(pairs))
        rows += len(pairs)
    return {"rows_out": rows}


def _pairs_of_tile(
    files: NeighbourFiles, request: SearchRequest, plan: Plan, floor: float, tile: tuple[str, str]
) -> Iterator[pa.Table]:
    """The pairs of a tile, about _AT_ONCE at a time."""
    uri = files.tile(*tile, "pairs")
    if storage.read_counts(uri)[ABOVE_FLOOR] <= _AT_ONCE:
        forget_blocks()  # of a larger tile of this step
        yield storage.read_table(uri, SIMILAR_PAIRS)
        return
    import torch

    from dupq.neighbours.tiles import Search, pairs_of_tile

    torch.set_num_threads(1)
    one, other = (ready_block(files, request, plan, name) for name in tile)
    search = Search(request.measure, 0, floor)
    for pairs in pairs_of_tile(one, other, search, _AT_ONCE):
        yield _sorted_table(pairs)


def _sorted_table(pairs: "Pairs") -> pa.Table:
    order = np.lexsort((pairs.right, pairs.left))
    return pa.table([pa.array(column[order]) for column in pairs], schema=SIMILAR_PAIRS)
