"""Steps that measure a run's tables, write metrics.json, and draw the sample of pairs for people to judge.

    counts   of the tables that people read
    planted  per kind of planted pairs, how many are in one cluster
    changed  how many clustered questions an earlier run has in another cluster

Memory: four files of a table, and the known duplicates; 8 bytes per question with planted pairs. The last task: 50
bytes per clustered question of either run.
"""

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dupq import storage
from dupq.clusters.calibration import Calibrated, Model
from dupq.clusters.components import components
from dupq.clusters.decision import Thresholds
from dupq.clusters.steps.decide import Known
from dupq.clusters.steps.make_clusters import TITLED, TITLES, Clustered, are_together, titles_of, with_earlier
from dupq.evaluation import measures, sampling
from dupq.evaluation.verdicts import VERDICTS, Verdict, format_verdicts, planted_keys
from dupq.job.run import Run
from dupq.job.step import Counted
from dupq.job.table import Each, Shards, Table, Whole
from dupq.links import Split, represented_by, run_split, sets_in, sets_table
from dupq.runs.queries import estimated
from dupq.runs.reader import read_metrics
from dupq.runs.records import TITLE_WORDS, Measures
from dupq.tables import KEY_PAIRS, KNOWN_SETS, PAIRS, REVIEW
from dupq.text.keys import Sites, are_among, distinct, pair_indices, pairs_among, pairs_in, proper_pairs, sorted_keys

_EIGHTY = 1.28  # spreads of a normal distribution to either side: 80 %
_FIRST = 50  # pairs of the worklist; the summary says how many of them are expected to be right
_DRIFTING = ("questions", "clusters", "questions_in_clusters", "largest_cluster", "threshold", "expected_precision")


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


def measure_run(
    run: Run, made: Clustered, worklist: Table, known: Known, texts: Table, questions: Shards, facts: Facts
) -> None:
    """Write metrics.json: what the run found, and how good it is on known duplicates."""
    has_links, sites, chosen = known.links is not None, known.sites.names, facts.thresholds["chosen"]
    rows, sizes = Each(made.clusters.only("site")), Whole(made.stats.only("size"))
    pairs = Each(made.pairs.only("source", "probability", "joined"))
    right = worklist.only("expected_right").read(0)["expected_right"].to_pylist()  # running sums
    first = right[:_FIRST]
    metrics: dict[str, Any] = {
        **run.record("counts", counts_of, pairs, rows, sizes, chosen["threshold"], sites),
        "representatives": facts.representatives,
        "threshold": chosen["threshold"],
        "expected_precision": chosen["expected_precision"],
        "thresholds": [chosen, *facts.thresholds["others"]],
        "calibration": {name: value for name, value in facts.calibration.items() if name != "reference"},
        "planted": None,
        "links": _measure_links(run, made, known, texts, questions, facts) if has_links else None,
        "verdicts": estimated(facts.verdicts, storage.parent(run.uri)) if facts.verdicts else None,
        "judged": None,
        "worklist": {
            "pairs": len(right),
            "first": len(first),
            "expected_right": first[-1] if first else 0.0,
            "factor": math.exp(_EIGHTY * facts.error),  # expected / factor to expected x factor: 80 of 100 times
        },
        "drift": None,
    }
    if facts.contradictions:
        counts = {word: len(known.judged.of(code)) for word, code in VERDICTS.items()}
        metrics["judged"] = counts | dict(zip(("contradicted", "contradicting"), facts.contradictions, strict=True))
    if facts.truth:
        keys, owners = Each(texts.only("key")), Whole(made.members.only("key", "cluster"))
        metrics["planted"] = run.record("planted", planted_in, keys, owners, facts.truth, sites)
    metrics["not_measured"] = measures.not_measured(metrics, has_links)
    if known.previous:
        changed = run.record("changed", changed_since, Whole(made.members.only("key", "id")), known.previous, sites)
        runs: dict[str, Mapping[str, Any]] = {"now": metrics, "then": read_metrics(known.previous)}
        drift = {name: {when: measured.get(name) for when, measured in runs.items()} for name in _DRIFTING}
        recall = {when: (measured.get("links") or {}).get("in_one_cluster") for when, measured in runs.items()}
        metrics["drift"] = {"previous": known.previous, **drift, "recall": recall, **changed}
    storage.write_json(storage.join(run.uri, "metrics.json"), metrics)
    run.report.rows_in = run.report.rows_out = metrics["questions"]


