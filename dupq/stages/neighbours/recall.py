"""The recall of an approximate search: the share of exact neighbours that it finds, asked for and measured in each run.

    exact     a task a block    the sampled questions against all of the block
    merged    a task a group    their exact neighbours
    ranks     a task a block    how many lists a question would have to probe to find each of those in the block
    probes    a task a group    how many it probes, so that half of the sample finds the share asked for
    recall    a task a group    the exact neighbours of the other half, compared with those found

The sample is the questions with the highest hashes of their keys, so it does not depend on the machines.
"""

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from typing_extensions import TypedDict

from dupq import storage
from dupq.execution.tasks import Report, run_tasks
from dupq.execution.units import Counts, skip_or
from dupq.json_files import read_as
from dupq.neighbours.embeddings import Embeddings, gathered
from dupq.neighbours.nearest import Nearest, merge
from dupq.runs.embeddings import read_embeddings
from dupq.runs.layout import NeighbourFiles
from dupq.stages.neighbours.blocks import block_name, forget_blocks, ready_block
from dupq.stages.neighbours.centres import group_name, read_centroids, read_spans, span_name
from dupq.stages.neighbours.plan import Plan
from dupq.stages.neighbours.tables import SearchRequest, nearest_table, read_nearest
from dupq.tables import NEAREST, RANKS
from dupq.text.keys import Sites, places_among

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


def choose_probes(files: NeighbourFiles, request: SearchRequest, plan: Plan) -> Report:
    """Find the exact neighbours of the sample, and how many lists each group's questions probe."""
    of_groups = [(files, request, plan, group) for group in plan.groups]
    of_blocks = [(*call, number) for call in of_groups for number in call[-1]]
    report = run_tasks("exact neighbours of a sample", _exact_in_block, of_blocks)
    report.add(run_tasks("exact neighbours of a sample", _merge, of_groups))
    if not request.settings.ivf_probes:
        report.add(run_tasks("ranks", _ranks_in_block, of_blocks))
    report.add(run_tasks("probes", _choose_probes, of_groups))
    largest = max(plan.groups, key=lambda group: sum(map(plan.rows, group)), default=None)
    if largest is not None:
        _say(files, request, largest)
    return report


def _say(files: NeighbourFiles, request: SearchRequest, group: Sequence[int]) -> None:
    chosen = _read_probes(files, group)
    what = f"{chosen['probes']:,} of {chosen['lists']:,} lists"
    if goes_exactly(files, request, group):
        _log.warning(f"each question would be searched for in {what}: it is searched exactly, which is as fast")
        return
    _log.info(f"each question is searched for in {what}")
    if _are_many(chosen):
        _log.warning("neighbours.method=exact would hardly take longer, and misses nothing")


def _are_many(chosen: _Probes) -> bool:
    return chosen["lists"] > _FEW and chosen["probes"] > _MANY * chosen["lists"]


def goes_exactly(files: NeighbourFiles, request: SearchRequest, group: Sequence[int]) -> bool:
    """Whether a group is searched exactly: where the recall that is asked for takes so many lists that this is as fast.

    The same in every attempt: it depends on the number of lists alone, which a sample chose. A number that was set by
    hand is kept to.
    """
    return not request.settings.ivf_probes and _are_many(_read_probes(files, group))


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
    """Memory: a block and the sample of its group, and their tile (tiles.search_tile)."""
    output = files.step("exact", block_name(number))

    def make() -> Counts:
        import torch

        from dupq.neighbours.tiles import Search, search_tile

        torch.set_num_threads(1)
        queries, others = _sampled(files, request, group), ready_block(files, request, plan, block_name(number))
        found = search_tile(queries, others, Search(request.measure, request.settings.k), both=False)[0]
        storage.write_table(output, nearest_table(queries.keys, found), NEAREST)
        return {}

    return skip_or(output, make)


def _sampled(files: NeighbourFiles, request: SearchRequest, group: Sequence[int]) -> "Block":
    from dupq.neighbours.tiles import block

    uris = [files.step("measured", block_name(number)) for number in group]
    return block(gathered([read_embeddings(uri, Sites(request.sites)) for uri in uris]), request.measure)


