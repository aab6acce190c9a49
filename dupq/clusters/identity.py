"""The canonical question of each cluster, and stable cluster ids: which clusters keep their id from run to run, and
what changed since an earlier run.

A cluster's id is the key of a question: of the smallest one that the cluster had when it was new. A cluster that
lives on keeps its id, whichever questions join or leave, so an id may name a question of another cluster, or one
that is gone. The rules, in order:

1. Clusters of this and of the earlier run that share questions are paired one to one, first the pair with the
   highest Jaccard overlap (shared questions / questions of either); ties by more shared questions, the smaller id,
   the smaller key of this run's cluster. Then the best pair of clusters that are both still free, and so on. This run's
   cluster takes the id. So an overlap above 1/2 always keeps it.
2. A cluster without a partner is new: its id is its smallest key that rule 1 gave to no other cluster.
3. If rule 1 gave them all away, it takes a key that is no cluster's id: the smallest among the questions of all
   clusters, for the first such cluster by smallest key; the next one for the second. There are enough: every cluster
   has two questions and one id.
4. A question in no cluster has its own key, and a suffix (see `written_ids`) if that is a cluster's id. It is
   not carried on.

Only the previous run matters: an id that no cluster has now may be used again.

All keys are >= 0 and mean the same site now and then; where the sites of the two runs differ, pack both with the
sites of both: an id may outlive its question's site.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dupq import storage
from dupq.tables import CHANGED_CLUSTERS, CLUSTERS
from dupq.text.keys import Sites, are_among, without

# Choosing the canonical question of each cluster, and the reason for the choice.
#
# The rule, in order: more known links name it as the original; an accepted answer; the higher score; more answers; more
# views; the older one; the smaller key. A missing value counts as the lowest.

REASONS = ("known links", "accepted answer", "score", "answers", "views", "age", "key")


def canonical_questions(
    clusters: np.ndarray, keys: np.ndarray, criteria: Sequence[np.ndarray]
) -> tuple[np.ndarray, np.ndarray]:
    """For each row the key (int64) of the canonical question of its cluster, and the index of the reason in REASONS.

    `clusters` holds cluster numbers, `criteria` a column for each of REASONS but the last, more being better. The
    reason is the first criterion by which it is ahead of the second best.
    """
    columns = (*criteria, -keys)
    best_last = np.lexsort((*reversed(columns), clusters))
    ordered = clusters[best_last]
    last = np.r_[ordered[1:] != ordered[:-1], True] if len(ordered) else np.zeros(0, bool)
    winners = best_last[last]
    runners_up = best_last[np.maximum(np.flatnonzero(last) - 1, 0)]
    ahead = np.stack([column[winners] != column[runners_up] for column in columns], axis=1)
    indices = np.searchsorted(clusters[winners], clusters)
    return keys[winners][indices], ahead.argmax(axis=1)[indices]


NONE = -1  # no id
ALONE = "~alone"

KINDS = ("new", "gone", "grown", "shrunk", "changed", "merged", "split")


class Grouping(NamedTuple):
    """The questions of clusters of two and more, a row each, in any order; no question twice."""

    keys: np.ndarray  # int64
    clusters: np.ndarray  # int64: the same for all questions of a cluster, its smallest key or its id


class ClusterIds(NamedTuple):
    """The id of each cluster."""

    clusters: np.ndarray  # int64, the smallest keys of the clusters, ascending
    ids: np.ndarray  # int64, all different

    def of(self, clusters: np.ndarray) -> np.ndarray:
        """The ids of clusters that are given by their smallest keys, in any order."""
        return self.ids[np.searchsorted(self.clusters, clusters)]


def read_clusters(uri: str | None, sites: Sites) -> Grouping:
    """Return the clusters of two and more in the `clusters` of a run at `uri`, by id; none without a `uri`.

    Questions of sites that are gone are left out, and so are clusters whose id names one: it could not be written.
    """
    empty = np.zeros(0, np.int64)
    keys, ids = [empty], [empty]
    for file in storage.list_files(uri, ".parquet") if uri is not None else []:
        table = storage.read_table(file.uri, CLUSTERS, ["site", "question_id", "cluster_id", "cluster_size"])
        is_here = pc.is_in(table["site"], pa.array(sites.names))
        table = table.filter(pc.and_(pc.greater(table["cluster_size"], 1), is_here))
        named = pc.extract_regex(table["cluster_id"], "^(?P<site>.*)/(?P<number>[0-9]+)$")
        is_known = pc.is_in(pc.struct_field(named, "site"), pa.array(sites.names))
        table, named = table.filter(is_known), named.filter(is_known)
        numbers = pc.struct_field(named, "number").cast(pa.int64())
        keys.append(sites.pack_columns(table["site"], table["question_id"], file.uri))
        ids.append(sites.pack_columns(pc.struct_field(named, "site"), numbers, file.uri))
    return Grouping(np.concatenate(keys), np.concatenate(ids))


def cluster_ids(now: Grouping, then: Grouping) -> ClusterIds:
    """The ids of this run's clusters. `now` holds clusters by smallest key, `then` those of the earlier run by id.

    The answer does not depend on the order of rows. Memory: 45 bytes a question of both runs, 70 where little is
    as it was.
    """
    overlaps = _overlaps(now, then)
    clusters, of_questions = overlaps.now.names, overlaps.now.places
    ids, is_named = np.full(len(clusters), NONE), np.zeros(len(clusters), bool)
    partners_now, partners_then = _partners(overlaps)
    ids[partners_now], is_named[partners_now] = overlaps.then.names[partners_then], True

    rows = np.flatnonzero(~is_named[of_questions] & ~are_among(np.sort(ids[is_named]), now.keys))
    rows = rows[np.argsort(now.keys[rows])]
    new, smallest = np.unique(of_questions[rows], return_index=True)
    ids[new], is_named[new] = now.keys[rows[smallest]], True

    nameless = np.flatnonzero(~is_named)
    if len(nameless):
        ids[nameless] = without(np.sort(now.keys), ids[is_named])[: len(nameless)]
    return ClusterIds(clusters, ids)


def written_ids(labels: pa.StringArray, is_alone: np.ndarray) -> pa.StringArray:
    """How ids are stored, from their keys as `site/question_id`.

    `is_alone` (bool) is for a question in no cluster whose key is the id of a cluster: `site/12~alone`.
    """
    return pc.if_else(pa.array(is_alone), pc.binary_join_element_wise(labels, ALONE, ""), labels)


def changes(now: Grouping, then: Grouping, sites: Sites) -> pa.Table:
    """Return what became of the earlier run's clusters, and where those of this run come from (CHANGED_CLUSTERS).

    Both hold clusters by id. Rows are sorted by kind, in the order of KINDS, new id and earlier id. Only clusters
    of two and more count: a question that is in none is the same as one that is not there.

    - new: a cluster of now that shares no question with any cluster of then
    - gone: a cluster of then that shares no question with any cluster of now
    - split: a cluster of then that shares questions with two or more clusters of now; a row for each of them
    - merged: a cluster of now that shares questions with two or more clusters of then; a row for each of them
    - grown, shrunk, changed: the rest, clusters that share questions with one another only: gained questions, lost
      some, or both (whatever the sizes)

    A pair of clusters may be in a split and in a merger; then it has a row of both kinds. Clusters with the same
    questions as then have no row. The answer does not depend on the order of rows. Memory: 45 bytes a question of both
    runs, 130 where little is as it was.
    """
    overlaps = _overlaps(now, then)
    one, other, pairs_now, pairs_then, _ = overlaps
    lone_now = np.setdiff1d(np.arange(len(one.names)), pairs_now)
    lone_then = np.setdiff1d(np.arange(len(other.names)), pairs_then)
    # Place -1 finds what is at the end: no id, no questions, no pairs.
    places_now = np.concatenate([pairs_now, lone_now, np.full(len(lone_then), -1)])
    places_then = np.concatenate([pairs_then, np.full(len(lone_now), -1), lone_then])
    shared = np.concatenate([overlaps.shared, np.zeros(len(lone_now) + len(lone_then), np.int64)])
    ids_now, ids_then = np.append(one.names, NONE)[places_now], np.append(other.names, NONE)[places_then]
    sizes_now, sizes_then = np.append(one.sizes, 0)[places_now], np.append(other.sizes, 0)[places_then]
    is_new, is_gone = places_then < 0, places_now < 0
    is_merged = np.bincount(pairs_now, minlength=len(one.names) + 1)[places_now] > 1
    is_split = np.bincount(pairs_then, minlength=len(other.names) + 1)[places_then] > 1
    is_one = ~(is_new | is_gone | is_merged | is_split)
    has_gained, has_lost = sizes_now > shared, sizes_then > shared
    rows_of_kind = {
        "new": is_new,
        "gone": is_gone,
        "grown": is_one & has_gained & ~has_lost,
        "shrunk": is_one & ~has_gained & has_lost,
        "changed": is_one & has_gained & has_lost,
        "merged": is_merged,
        "split": is_split,
    }
    # Places are in the order of ids, and so are the rows of each kind.
    rows = np.concatenate([np.flatnonzero(rows_of_kind[kind]) for kind in KINDS])
    kinds = np.repeat(KINDS, [np.count_nonzero(rows_of_kind[kind]) for kind in KINDS])
    ids = (
        pc.if_else(pa.array(side >= 0), sites.labels(np.maximum(side, 0)), pa.scalar(None, pa.string()))
        for side in (ids_now[rows], ids_then[rows])
    )
    counts = (pa.array(column[rows]) for column in (sizes_now, sizes_then, shared))
    return pa.table([pa.array(kinds.tolist(), pa.string()), *ids, *counts], schema=CHANGED_CLUSTERS)


class _Side(NamedTuple):
    """The clusters of one run; a cluster's index is that of its name among them."""

    names: np.ndarray  # ascending
    sizes: np.ndarray
    places: np.ndarray  # of the cluster of each question, in the order of the rows