def counts_of(
    pairs: Iterator[pa.Table], clusters: Iterator[pa.Table], sizes: pa.Table, threshold: float, sites: list[str]
) -> dict[str, object]:
    """Count a run's questions, pairs and clusters."""
    sources, by_site = Counter[str](), Counter[str]()
    above, joined, right = 0, 0, 0.0  # encoder pairs
    for table in pairs:
        sources.update(_value_counts(table["source"]))
        table = _encoder_pairs(table)
        p, are_joined = table["probability"].to_numpy().astype(np.float64), table["joined"].to_numpy()
        above += int((p >= np.float32(threshold)).sum())
        joined += int(are_joined.sum())
        right += float(p[are_joined].sum())
    for table in clusters:
        by_site.update(_value_counts(table["site"]))
    return {
        "questions": sum(by_site.values()),
        "sites": {site: by_site[site] for site in sites},  # also empty ones, for keys number all sites
        "exact_copies": sources["exact"],
        "near_duplicate_pairs": sources["near_duplicate"],
        "encoder_pairs": sources["encoder"],
        "encoder_pairs_above_threshold": above,
        "encoder_pairs_joined": joined,
        "expected_right": right,
        "clusters": len(sizes),
        "questions_in_clusters": pc.sum(sizes["size"]).as_py() or 0,
        "largest_cluster": pc.max(sizes["size"]).as_py() or 0,
    }


def _encoder_pairs(pairs: pa.Table) -> pa.Table:
    return pairs.filter(pc.equal(pairs["source"], "encoder"))


def _value_counts(column: pa.ChunkedArray) -> dict[str, int]:
    return {row["values"]: row["counts"] for row in pc.value_counts(column).to_pylist()}


def planted_in(keys: Iterator[pa.Table], members: pa.Table, truth: str, site_names: list[str]) -> dict[str, object]:
    """Return per kind how many planted pairs have both questions in the archive, and the share in one cluster."""
    archive, measured = sorted_keys(keys), dict[str, object]()
    for kind, planted in planted_keys(truth, Sites(site_names)).items():
        pairs = pairs_among(archive, planted)
        if len(pairs):
            together = are_together(pairs, members)
            measured[kind] = {"pairs": len(pairs), "same_cluster": float(together.mean())}
    return measured


def changed_since(members: pa.Table, previous: str, sites: list[str]) -> dict[str, object]:
    """Return the share of clustered questions that changed since the earlier run at `previous`."""
    return {"questions_of_clusters_changed": measures.partners_changed(*with_earlier(members, previous, sites)[:2])}


# A run's clusters compared with the known duplicates that nothing was fitted on, at any size of the archive.
#
#     tested    the links of the test part; the second table has the sets that all links form
#     searched  the tested links that near duplicates leave to the encoder
#     pairs     the encoder's pairs with a linked question
#     titles    of linked questions
#     links     the measures (`link_quality`)
#
# Links are far fewer than questions. Memory: the links, and in the first task 8 bytes per question, twice that while
# they are read; a shard or a file of pairs; in the last task 24 bytes per pair with a linked question, 16 per copy and
# about 50 per clustered question. Links are incomplete, so every precision here is a lower bound.

