"""embeddings → each question's nearest: everything.py searches all; or with an earlier run only what is new since then.

    changes        one task        the questions to be searched again, by fingerprints of their embeddings: the queries
    tiles/queries  task per block  the embeddings of its queries
    tiles/earlier  task per block  the earlier lists of its other questions
    tiles/own      task per block  the queries against each other
    tiles/wave-1   task per tile   the queries of different blocks, and queries against all other questions
    directed       task per block  the earlier lists, with new neighbours merged in; and the lists of the queries

A question is searched again if it is new, if its embedding changed, or if a neighbour in its list is gone or changed:
who follows in its list is not known. All other lists stay, and only queries can enter them. That is enough: if neither
question of a pair is searched again, the earlier run compared the same embeddings.
"""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from dupq import kinds, storage
from dupq.archive import Shard, in_scope
from dupq.job.run import Run
from dupq.job.stage import stage
from dupq.job.step import StepResult, step
from dupq.job.table import Broadcast, Computed, Partition, Streamed, Table, zipped
from dupq.kinds import streamed
from dupq.neighbours.candidates import nearest_in, nearest_table
from dupq.stages.scopes import with_scopes
from dupq.stages.search import everything
from dupq.stages.search.blocks import FINGERPRINTS, Questions, SearchRequest, blocks_of, fingerprints_in, select
from dupq.stages.search.everything import NearestTables, files_in_scope, find_nearest
from dupq.system import thread_map
from dupq.tables import KEYS, NEAREST
from dupq.text.keys import are_among, distinct, indices_among, rekey

_log = logging.getLogger(__name__)
_LARGEST_SHARE = 0.3  # of the questions: if more changed, searching everything is as fast
_KEPT = ("work/neighbours/nearest", "work/neighbours/scoped")  # the second only with scopes


@stage("neighbours", version=6, keeps=_KEPT, drops="work/neighbours/tiles")
def search(
    run: Run, embeddings: Table[kinds.Embedded], shards: Sequence[Shard], request: SearchRequest
) -> NearestTables:
    """Find the nearest of each embedded question of the shards in scope; the earlier run's lists save work."""
    embeddings = with_scopes(run, embeddings, request.scopes, request.sites)
    earlier = search.earlier(run, {**request.identity(), "algorithm": search.version})
    found = None if earlier is None else find_nearest_since(run, embeddings, shards, request, earlier)
    if found is None:
        found = find_nearest(run, files_in_scope(embeddings, shards, request), request, embeddings)
    run.report.rows_out = run.report.rows_in  # the questions that have lists
    return found


class SiteLists(NamedTuple):
    """The sorted sites of the keys of two runs; and the sites that both search, all if none are named."""

    earlier: Sequence[str]
    now: Sequence[str]
    searched: tuple[str, ...]

    def to_now(self, keys: np.ndarray) -> np.ndarray:
        """Return keys of the earlier run as keys of this one, as `rekey` does."""
        return rekey(keys, self.earlier, self.now)


def find_nearest_since(
    run: Run,
    embeddings: Table[kinds.Embedded],
    shards: Sequence[Shard],
    request: SearchRequest,
    earlier: everything.NearestTables,
) -> everything.NearestTables | None:
    """Find the nearest of each question, given those of an earlier run; None if that is as slow as without these."""
    plan = everything.plan_search(run, everything.files_in_scope(embeddings, shards, request), request, embeddings)
    blocks, settings = blocks_of(plan, embeddings, request), request.settings
    sites = SiteLists(earlier.sites, request.sites, settings.sites)
    now = zipped([Partition(embeddings, shard.number) for shard in in_scope(shards, settings.sites)])
    there = {file.uri for file in storage.list_files(earlier.embeddings.folder)}  # what is lost counts as changed
    numbers = (number for number, uri in enumerate(earlier.embeddings.files) if uri in there)
    then = zipped([Partition(earlier.embeddings, number) for number in numbers])
    find = run.map("changes", find_changes)
    changes = find(Streamed(now), Streamed(then), Streamed(earlier.nearest), sites, settings.k)
    questions = sum(block.size for block in blocks)
    if changes.rows > _LARGEST_SHARE * questions or everything.gpus_for_search(request, blocks, changes.rows):
        _log.info(f"everything is searched: {changes.rows:,} questions changed")
        return None
    made_by = {"blocks": [block.size for block in blocks], "since": run.previous}
    run.discard_stale(made_by, *everything.TABLES_OF_PLAN)
    queries = select(run, "tiles/queries", blocks, changes)
    own = everything.search_each(run, queries, request)
    keys = Computed[kinds.Key](_keys_of, (blocks,), len(blocks))
    lists = EarlierLists(earlier.nearest, tuple(thread_map(storage.key_span, earlier.nearest.files)), sites)
    unchanged = run.map("tiles/earlier", earlier_lists)(keys, Broadcast(changes), lists, settings.k)
    sides = [*queries, *(replace(block, excluded=changes) for block in blocks)]
    tiles = [
        (left, right)
        for left in range(len(queries))
        for right in range(left + 1, len(sides))
        if sides[left].group == sides[right].group
    ]
    of_sides = [*own, *everything.partitions_of(unchanged)]
    found = everything.search_in_waves(run, sides, of_sides, [tiles], request)
    return everything.merge_lists(run, found, request, plan, embeddings)


