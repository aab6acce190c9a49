"""The recall of an approximate search: the share of exact neighbours that it finds, asked for and measured in each run.

    exact     a task a block    the sampled questions against all of the block, and the lists of these neighbours
    probes    a task a group    how many lists a question probes, so that half of the sample finds the share asked for
    recall    a task a group    the exact lists of the other half, compared with those found

The sample is the questions with the highest hashes of their keys, so it does not depend on the machines.
"""

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from typing_extensions import TypedDict

from dupq import storage, tables
from dupq.execution.tasks import Report, run_tasks
from dupq.execution.units import Counts, skip_or
from dupq.json_files import read_as
from dupq.neighbours.embeddings import Embeddings, gathered
from dupq.neighbours.nearest import Nearest, merge
from dupq.runs.embeddings import read_embeddings
from dupq.runs.layout import NeighbourFiles
from dupq.stages.neighbours.blocks import block_name, forget_blocks, ready_block
from dupq.stages.neighbours.centres import group_name, read_centroids
from dupq.stages.neighbours.plan import Plan
from dupq.stages.neighbours.tables import SearchRequest, nearest_table, read_nearest
from dupq.tables import NEAREST
from dupq.text.keys import Sites

if TYPE_CHECKING:
    from dupq.neighbours.tiles import Block

_log = logging.getLogger(__name__)
SAMPLED = "questions that recall is measured on"
EXACT = "exact neighbours of these"
FOUND = "exact neighbours of these that were found"
_MANY, _FEW = 0.4, 100  # of all lists: from this share on the exact search, which scores a pair once, is as fast


class _Probes(TypedDict):
    """The lists that each question of a group probes, and how many there are."""

    probes: int
    lists: int


def is_sampled(block: Embeddings, request: SearchRequest, plan: Plan) -> np.ndarray:
    """Which questions are of either half of the sample."""
    from dupq.neighbours.ivf import unit_hashes

    return unit_hashes(block.keys) >= 1 - 2 * request.settings.ivf_sample / plan.questions


def choose_probes(files: NeighbourFiles, request: SearchRequest, plan: Plan) -> None:
    """Find the exact neighbours of the sample, and how many lists each group's questions probe."""
    calls = [(files, request, plan, group, number) for group in plan.groups for number in group]
    run_tasks("exact neighbours of a sample", _exact_in_block, calls)
    run_tasks("probes", _choose_probes, [(files, request, plan, group) for group in plan.groups])
    largest = max(plan.groups, key=lambda group: sum(map(plan.rows, group)), default=None)
    if largest is not None:
        _say(_read_probes(files, largest))


def _say(chosen: _Probes) -> None:
    _log.info(f"each question is searched for in {chosen['probes']:,} of {chosen['lists']:,} lists")
    if chosen["lists"] > _FEW and chosen["probes"] > _MANY * chosen["lists"]:
        _log.warning("neighbours.method=exact would hardly take longer, and misses nothing")


def probes_of(files: NeighbourFiles, group: Sequence[int]) -> int:
    """How many lists a group's questions probe."""
    return _read_probes(files, group)["probes"]


def _read_probes(files: NeighbourFiles, group: Sequence[int]) -> _Probes:
    return read_as(_place_of_probes(files, group), _Probes, "remove it, and it is made anew")


def _place_of_probes(files: NeighbourFiles, group: Sequence[int]) -> str:
    return storage.join(files.tiles, "probes", f"{group_name(group)}.json")


def measure_recall(files: NeighbourFiles, request: SearchRequest, plan: Plan) -> Report:
    """Count how many of the k nearest of half of the sample are in the lists that were written, and say it."""
    report = run_tasks("recall", _recall_of_group, [(files, request, plan, group) for group in plan.groups])
    exact, found = (report.counts.get(name, 0) for name in (EXACT, FOUND))
    if exact:
        sampled = report.counts[SAMPLED]
        _log.info(f"recall@{request.settings.k} of the lists: {found / exact:.4f}, of {sampled:,} questions")
    return report