_COLUMNS = ("site_left", "question_id_left", "site_right", "question_id_right", "source", "probability", "rank")
_EDGES = (0.0, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
_THRESHOLDS = np.arange(10, 100) / 100  # those of the report's slider, at which recall is measured too
_LINKED_PAIRS = pa.schema([*KEY_PAIRS, *(PAIRS.field(name) for name in ("probability", "rank"))])
_NEAREST = (1, 5, 10)  # ranks in the list of either question
# Measures of clusters: unknown if the links themselves join questions.
_OF_CLUSTERS = ("in_one_cluster", "listed_apart", "lower_bound_precision", "by_site", "by_title_words")
_UNLISTED = np.iinfo(np.int32).max  # the rank of a pair that is in no list


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
    pairs = _encoder_pairs(pairs)
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


# A sample of pairs for people to judge: review.parquet with its strata, and review.tsv for people to fill in.
#
#     counts  of pairs by probability, joined and not
#     drawn   the pairs of a partition that may be in the sample; then of all partitions: sample
#     titles  of the sample's questions

_COUNTED_COLUMNS = ("source", "probability", "joined")
_DRAWN_COLUMNS = ("site_left", "question_id_left", "site_right", "question_id_right", *_COUNTED_COLUMNS)
_SEED = 1


def draw_review(run: Run, pairs: Table, questions: Shards, sites: Sites, size: int, run_id: str) -> None:
    """Write the sample of a run's encoder pairs, and the sheet that people fill in.

    An existing sheet stays as it is: it has this sample, and may have verdicts.
    """
    sheet = storage.join(run.uri, "review.tsv")
    counted = run.record("counts", histogram_of, Each(pairs.only(*_COUNTED_COLUMNS)))  # one task reads all pairs
    if not run.report.rows_in:
        if not storage.exists(sheet):
            storage.write_bytes(sheet, format_verdicts([]).encode())
        return
    planned = sampling.plan(np.array([counted["pairs"], counted["millionths"]]), size)
    drawn = run.map("drawn", draw, pairs.only(*_DRAWN_COLUMNS), planned, sites.names, into=REVIEW)
    sample = run.map("sample", sampling.merge, Whole(drawn), into=REVIEW)
    storage.write_table(storage.join(run.uri, "review.parquet"), sample.read(0), REVIEW)
    if not storage.exists(sheet):
        titles = run.map("titles", titles_of, replace(questions, columns=TITLED), Whole(sample), into=TITLES)
        names = Whole(titles).read()
        title_of = dict(zip(names["key"].to_pylist(), names["title"].to_pylist(), strict=True))
        storage.write_bytes(sheet, _sheet(sample.read(0), title_of, sites, run_id).encode())
    run.report.rows_out = sample.rows


def histogram_of(pairs: Iterator[pa.Table]) -> Counted:
    """Count the encoder's pairs by decision and probability; see `sampling.histogram`."""
    total = np.zeros((2, 2, sampling.BINS), np.int64)
    for table in map(_encoder_pairs, pairs):
        total += sampling.histogram(table["probability"].to_numpy(), table["joined"].to_numpy())
    return Counted({"pairs": total[0].tolist(), "millionths": total[1].tolist()}, {"rows_in": int(total[0].sum())})


def draw(pairs: pa.Table, planned: sampling.Plan, sites: list[str]) -> pa.Table:
    """Return the pairs of a partition that may be in the sample (REVIEW)."""
    pairs = _encoder_pairs(pairs)
    strata = sampling.strata(pairs["probability"].to_numpy(), pairs["joined"].to_numpy(), planned)
    return sampling.draw(Sites(sites).pack_pairs(pairs, "pairs"), strata, planned, _SEED)


def _sheet(rows: pa.Table, titles: dict[int, str], sites: Sites, run_id: str) -> str:
    keys = pairs_in(rows)[sampling.asking_order(rows)].T
    (sites_left, ids_left), (sites_right, ids_right) = map(sites.unpack, keys)
    pairs = zip(sites_left, ids_left.tolist(), sites_right, ids_right.tolist(), strict=True)
    titles_left, titles_right = ([titles.get(key, "") for key in side.tolist()] for side in keys)
    more = {"title_left": titles_left, "title_right": titles_right, "run_id": [run_id] * len(rows)}
    return format_verdicts([Verdict(*pair, "") for pair in pairs], more)