def _keys_of(blocks: Sequence[Questions], number: int) -> pa.Table:
    """Return the questions of a block whose embeddings are not empty (KEYS, ascending)."""
    keys = fingerprints_in(blocks[number].rows(*FINGERPRINTS.names), blocks[number].sites)[0]
    return pa.table([np.sort(keys)], schema=KEYS)


@step(streamed(FINGERPRINTS), streamed(FINGERPRINTS), streamed(NEAREST), makes=KEYS)
def find_changes(
    now: Iterator[pa.Table], earlier: Iterator[pa.Table], lists: Iterator[pa.Table], sites: SiteLists, k: int
) -> StepResult[pa.Table]:
    """Return the questions to be searched again (KEYS, ascending), as this module's docstring says.

    `now` and `earlier` are keys and fingerprints of both runs' embeddings, `lists` those of the earlier run. Memory: 18
    bytes per question of the earlier run, twice that while its keys are read; 40 for each that is new, changed, gone or
    searched again; the keys and the lists of four files.
    """
    keys, fingerprints = _earlier_fingerprints(earlier, sites)
    is_same, changed = np.zeros(len(keys), bool), [np.zeros(0, np.int64)]
    for table in now:
        keys_now, fingerprints_now = fingerprints_in(table, sites.now)
        indices, are_same = indices_among(keys, keys_now)
        are_same[are_same] = fingerprints[indices[are_same]] == fingerprints_now[are_same]
        is_same[indices[are_same]] = True
        changed.append(keys_now[~are_same])
    new, gone = np.concatenate(changed), keys[~is_same]
    affected = [_that_list(gone, table, sites, k) for table in lists] if len(gone) else [gone]
    affected_keys = distinct(np.concatenate(affected))
    searched = distinct(np.concatenate([new, affected_keys[are_among(keys[is_same], affected_keys)]]))
    counts = {
        "questions new or changed": len(new),
        "questions gone or changed": len(gone),
        "questions searched": len(searched),
    }
    return StepResult(pa.table([searched], schema=KEYS), counts)


def _earlier_fingerprints(earlier: Iterator[pa.Table], sites: SiteLists) -> tuple[np.ndarray, np.ndarray]:
    """Return the questions that the earlier run searched, as keys of this run, ascending, and their fingerprints."""
    columns = [[np.zeros(0, np.int64)], [np.zeros(0, np.int64)]]
    for table in earlier:
        if not sites.searched or (len(table) and table["site"][0].as_py() in sites.searched):  # a file has one site
            for column, values in zip(columns, fingerprints_in(table, sites.earlier), strict=True):
                column.append(values)
    keys, fingerprints = (np.concatenate(column) for column in columns)
    del columns
    keys = sites.to_now(keys)
    if (keys[1:] >= keys[:-1]).all():  # the usual case
        return keys, fingerprints
    order = np.argsort(keys, kind="stable")
    return keys[order], fingerprints[order]


def _that_list(gone: np.ndarray, lists: pa.Table, sites: SiteLists, k: int) -> np.ndarray:
    """Return the questions of a table of lists that have one of `gone` (ascending) among their neighbours."""
    keys, nearest = nearest_in(lists, k)
    others = sites.to_now(nearest.others)
    is_gone = (nearest.others >= 0) & ((others < 0) | are_among(gone, others))
    keys = sites.to_now(keys)[is_gone.any(axis=1)]
    return keys[keys >= 0]


class EarlierLists(NamedTuple):
    """An earlier run's lists, and the smallest and the largest key of each file (None: it has no rows)."""

    lists: Table[kinds.Nearest]
    spans: tuple[tuple[int, int] | None, ...]
    sites: SiteLists


@step(KEYS, KEYS, makes=NEAREST)
def earlier_lists(questions: pa.Table, searched: pa.Table, earlier: EarlierLists, k: int) -> pa.Table:
    """Return the earlier lists of those of a block's questions that are not searched again, as lists of this run.

    `questions` are ascending.
    """
    sites, keys = earlier.sites, questions["key"].to_numpy()
    keys = keys[~are_among(searched["key"].to_numpy(), keys)]
    keys_then = rekey(keys, sites.now, sites.earlier)  # ascending too: questions of a new site are all searched
    tables = [NEAREST.empty_table()]
    for number, span in enumerate(earlier.spans):
        if len(keys) and span and span[0] <= keys_then[-1] and keys_then[0] <= span[1]:
            table = earlier.lists.read(number)
            tables.append(table.filter(pa.array(are_among(keys_then, table["key"].to_numpy()))))
    lists = nearest_in(pa.concat_tables(tables).sort_by("key"), k)[1]
    return nearest_table(keys, lists._replace(others=sites.to_now(lists.others)))
