"""Canonical questions, stable cluster ids, and what changed in the clusters since an earlier run.

A cluster's id is the key of a question: of its smallest one when the cluster was new. A cluster that lives on keeps its
id, whichever questions join or leave. So an id may name a question of another cluster, or one that is gone. The rules,
in order:

1. Clusters of this and of the earlier run that share questions are paired one to one: first the pair with the highest
   Jaccard overlap (shared questions / questions of either), then the best pair of clusters that are both still free,
   and so on. Ties go to more shared questions, the smaller id, the smaller key of this run's cluster. This run's
   cluster takes the id, so an overlap above 1/2 always keeps it.
2. A cluster without a partner is new. Its id is its smallest key that rule 1 gave to no other cluster.
3. If rule 1 gave away all of its keys, its id is a key that is no cluster's id: the smallest among the questions of all
   clusters for the first such cluster by smallest key, the next one for the second. There are enough: every cluster has
   two questions and one id.
4. A question in no cluster has its own key as id, with a suffix if that is a cluster's id: `site/12~alone`. Such an id
   is not carried on.

Only the previous run matters: an id that no cluster has any more may be used again.

All keys are >= 0 and name the same sites in both runs. If the sites of the runs differ, `changes` needs the keys of
both packed with the sites of both. An id does not outlive its question's site: the cluster then gets a new one.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dupq import storage
from dupq.system import thread_map
from dupq.tables import CHANGED_CLUSTERS, CLUSTERS
from dupq.text.keys import Sites, are_among, distinct, without

# A canonical question is chosen by these criteria, in order: more known links that name it as the original; an accepted
# answer; the higher score; more answers; more views; the older one; the smaller id. A missing value counts as lowest.
REASONS = ("known links", "accepted answer", "score", "answers", "views", "age", "key")
NONE = -1  # no id
KINDS = ("new", "gone", "grown", "shrunk", "changed", "merged", "split")


def canonical_questions(
    clusters: np.ndarray, keys: np.ndarray, criteria: Sequence[np.ndarray]
) -> tuple[np.ndarray, np.ndarray]:
    """Return for each row the key (int64) of its cluster's canonical question, and the index of the reason in REASONS.

    `clusters` holds cluster numbers; `criteria` has a column for each of REASONS, where more is better; the last one
    has distinct values. The reason is the first criterion by which the canonical question is ahead of the second best.
    """
    best_last = np.lexsort((*reversed(criteria), clusters))
    ordered = clusters[best_last]
    last = np.r_[ordered[1:] != ordered[:-1], True] if len(ordered) else np.zeros(0, bool)
    winners = best_last[last]
    runners_up = best_last[np.maximum(np.flatnonzero(last) - 1, 0)]
    ahead = np.stack([column[winners] != column[runners_up] for column in criteria], axis=1)
    indices = np.searchsorted(clusters[winners], clusters)
    return keys[winners][indices], ahead.argmax(axis=1)[indices]


class Clustering(NamedTuple):
    """The questions of clusters of two and more, a row each, in any order."""

    keys: np.ndarray  # int64, distinct
    clusters: np.ndarray  # int64: the smallest key or the id of each one's cluster


def read_clusters(uri: str | None, sites: Sites) -> Clustering:
    """Return the clusters of two and more, by id, of a run whose table `clusters` is at `uri`; none without a `uri`.

    Questions of other than these `sites` are left out, and so are clusters whose id names such a question.
    """

    def of_file(file: storage.File) -> tuple[np.ndarray, np.ndarray]:
        table = storage.read_table(file.uri, CLUSTERS, ["site", "question_id", "cluster_id", "cluster_size"])
        has_site = pc.is_in(table["site"], pa.array(sites.names))
        table = table.filter(pc.and_(pc.greater(table["cluster_size"], 1), has_site))
        named = pc.extract_regex(table["cluster_id"], "^(?P<site>.*)/(?P<number>[0-9]+)$")
        is_known = pc.is_in(pc.struct_field(named, "site"), pa.array(sites.names))
        table, named = table.filter(is_known), named.filter(is_known)
        numbers = pc.struct_field(named, "number").cast(pa.int64())
        ids = sites.pack_columns(pc.struct_field(named, "site"), numbers, file.uri)
        return sites.pack_columns(table["site"], table["question_id"], file.uri), ids

    none = np.zeros(0, np.int64)
    files = storage.list_files(uri, ".parquet") if uri is not None else []
    return Clustering(*map(np.concatenate, zip((none, none), *thread_map(of_file, files), strict=True)))


def cluster_ids(now: Clustering, earlier: Clustering) -> np.ndarray:
    """Return the id (int64) of the cluster of each row of `now`.

    `now` names clusters by their smallest key, `earlier` by their id. The order of rows makes no difference. Memory: 49
    bytes a question of both runs, 66 if little is as it was.
    """
    names, indices = np.unique(now.clusters, return_inverse=True)
    ids = np.full(len(names), NONE)
    continuing, continued = _partners(*_overlaps(now, earlier))
    ids[np.searchsorted(names, continuing)] = continued

    rows = np.flatnonzero((ids[indices] == NONE) & ~are_among(np.sort(ids), now.keys))
    rows = rows[np.argsort(now.keys[rows])]
    new, smallest = np.unique(indices[rows], return_index=True)
    ids[new] = now.keys[rows[smallest]]

    nameless = np.flatnonzero(ids == NONE)
    if len(nameless):
        ids[nameless] = without(np.sort(now.keys), ids)[: len(nameless)]
    return ids[indices]


def changes(now: Clustering, earlier: Clustering, sites: Sites) -> pa.Table:
    """Return what became of the earlier run's clusters, and where this run's clusters come from (CHANGED_CLUSTERS).

    Both name clusters by their id. Rows are sorted by kind, in the order of KINDS, then by new id and earlier id. Only
    clusters of two and more count: a question in no cluster is as good as absent.

    - new: a cluster of now that shares no question with any earlier cluster
    - gone: an earlier cluster that shares no question with any cluster of now
    - split: an earlier cluster that shares questions with two or more clusters of now; a row for each of them
    - merged: a cluster of now that shares questions with two or more earlier clusters; a row for each of them
    - grown, shrunk, changed: a cluster of now and an earlier one that share questions only with each other; it gained
      questions, lost some, or both, whatever the sizes

    A pair of clusters may be part of a split and of a merger, and then has a row of both kinds. Clusters with unchanged
    questions have no row. The order of rows makes no difference. Memory: 35 bytes a question of both runs, 63 if
    little is as it was.
    """
    ids_now, ids_earlier, questions = _overlaps(now, earlier)
    is_shared = (ids_now != NONE) & (ids_earlier != NONE)
    sizes_now, sizes_earlier = (_sums(ids, questions) for ids in (ids_now, ids_earlier))
    parents, children = (_sums(ids, is_shared) for ids in (ids_now, ids_earlier))
    shared = np.where(is_shared, questions, 0)
    is_same = is_shared & (parents == 1) & (children == 1)
    has_gained, has_lost = sizes_now > shared, sizes_earlier > shared
    rows_of_kind = {
        "new": (ids_earlier == NONE) & (parents == 0),
        "gone": (ids_now == NONE) & (children == 0),
        "grown": is_same & has_gained & ~has_lost,
        "shrunk": is_same & ~has_gained & has_lost,
        "changed": is_same & has_gained & has_lost,
        "merged": is_shared & (parents > 1),
        "split": is_shared & (children > 1),
    }
    # overlaps are in the order of ids, and so are the rows of each kind
    kinds, rows = np.nonzero([rows_of_kind[kind] for kind in KINDS])
    ids = (
        pc.if_else(pa.array(keys >= 0), sites.labels(np.maximum(keys, 0)), pa.scalar(None, pa.string()))
        for keys in (ids_now[rows], ids_earlier[rows])
    )
    counts = (column[rows] for column in (sizes_now, sizes_earlier, shared))
    return pa.table([pa.array(KINDS).take(pa.array(kinds)), *ids, *counts], schema=CHANGED_CLUSTERS)


def _overlaps(now: Clustering, earlier: Clustering) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the pairs of ids (or NONE) of questions in this and the earlier run, sorted, and how many have each."""
    keys = distinct(np.concatenate([now.keys, earlier.keys]))
    sides = []
    for clustering in (now, earlier):
        ids = np.full(len(keys), NONE)
        ids[np.searchsorted(keys, clustering.keys)] = clustering.clusters
        sides.append(np.unique(ids, return_inverse=True))
    (mine, indices_now), (theirs, indices_earlier) = sides
    width = max(1, len(theirs))
    codes, questions = np.unique(indices_now * width + indices_earlier, return_counts=True)
    return mine[codes // width], theirs[codes % width], questions


def _sums(ids: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Return for each row the sum (int64) of the values of all rows with its id; 0 for NONE."""
    indices = np.unique(ids, return_inverse=True)[1]
    return np.where(ids == NONE, 0, np.bincount(indices, values).astype(np.int64)[indices])


def _partners(now: np.ndarray, earlier: np.ndarray, questions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return which of this run's clusters continue an earlier one, and which, given the `_overlaps`."""
    either = _sums(now, questions) + _sums(earlier, questions) - questions
    is_shared = (now != NONE) & (earlier != NONE)
    now, earlier, shared, either = (column[is_shared] for column in (now, earlier, questions, either))
    jaccard = shared / either  # in float64 equal fractions are equal, and others differ, up to 90 million
    order = np.lexsort((now, earlier, -shared, -jaccard))
    now, earlier = now[order], earlier[order]
    is_partner, taken_now, taken_earlier = np.zeros(len(order), bool), set(), set()
    for pair, (own, other) in enumerate(zip(now.tolist(), earlier.tolist(), strict=True)):
        if own not in taken_now and other not in taken_earlier:
            is_partner[pair] = True
            taken_now.add(own)
            taken_earlier.add(other)
    return now[is_partner], earlier[is_partner]
