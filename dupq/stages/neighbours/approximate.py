"""embeddings → neighbours, approximately: pairs of which one question is in a list that the other probes (IVF).

    sample      a task a block    some of its questions: for the centroids, and for the recall; how many have each word
    words       a task a group    how many of its questions have each word
    centroids   a task a group    one per list, for blocks that are compared with each other: all, or those of a site
    probes      see recall.py     how many lists a question probes, and which words' questions it is compared with
    lists       a task a block    the lists that its questions are in and probe; the questions of each span of lists
    tiles       a task a tile     two spans against each other, as the exact search has two blocks; see waves.py
    recall      see recall.py

Scores are exact, and so is the order of the neighbours found: only pairs of which neither probes the other's list, and
which share no rare word, are left out. Where the recall takes nearly as much work as the exact search of the group's
blocks, that takes the place of the last steps: it is as fast, and lists of probes grow with their number.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from dupq import storage, tables
from dupq.execution import exchange
from dupq.execution.tasks import Report, run_tasks
from dupq.execution.units import Counts, skip_or
from dupq.neighbours.embeddings import Embeddings
from dupq.runs.embeddings import embeddings_of, embeddings_table, write_embeddings
from dupq.runs.layout import NeighbourFiles
from dupq.shards import Shard
from dupq.stages.neighbours.blocks import block_name, kept, known_scores, read_block
from dupq.stages.neighbours.centres import (
    make_centroids,
    read_centroids,
    read_spans,
    say_if_more_lists,
    share_for_centroids,
    span_name,
)
from dupq.stages.neighbours.exact import finish, planned, search_blocks
from dupq.stages.neighbours.plan import Plan
from dupq.stages.neighbours.probes import goes_exactly, read_probes
from dupq.stages.neighbours.rare_words import add_counts, read_counts, write_counts
from dupq.stages.neighbours.recall import choose_probes, is_sampled, measure_recall
from dupq.stages.neighbours.tables import SearchRequest, write_tile
from dupq.stages.neighbours.waves import Tiles, search_in_waves
from dupq.text.keys import Sites

if TYPE_CHECKING:
    from dupq.neighbours.listed import Listed

EXACTLY = "questions searched exactly, as too many lists would be probed"


def find_approximately(files: NeighbourFiles, shards: Sequence[Shard], request: SearchRequest) -> Report:
    """Write the neighbours of every embedded question among those that it is compared with, and measure the recall."""
    plan = planned(files, shards, request)
    say_if_more_lists(plan)
    of_blocks = [(files, request, plan, group, number) for group in plan.groups for number in group]
    report = run_tasks("sample", _sample, of_blocks)
    report.add(run_tasks("words", add_counts, [(files, request, plan, group) for group in plan.groups]))
    report.add(run_tasks("centroids", make_centroids, [(files, request, plan, group) for group in plan.groups]))
    report.add(choose_probes(files, request, plan))
    exactly = [group for group in plan.groups if goes_exactly(files, group)]
    tiles, written = _search_lists(files, request, plan, [group for group in plan.groups if group not in exactly])
    report.add(tiles)
    if exactly:
        numbers = [number for group in exactly for number in group]
        tiles, lists = search_blocks(files, request, plan, numbers)
        report.add(tiles)
        written.add(lists)
        written.rows_in, written.rows_out = written.rows_in + lists.rows_in, written.rows_out + lists.rows_out
        report.counts[EXACTLY] = sum(map(plan.rows, numbers))
    report.add(measure_recall(files, request, plan))
    finish(report, written, files, request)
    return report


def _search_lists(
    files: NeighbourFiles, request: SearchRequest, plan: Plan, groups: Sequence[list[int]]
) -> tuple[Report, Report]:
    """Write the neighbours of some groups' questions: the report of lists and tiles, and that of what is written."""
    report = run_tasks("lists", _lists, [(files, request, plan, group, number) for group in groups for number in group])
    spans = {
        span_name(group, place): (group, place) for group in groups for place in range(len(read_spans(files, group)))
    }

    def search(tiles: Tiles, wave: int) -> Report:
        calls = [(files, request, spans[left][0], spans[left][1], spans[right][1], wave) for left, right in tiles]
        return run_tasks("tiles", _search_tile, calls)

    names = [[name for name, (of, _) in spans.items() if of is group] for group in groups]
    tiles, lists = search_in_waves(files, request, names, search)
    report.add(tiles)
    return report, lists


