"""Writing and reading the tables of the search: lists of neighbours, and pairs as rows for the pairs stage."""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyarrow as pa
from typing_extensions import TypedDict

from dupq import storage
from dupq.clusters.scoring import ranked
from dupq.execution import exchange
from dupq.execution.gpus import NO_GPUS, Gpus
from dupq.execution.units import Counts
from dupq.job.table import Read, Spread
from dupq.json_files import read_as
from dupq.neighbours.measure import Measure
from dupq.neighbours.nearest import Nearest, empty_nearest, merge_rows
from dupq.runs import versions
from dupq.runs.layout import NeighbourFiles
from dupq.settings.dedup import NeighbourSettings
from dupq.shards import partition_of
from dupq.side_by_side import side_by_side
from dupq.tables import NEAREST, NEIGHBOURS


@dataclass(frozen=True)
class SearchRequest:
    """What to search for: by which measure, and into how many parts the rows for the pairs stage are spread."""

    sites: list[str]
    settings: NeighbourSettings
    measure: Measure
    parts: int
    gpus: Gpus = NO_GPUS  # that tiles may take

    def lasting(self) -> dict[str, object]:
        """What must be equal in an earlier run for its neighbours to be valid."""
        settings = self.settings
        return {
            "measure": self.measure.to_dict(),
            "method": settings.method,
            "k": settings.k,
            "scope": settings.scope,
            "sites": list(settings.sites),
            "algorithm": versions.DEDUP["neighbours"],
        }


class Answered(TypedDict):
    """The search request that a run has answered: `SearchRequest.lasting`, and what a later run needs to know."""

    sites_of_keys: list[str]


def read_answered(uri: str) -> Answered:
    """What was asked of a finished search, a JSON file; raises DupqError if it is damaged."""
    return read_as(uri, Answered, "its run is damaged")


def nearest_table(keys: np.ndarray, nearest: Nearest) -> pa.Table:
    """Lists of neighbours as rows."""
    count, k = nearest.others.shape
    inside = nearest.others >= 0
    if inside.all():  # as a rule, and ten times as fast
        offsets, columns = np.arange(count + 1) * k, [column.ravel() for column in nearest[:2]]
    else:
        offsets = np.concatenate([[0], np.cumsum(inside.sum(axis=1))])
        columns = [column[inside] for column in nearest[:2]]
    lists = [pa.ListArray.from_arrays(pa.array(offsets.astype(np.int32)), pa.array(column)) for column in columns]
    return pa.table([pa.array(keys), *lists], schema=NEAREST)


def lists_after(files: NeighbourFiles, name: str, wave: int) -> str:
    """The lists of a block's questions after the first `wave` waves; after none, what they find in their block."""
    return files.step(f"after-{wave}", name) if wave else files.tile(name, name, "left")


def found_table(keys: np.ndarray, nearest: Nearest) -> pa.Table:
    """The same without questions that have found none; k is 1 at least."""
    rows = nearest.others[:, 0] >= 0
    return nearest_table(keys[rows], Nearest(*(column[rows] for column in nearest)))


def write_tile(
    files: NeighbourFiles,
    names: tuple[str, str],
    of_left: tuple[np.ndarray, Nearest],
    of_right: tuple[np.ndarray, Nearest],
) -> None:
    """Write what a tile of two blocks has found: of a block with itself the lists of all its questions."""
    output = files.tile(*names, "left")
    if names[0] == names[1]:
        storage.write_table(output, nearest_table(*of_left), NEAREST)
        return
    storage.write_table(files.tile(*names, "right"), found_table(*of_right), NEAREST)
    storage.write_table(output, found_table(*of_left), NEAREST)  # last: it marks the tile


def merge_found(nearest: Nearest, keys: np.ndarray, uris: Iterable[str]) -> None:
    """Merge the lists of files, each of some of the questions `keys` (ascending), into theirs. Memory: all lists."""
    for some, more in side_by_side(lambda uri: read_nearest(uri, nearest.others.shape[1]), uris):
        merge_rows(nearest, np.searchsorted(keys, some), more)


def read_nearest(uri: str, k: int) -> tuple[np.ndarray, Nearest]:
    """The keys and lists of a file."""
    return nearest_in(storage.read_table(uri, NEAREST), k)


def nearest_in(table: pa.Table, k: int) -> tuple[np.ndarray, Nearest]:
    """Return the keys and lists in rows of NEAREST."""
    table = table.combine_chunks()
    nearest = empty_nearest(len(table), k)
    lists = table["neighbours"].combine_chunks() if len(table) else None
    if lists is not None:
        inside = np.arange(k) < lists.value_lengths().to_numpy()[:, None]
        nearest.others[inside] = lists.flatten().to_numpy()
        nearest.scores[inside] = table["scores"].combine_chunks().flatten().to_numpy()
    return table["key"].to_numpy(), nearest


def write_lists(files: NeighbourFiles, request: SearchRequest, name: str, keys: np.ndarray, nearest: Nearest) -> Counts:
    """Write some questions' lists, also as rows for the pairs stage. The lists are written last: they mark the rest."""
    write_directed(files, request, name, ranked(keys, nearest, request.measure))
    storage.write_table(files.list_of(name), nearest_table(keys, nearest), NEAREST)
    return {"rows_in": len(keys), "rows_out": len(keys)}


def write_directed(files: NeighbourFiles, request: SearchRequest, name: str, directed: pa.Table) -> None:
    """Write rows for the pairs stage: a file, of which each part reads its own."""
    directed = directed.combine_chunks()
    parts = partition_of(np.minimum(directed["query"].to_numpy(), directed["neighbour"].to_numpy()), request.parts)
    order = np.argsort(parts, kind="stable")
    directed, bounds = directed.take(pa.array(order)), np.searchsorted(parts[order], np.arange(request.parts + 1))
    batches = (exchange.one_batch(directed.slice(start, stop - start)) for start, stop in pairwise(bounds.tolist()))
    exchange.write_parts(storage.join(files.directed, f"{name}.arrow"), batches, NEIGHBOURS)


def unranked(similar: pa.Table) -> pa.Table:
    """Pairs that are in no list as rows for the pairs stage."""
    nothing = pa.array(np.zeros(len(similar), np.float32))
    return pa.table([*similar.columns, pa.nulls(len(similar), pa.int32()), nothing], schema=NEIGHBOURS)


def directed_in(folder: str, parts: int) -> Spread:
    """Return the rows of every block (NEIGHBOURS), in so many partitions of the pair's left key."""
    return Spread(tuple(file.uri for file in storage.list_files(folder, ".arrow")), NEIGHBOURS, parts)


def lists_in(folder: str) -> tuple[Read, Read]:
    """Return the lists of all questions (NEAREST), a file per partition, and their keys alone."""
    files = tuple(file.uri for file in storage.list_files(folder, ".parquet"))
    return Read(_lists_of, (files, None), len(files)), Read(_lists_of, (files, ["key"]), len(files))


def _lists_of(files: tuple[str, ...], columns: list[str] | None, part: int) -> pa.Table:
    return storage.read_table(files[part], NEAREST, columns)