def _merge(files: NeighbourFiles, request: SearchRequest, plan: Plan, group: list[int]) -> Counts:
    output = files.step("exact", group_name(group))

    def make() -> Counts:
        k = request.settings.k
        keys, exact = read_nearest(files.step("exact", block_name(group[0])), k)
        for number in group[1:]:
            merge(exact, read_nearest(files.step("exact", block_name(number)), k)[1])
        storage.write_table(output, nearest_table(keys, exact), NEAREST)
        return {}

    return skip_or(output, make)


def _exact(
    files: NeighbourFiles, request: SearchRequest, plan: Plan, group: Sequence[int]
) -> tuple[np.ndarray, Nearest, np.ndarray]:
    """The keys and exact neighbours of a group's sample, and which of it recall is measured on."""
    from dupq.neighbours.ivf import unit_hashes

    keys, exact = read_nearest(files.step("exact", group_name(group)), request.settings.k)
    return keys, exact, unit_hashes(keys) >= 1 - request.settings.ivf_sample / plan.questions


def _ranks_in_block(files: NeighbourFiles, request: SearchRequest, plan: Plan, group: list[int], number: int) -> Counts:
    """A pair is found where either question probes the other's list: the fewer lists of the two are what it takes."""
    output = files.step("ranks", block_name(number))

    def make() -> Counts:
        from dupq.neighbours.exact import taken
        from dupq.neighbours.ivf import nearer_lists, nearest_lists

        _, exact, is_measured = _exact(files, request, plan, group)
        block, asking = ready_block(files, request, plan, block_name(number)), _sampled(files, request, group)
        places, are_here = places_among(block.keys, exact.others)
        rows, others = np.nonzero(are_here & ~is_measured[:, None])
        centroids = read_centroids(files, group)
        one = taken(asking.side, rows)
        other = taken(block.side, places[rows, others])
        ranks = np.minimum(
            nearer_lists(one, centroids, nearest_lists(other, centroids, 1)[:, 0]),
            nearer_lists(other, centroids, nearest_lists(one, centroids, 1)[:, 0]),
        )
        storage.write_table(output, pa.table([pa.array(ranks)], schema=RANKS), RANKS)
        return {}

    return skip_or(output, make)


def _choose_probes(files: NeighbourFiles, request: SearchRequest, plan: Plan, group: list[int]) -> Counts:
    output = _place_of_probes(files, group)

    def make() -> Counts:
        lists, probes = len(read_centroids(files, group).points), request.settings.ivf_probes
        if not probes:
            tables = [storage.read_table(files.step("ranks", block_name(number)), RANKS) for number in group]
            ranks = pa.concat_tables(tables)["rank"].to_numpy()
            probes = 1 + int(np.quantile(ranks, request.settings.ivf_recall, method="higher")) if len(ranks) else lists
        storage.write_json(output, {"probes": min(probes, lists), "lists": lists})
        return {}

    return skip_or(output, make)


def _recall_of_group(files: NeighbourFiles, request: SearchRequest, plan: Plan, group: list[int]) -> Counts:
    """Memory: the lists of one span or block."""
    forget_blocks()
    keys, exact, is_measured = _exact(files, request, plan, group)
    keys, wanted_lists = keys[is_measured], exact.others[is_measured]
    found = 0
    for name in _names_of_lists(files, request, group):
        of_span, lists = read_nearest(files.list_of(name), request.settings.k)
        _, ours, theirs = np.intersect1d(keys, of_span, assume_unique=True, return_indices=True)
        for wanted, listed in zip(wanted_lists[ours], lists.others[theirs], strict=True):
            found += len(np.intersect1d(wanted[wanted >= 0], listed))
    return {SAMPLED: len(keys), EXACT: int((wanted_lists >= 0).sum()), FOUND: found}


def _names_of_lists(files: NeighbourFiles, request: SearchRequest, group: Sequence[int]) -> list[str]:
    if goes_exactly(files, request, group):
        return [block_name(number) for number in group]
    return [span_name(group, place) for place in range(len(read_spans(files, group)))]
