"""embeddings → neighbours: each question's k nearest in the whole archive, one task a shard of queries.

A task holds its queries, and one shard of targets after the other. Results are spread over parts by the pair's
left key, so that both directions of a pair meet in one part.
"""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from dupq import storage
from dupq.config import NeighbourSettings
from dupq.encoders.measure import Measure
from dupq.neighbours.embeddings import Embeddings, Neighbours, blocks
from dupq.stages.embeddings import read_embeddings
from dupq.stages.shards import partition_of
from dupq.stages.tasks import Counts, Report, run_tasks
from dupq.tables import NEIGHBOURS
from dupq.text.keys import Sites


def find_neighbours(
    embeddings: str,
    sites: Sites,
    settings: NeighbourSettings,
    measure: Measure,
    parts_and_threshold: tuple[int, float],
    output: str,
) -> Report:
    """Write the directed neighbours of every embedded question to `output`/part-SHARD/part-PART.parquet.

    `measure` is the encoder's; the threshold is for counting only.
    """
    files = storage.list_files(embeddings, ".parquet")
    calls = [
        (
            embeddings,
            file.relative,
            sites.names,
            settings,
            measure,
            parts_and_threshold,
            storage.join(output, file.relative),
        )
        for file in files
    ]
    return run_tasks("neighbours", _neighbours_of_shard, calls)


def _neighbours_of_shard(
    embeddings: str,
    relative: str,
    sites: list[str],
    settings: NeighbourSettings,
    measure: Measure,
    parts_and_threshold: tuple[int, float],
    output: str,
) -> Counts:
    import torch

    from dupq.neighbours.search import top_k

    parts, threshold = parts_and_threshold
    targets = [storage.join(output.removesuffix(".parquet"), f"part-{part:05d}.parquet") for part in range(parts)]
    if all(storage.exists(target) for target in targets):
        counts = [storage.read_counts(target) for target in targets]
        return {name: sum(count[name] for count in counts) for name in counts[0]}
    torch.set_num_threads(1)
    queries = read_embeddings(storage.join(embeddings, relative), Sites(sites))
    found = []
    for piece in blocks(queries, settings.block_rows):
        found.append(top_k(piece, _all_targets(embeddings, sites, settings.block_rows), settings.k, measure))
    neighbours = Neighbours(*(np.concatenate(columns) for columns in zip(*found, strict=True)))
    return _write(neighbours, queries, settings.k, threshold, targets)


def _all_targets(embeddings: str, sites: list[str], rows: int) -> Iterator[Embeddings]:
    for file in storage.list_files(embeddings, ".parquet"):
        yield from blocks(read_embeddings(file.uri, Sites(sites)), rows)


def _write(neighbours: Neighbours, queries: Embeddings, k: int, threshold: float, targets: list[str]) -> Counts:
    part = partition_of(np.minimum(neighbours.queries, neighbours.neighbours), len(targets))
    full = (neighbours.ranks == k) & (neighbours.similarities >= np.float32(threshold))
    total: Counts = {
        "rows_in": len(queries.keys),
        "cap: questions with neighbours.k or more over the threshold": int(full.sum()),
    }
    for index, target in enumerate(targets):
        mine = part == index
        table = pa.table([pa.array(column[mine]) for column in neighbours], schema=NEIGHBOURS)
        # counted once, in the first part
        counts = total if index == 0 else dict.fromkeys(total, 0)
        storage.write_table(target, table, NEIGHBOURS, counts)
    return {**total, "rows_out": len(neighbours.queries)}
