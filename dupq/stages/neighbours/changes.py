"""Which questions have changed since an earlier run, by the fingerprints of their embeddings."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from dupq import storage
from dupq.execution.units import Counts, skip_or
from dupq.neighbours.fingerprints import EMPTY
from dupq.runs.layout import NeighbourFiles
from dupq.stages.neighbours.plan import Plan, Span, read_plan
from dupq.stages.neighbours.tables import SearchRequest, read_answered, read_nearest
from dupq.tables import CHANGES
from dupq.text.keys import ID_BITS, MAXIMUM_ID, Sites, places_among

_COLUMNS = ["site", "question_id", "fingerprint"]


def find_changes(files: NeighbourFiles, previous: NeighbourFiles, request: SearchRequest, plan: Plan) -> Counts:
    """Write which questions are searched again and which are gone; see increment.py.

    Memory: 40 bytes a question of either run, and the lists of one block of the earlier one.
    """
    output = files.step("changes", "changes")

    def make() -> Counts:
        now = keys_of(files, [span for spans in plan.blocks for span in spans], request.sites)
        then = _keys_then(previous, request)
        same = np.intersect1d(now[0], then[0], assume_unique=True)
        same = same[now[1][np.searchsorted(now[0], same)] == then[1][np.searchsorted(then[0], same)]]
        changed = np.setdiff1d(now[0], same, assume_unique=True)
        gone = np.setdiff1d(then[0], same, assume_unique=True)
        lists = [file.uri for file in storage.list_files(previous.nearest, ".parquet")]
        unlisted = same[~_are_listed(same, previous, request, lists)]
        lost = [_affected(previous, request, uri, gone) for uri in (lists if len(gone) else [])]
        affected = np.intersect1d(np.concatenate([unlisted, *lost]), same)
        keys = np.unique(np.concatenate([changed, gone, affected]))
        is_asked = np.isin(keys, changed) | np.isin(keys, affected)
        is_gone = np.isin(keys, gone) | np.isin(keys, affected)
        counts = {
            "questions new or changed": len(changed),
            "questions gone or changed": len(gone),
            "questions without a list in the earlier run": len(unlisted),
            "questions searched": int(is_asked.sum()),
        }
        table = pa.table([pa.array(column) for column in (keys, is_asked, is_gone)], schema=CHANGES)
        storage.write_table(output, table, CHANGES)
        return counts

    return skip_or(output, make)


def keys_of(files: NeighbourFiles, spans: Sequence[Span], sites: list[str]) -> tuple[np.ndarray, np.ndarray]:
    """The keys of embedded questions, ascending, and their fingerprints; without empty ones."""
    keys, hashes = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    for span in spans:
        uri = storage.join(files.embeddings, span.file)
        table = storage.read_table(uri, columns=_COLUMNS).slice(span.start, span.stop - span.start)
        keys.append(Sites(sites).pack_columns(table["site"], table["question_id"], uri))
        hashes.append(table["fingerprint"].to_numpy())
    found, marks = np.concatenate(keys), np.concatenate(hashes)
    inside = np.flatnonzero(marks != EMPTY)
    inside = inside[np.argsort(found[inside], kind="stable")]
    return found[inside], marks[inside]


def _keys_then(previous: NeighbourFiles, request: SearchRequest) -> tuple[np.ndarray, np.ndarray]:
    """The questions that the earlier run searched, as keys of this run (see `to_sites`), ascending."""
    sites = read_answered(previous.request)["sites_of_keys"]
    plan = read_plan(previous.plan, request.settings)
    keys, hashes = keys_of(previous, [span for spans in plan.blocks for span in spans], sites)
    keys = to_sites(keys, sites, request.sites)
    order = np.argsort(keys, kind="stable")
    return keys[order], hashes[order]


def _are_listed(same: np.ndarray, previous: NeighbourFiles, request: SearchRequest, lists: Sequence[str]) -> np.ndarray:
    """Which of the questions `same` (keys of this run, ascending) have a list in one of the files `lists`."""
    sites, are_listed = read_answered(previous.request)["sites_of_keys"], np.zeros(len(same), bool)
    for uri in lists:
        keys = to_sites(storage.read_table(uri, columns=["key"])["key"].to_numpy(), sites, request.sites)
        places, are_same = places_among(same, keys)
        are_listed[places[are_same]] = True
    return are_listed


def _affected(previous: NeighbourFiles, request: SearchRequest, uri: str, gone: np.ndarray) -> np.ndarray:
    """The questions of a file of lists that had one of `gone` among their neighbours."""
    sites = read_answered(previous.request)["sites_of_keys"]
    keys, nearest = read_nearest(uri, request.settings.k)
    others = to_sites(nearest.others, sites, request.sites)
    is_lost = (nearest.others >= 0) & ((others < 0) | np.isin(others, gone))
    found = to_sites(keys, sites, request.sites)[is_lost.any(axis=1)]
    return found[found >= 0]


def to_sites(keys: np.ndarray, then: Sequence[str], now: Sequence[str]) -> np.ndarray:
    """Keys of a run with the sorted sites `then` as keys of one with `now`; negative for -1 and where a site is gone.

    Different keys stay different: questions of sites that are gone get negative keys of their own.
    """
    if list(then) == list(now):
        return keys.copy()
    numbers = np.array([now.index(site) if site in now else -1 - place for place, site in enumerate(then)], np.int64)
    moved = (numbers[np.maximum(keys, 0) >> ID_BITS] << ID_BITS) | (keys & MAXIMUM_ID)
    return np.where(keys < 0, keys, moved)
