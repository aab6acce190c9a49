"""The neighbours of a run from those of an earlier one: only what is new is searched, and the answer is the same.

    changes      one task           which questions are searched again, by fingerprints
    split        a task a block     the embeddings of the questions that are searched again, the lists that others had
    tiles        a task a tile      the queries against each other and against all others
    neighbours   a task a block     the earlier lists, with new neighbours merged in; and the lists of the queries

A question is searched again if it is new, its embedding changed, or one of its stored neighbours is gone or changed:
who comes next in its list is not known. So is one without a list in the earlier run, which only a damaged run has. All
others keep their lists, which only queries can enter. That is enough: a pair of which neither question is searched
again was compared by the earlier run, with the same embeddings.
"""

import logging
from collections.abc import Sequence

import numpy as np

from dupq import storage
from dupq.errors import DupqError, StorageError
from dupq.execution.tasks import Report, run_tasks
from dupq.execution.units import Counts, skip_or
from dupq.neighbours.nearest import Nearest, empty_nearest
from dupq.runs.keys import key_span
from dupq.runs.layout import NeighbourFiles
from dupq.runs.stage_records import is_intact
from dupq.shards import Shard
from dupq.side_by_side import side_by_side
from dupq.stages.neighbours.beyond_lists import FULL_KEYS
from dupq.stages.neighbours.blocks import block_name, rest_name, searched_again
from dupq.stages.neighbours.changes import find_changes, keys_of, to_sites
from dupq.stages.neighbours.chosen import compared, first_block, groups, write_chosen
from dupq.stages.neighbours.exact import find_neighbours, finish, planned, search_tiles
from dupq.stages.neighbours.on_gpus import gpus_of_search, seconds
from dupq.stages.neighbours.plan import Plan, read_plan
from dupq.stages.neighbours.tables import (
    SearchRequest,
    merge_found,
    nearest_table,
    read_answered,
    read_nearest,
    write_lists,
)
from dupq.tables import NEAREST
from dupq.text.keys import are_among

_log = logging.getLogger(__name__)
_LARGEST_SHARE = 0.3  # of the questions: if more are searched again, searching everything is as fast


def find_neighbours_since(
    files: NeighbourFiles, shards: Sequence[Shard], request: SearchRequest, previous: NeighbourFiles
) -> Report:
    """The same as `find_neighbours`; only what differs from an earlier run is searched, if that run is of use."""
    why_not = _unusable(previous, request)
    if why_not:
        return _all_neighbours(files, shards, request, why_not)
    plan = planned(files, shards, request)
    numbers = range(len(plan.blocks))
    changes = run_tasks("changes", find_changes, [(files, previous, request, plan)])
    searched = changes.counts["questions searched"]
    if searched > _LARGEST_SHARE * plan.questions or _gpus_are_faster(files, request, plan, searched):
        return _all_neighbours(files, shards, request, f"{searched:,} questions changed")
    _go(files, previous.run)
    report = changes
    report.add(run_tasks("split", _split_block, [(files, previous, request, plan, number) for number in numbers]))
    names = groups(files, plan, "queries")
    report.add(search_tiles(files, request, plan, [(group, group) for group in names]))
    report.add(search_tiles(files, request, plan, _tiles(plan, names)))
    calls = [(files, request, (plan, names), name) for name in (*map(block_name, numbers), *names)]
    finish(report, run_tasks("neighbours", _write_nearest, calls), files, request)
    return report


def _gpus_are_faster(files: NeighbourFiles, request: SearchRequest, plan: Plan, searched: int) -> bool:
    """Whether a GPU searches everything before the CPUs have compared what changed with everything."""
    groups = [sum(map(plan.rows, group)) for group in plan.groups]
    if not gpus_of_search(files, request, plan, groups):
        return False
    pairs = sum(size * size for size in groups)
    on_cpus, _ = seconds(files, plan, 2.0 * pairs * searched / max(1, plan.questions))
    return seconds(files, plan, pairs)[1] < on_cpus


def _all_neighbours(files: NeighbourFiles, shards: Sequence[Shard], request: SearchRequest, why: str) -> Report:
    _log.info(f"everything is searched: {why}")
    planned(files, shards, request)
    _go(files, None)
    return find_neighbours(files, shards, request)


def _go(files: NeighbourFiles, since: str | None) -> None:
    """Remove what an attempt that went the other way left: its lists have other questions under the same names.

    So has what was made of them, file by file: which questions are searched beyond their lists.
    """
    if not storage.exists(files.way) or storage.read_json(files.way) != {"since": since}:
        for folder in (files.nearest, files.directed, storage.join(files.tiles, FULL_KEYS)):
            storage.delete_folder(folder)
        storage.write_json(files.way, {"since": since})


