"""An exact search of the whole archive for a sample of its questions.

    queries   a task a shard    the embeddings of the sample
    found     a task a block    their nearest among its questions
    lists     one task          their nearest of all

Memory: the sample's embeddings and lists, and one block.
"""

import numpy as np
import pyarrow as pa

from dupq import storage
from dupq.execution.tasks import Report, run_tasks
from dupq.execution.units import Counts, skip_or
from dupq.neighbours.embeddings import gathered
from dupq.neighbours.nearest import empty_nearest, merge_rows
from dupq.runs.embeddings import embeddings_of, read_embeddings, write_embeddings
from dupq.runs.layout import SampleSearchFiles
from dupq.stages.neighbours.blocks import block_name, read_block
from dupq.stages.neighbours.plan import Plan
from dupq.stages.neighbours.tables import SearchRequest, nearest_table, read_nearest
from dupq.tables import KEYS, NEAREST
from dupq.text.keys import ID_BITS, Sites


def search_sample(files: SampleSearchFiles, request: SearchRequest, plan: Plan) -> Report:
    """Write the k nearest of the questions in `files.wanted`."""
    shards = sorted({span.file for spans in plan.blocks for span in spans})
    run_tasks("queries", _queries_of_shard, [(files, request, shard) for shard in shards])
    numbers = range(len(plan.blocks))
    report = run_tasks("calibrate", _search_block, [(files, request, plan, shards, number) for number in numbers])
    report.add(run_tasks("lists", _lists, [(files, request, len(plan.blocks))]))
    return report


def write_keys(uri: str, keys: np.ndarray) -> None:
    """A table of keys, sorted."""
    storage.write_table(uri, pa.table([pa.array(np.unique(keys))], schema=KEYS), KEYS)


def read_keys(uri: str) -> np.ndarray:
    """The keys that `write_keys` wrote."""
    return storage.read_table(uri, KEYS)["key"].to_numpy()


def _queries_of_shard(files: SampleSearchFiles, request: SearchRequest, shard: str) -> Counts:
    output = files.step("queries", shard)

    def make() -> Counts:
        uri = storage.join(files.neighbours.embeddings, shard)
        table = storage.read_table(uri)
        keys = Sites(request.sites).pack_columns(table["site"], table["question_id"], uri)
        chosen = table.filter(pa.array(np.isin(keys, read_keys(files.wanted))))
        write_embeddings(output, embeddings_of(chosen, Sites(request.sites), uri), Sites(request.sites))
        return {}

    return skip_or(output, make)


def _search_block(
    files: SampleSearchFiles, request: SearchRequest, plan: Plan, shards: list[str], number: int
) -> Counts:
    output = files.step("found", block_name(number))

    def make() -> Counts:
        import torch

        from dupq.neighbours.tiles import Search, block, search_tile

        torch.set_num_threads(1)
        wanted = gathered([read_embeddings(files.step("queries", shard), Sites(request.sites)) for shard in shards])
        if plan.scope == "site":
            wanted = wanted.take(wanted.keys >> ID_BITS == request.sites.index(plan.sites[number]))
        queries = block(wanted, request.measure)
        others = block(
            read_block(files.neighbours, request, plan, block_name(number)), request.measure
        )  # read once: not kept
        found = search_tile(queries, others, Search(request.measure, request.settings.k), both=False)[0]
        storage.write_table(output, nearest_table(queries.keys, found), NEAREST)
        return {"rows_in": len(queries.keys)}

    return skip_or(output, make)


def _lists(files: SampleSearchFiles, request: SearchRequest, blocks: int) -> Counts:
    def make() -> Counts:
        k = request.settings.k
        found = [read_nearest(files.step("found", block_name(number)), k) for number in range(blocks)]
        keys = np.unique(np.concatenate([np.zeros(0, np.int64), *(some for some, _ in found)]))
        lists = empty_nearest(len(keys), k)
        for some, nearest in found:
            merge_rows(lists, np.searchsorted(keys, some), nearest)
        storage.write_table(files.lists, nearest_table(keys, lists), NEAREST)
        return {"questions searched first": len(keys)}

    return skip_or(files.lists, make)
