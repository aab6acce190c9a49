"""Which questions have changed since an earlier run, by the fingerprints of their embeddings."""

from collections.abc import Sequence

import numpy as np

from dupq import storage
from dupq.execution.units import Counts, skip_or
from dupq.neighbours.fingerprints import EMPTY
from dupq.runs.keys import write_keys
from dupq.runs.layout import NeighbourFiles
from dupq.stages.neighbours.plan import Plan, Span, read_plan
from dupq.stages.neighbours.tables import SearchRequest, read_answered, read_nearest
from dupq.text.keys import ID_BITS, MAXIMUM_ID, Sites, are_among, distinct, places_among

_COLUMNS = ["site", "question_id", "fingerprint"]


def find_changes(files: NeighbourFiles, previous: NeighbourFiles, request: SearchRequest, plan: Plan) -> Counts:
    """Write which questions are searched again; see increment.py.

    Memory: 18 bytes a question of the earlier run, twice that while its keys are read; 40 for each that is new,
    changed, gone or searched again; the keys and the lists of one block.
    """
    output = files.step("changes", "changes")

    def make() -> Counts:
        then, is_same, changed = _compared(files, previous, request, plan)
        gone = then[~is_same]
        lists = [file.uri for file in storage.list_files(previous.nearest, ".parquet")]
        unlisted = then[is_same & ~_are_listed(then, previous, request, lists)]
        lost = [_affected(previous, request, uri, gone) for uri in (lists if len(gone) else [])]
        affected = distinct(np.concatenate([unlisted, *lost]))
        places, are_same = places_among(then, affected)
        are_same[are_same] = is_same[places[are_same]]
        searched = distinct(np.concatenate([changed, affected[are_same]]))
        counts = {
            "questions new or changed": len(changed),
            "questions gone or changed": len(gone),
            "questions without a list in the earlier run": len(unlisted),
            "questions searched": len(searched),
        }
        write_keys(output, searched)
        return counts

    return skip_or(output, make)


def _compared(
    files: NeighbourFiles, previous: NeighbourFiles, request: SearchRequest, plan: Plan
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The questions of the earlier run (keys of this one, ascending), and which are as they were; new and changed ones.

    The latter are keys, ascending.
    """
    then, marks = _keys_then(previous, request)
    is_same, changed = np.zeros(len(then), bool), [np.zeros(0, np.int64)]
    for spans in plan.blocks:
        now, marks_now = keys_of(files, spans, request.sites)
        places, are_same = places_among(then, now)
        are_same[are_same] = marks[places[are_same]] == marks_now[are_same]
        is_same[places[are_same]] = True
        changed.append(now[~are_same])
    return then, is_same, np.sort(np.concatenate(changed))


def keys_of(files: NeighbourFiles, spans: Sequence[Span], sites: list[str]) -> tuple[np.ndarray, np.ndarray]:
    """The keys of embedded questions, ascending, and their fingerprints; without empty ones."""
    keys, hashes = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    for span in spans:
        uri = storage.join(files.embeddings, span.file)
        table = storage.read_table(uri, columns=_COLUMNS).slice(span.start, span.stop - span.start)
        marks = table["fingerprint"].to_numpy()
        keys.append(Sites(sites).pack_columns(table["site"], table["question_id"], uri)[marks != EMPTY])
        hashes.append(marks[marks != EMPTY])
    found = np.concatenate(keys)
    del keys
    return _ascending(found, np.concatenate(hashes))


def _ascending(keys: np.ndarray, marks: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    if (keys[1:] >= keys[:-1]).all():  # as a rule
        return keys, marks
    order = np.argsort(keys, kind="stable")
    return keys[order], marks[order]


def _keys_then(previous: NeighbourFiles, request: SearchRequest) -> tuple[np.ndarray, np.ndarray]:
    """The questions that the earlier run searched, as keys of this run (see `to_sites`), ascending."""
    sites = read_answered(previous.request)["sites_of_keys"]
    plan = read_plan(previous.plan, request.settings)
    keys, hashes = keys_of(previous, [span for spans in plan.blocks for span in spans], sites)
    return _ascending(to_sites(keys, sites, request.sites), hashes)


def _are_listed(then: np.ndarray, previous: NeighbourFiles, request: SearchRequest, lists: Sequence[str]) -> np.ndarray:
    """Which of the questions `then` (keys of this run, ascending) have a list in one of the files `lists`."""
    sites, are_listed = read_answered(previous.request)["sites_of_keys"], np.zeros(len(then), bool)
    for uri in lists:
        keys = to_sites(storage.read_table(uri, columns=["key"])["key"].to_numpy(), sites, request.sites)
        places, are_there = places_among(then, keys)
        are_listed[places[are_there]] = True
    return are_listed


def _affected(previous: NeighbourFiles, request: SearchRequest, uri: str, gone: np.ndarray) -> np.ndarray:
    """The questions of a file of lists that had one of `gone` (ascending) among their neighbours."""
    sites = read_answered(previous.request)["sites_of_keys"]
    keys, nearest = read_nearest(uri, request.settings.k)
    others = to_sites(nearest.others, sites, request.sites)
    is_lost = (nearest.others >= 0) & ((others < 0) | are_among(gone, others))
    found = to_sites(keys, sites, request.sites)[is_lost.any(axis=1)]
    return found[found >= 0]


def to_sites(keys: np.ndarray, then: Sequence[str], now: Sequence[str]) -> np.ndarray:
    """Keys of a run with the sorted sites `then` as keys of one with `now`; negative for -1 and where a site is gone.

    Different keys stay different: questions of sites that are gone get negative keys of their own.
    """
    if list(then) == list(now):
        return keys
    numbers = np.array([now.index(site) if site in now else -1 - place for place, site in enumerate(then)], np.int64)
    moved = (numbers[np.maximum(keys, 0) >> ID_BITS] << ID_BITS) | (keys & MAXIMUM_ID)
    return np.where(keys < 0, keys, moved)