def _unusable(previous: NeighbourFiles, request: SearchRequest) -> str | None:
    """Why an earlier run cannot be used; None if it can."""
    if not storage.exists(previous.request):
        return f"{previous.run} has no finished neighbours"
    try:
        then = read_answered(previous.request)
        read_plan(previous.plan, request.settings)
        if not _has_fingerprints(previous):
            return f"{previous.run} has no embeddings with fingerprints"
    except StorageError:
        raise  # it may be there next time
    except DupqError as error:
        return str(error)
    different = [name for name, value in request.lasting().items() if dict(then).get(name) != value]
    if different:
        return f"{previous.run} was made with another {', '.join(different)}"
    if is_intact(previous.run, "neighbours", (previous.nearest, previous.request, previous.plan)):
        return None
    return f"{previous.run} has lost some of its neighbours"


def _has_fingerprints(previous: NeighbourFiles) -> bool:
    found = storage.list_files(previous.embeddings, ".parquet")
    return bool(found) and "fingerprint" in storage.read_schema(found[0].uri).names


def _split_block(
    files: NeighbourFiles, previous: NeighbourFiles, request: SearchRequest, plan: Plan, number: int
) -> Counts:
    counts = write_chosen(files, request, plan, number, "queries", searched_again(files))
    _write_earlier_lists(files, previous, request, plan, number)
    return counts


def _tiles(plan: Plan, names: Sequence[str]) -> list[tuple[str, str]]:
    """Groups of queries against each other, and against all questions that are not searched again."""
    numbers = range(len(plan.blocks))
    rests = [(name, rest_name(n)) for name in names for n in numbers if plan.compares(first_block(name), n)]
    return compared(plan, names) + rests


def _write_nearest(files: NeighbourFiles, request: SearchRequest, cut: tuple[Plan, list[str]], name: str) -> Counts:
    """Write the lists of a group's queries, or of a block's questions that are not searched again."""

    def make() -> Counts:
        merged = _of_group if name in cut[1] else _of_block
        return write_lists(files, request, name, *merged(files, request, cut, name))

    return skip_or(files.list_of(name), make)


def _of_block(
    files: NeighbourFiles, request: SearchRequest, cut: tuple[Plan, list[str]], name: str
) -> tuple[np.ndarray, Nearest]:
    plan, names = cut
    number = first_block(name)
    keys, nearest = read_nearest(files.step("earlier", rest_name(number)), request.settings.k)
    found_by = [group for group in names if plan.compares(first_block(group), number)]
    merge_found(nearest, keys, [files.tile(group, rest_name(number), "right") for group in found_by])
    return keys, nearest


def _of_group(
    files: NeighbourFiles, request: SearchRequest, cut: tuple[Plan, list[str]], name: str
) -> tuple[np.ndarray, Nearest]:
    keys, nearest = read_nearest(files.tile(name, name, "left"), request.settings.k)
    tiles = [tile for tile in _tiles(*cut) if name in tile]
    merge_found(nearest, keys, [files.tile(*tile, "left" if tile[0] == name else "right") for tile in tiles])
    return keys, nearest


def _write_earlier_lists(
    files: NeighbourFiles, previous: NeighbourFiles, request: SearchRequest, plan: Plan, number: int
) -> None:
    """Write the earlier lists of a block's questions that are not searched again.

    Each had one when that was found out; raises DupqError if one is gone since.
    """
    output = files.step("earlier", rest_name(number))

    def make() -> Counts:
        keys = keys_of(files, plan.blocks[number], request.sites)[0]
        keys = keys[~are_among(searched_again(files), keys)]
        sites = read_answered(previous.request)["sites_of_keys"]
        result, is_found = empty_nearest(len(keys), request.settings.k), np.zeros(len(keys), bool)
        for uri in _lists_around(previous, to_sites(keys, request.sites, sites)):
            then = to_sites(storage.read_table(uri, columns=["key"])["key"].to_numpy(), sites, request.sites)
            rows = np.flatnonzero(are_among(keys, then))
            if len(rows):
                lists = read_nearest(uri, request.settings.k)[1]
                places = np.searchsorted(keys, then[rows])
                result.others[places] = to_sites(lists.others[rows], sites, request.sites)
                result.scores[places] = lists.scores[rows]
                is_found[places] = True
        if not is_found.all():
            raise DupqError(
                f"{previous.nearest}: {np.count_nonzero(~is_found):,} lists of neighbours are gone since this run "
                "looked for them; run the job again, which then searches what it cannot take over"
            )
        storage.write_table(output, nearest_table(keys, result), NEAREST)
        return {}

    skip_or(output, make)


def _lists_around(previous: NeighbourFiles, keys: np.ndarray) -> list[str]:
    """The files of an earlier run's lists that may have those of some of its questions (its keys, ascending)."""
    files = [file.uri for file in storage.list_files(previous.nearest, ".parquet")] if len(keys) else []
    spans = side_by_side(key_span, files)
    return [uri for uri, span in zip(files, spans, strict=True) if span and span[0] <= keys[-1] and keys[0] <= span[1]]
