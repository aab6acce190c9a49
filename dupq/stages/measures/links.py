"""The clusters of a run compared with the known duplicates that nothing was fitted on, at any size of the archive.

    tested    the links of the test part; the second table has the sets that all links form
    pairs     the encoder's pairs with a linked question
    titles    of linked questions
    links     the measures (`link_quality`)

Links are far fewer than questions. Memory: the links, and in the first task 8 bytes per question, twice that while
they are read; a shard or a file of pairs; in the last task 24 bytes per pair with a linked question, 16 per copy and
about 50 per clustered question. Links are incomplete, so every precision here is a lower bound.
"""

from collections.abc import Iterator
from typing import NewType

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dupq import kinds
from dupq.clusters.components import are_together, components
from dupq.evaluation import measures
from dupq.evaluation.measures import encoder_pairs
from dupq.job.records import TITLE_WORDS, Measures
from dupq.job.run import Run
from dupq.job.step import StepResult, step
from dupq.job.table import Broadcast, Shards, Streamed, Table
from dupq.kinds import JSON, Schema, columns, streamed
from dupq.links import Split, represented_by, run_split, sets_in, sets_table
from dupq.stages.clusters import ClusterTables
from dupq.stages.partition import RunKnowledge
from dupq.stages.worklist import TITLES, titles_of
from dupq.tables import KEY_PAIRS, KEYS, KNOWN_SETS, LABELS, PAIRS, REPRESENTATIVES
from dupq.text.keys import Sites, are_among, distinct, pair_indices, pairs_among, pairs_in, proper_pairs, sorted_keys

LinkedPair = NewType("LinkedPair", kinds.KeyPair)

