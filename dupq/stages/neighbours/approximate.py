"""embeddings → neighbours, approximately: a question is compared only with those in its nearest inverted lists (IVF).

    sample      a task a block    some of its questions: for the centroids, and for the recall
    centroids   a task a group    one per list, for blocks that are compared with each other: all, or those of a site
    probes      see recall.py     how many lists a question probes
    lists       a task a block    the lists that its questions are in and probe, and the members of each list
    tiles       a task a tile     a block's questions against some consecutive lists
    nearest     a task a block    its tiles merged, in the tables that the exact search writes
    recall      see recall.py

Scores are exact, and so is the order of the neighbours found; only lists that a question does not probe are left out. A
question's neighbours are what its own search found.
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
from dupq.neighbours.nearest import empty_nearest
from dupq.runs.embeddings import embeddings_of, embeddings_table, write_embeddings
from dupq.runs.layout import NeighbourFiles
from dupq.shards import Shard
from dupq.stages.neighbours.blocks import block_name, forget_blocks, read_block, ready_block
from dupq.stages.neighbours.centres import group_name, make_centroids, read_centroids, share_for_centroids
from dupq.stages.neighbours.exact import device_of_tile, finish, gpus_of_tiles, planned
from dupq.stages.neighbours.plan import Plan
from dupq.stages.neighbours.recall import choose_probes, is_sampled, measure_recall, probes_of
from dupq.stages.neighbours.tables import SearchRequest, nearest_table, read_nearest, write_lists
from dupq.tables import NEAREST
from dupq.text.keys import Sites

if TYPE_CHECKING:
    from dupq.neighbours.listed import Listed

_members: dict[tuple[str, str], "Listed"] = {}  # those that this worker used last, by run and name


def find_approximately(files: NeighbourFiles, shards: Sequence[Shard], request: SearchRequest) -> Report:
    """Write the neighbours of every embedded question among the lists that it probes, and measure the recall."""
    plan = planned(files, shards, request)
    of_blocks = [(files, request, plan, group, number) for group in plan.groups for number in group]
    report = run_tasks("sample", _sample, of_blocks)
    report.add(run_tasks("centroids", make_centroids, [(files, request, plan, group) for group in plan.groups]))
    choose_probes(files, request, plan)
    report.add(run_tasks("lists", _lists, of_blocks))
    tiles = [
        (files, request, plan, group, number, place)
        for group in plan.groups
        for place in range(len(_spans(files, group)))
        for number in group
    ]
    report.add(run_tasks("tiles", _search_tile, tiles, gpus=gpus_of_tiles(request)))
    written = run_tasks("neighbours", _nearest_of_block, of_blocks)
    report.add(measure_recall(files, request, plan))
    finish(report, written, files, request)
    return report


def _sample(files: NeighbourFiles, request: SearchRequest, plan: Plan, group: list[int], number: int) -> Counts:
    """Two samples by a hash of the key: its lowest values for the centroids, its highest for the recall."""
    name = block_name(number)
    output = files.step("measured", name)

    def make() -> Counts:
        from dupq.neighbours.ivf import unit_hashes

        block = _without_empty(read_block(files, request, plan, name))
        is_low = unit_hashes(block.keys) < share_for_centroids(plan, request, group)
        write_embeddings(files.step("sample", name), block.take(is_low), Sites(request.sites))
        write_embeddings(output, block.take(is_sampled(block, request, plan)), Sites(request.sites))
        return {}

    return skip_or(output, make)


def _without_empty(block: Embeddings) -> Embeddings:
    return block.take(~block.is_empty)


def _spans(files: NeighbourFiles, group: list[int]) -> list[tuple[int, int]]:
    """Ranges of a group's lists, as many as it has blocks, so that on average each has as many questions as a block."""
    lists = storage.read_counts(files.step("centres", group_name(group)))["rows_out"]
    parts = min(lists, len(group))
    return [(lists * part // parts, lists * (part + 1) // parts) for part in range(parts)]


def _lists(files: NeighbourFiles, request: SearchRequest, plan: Plan, group: list[int], number: int) -> Counts:
    name = block_name(number)
    output = _members_of(files, number)

    def make() -> Counts:
        from dupq.neighbours.exact import rule_of, side_of
        from dupq.neighbours.ivf import nearest_lists

        block = _without_empty(read_block(files, request, plan, name))
        side = side_of(block, rule_of(request.measure))
        lists = nearest_lists(side, read_centroids(files, group), probes_of(files, group))
        schema = tables.listed(lists.shape[1])
        columns = [pa.array(block.keys), _list_column(lists)]
        storage.write_table(files.step("lists", name), pa.table(columns, schema=schema), schema)
        whole = tables.embeddings(block.vectors.shape[1], block.words is not None).append(schema.field("lists"))
        table = embeddings_table(block, Sites(request.sites)).append_column(schema.field("lists"), _list_column(lists))
        batches = _batches(table.cast(whole), lists[:, 0], _spans(files, group))
        exchange.write_parts(output, batches, whole)
        return {}

    return skip_or(output, make)


def _members_of(files: NeighbourFiles, number: int) -> str:
    return storage.join(files.tiles, "members", f"{block_name(number)}.arrow")


def _list_column(lists: np.ndarray) -> pa.Array:
    return pa.FixedSizeListArray.from_arrays(pa.array(lists.ravel()), lists.shape[1])


def _batches(table: pa.Table, of_rows: np.ndarray, spans: Sequence[tuple[int, int]]) -> Iterator[pa.RecordBatch]:
    """The rows in each span of lists; `of_rows` is the list that each row is in."""
    for first, stop in spans:
        part = table.take(np.flatnonzero((of_rows >= first) & (of_rows < stop)))
        yield pa.record_batch([column.combine_chunks() for column in part.columns], schema=table.schema)


def _lists_in(table: pa.Table) -> np.ndarray:
    column = table["lists"].combine_chunks()
    return column.flatten().to_numpy().reshape(len(table), column.type.list_size)


def _ready_members(files: NeighbourFiles, request: SearchRequest, group: list[int], place: int) -> "Listed":
    """The members (listed.Listed) of a span of a group's lists. Those used last are kept."""
    from dupq.neighbours.listed import Listed
    from dupq.neighbours.tiles import block

    key = files.run, _span_name(group, place)
    if key not in _members:
        _members.clear()
        table = pa.Table.from_batches(exchange.read_part([_members_of(files, number) for number in group], place))
        found = embeddings_of(table, Sites(request.sites), _members_of(files, group[0]))
        _members[key] = Listed(block(found, request.measure), _lists_in(table)[np.argsort(found.keys)])
    return _members[key]


def _span_name(group: list[int], place: int) -> str:
    return f"{group_name(group)}-{place:05d}"


def _search_tile(
    files: NeighbourFiles, request: SearchRequest, plan: Plan, group: list[int], number: int, place: int
) -> Counts:
    """Memory: a block, the members of a span of lists, and the search of one list (tiles.search_tile)."""
    name, span = block_name(number), _span_name(group, place)
    output = files.tile(name, span, "left")

    def make() -> Counts:
        import torch

        from dupq.neighbours.listed import Listed, search_lists
        from dupq.neighbours.tiles import Search

        torch.set_num_threads(1)
        search = Search(request.measure, request.settings.k, device=device_of_tile())
        listed = storage.read_table(files.step("lists", name))
        queries = Listed(ready_block(files, request, plan, name), _lists_in(listed))
        members = _ready_members(files, request, group, place)
        rows, nearest = search_lists(queries, members, _spans(files, group)[place], search)
        storage.write_table(output, nearest_table(listed["key"].to_numpy()[rows], nearest), NEAREST)
        return {}

    return skip_or(output, make)


def _nearest_of_block(
    files: NeighbourFiles, request: SearchRequest, plan: Plan, group: list[int], number: int
) -> Counts:
    name = block_name(number)
    spans = [_span_name(group, place) for place in range(len(_spans(files, group)))]

    def make() -> Counts:
        from dupq.neighbours.nearest import merge_rows

        forget_blocks()
        _members.clear()
        keys = storage.read_table(files.step("lists", name), columns=["key"])["key"].to_numpy()
        nearest = empty_nearest(len(keys), request.settings.k)
        for span in spans:
            some, more = read_nearest(files.tile(name, span, "left"), request.settings.k)
            merge_rows(nearest, np.searchsorted(keys, some), more)
        return write_lists(files, request, name, keys, nearest)

    return skip_or(files.list_of(name), make)
