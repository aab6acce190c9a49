"""The neighbours of a run from those of an earlier one: only what is new is searched, and the answer is the same.

    changes   one task              which questions are searched again, and which are gone, by fingerprints
    queries   a task a block        the embeddings of the questions that are searched again
    earlier   a task a block        the lists that the others had
    tiles     a task a tile         the queries against each other and against all others
    kept      a task a bundle       the pairs above the floor that still exist
    nearest   a task a block        the earlier lists, with new neighbours merged in; and the lists of the queries

A question is searched again if it is new, its embedding changed, or one of its stored neighbours is gone or changed:
who comes next in its list is not known. All others keep their lists, which only queries can enter. That is enough: a
pair of which neither question is searched again was compared by the earlier run, with the same embeddings.
"""

import logging
from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from dupq import storage
from dupq.errors import DupqError
from dupq.execution.tasks import Report, run_tasks
from dupq.execution.units import Counts, skip_or
from dupq.neighbours.nearest import empty_nearest, merge
from dupq.runs.embeddings import write_embeddings
from dupq.runs.layout import NeighbourFiles
from dupq.runs.stage_records import is_intact
from dupq.shards import Shard
from dupq.stages.neighbours.blocks import block_name, forget_blocks, read_block, rest_name, searched_again
from dupq.stages.neighbours.changes import find_changes, keys_of, to_sites
from dupq.stages.neighbours.exact import ABOVE_FLOOR, finish, pair_limit, planned, search_tiles
from dupq.stages.neighbours.plan import Plan, read_plan
from dupq.stages.neighbours.search import find_neighbours
from dupq.stages.neighbours.tables import (
    SearchRequest,
    nearest_table,
    read_answered,
    read_nearest,
    unranked,
    write_directed,
    write_found,
)
from dupq.tables import CHANGES, LOST_PAIRS, NEAREST, SIMILAR_PAIRS
from dupq.text.keys import Sites

_log = logging.getLogger(__name__)
_PAIRS_AT_ONCE = 2_000_000
_LARGEST_SHARE = 0.3  # of the questions: if more are searched again, searching everything is as fast


def find_neighbours_since(
    files: NeighbourFiles, shards: Sequence[Shard], request: SearchRequest, previous: NeighbourFiles
) -> Report:
    """The same as `find_neighbours`; only what differs from an earlier run is searched, if that run is of use."""
    why_not = _unusable(previous, request)
    if why_not:
        _log.info(f"everything is searched: {why_not}")
        return find_neighbours(files, shards, request)
    plan = planned(files, shards, request)
    numbers = range(len(plan.blocks))
    changes = run_tasks("changes", find_changes, [(files, previous, request, plan)])
    if changes.counts["questions searched"] > _LARGEST_SHARE * plan.questions:
        _log.info(f"everything is searched: {changes.counts['questions searched']:,} questions changed")
        return find_neighbours(files, shards, request)
    run_tasks("queries", _queries_of_block, [(files, request, plan, number) for number in numbers])
    groups = _groups(files, plan)
    run_tasks("earlier", _earlier_lists, [(files, previous, request, plan, number) for number in numbers])
    report = search_tiles(files, request, plan, [(group, group) for group in groups])
    report.add(search_tiles(files, request, plan, _tiles(plan, groups)))
    kept = run_tasks("kept", _kept_pairs, [(files, previous, request, call) for call in enumerate(_bundles(previous))])
    report.add(changes)
    report.counts[ABOVE_FLOOR] = report.counts.get(ABOVE_FLOOR, 0) + kept.rows_out
    keeps_pairs = report.counts[ABOVE_FLOOR] <= pair_limit(plan, request)
    if not keeps_pairs:
        for folder in (files.directed, files.similar, files.nearest):
            storage.delete_folder(folder)
    calls = [(files, request, (plan, groups), number) for number in numbers]
    lists = run_tasks("neighbours", _nearest_of_block, calls)
    new = run_tasks("neighbours", _nearest_of_group, [(files, request, (plan, groups), g, keeps_pairs) for g in groups])
    lists.rows_in, lists.rows_out = lists.rows_in + new.rows_in, lists.rows_out + new.rows_out
    for name, count in new.counts.items():
        lists.counts[name] = lists.counts.get(name, 0) + count
    finish(report, lists, files, request, keeps_pairs)
    return report