def _sample(files: NeighbourFiles, request: SearchRequest, plan: Plan, group: list[int], number: int) -> Counts:
    """Two samples by a hash of the key: its lowest values for the centroids, its highest for the recall."""
    name = block_name(number)
    output = files.step("measured", name)

    def make() -> Counts:
        from dupq.neighbours.ivf import unit_hashes

        block = _without_empty(read_block(files, request, plan, name))
        write_counts(files, request, number, block)
        is_low = unit_hashes(block.keys) < share_for_centroids(plan, group)
        write_embeddings(files.step("sample", name), block.take(is_low), Sites(request.sites))
        write_embeddings(output, block.take(is_sampled(block, plan)), Sites(request.sites))
        return {}

    return skip_or(output, make)


def _without_empty(block: Embeddings) -> Embeddings:
    return block.take(~block.is_empty)


def _lists(files: NeighbourFiles, request: SearchRequest, plan: Plan, group: list[int], number: int) -> Counts:
    """Memory: a block as it is read and as it is searched, and 8 bytes a question for each list that it probes."""
    output = _members_of(files, number)

    def make() -> Counts:
        from dupq.neighbours.exact import rule_of, side_of
        from dupq.neighbours.ivf import nearest_lists

        block = _without_empty(read_block(files, request, plan, block_name(number)))
        side = side_of(block, rule_of(request.measure))
        lists = nearest_lists(side, read_centroids(files, group), read_probes(files, group)["probes"])
        probed = pa.FixedSizeListArray.from_arrays(pa.array(lists.ravel()), lists.shape[1])
        schema = tables.listed(block.vectors.shape[1], block.words is not None, lists.shape[1])
        table = embeddings_table(block, Sites(request.sites)).append_column(schema.field("lists"), probed).cast(schema)
        exchange.write_parts(output, _batches(table, lists[:, 0], read_spans(files, group)), schema)
        return {}

    return skip_or(output, make)


def _members_of(files: NeighbourFiles, number: int) -> str:
    return storage.join(files.tiles, "members", f"{block_name(number)}.arrow")


def _batches(table: pa.Table, of_rows: np.ndarray, spans: Sequence[tuple[int, int]]) -> Iterator[pa.RecordBatch]:
    """The rows in each span of lists; `of_rows` is the list that each row is in."""
    for first, stop in spans:
        part = table.take(np.flatnonzero((of_rows >= first) & (of_rows < stop)))
        yield pa.record_batch([column.combine_chunks() for column in part.columns], schema=table.schema)


def _ready_span(files: NeighbourFiles, request: SearchRequest, group: list[int], place: int) -> "Listed":
    """The questions (listed.Listed) of a span of a group's lists; see `kept`."""
    return kept(files, span_name(group, place), lambda: _read_span(files, request, group, place))


def _read_span(files: NeighbourFiles, request: SearchRequest, group: list[int], place: int) -> "Listed":
    from dupq.neighbours.exact import rule_of
    from dupq.neighbours.listed import Listed
    from dupq.neighbours.tiles import block
    from dupq.neighbours.word_lists import word_lists

    table = pa.Table.from_batches(exchange.read_part([_members_of(files, number) for number in group], place))
    found = embeddings_of(table, Sites(request.sites), _members_of(files, group[0]))
    column = table["lists"].combine_chunks()
    lists = column.flatten().to_numpy().reshape(len(table), column.type.list_size).copy()
    del table, column
    pa.default_memory_pool().release_unused()  # see blocks.ready_block
    ready, most, counts = block(found, request.measure), read_probes(files, group)["words"], read_counts(files, group)
    words = word_lists(ready.side, rule_of(request.measure), counts, most) if most and len(counts) else None
    return Listed(ready, lists[np.argsort(found.keys)], *read_spans(files, group)[place], words)


def _search_tile(
    files: NeighbourFiles, request: SearchRequest, group: list[int], left: int, right: int, wave: int
) -> Counts:
    """Memory: two spans of lists, and their tile (tiles.search_tile)."""
    names = span_name(group, left), span_name(group, right)
    output = files.tile(*names, "left")

    def make() -> Counts:
        import torch

        from dupq.neighbours.listed import search_listed
        from dupq.neighbours.tiles import Search

        torch.set_num_threads(1)
        one, other = (_ready_span(files, request, group, place) for place in (left, right))
        scores = [known_scores(files, request, name, wave) if left != right else None for name in names]
        search = Search(request.measure, request.settings.k)
        of_left, of_right = search_listed(one, other, search, (scores[0], scores[1]))
        write_tile(files, names, (one.block.keys, of_left), (other.block.keys, of_right))
        return {}

    return skip_or(output, make)