class _Overlaps(NamedTuple):
    """The clusters of both runs, and the pairs of them that share questions, sorted by index."""

    now: _Side
    then: _Side
    pairs_now: np.ndarray
    pairs_then: np.ndarray
    shared: np.ndarray


def _overlaps(now: Grouping, then: Grouping) -> _Overlaps:
    sides = []
    for side in (now, then):
        names, places, sizes = np.unique(side.clusters, return_inverse=True, return_counts=True)
        sides.append(_Side(names, sizes, places))
    one, other = sides
    _, rows_now, rows_then = np.intersect1d(now.keys, then.keys, assume_unique=True, return_indices=True)
    width = max(1, len(other.names))
    pairs, shared = np.unique(one.places[rows_now] * width + other.places[rows_then], return_counts=True)
    return _Overlaps(one, other, pairs // width, pairs % width, shared)


def _partners(overlaps: _Overlaps) -> tuple[np.ndarray, np.ndarray]:
    """The indices of this run's clusters that continue one of the earlier run, and of those."""
    either = overlaps.now.sizes[overlaps.pairs_now] + overlaps.then.sizes[overlaps.pairs_then] - overlaps.shared
    jaccard = overlaps.shared / either  # as float64, equal fractions are equal and others differ up to 90 million
    order = np.lexsort((overlaps.pairs_now, overlaps.pairs_then, -overlaps.shared, -jaccard))
    now, then = overlaps.pairs_now[order], overlaps.pairs_then[order]
    is_partner, taken_now, taken_then = np.zeros(len(order), bool), set(), set()
    for pair, (one, other) in enumerate(zip(now.tolist(), then.tolist(), strict=True)):
        if one not in taken_now and other not in taken_then:
            is_partner[pair] = True
            taken_now.add(one)
            taken_then.add(other)
    return now[is_partner], then[is_partner]
