"""What differs between the questions of a run and those of an earlier one, by the fingerprints of their embeddings."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from dupq import storage
from dupq.stages.neighbour_blocks import block_name, read_block
from dupq.stages.neighbour_plan import Plan
from dupq.stages.neighbour_tables import Asked, NeighbourFiles, read_nearest
from dupq.stages.tasks import Counts, skip_or
from dupq.tables import CHANGES, FINGERPRINTS
from dupq.text.keys import ID_BITS, MAXIMUM_ID


def hashes_of_block(files: NeighbourFiles, asked: Asked, plan: Plan, number: int) -> Counts:
    """Write the fingerprints of a block's embeddings."""
    output = files.step("hashes", block_name(number))

    def make() -> Counts:
        from dupq.neighbours.fingerprints import fingerprints
        from dupq.neighbours.tiles import block

        made = block(read_block(files, asked, plan, block_name(number)), asked.measure)
        table = pa.table([pa.array(made.keys), pa.array(fingerprints(made.side))], schema=FINGERPRINTS)
        storage.write_table(output, table, FINGERPRINTS)
        return {"rows_out": len(table)}

    return skip_or(output, make)


def find_changes(files: NeighbourFiles, previous: NeighbourFiles, asked: Asked, plan: Plan) -> Counts:
    """Write which questions are asked anew and which are gone; see increment.py.

    Memory: 32 bytes a question, and the lists of one block of then.
    """
    output = files.step("changes", "changes")

    def make() -> Counts:
        now = keyed([files.step("hashes", block_name(number)) for number in range(len(plan.blocks))])
        lists = [file.uri for file in storage.list_files(previous.nearest, ".parquet")]
        then = keyed(lists, (storage.read_json(previous.asked)["sites_of_keys"], asked.sites))
        same = np.intersect1d(now[0], then[0], assume_unique=True)
        same = same[now[1][np.searchsorted(now[0], same)] == then[1][np.searchsorted(then[0], same)]]
        changed = np.setdiff1d(now[0], same, assume_unique=True)
        gone = np.setdiff1d(then[0], same, assume_unique=True)
        affected = np.concatenate([np.zeros(0, np.int64), *(_affected(previous, asked, uri, gone) for uri in lists)])
        affected = np.intersect1d(affected, same)
        keys = np.unique(np.concatenate([changed, gone, affected]))
        is_asked = np.isin(keys, changed) | np.isin(keys, affected)
        is_gone = np.isin(keys, gone) | np.isin(keys, affected)
        counts = {
            "questions new or changed": len(changed),
            "questions gone or changed": len(gone),
            "questions searched": int(is_asked.sum()),
        }
        table = pa.table([pa.array(column) for column in (keys, is_asked, is_gone)], schema=CHANGES)
        storage.write_table(output, table, CHANGES, counts)
        return counts

    return skip_or(output, make)


def keyed(uris: Sequence[str], sites: tuple[list[str], list[str]] = ([], [])) -> tuple[np.ndarray, np.ndarray]:
    """All keys of some tables, ascending, as those of other sites (see `to_sites`), and their fingerprints."""
    names = FINGERPRINTS.names
    tables = [FINGERPRINTS.empty_table(), *(storage.read_table(uri, columns=names).cast(FINGERPRINTS) for uri in uris)]
    keys, hashes = (column.to_numpy() for column in pa.concat_tables(tables).columns)
    keys = to_sites(keys, *sites)
    order = np.argsort(keys, kind="stable")
    return keys[order], hashes[order]


def _affected(previous: NeighbourFiles, asked: Asked, uri: str, gone: np.ndarray) -> np.ndarray:
    """The questions of a file of lists that had one of `gone` among their neighbours."""
    sites = storage.read_json(previous.asked)["sites_of_keys"]
    keys, nearest, _ = read_nearest(uri, asked.settings.k)
    others = to_sites(nearest.others, sites, asked.sites)
    is_lost = (nearest.others >= 0) & ((others < 0) | np.isin(others, gone))
    found = to_sites(keys, sites, asked.sites)[is_lost.any(axis=1)]
    return found[found >= 0]


def to_sites(keys: np.ndarray, then: Sequence[str], now: Sequence[str]) -> np.ndarray:
    """Keys of a run with the sorted sites `then` as keys of one with `now`; negative where a site is gone, or -1 was.

    Different keys stay different: what is gone gets keys of its own.
    """
    if list(then) == list(now):
        return keys.copy()
    numbers = np.array([now.index(site) if site in now else -1 - place for place, site in enumerate(then)], np.int64)
    moved = (numbers[np.maximum(keys, 0) >> ID_BITS] << ID_BITS) | (keys & MAXIMUM_ID)
    return np.where(keys < 0, keys, moved)
