"""The clusters of a run compared with the known duplicates that nothing was fitted on."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dupq.clusters.calibration import Calibrated, Model
from dupq.clusters.components import are_together, components
from dupq.clusters.decision import Thresholds
from dupq.evaluation import measures
from dupq.evaluation.measures import encoder_pairs
from dupq.job.records import TITLE_WORDS, Measures
from dupq.job.run import Run
from dupq.job.step import Counted
from dupq.job.table import Each, Shards, Table, Whole
from dupq.links import Split, represented_by, run_split, sets_in, sets_table
from dupq.stages.clusters import Clustered
from dupq.stages.partition import Known
from dupq.stages.worklist import TITLED, TITLES, titles_of
from dupq.tables import KEY_PAIRS, KNOWN_SETS, PAIRS
from dupq.text.keys import Sites, are_among, distinct, pair_indices, pairs_among, pairs_in, proper_pairs, sorted_keys

_COLUMNS = ("site_left", "question_id_left", "site_right", "question_id_right", "source", "probability", "rank")
_EDGES = (0.0, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
_THRESHOLDS = np.arange(10, 100) / 100  # those of the report's slider, at which recall is measured too
_LINKED_PAIRS = pa.schema([*KEY_PAIRS, *(PAIRS.field(name) for name in ("probability", "rank"))])
_NEAREST = (1, 5, 10)  # ranks in the list of either question
# Measures of clusters: unknown if the links themselves join questions.
_OF_CLUSTERS = ("in_one_cluster", "listed_apart", "lower_bound_precision", "by_site", "by_title_words")
_UNLISTED = np.iinfo(np.int32).max  # the rank of a pair that is in no list


@dataclass(frozen=True)
class Facts:
    """A run's decisions and input files that are measured, besides its tables and the known duplicates."""

    thresholds: Thresholds
    calibration: Calibrated
    representatives: int  # questions with embeddings
    contradictions: tuple[int, int] | None  # verdicts that a later one on the pair replaced, and that others
    # contradict; None without verdicts
    verdicts: str | None  # a filled-in review.tsv of an earlier run
    truth: str | None  # planted pairs
    error: float  # spread of ln (right / expected) in the first pairs of a worklist


def _measure_links(
    run: Run, made: Clustered, known: Known, texts: Table, questions: Shards, facts: Facts
) -> Measures | None:
    """Record recall, lower-bound precision and calibration on the links of the test part. Return None without any."""
    sets, sites = run.table("sets", KNOWN_SETS), known.sites.names
    keys = Each(texts.only("key"))
    tested = run.map("tested", links_to_measure, keys, known.pairs, known.seen, into=KEY_PAIRS, second=sets)
    if not tested.rows:
        return None
    links, all_sets, copies = Whole(tested), Whole(sets), known.representatives
    searched = Whole(run.map("searched", searched_links, links, copies, into=KEY_PAIRS))
    pairs = made.pairs.only(*_COLUMNS)
    linked = Whole(run.map("pairs", pairs_of_linked, pairs, all_sets, searched, sites, into=_LINKED_PAIRS))
    titles = Whole(run.map("titles", titles_of, replace(questions, columns=TITLED), links, into=TITLES))
    tables = links, copies, all_sets, linked, titles, Whole(made.members.only("key", "cluster"))
    thresholds = [facts.thresholds["chosen"], *facts.thresholds["others"]]
    share = Model.from_dict(facts.calibration["model"]).linked_share
    measured: Measures = run.record("links", link_quality, *tables, thresholds, share, sites)
    return measured if not known.joins_links else measured | dict.fromkeys(_OF_CLUSTERS)


def links_to_measure(keys: Iterator[pa.Table], links: pa.Table, seen: dict[str, np.ndarray]) -> Counted:
    """Return the links of the test part (KEY_PAIRS); the second table has the sets that all links form."""
    pairs = pairs_in(links)
    pairs = pairs_among(sorted_keys(keys), pairs)  # dumps name questions that are deleted
    split = run_split(pairs, seen)
    return Counted(pa.table([*split.links_of("test", pairs).T], schema=KEY_PAIRS), second=sets_table(split))


def searched_links(tested: pa.Table, representatives: pa.Table) -> pa.Table:
    """Return the links that near duplicates leave to the encoder, as pairs of two representatives (KEY_PAIRS)."""
    return pa.table([*proper_pairs(represented_by(representatives)(pairs_in(tested))).T], schema=KEY_PAIRS)


def pairs_of_linked(pairs: pa.Table, sets: pa.Table, searched: pa.Table, sites: list[str]) -> pa.Table:
    """Return the encoder's pairs with a linked question of the test part, by keys."""
    linked = distinct(np.concatenate([sets_in(sets).questions_of("test"), pairs_in(searched).ravel()]))
    pairs = encoder_pairs(pairs)
    ends = Sites(sites).pack_pairs(pairs, "pairs")
    rows = np.flatnonzero(are_among(linked, ends).any(axis=1))
    columns = pairs.select(["probability", "rank"]).take(pa.array(rows)).columns
    return pa.table([*ends[rows].T, *columns], schema=_LINKED_PAIRS)


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
) -> dict[str, object]:
    """Return recall, lower-bound precision and calibration on the `tested` links, at least one.

    `pairs` are of representatives, so a link is looked up by those of its questions; one between copies is a pair of
    probability 1. `linked_share` is the share of all duplicates that is linked.
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
    """Return the recall and precision of all pairs above a threshold, before the partition.

    `link_p` has each link's probability or -1, `p` each pair's, and `is_known` tells which pairs are known duplicates.
    """
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
