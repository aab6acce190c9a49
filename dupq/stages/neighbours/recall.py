"""The recall of an approximate search, measured in each run: the share of a sample's exact neighbours that it found.

    exact     a task a block    the sampled questions against all of the block
    recall    a task a group    their exact lists compared with those found

The sample is the questions with the highest hashes of their keys, so it does not depend on the machines.
"""

import logging
from collections.abc import Sequence

import numpy as np

from dupq import storage
from dupq.execution.tasks import Report, run_tasks
from dupq.execution.units import Counts, skip_or
from dupq.neighbours.embeddings import gathered
from dupq.neighbours.nearest import merge
from dupq.runs.embeddings import read_embeddings
from dupq.runs.layout import NeighbourFiles
from dupq.stages.neighbours.blocks import block_name, forget_blocks, ready_block
from dupq.stages.neighbours.plan import Plan
from dupq.stages.neighbours.tables import SearchRequest, nearest_table, read_nearest
from dupq.tables import NEAREST
from dupq.text.keys import Sites

_log = logging.getLogger(__name__)
SAMPLED = "questions that recall is measured on"
EXACT = "exact neighbours of these"
FOUND = "exact neighbours of these that were found"


def group_name(group: Sequence[int]) -> str:
    """The name of a group of blocks that are compared with each other."""
    return f"group-{group[0]:05d}"


def measure_recall(files: NeighbourFiles, request: SearchRequest, plan: Plan) -> Report:
    """Count how many of the sampled questions' k nearest are in the lists that were written, and say it."""
    calls = [(files, request, plan, group, number) for group in plan.groups for number in group]
    run_tasks("exact neighbours of a sample", _exact_in_block, calls)
    report = run_tasks("recall", _recall_of_group, [(files, request, group) for group in plan.groups])
    exact, found = (report.counts.get(name, 0) for name in (EXACT, FOUND))
    if exact:
        sampled = report.counts[SAMPLED]
        _log.info(f"recall@{request.settings.k} of the lists: {found / exact:.4f}, of {sampled:,} questions")
    return report


def _exact_in_block(files: NeighbourFiles, request: SearchRequest, plan: Plan, group: list[int], number: int) -> Counts:
    output = files.step("exact", block_name(number))

    def make() -> Counts:
        import torch

        from dupq.neighbours.tiles import Search, block, search_tile

        torch.set_num_threads(1)
        uris = [files.step("measured", block_name(other)) for other in group]
        queries = block(gathered([read_embeddings(uri, Sites(request.sites)) for uri in uris]), request.measure)
        others = ready_block(files, request, plan, block_name(number))
        found = search_tile(queries, others, Search(request.measure, request.settings.k), both=False)[0]
        storage.write_table(output, nearest_table(queries.keys, found), NEAREST)
        return {}

    return skip_or(output, make)


def _recall_of_group(files: NeighbourFiles, request: SearchRequest, group: list[int]) -> Counts:
    """Memory: the lists of one block."""
    forget_blocks()
    k = request.settings.k
    keys, exact = read_nearest(files.step("exact", block_name(group[0])), k)
    for number in group[1:]:
        merge(exact, read_nearest(files.step("exact", block_name(number)), k)[1])
    found = 0
    for number in group:
        of_block, lists = read_nearest(files.list_of(block_name(number)), k)
        _, ours, theirs = np.intersect1d(keys, of_block, assume_unique=True, return_indices=True)
        for wanted, listed in zip(exact.others[ours], lists.others[theirs], strict=True):
            found += len(np.intersect1d(wanted[wanted >= 0], listed))
    return {SAMPLED: len(keys), EXACT: int((exact.others >= 0).sum()), FOUND: found}