def _exact_in_block(files: NeighbourFiles, request: SearchRequest, plan: Plan, group: list[int], number: int) -> Counts:
    output = files.step("exact", block_name(number))

    def make() -> Counts:
        import torch

        from dupq.neighbours.exact import taken
        from dupq.neighbours.ivf import nearest_lists
        from dupq.neighbours.tiles import Search, search_tile

        torch.set_num_threads(1)
        queries, others = _sampled(files, request, group), ready_block(files, request, plan, block_name(number))
        found = search_tile(queries, others, Search(request.measure, request.settings.k), both=False)[0]
        keys = np.unique(found.others[found.others >= 0])
        side = taken(others.side, np.searchsorted(others.keys, keys))
        lists = nearest_lists(side, read_centroids(files, group), 1)
        schema = tables.listed(1)
        columns = [pa.array(keys), pa.FixedSizeListArray.from_arrays(pa.array(lists.ravel()), 1)]
        storage.write_table(_lists_of_found(files, number), pa.table(columns, schema=schema), schema)
        storage.write_table(output, nearest_table(queries.keys, found), NEAREST)
        return {}

    return skip_or(output, make)


def _sampled(files: NeighbourFiles, request: SearchRequest, group: Sequence[int]) -> "Block":
    from dupq.neighbours.tiles import block

    uris = [files.step("measured", block_name(number)) for number in group]
    return block(gathered([read_embeddings(uri, Sites(request.sites)) for uri in uris]), request.measure)


def _lists_of_found(files: NeighbourFiles, number: int) -> str:
    return files.step("found", block_name(number))


def _exact(
    files: NeighbourFiles, request: SearchRequest, plan: Plan, group: Sequence[int]
) -> tuple[np.ndarray, Nearest, np.ndarray]:
    """The keys and exact neighbours of a group's sample, and which of it recall is measured on."""
    from dupq.neighbours.ivf import unit_hashes

    k = request.settings.k
    keys, exact = read_nearest(files.step("exact", block_name(group[0])), k)
    for number in group[1:]:
        merge(exact, read_nearest(files.step("exact", block_name(number)), k)[1])
    return keys, exact, unit_hashes(keys) >= 1 - request.settings.ivf_sample / plan.questions


def _choose_probes(files: NeighbourFiles, request: SearchRequest, plan: Plan, group: list[int]) -> Counts:
    """Memory: 12 bytes for each list and each question of the sample."""
    output = _place_of_probes(files, group)

    def make() -> Counts:
        centroids = read_centroids(files, group)
        lists = len(centroids.points)
        probes = request.settings.ivf_probes
        if not probes:
            ranks = _ranks_of_lists(files, request, plan, group)
            probes = 1 + int(np.quantile(ranks, request.settings.ivf_recall, method="higher")) if len(ranks) else lists
        storage.write_json(output, {"probes": min(probes, lists), "lists": lists})
        return {}

    return skip_or(output, make)


def _ranks_of_lists(files: NeighbourFiles, request: SearchRequest, plan: Plan, group: list[int]) -> np.ndarray:
    """For each exact neighbour of the first half of the sample: how many lists are nearer to the question than its."""
    from dupq.neighbours.exact import taken
    from dupq.neighbours.ivf import nearest_lists

    _, exact, is_measured = _exact(files, request, plan, group)
    asking = np.flatnonzero(~is_measured)
    centroids, side = read_centroids(files, group), _sampled(files, request, group).side
    order = nearest_lists(taken(side, asking), centroids, len(centroids.points))
    found = pa.concat_tables([storage.read_table(_lists_of_found(files, number)) for number in group])
    others, places = found["key"].to_numpy(), found["lists"].combine_chunks().flatten().to_numpy()
    by_key = np.argsort(others)
    rows, ranks = np.nonzero(exact.others[asking] >= 0)
    wanted = places[by_key[np.searchsorted(others, exact.others[asking][rows, ranks], sorter=by_key)]]
    return (order[rows] == wanted[:, None]).argmax(axis=1)


def _recall_of_group(files: NeighbourFiles, request: SearchRequest, plan: Plan, group: list[int]) -> Counts:
    """Memory: the lists of one block."""
    forget_blocks()
    keys, exact, is_measured = _exact(files, request, plan, group)
    keys, wanted_lists = keys[is_measured], exact.others[is_measured]
    found = 0
    for number in group:
        of_block, lists = read_nearest(files.list_of(block_name(number)), request.settings.k)
        _, ours, theirs = np.intersect1d(keys, of_block, assume_unique=True, return_indices=True)
        for wanted, listed in zip(wanted_lists[ours], lists.others[theirs], strict=True):
            found += len(np.intersect1d(wanted[wanted >= 0], listed))
    return {SAMPLED: len(keys), EXACT: int((wanted_lists >= 0).sum()), FOUND: found}