def _unusable(previous: NeighbourFiles, request: SearchRequest) -> str | None:
    """Why an earlier run cannot be used; None if it can."""
    if request.settings.method != "exact":
        return f"neighbours.method={request.settings.method} builds on no earlier run"
    if not storage.exists(previous.request):
        return f"{previous.run} has no finished neighbours"
    try:
        then = read_answered(previous.request)
        read_plan(previous.plan, request.settings)
        if not _has_fingerprints(previous):
            return f"{previous.run} has no embeddings with fingerprints"
    except DupqError as error:
        return str(error)
    different = [name for name, value in request.lasting().items() if dict(then).get(name) != value]
    if different:
        return f"{previous.run} was made with another {', '.join(different)}"
    if not then["has_all_pairs"]:
        return f"{previous.run} has not all pairs above the floor"
    lists = (previous.nearest, previous.similar, previous.request)
    if is_intact(previous.run, "neighbours", lists) and is_intact(previous.run, "calibrate", (previous.plan,)):
        return None
    return f"{previous.run} has lost some of its neighbours"


def _has_fingerprints(previous: NeighbourFiles) -> bool:
    found = storage.list_files(previous.embeddings, ".parquet")
    return bool(found) and "fingerprint" in storage.read_schema(found[0].uri).names


def _queries_of_block(files: NeighbourFiles, request: SearchRequest, plan: Plan, number: int) -> Counts:
    output = files.step("queries", block_name(number))

    def make() -> Counts:
        wanted = searched_again(files)
        if not np.isin(keys_of(files, plan.blocks[number], request.sites)[0], wanted).any():
            schema = storage.read_schema(storage.join(files.embeddings, plan.blocks[number][0].file)).remove_metadata()
            storage.write_table(output, schema.empty_table(), schema)
            return {}
        block = read_block(files, request, plan, block_name(number))
        chosen = block.take(np.isin(block.keys, wanted))
        write_embeddings(output, chosen, Sites(request.sites))
        return {"rows_out": len(chosen.keys)}

    return skip_or(output, make)


def _groups(files: NeighbourFiles, plan: Plan) -> list[str]:
    """Names of groups of blocks, `queries-FIRST-LAST`, whose queries are searched together.

    Each has at most as many queries as a block has questions, or one block's, and of one site if only sites' own
    questions are compared.
    """
    room = max((plan.rows(number) for number in range(len(plan.blocks))), default=0)
    groups: list[list[int]] = []
    filled = 0
    for number in range(len(plan.blocks)):
        count = storage.read_counts(files.step("queries", block_name(number)))["rows_out"]
        if not groups or filled + count > room or not plan.compares(groups[-1][0], number):
            groups.append([])
            filled = 0
        groups[-1].append(number)
        filled += count
    return [f"queries-{group[0]:05d}-{group[-1]:05d}" for group in groups]


def _first(name: str) -> int:
    """The number of a block, or of the first block of a group."""
    return int(name.split("-")[1])


def _tiles(plan: Plan, groups: Sequence[str]) -> list[tuple[str, str]]:
    tiles = []
    for place, group in enumerate(groups):
        others = [*groups[place + 1 :], *(rest_name(number) for number in range(len(plan.blocks)))]
        tiles += [(group, other) for other in others if plan.compares(_first(group), _first(other))]
    return tiles


def _bundles(previous: NeighbourFiles) -> list[list[str]]:
    """The earlier run's files of pairs above the floor, bundled so that their number does not grow every night."""
    bundles: list[list[str]] = []
    filled = 0
    for file in storage.list_files(previous.similar, ".parquet"):
        pairs = storage.read_counts(file.uri)["rows_out"]
        if not bundles or filled + pairs > _PAIRS_AT_ONCE:
            bundles.append([])
            filled = 0
        bundles[-1].append(file.uri)
        filled += pairs
    return bundles


