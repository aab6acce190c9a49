"""What an earlier run found, and a search of what is new: the same neighbours as by searching everything.

    changes   one task              which questions are asked anew, and which are gone, by fingerprints of embeddings
    queries   a task a block        the embeddings of those that are asked
    earlier   a task a block        the lists that the others had
    tiles     a task a tile         the asked ones against each other and against all others
    kept      a task a bundle       the pairs above the floor that still are some
    nearest   a task a block        the earlier lists with what is new in them; and those of the asked

Asked are questions that are new or have another embedding, and those with a question among their neighbours that is
gone or has another one: what comes after it in their lists is not known. All others keep their lists, and only asked
questions can come into them. Why that is all: a pair of questions of which neither is asked was searched then, with
the same embeddings, and its score decides as it did.
"""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from dupq import storage
from dupq.execution.tasks import Counts, Report, run_tasks, skip_or
from dupq.neighbours.nearest import merge, nobody
from dupq.runs.embeddings import write_embeddings
from dupq.runs.layout import NeighbourFiles
from dupq.shards import Shard
from dupq.stages.neighbours.blocks import asked_keys, block_name, forget_blocks, read_block, rest_name
from dupq.stages.neighbours.changes import find_changes, keys_of, to_sites
from dupq.stages.neighbours.exact import OVER, finish, pair_limit, planned, search_tiles
from dupq.stages.neighbours.plan import Plan
from dupq.stages.neighbours.search import find_neighbours
from dupq.stages.neighbours.tables import Asked, nearest_table, read_nearest, unranked, write_directed, write_found
from dupq.tables import CHANGES, LOST_PAIRS, NEAREST, SIMILAR_PAIRS
from dupq.text.keys import Sites

_PAIRS_AT_ONCE = 2_000_000
_LARGEST_SHARE = 0.3  # of the questions: if more are asked, searching everything is as fast


def find_neighbours_since(
    files: NeighbourFiles, shards: Sequence[Shard], asked: Asked, previous: NeighbourFiles
) -> Report:
    """The same as `find_neighbours`; only what differs from an earlier run is searched, if that run is of use."""
    why_not = _unusable(previous, asked)
    if why_not:
        print(f"everything is searched: {why_not}", flush=True)
        return find_neighbours(files, shards, asked)
    plan = planned(files, shards, asked)
    numbers = range(len(plan.blocks))
    changes = run_tasks("changes", find_changes, [(files, previous, asked, plan)])
    if changes.counts["questions searched"] > _LARGEST_SHARE * plan.questions:
        print(f"everything is searched: {changes.counts['questions searched']:,} questions changed", flush=True)
        return find_neighbours(files, shards, asked)
    run_tasks("queries", _queries_of_block, [(files, asked, plan, number) for number in numbers])
    groups = _groups(files, plan)
    run_tasks("earlier", _earlier_lists, [(files, previous, asked, plan, number) for number in numbers])
    report = search_tiles(files, asked, plan, [(group, group) for group in groups])
    report.add(search_tiles(files, asked, plan, _tiles(plan, groups)))
    kept = run_tasks("kept", _kept_pairs, [(files, previous, asked, call) for call in enumerate(_bundles(previous))])
    report.add(changes)
    report.counts[OVER] = report.counts.get(OVER, 0) + kept.rows_out
    keeps_pairs = report.counts[OVER] <= pair_limit(plan, asked)
    if not keeps_pairs:
        for folder in (files.directed, files.similar, files.nearest):
            storage.delete_folder(folder)
    calls = [(files, asked, (plan, groups), number) for number in numbers]
    lists = run_tasks("neighbours", _nearest_of_block, calls)
    new = run_tasks("neighbours", _nearest_of_group, [(files, asked, (plan, groups), g, keeps_pairs) for g in groups])
    lists.rows_in, lists.rows_out = lists.rows_in + new.rows_in, lists.rows_out + new.rows_out
    for name, count in new.counts.items():
        lists.counts[name] = lists.counts.get(name, 0) + count
    finish(report, lists, files, asked, keeps_pairs)
    return report


def _unusable(previous: NeighbourFiles, asked: Asked) -> str | None:
    """Why an earlier run cannot be built upon."""
    if asked.settings.method != "exact":
        return f"neighbours.method={asked.settings.method} builds on no earlier run"
    if not storage.exists(previous.asked):
        return f"{previous.run} has no finished neighbours"
    then = storage.read_json(previous.asked)
    if not _has_fingerprints(previous):
        return f"{previous.run} has no embeddings with fingerprints"
    different = [name for name, value in asked.lasting().items() if then.get(name) != value]
    if different:
        return f"{previous.run} was made with another {', '.join(different)}"
    return None if then["has_all_pairs"] else f"{previous.run} has not all pairs above the floor"


def _has_fingerprints(previous: NeighbourFiles) -> bool:
    found = storage.list_files(previous.embeddings, ".parquet")
    return bool(found) and "fingerprint" in storage.read_schema(found[0].uri).names


def _queries_of_block(files: NeighbourFiles, asked: Asked, plan: Plan, number: int) -> Counts:
    output = files.step("queries", block_name(number))

    def make() -> Counts:
        wanted = asked_keys(files)
        if not np.isin(keys_of(files, plan.blocks[number], asked.sites)[0], wanted).any():
            schema = storage.read_schema(storage.join(files.embeddings, plan.blocks[number][0].file)).remove_metadata()
            storage.write_table(output, schema.empty_table(), schema)
            return {}
        block = read_block(files, asked, plan, block_name(number))
        chosen = block.take(np.isin(block.keys, wanted))
        write_embeddings(output, chosen, Sites(asked.sites))
        return {"rows_out": len(chosen.keys)}

    return skip_or(output, make)