_OF_PAIRS = columns(PAIRS, *PAIRS.names[:5], "probability", "rank")
_LINKED_PAIRS: Schema[LinkedPair] = pa.schema([*KEY_PAIRS, PAIRS.field("probability"), PAIRS.field("rank")])
_EDGES = (0.0, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
_THRESHOLDS = np.arange(10, 100) / 100  # as in the report's slider, at which recall is measured too
_NEAREST = (1, 5, 10)  # ranks in the list of either question
# Measures of clusters: unknown if the links themselves join questions.
_OF_CLUSTERS = ("in_one_cluster", "listed_apart", "lower_bound_precision", "by_site", "by_title_words")
_UNLISTED = np.iinfo(np.int32).max  # the rank of a pair that is in no list


def measure_links(
    run: Run,
    made: ClusterTables,
    known: RunKnowledge,
    texts: Table[kinds.QuestionText],
    questions: Shards[kinds.Question],
    thresholds: list[dict[str, float]],
    linked_share: float,
) -> Measures | None:
    """Record recall, lower-bound precision and calibration on the links of the test part. Return None without any."""
    sets, sites = run.table("sets", KNOWN_SETS), known.sites.names
    tested = run.map("tested", links_to_measure, second=sets)(Streamed(texts), known.pairs, known.seen)
    if not tested.rows:
        return None
    links, all_sets, copies = Broadcast(tested), Broadcast(sets), Broadcast(known.representatives)
    linked = Broadcast(run.map("pairs", pairs_of_linked)(made.pairs, all_sets, links, copies, sites))
    titles, owners = Broadcast(run.map("titles", titles_of)(questions, links)), Broadcast(made.members)
    measure = run.record("links", link_quality)
    measured = measure(links, copies, all_sets, linked, titles, owners, thresholds, linked_share, sites)
    return measured if not known.joins_links else measured | dict.fromkeys(_OF_CLUSTERS)


@step(streamed(KEYS), KEY_PAIRS, makes=KEY_PAIRS, second=KNOWN_SETS)
def links_to_measure(keys: Iterator[pa.Table], links: pa.Table, seen: dict[str, np.ndarray]) -> StepResult[pa.Table]:
    """Return the links of the test part (KEY_PAIRS); the second table has the sets that all links form."""
    pairs = pairs_in(links)
    pairs = pairs_among(sorted_keys(keys), pairs)  # dumps name questions that are deleted
    split = run_split(pairs, seen)
    return StepResult(pa.table([*split.links_of("test", pairs).T], schema=KEY_PAIRS), second=sets_table(split))


@step(_OF_PAIRS, KNOWN_SETS, KEY_PAIRS, REPRESENTATIVES, makes=_LINKED_PAIRS)
def pairs_of_linked(
    pairs: pa.Table, sets: pa.Table, tested: pa.Table, representatives: pa.Table, sites: list[str]
) -> pa.Table:
    """Return the encoder's pairs with a linked question of the test part, or its representative, by keys."""
    searched = proper_pairs(represented_by(representatives)(pairs_in(tested)))
    linked = distinct(np.concatenate([sets_in(sets).questions_of("test"), searched.ravel()]))
    pairs = encoder_pairs(pairs)
    ends = Sites(sites).pack_pairs(pairs, "pairs")
    rows = np.flatnonzero(are_among(linked, ends).any(axis=1))
    values = pairs.select(["probability", "rank"]).take(pa.array(rows))
    return pa.table([*ends[rows].T, *values.columns], schema=_LINKED_PAIRS)


@step(KEY_PAIRS, REPRESENTATIVES, KNOWN_SETS, _LINKED_PAIRS, columns(TITLES, "key", "title"), LABELS, makes=JSON)
def link_quality(
    tested: pa.Table,
    representatives: pa.Table,
    sets: pa.Table,
    pairs: pa.Table,
    titles: pa.Table,
    members: pa.Table,
    thresholds: list[dict[str, float]],
    linked_share: float,
    sites: list[str],
) -> Measures:
    """Return recall, lower-bound precision and calibration on the `tested` links, at least one.

    `pairs` are of representatives, so a link is looked up by its questions' representatives; one between copies is
    a pair of probability 1. `linked_share` is the share of all duplicates that is linked.
    """
    links, split = pairs_in(tested), sets_in(sets)
    own = np.sort(represented_by(representatives)(links), axis=1)
    keys, clusters = members["key"].to_numpy(), members["cluster"].to_numpy()
    all_pairs, ranks = pairs_in(pairs), pc.fill_null(pairs["rank"], _UNLISTED).to_numpy()
    is_tested = are_among(distinct(own), all_pairs).any(axis=1)
    every_p = pairs["probability"].to_numpy().astype(np.float64)
    ends, p = all_pairs[is_tested], every_p[is_tested]
    together, apart = are_together(links, members), proper_pairs(own)
    is_known = Split(*components(apart), np.empty(0)).in_one_set(*ends.T)
    link_p = np.where(own[:, 0] == own[:, 1], 1.0, _values_of(own, all_pairs, every_p))
    rank = _values_of(apart, all_pairs, ranks)
    return {
        "test_links": len(links),
        "in_pairs": float((link_p >= 0).mean()),
        "listed_apart": float(((link_p >= 0) & ~together).mean()),
        "searched_links": len(apart),
        "among_nearest": {str(n): float(((rank > 0) & (rank <= n)).mean()) for n in _NEAREST if len(apart)},
        "in_one_cluster": float(together.mean()),
        "lower_bound_precision": _lower_bound(split, split.questions_of("test"), keys, clusters),
        "thresholds": [_at_threshold(row, link_p, p, is_known) for row in thresholds],
        "by_threshold": [_at_threshold({"threshold": float(at)}, link_p, p, is_known) for at in _THRESHOLDS],
        "calibration": {**measures.calibration(p, is_known, _EDGES), "share_of_duplicates_linked": linked_share},
        **_by_kind(titles, sites, links, together),
    }


def _values_of(links: np.ndarray, pairs: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Return the value (float64) of each link that is among `pairs`, else -1."""
    return np.append(values, -1.0)[pair_indices(pairs, links)]


def _lower_bound(split: Split, linked: np.ndarray, keys: np.ndarray, clusters: np.ndarray) -> float | None:
    """Return the share of known duplicates among the cluster partners of the `linked` questions; None without partners.

    Partners are counted, not listed: a large cluster has as many for each of its linked questions. `linked` has whole
    sets of known duplicates, so every known partner is in it.
    """
    queries = linked[are_among(keys, linked)]
    cluster_of, by_cluster = clusters[np.searchsorted(keys, queries)], np.sort(clusters)
    sizes = np.searchsorted(by_cluster, cluster_of, "right") - np.searchsorted(by_cluster, cluster_of)
    partners = int((sizes - 1).sum())
    both = np.unique(np.stack([cluster_of, split.set_of(queries)]), axis=1, return_counts=True)[1]
    return int((both * (both - 1)).sum()) / partners if partners else None


def _at_threshold(
    row: dict[str, float], link_p: np.ndarray, p: np.ndarray, is_known: np.ndarray
) -> dict[str, float | None]:
    """Return the recall and precision of all pairs above a threshold, before the partition."""
    threshold = np.float32(row["threshold"])
    above = p >= threshold
    precision = float(is_known[above].mean()) if above.any() else None
    return {**row, "links_found": float((link_p >= threshold).mean()), "lower_bound_precision": precision}


def _by_kind(
    titles: pa.Table, sites: list[str], links: np.ndarray, together: np.ndarray
) -> dict[str, dict[str, dict[str, float]]]:
    """Return the recall of links by their left question's site and title length."""
    titles = titles.sort_by("key")
    rows = np.searchsorted(titles["key"].to_numpy(), links[:, 0])
    words = pc.add(pc.count_substring(titles["title"], " "), 1).to_numpy()[rows]
    begins = np.array(TITLE_WORDS)
    columns = {
        "by_site": Sites(sites).columns(links[:, 0])[0],
        "by_title_words": begins[np.searchsorted(begins, words, "right") - 1],
        "together": together,
    }
    table, recalls = pa.table(columns), {}
    for kind in ("by_site", "by_title_words"):
        rows = table.group_by(kind).aggregate([("together", "count"), ("together", "mean")]).sort_by(kind)
        recalls[kind] = {
            str(row[kind]): {"links": row["together_count"], "in_one_cluster": row["together_mean"]}
            for row in rows.to_pylist()
        }
    return recalls
