"""Which clusters the explorer holds: all of a small run, of a large one the most telling.

One is taken from each of several orders in turn, until they are used up: the largest, the least and the most certain,
those that changed since the last run, and those whose questions are alike in meaning and not in words.
"""

from collections import defaultdict
from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

from dupq import storage
from dupq.report.explorer.contents import clusters_of
from dupq.report.streaming import Order, Selection
from dupq.runs.reader import Run, TableRow, ends_of

CLUSTERS = 6_000  # at most, in each order and in all
MEANING_PAIRS = 3_000  # whose clusters are candidates
TITLE_OVERLAP, TEXT_OVERLAP = 0.25, 0.5  # below both, an encoder's pair is alike in meaning, not in words

_BY_ID = ("cluster_id", "ascending")
_ORDERS: list[Order] = [
    [("size", "descending"), _BY_ID],
    [("weakest_link", "ascending"), _BY_ID],
    [("weakest_link", "descending"), _BY_ID],
]


def is_alike_in_meaning(pairs: pa.Table) -> pa.ChunkedArray:
    """Which rows of `pairs` are the encoder's, joined, and share few words (bool)."""
    return pc.and_(pc.and_(pc.equal(pairs["source"], "encoder"), pairs["joined"]), share_few_words(pairs))


def share_few_words(pairs: pa.Table) -> pa.ChunkedArray:
    """Which rows of `pairs` share few words, as far as that was counted (bool)."""
    limits = (("title_overlap", TITLE_OVERLAP), ("text_overlap", TEXT_OVERLAP))
    few = [pc.fill_null(pc.less(pairs[name], limit), False) for name, limit in limits]
    return pc.and_(*few)


def choose(run: Run, most: int = CLUSTERS) -> list[TableRow]:
    """At most `most` rows of the run's `cluster_stats`, of clusters of two and more, the most telling first."""
    wanted = [_changed(run, most), _alike_in_meaning(run)]
    selections = [Selection(most, order) for order in _ORDERS] + [Selection(most, _ORDERS[0]) for _ in wanted]
    for table in run.cluster_stats.files():
        several = table.filter(pc.greater(table["size"], 1))
        for selection in selections[: len(_ORDERS)]:
            selection.add(several)
        for selection, ids in zip(selections[len(_ORDERS) :], wanted, strict=True):
            selection.add(several.filter(pc.is_in(several["cluster_id"], ids)))
    return _in_turn([selection.rows() for selection in selections], most)


def changes(run: Run, cluster_ids: list[str]) -> dict[str, list[str]]:
    """The kinds of change, of clusters.identity.KINDS, of each of the clusters that changed since the last run."""
    ids = pa.array(cluster_ids, pa.string())
    found = defaultdict[str, set[str]](set)
    for table in _change_files(run):
        for row in table.filter(pc.is_in(table["cluster_id"], ids)).to_pylist():
            found[row["cluster_id"]].add(row["kind"])
    return {cluster_id: sorted(kinds) for cluster_id, kinds in found.items()}


def is_compared(run: Run) -> bool:
    """Whether the run was given an earlier one."""
    return bool(storage.list_files(storage.join(run.uri, "changes"), ".parquet"))


def worklist(run: Run) -> list[TableRow]:
    """The rows of the run's `worklist`; none of a run of an older version."""
    is_there = storage.list_files(storage.join(run.uri, "worklist"), ".parquet")
    return run.worklist.arrow().to_pylist() if is_there else []


def _change_files(run: Run) -> Iterator[pa.Table]:
    if is_compared(run):
        yield from run.changes.files(["kind", "cluster_id", "size"])


def _changed(run: Run, most: int) -> pa.Array:
    selection = Selection(most, [("size", "descending"), _BY_ID])
    for table in _change_files(run):
        selection.add(table.filter(pc.is_valid(table["cluster_id"])))  # the others are gone
    return pa.array(sorted({row["cluster_id"] for row in selection.rows()}), pa.string())


def _alike_in_meaning(run: Run) -> pa.Array:
    """The clusters of the surest such pairs."""
    columns = ["site_left", "question_id_left", "site_right", "question_id_right"]
    order: Order = [("probability", "descending"), *((name, "ascending") for name in columns)]
    selection = Selection(MEANING_PAIRS, order)
    more = ["source", "probability", "title_overlap", "text_overlap", "joined"]
    for table in run.pairs.files([*columns, *more]):
        selection.add(table.filter(is_alike_in_meaning(table)))
    return pa.array(sorted(clusters_of(run, {ends_of(row)[0] for row in selection.rows()})), pa.string())


def _in_turn(orders: list[list[TableRow]], most: int) -> list[TableRow]:
    chosen: dict[str, TableRow] = {}
    places = [iter(order) for order in orders]
    while places and len(chosen) < most:
        left = []
        for rows in places:
            fresh = next((row for row in rows if row["cluster_id"] not in chosen), None)
            if fresh is not None and len(chosen) < most:
                chosen[fresh["cluster_id"]] = fresh
                left.append(rows)
        places = left
    return list(chosen.values())