def _groups(files: NeighbourFiles, plan: Plan) -> list[str]:
    """Names of groups of blocks, `queries-FIRST-LAST`, whose asked questions are searched together.

    Each has as many questions as a block at most, or one block's, and those of one site if only these are compared.
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
    """The first block of a block or group."""
    return int(name.split("-")[1])


def _tiles(plan: Plan, groups: Sequence[str]) -> list[tuple[str, str]]:
    tiles = []
    for place, group in enumerate(groups):
        others = [*groups[place + 1 :], *(rest_name(number) for number in range(len(plan.blocks)))]
        tiles += [(group, other) for other in others if plan.compares(_first(group), _first(other))]
    return tiles


def _bundles(previous: NeighbourFiles) -> list[list[str]]:
    """The files of pairs above the floor of then, some together, so that there are not more of them each night."""
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
    files: NeighbourFiles, previous: NeighbourFiles, asked: Asked, numbered_bundle: tuple[int, list[str]]
) -> Counts:
    """Pairs above the floor of then with both questions unchanged, and what others have lost."""
    number, uris = numbered_bundle
    name = f"kept-{number:05d}"
    output = storage.join(files.similar, f"{name}.parquet")

    def make() -> Counts:
        changes = storage.read_table(files.step("changes", "changes"), CHANGES)
        gone = changes.filter(changes["is_gone"])["key"].to_numpy()
        sites = storage.read_json(previous.asked)["sites_of_keys"]
        pairs = pa.concat_tables([storage.read_table(uri, SIMILAR_PAIRS) for uri in uris])
        left, right = (to_sites(pairs[side].to_numpy(), sites, asked.sites) for side in ("left", "right"))
        left_gone, right_gone = ((side < 0) | np.isin(side, gone) for side in (left, right))
        losers = np.concatenate([left[right_gone & ~left_gone], right[left_gone & ~right_gone]])
        lost = pa.table([pa.array(column) for column in np.unique(losers, return_counts=True)], schema=LOST_PAIRS)
        storage.write_table(files.step("lost", name), lost, LOST_PAIRS)
        stays = ~(left_gone | right_gone)
        columns = [pa.array(left[stays]), pa.array(right[stays]), pairs["similarity"].filter(pa.array(stays))]
        kept = pa.table(columns, schema=SIMILAR_PAIRS)
        write_directed(files, asked, name, unranked(kept))
        storage.write_table(output, kept, SIMILAR_PAIRS)
        return {"rows_out": len(kept)}

    return skip_or(output, make)


def _nearest_of_block(files: NeighbourFiles, asked: Asked, cut: tuple[Plan, list[str]], number: int) -> Counts:
    """The lists of a block's questions that are not asked."""
    plan, groups = cut
    name = block_name(number)

    def make() -> Counts:
        forget_blocks()
        keys, nearest = read_nearest(files.step("earlier", rest_name(number)), asked.settings.k)
        nearest.over[:] -= _lost(files, keys)
        for group in groups:
            if plan.compares(_first(group), number):
                merge(nearest, read_nearest(files.tile(group, rest_name(number), "right"), asked.settings.k)[1])
        return write_found(files, asked, name, (keys, nearest), [])

    return skip_or(files.list_of(name), make)


def _nearest_of_group(
    files: NeighbourFiles, asked: Asked, cut: tuple[Plan, list[str]], group: str, keeps_pairs: bool
) -> Counts:
    """The lists of a group's asked questions, and the pairs above the floor that they are in."""
    plan, groups = cut

    def make() -> Counts:
        keys, nearest = read_nearest(files.tile(group, group, "left"), asked.settings.k)
        pairs = [files.tile(group, group, "pairs")]
        for left, right in _tiles(plan, groups):
            if group in (left, right):
                side = "left" if group == left else "right"
                merge(nearest, read_nearest(files.tile(left, right, side), asked.settings.k)[1])
            if group == left:
                pairs.append(files.tile(left, right, "pairs"))
        return write_found(files, asked, group, (keys, nearest), pairs if keeps_pairs else [])

    return skip_or(files.list_of(group), make)


def _earlier_lists(files: NeighbourFiles, previous: NeighbourFiles, asked: Asked, plan: Plan, number: int) -> Counts:
    """The lists that the questions of a block had that are not asked: all of them were there then."""
    output = files.step("earlier", rest_name(number))

    def make() -> Counts:
        keys = keys_of(files, plan.blocks[number], asked.sites)[0]
        keys = keys[~np.isin(keys, asked_keys(files))]
        sites = storage.read_json(previous.asked)["sites_of_keys"]
        result = nobody(len(keys), asked.settings.k)
        for file in storage.list_files(previous.nearest, ".parquet"):
            then = to_sites(storage.read_table(file.uri, columns=["key"])["key"].to_numpy(), sites, asked.sites)
            rows = np.flatnonzero(np.isin(then, keys))
            if len(rows):
                lists = read_nearest(file.uri, asked.settings.k)[1]
                places = np.searchsorted(keys, then[rows])
                result.others[places] = to_sites(lists.others[rows], sites, asked.sites)
                result.scores[places], result.over[places] = lists.scores[rows], lists.over[rows]
        storage.write_table(output, nearest_table(keys, result), NEAREST)
        return {}

    return skip_or(output, make)


def _lost(files: NeighbourFiles, keys: np.ndarray) -> np.ndarray:
    """How many pairs above the floor each question has lost."""
    result = np.zeros(len(keys), np.int64)
    for file in storage.list_files(storage.join(files.tiles, "lost"), ".parquet"):
        losers, counts = (column.to_numpy() for column in storage.read_table(file.uri, LOST_PAIRS).columns)
        mine = np.isin(losers, keys)
        np.add.at(result, np.searchsorted(keys, losers[mine]), counts[mine])
    return result
