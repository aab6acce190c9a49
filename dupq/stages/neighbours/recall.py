"""The recall of an approximate search: the share of exact neighbours that it finds, asked for and measured in each run.

    sample    a task a group    the sampled questions
    exact     a task a block    these against all of the block
    merged    a task a group    their exact neighbours
    ranks     a task a block    how many lists a question would have to probe to find each of those in the block, and
                                how many questions have the rarest word that it shares with them
    probes    a task a group    how many it probes, and which words' questions it is compared with, so that half of the
                                sample finds the share asked for with the least work
    recall    a task a group    the exact neighbours of the other half, compared with those found

The sample is the questions with the highest hashes of their keys, so it does not depend on the machines.
"""

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from dupq import storage
from dupq.execution.tasks import Report, run_tasks
from dupq.execution.units import Counts, skip_or
from dupq.neighbours.embeddings import Embeddings, gathered
from dupq.neighbours.nearest import Nearest, merge
from dupq.runs.embeddings import read_embeddings, write_embeddings
from dupq.runs.layout import NeighbourFiles
from dupq.stages.neighbours.blocks import block_name, ready_block
from dupq.stages.neighbours.centres import group_name, read_centroids, read_spans, span_name
from dupq.stages.neighbours.plan import Plan
from dupq.stages.neighbours.probes import Probes, goes_exactly, place_of_probes, say_how_many
from dupq.stages.neighbours.rare_words import read_counts
from dupq.stages.neighbours.tables import SearchRequest, nearest_table, read_nearest
from dupq.tables import NEAREST, RANKS
from dupq.text.keys import Sites, places_among

if TYPE_CHECKING:
    from dupq.neighbours.tiles import Block

_log = logging.getLogger(__name__)
SAMPLE = 1_000  # questions, about, that lists are chosen by, and as many that recall is measured on
SAMPLED = "questions that recall is measured on"
EXACT = "exact neighbours of these"
FOUND = "exact neighbours of these that were found"


def is_sampled(block: Embeddings, plan: Plan) -> np.ndarray:
    """Which questions are of either half of the sample."""
    from dupq.neighbours.ivf import unit_hashes

    return unit_hashes(block.keys) >= 1 - 2 * SAMPLE / plan.questions


def choose_probes(files: NeighbourFiles, request: SearchRequest, plan: Plan) -> Report:
    """Find the exact neighbours of the sample, and how far each group's questions are searched for."""
    of_groups = [(files, request, plan, group) for group in plan.groups]
    of_blocks = [(*call, number) for call in of_groups for number in call[-1]]
    report = run_tasks("sample", _gather_sample, [(files, request, group) for group in plan.groups])
    report.add(run_tasks("exact neighbours of a sample", _exact_in_block, of_blocks))
    report.add(run_tasks("exact neighbours of a sample", _merge, of_groups))
    report.add(run_tasks("ranks", _ranks_in_block, of_blocks))
    report.add(run_tasks("probes", _choose_probes, of_groups))
    largest = max(plan.groups, key=lambda group: sum(map(plan.rows, group)), default=None)
    if largest is not None:
        say_how_many(files, largest)
    return report


def measure_recall(files: NeighbourFiles, request: SearchRequest, plan: Plan) -> Report:
    """Count how many of the k nearest of half of the sample are in the lists that were written, and say it."""
    report = run_tasks("recall", _recall_of_group, [(files, request, plan, group) for group in plan.groups])
    exact, found = (report.counts.get(name, 0) for name in (EXACT, FOUND))
    if exact:
        sampled = report.counts[SAMPLED]
        _log.info(f"recall@{request.settings.k} of the lists: {found / exact:.4f}, of {sampled:,} questions")
    return report


def _gather_sample(files: NeighbourFiles, request: SearchRequest, group: list[int]) -> Counts:
    """The sample of a group in one file, so that each block's task reads one."""
    output, sites = files.step("measured", group_name(group)), Sites(request.sites)

    def make() -> Counts:
        found = gathered([read_embeddings(files.step("measured", block_name(number)), sites) for number in group])
        write_embeddings(output, found, sites)
        return {}

    return skip_or(output, make)


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

    sample = read_embeddings(files.step("measured", group_name(group)), Sites(request.sites))
    return block(sample, request.measure)


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
    return keys, exact, unit_hashes(keys) >= 1 - SAMPLE / plan.questions


def _ranks_in_block(files: NeighbourFiles, request: SearchRequest, plan: Plan, group: list[int], number: int) -> Counts:
    """A pair is found where either question probes the other's list: the fewer lists of the two are what it takes; or
    where they share a word that few enough have.
    """
    output = files.step("ranks", block_name(number))

    def make() -> Counts:
        from dupq.neighbours.exact import taken
        from dupq.neighbours.ivf import nearer_lists, nearest_lists
        from dupq.neighbours.word_lists import rarest_shared

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
        rarest = rarest_shared(one, other, read_counts(files, group))
        storage.write_table(output, pa.table([pa.array(ranks), pa.array(rarest)], schema=RANKS), RANKS)
        return {}

    return skip_or(output, make)


def _choose_probes(files: NeighbourFiles, request: SearchRequest, plan: Plan, group: list[int]) -> Counts:
    output = place_of_probes(files, group)

    def make() -> Counts:
        from dupq.neighbours.reach import Archive, Sampled, cheapest

        lists, questions = len(read_centroids(files, group).points), sum(map(plan.rows, group))
        archive = Archive(questions, lists, read_counts(files, group))
        tables = [storage.read_table(files.step("ranks", block_name(number)), RANKS) for number in group]
        ranks, rarest = (pa.concat_tables(tables)[name].to_numpy() for name in RANKS.names)
        chosen = cheapest(Sampled(ranks, rarest), request.settings.ivf_recall, archive)
        probes = Probes(probes=chosen.probes, lists=lists, words=chosen.most, share=chosen.share)
        storage.write_json(output, dict(probes))
        return {}

    return skip_or(output, make)


def _recall_of_group(files: NeighbourFiles, request: SearchRequest, plan: Plan, group: list[int]) -> Counts:
    """Memory: the lists of one span or block."""
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
    if goes_exactly(files, group):
        return [block_name(number) for number in group]
    return [span_name(group, place) for place in range(len(read_spans(files, group)))]