def _kept_pairs(
    files: NeighbourFiles, previous: NeighbourFiles, request: SearchRequest, numbered_bundle: tuple[int, list[str]]
) -> Counts:
    """Write the earlier pairs above the floor with both questions unchanged, and how many each other question lost."""
    number, uris = numbered_bundle
    name = f"kept-{number:05d}"
    output = storage.join(files.similar, f"{name}.parquet")

    def make() -> Counts:
        changes = storage.read_table(files.step("changes", "changes"), CHANGES)
        gone = changes.filter(changes["is_gone"])["key"].to_numpy()
        sites = read_answered(previous.request)["sites_of_keys"]
        pairs = pa.concat_tables([storage.read_table(uri, SIMILAR_PAIRS) for uri in uris])
        left, right = (to_sites(pairs[side].to_numpy(), sites, request.sites) for side in ("left", "right"))
        left_gone, right_gone = ((side < 0) | np.isin(side, gone) for side in (left, right))
        losers = np.concatenate([left[right_gone & ~left_gone], right[left_gone & ~right_gone]])
        lost = pa.table([pa.array(column) for column in np.unique(losers, return_counts=True)], schema=LOST_PAIRS)
        storage.write_table(files.step("lost", name), lost, LOST_PAIRS)
        stays = ~(left_gone | right_gone)
        columns = [pa.array(left[stays]), pa.array(right[stays]), pairs["similarity"].filter(pa.array(stays))]
        kept = pa.table(columns, schema=SIMILAR_PAIRS)
        write_directed(files, request, name, unranked(kept))
        storage.write_table(output, kept, SIMILAR_PAIRS)
        return {"rows_out": len(kept)}

    return skip_or(output, make)


def _nearest_of_block(
    files: NeighbourFiles, request: SearchRequest, cut: tuple[Plan, list[str]], number: int
) -> Counts:
    """Write the lists of a block's questions that are not searched again."""
    plan, groups = cut
    name = block_name(number)

    def make() -> Counts:
        forget_blocks()
        keys, nearest = read_nearest(files.step("earlier", rest_name(number)), request.settings.k)
        nearest.above[:] -= _lost(files, keys)
        for group in groups:
            if plan.compares(_first(group), number):
                merge(nearest, read_nearest(files.tile(group, rest_name(number), "right"), request.settings.k)[1])
        return write_found(files, request, name, (keys, nearest), [])

    return skip_or(files.list_of(name), make)


def _nearest_of_group(
    files: NeighbourFiles, request: SearchRequest, cut: tuple[Plan, list[str]], group: str, keeps_pairs: bool
) -> Counts:
    """Write the lists of a group's queries, and the pairs above the floor that they are in."""
    plan, groups = cut

    def make() -> Counts:
        keys, nearest = read_nearest(files.tile(group, group, "left"), request.settings.k)
        pairs = [files.tile(group, group, "pairs")]
        for left, right in _tiles(plan, groups):
            if group in (left, right):
                side = "left" if group == left else "right"
                merge(nearest, read_nearest(files.tile(left, right, side), request.settings.k)[1])
            if group == left:
                pairs.append(files.tile(left, right, "pairs"))
        return write_found(files, request, group, (keys, nearest), pairs if keeps_pairs else [])

    return skip_or(files.list_of(group), make)


def _earlier_lists(
    files: NeighbourFiles, previous: NeighbourFiles, request: SearchRequest, plan: Plan, number: int
) -> Counts:
    """Write the earlier lists of a block's questions that are not searched again; each has one."""
    output = files.step("earlier", rest_name(number))

    def make() -> Counts:
        keys = keys_of(files, plan.blocks[number], request.sites)[0]
        keys = keys[~np.isin(keys, searched_again(files))]
        sites = read_answered(previous.request)["sites_of_keys"]
        result = empty_nearest(len(keys), request.settings.k)
        for file in storage.list_files(previous.nearest, ".parquet"):
            then = to_sites(storage.read_table(file.uri, columns=["key"])["key"].to_numpy(), sites, request.sites)
            rows = np.flatnonzero(np.isin(then, keys))
            if len(rows):
                lists = read_nearest(file.uri, request.settings.k)[1]
                places = np.searchsorted(keys, then[rows])
                result.others[places] = to_sites(lists.others[rows], sites, request.sites)
                result.scores[places], result.above[places] = lists.scores[rows], lists.above[rows]
        storage.write_table(output, nearest_table(keys, result), NEAREST)
        return {}

    return skip_or(output, make)


def _lost(files: NeighbourFiles, keys: np.ndarray) -> np.ndarray:
    """How many pairs above the floor each question lost."""
    result = np.zeros(len(keys), np.int64)
    for file in storage.list_files(storage.join(files.tiles, "lost"), ".parquet"):
        losers, counts = (column.to_numpy() for column in storage.read_table(file.uri, LOST_PAIRS).columns)
        mine = np.isin(losers, keys)
        np.add.at(result, np.searchsorted(keys, losers[mine]), counts[mine])
    return result
