"""A run's tables → metrics.json: what was found, and how good it is on known duplicates.

    counts   of the tables that people read
    planted  of each kind of planted pairs, how many are in one cluster
    changed  how many questions of clusters an earlier run has elsewhere

Memory: a file of a table, and what is measured on. The last task: 50 bytes a question in clusters, of either run.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dupq import storage
from dupq.clusters.calibration import Calibrated
from dupq.clusters.steps.make_clusters import Clustered, previous_clusters
from dupq.clusters.thresholds import Thresholds
from dupq.evaluation.clusters import partners_changed
from dupq.evaluation.not_measured import not_measured
from dupq.evaluation.truth_files import planted_keys
from dupq.evaluation.verdict_files import Judged
from dupq.evaluation.verdicts import VERDICTS
from dupq.job.run import Run
from dupq.job.table import Each, Table, Whole
from dupq.runs.reader import read_metrics
from dupq.runs.records import LinkQuality
from dupq.runs.sample import estimated
from dupq.text.keys import Sites, are_among, distinct

_FIRST = 50  # pairs of the worklist, of which the summary says how many are expected to be right
_DRIFTING = ("questions", "clusters", "questions_in_clusters", "largest_cluster", "threshold", "expected_precision")


@dataclass(frozen=True)
class Facts:
    """What a run decided and was given, besides its tables."""

    sites: list[str]
    thresholds: Thresholds
    calibration: Calibrated
    representatives: int  # questions with embeddings
    judged: Judged | None  # all verdicts
    contradictions: tuple[int, int]  # verdicts that a later one on the same pair replaced, and that others contradict
    verdicts: str | None  # a filled-in review.tsv of an earlier run
    truth: str | None  # planted pairs
    previous: str | None  # an earlier run


def measure_run(
    run: Run, made: Clustered, worklist: Table, links: LinkQuality | None, has_links: bool, facts: Facts
) -> None:
    """Write metrics.json; `links` is what `measure_links` found, if the run has known duplicates at all."""
    rows, sizes = Each(made.clusters.only("site", "cluster_size")), Whole(made.stats.only("size"))
    pairs, sites, chosen = Each(made.pairs.only("source", "probability")), facts.sites, facts.thresholds["chosen"]
    metrics: dict[str, Any] = {
        **run.record("counts", counts_of, pairs, rows, sizes, chosen["threshold"], sites),
        "representatives": facts.representatives,
        "threshold": chosen["threshold"],
        "expected_precision": chosen["expected_precision"],
        "thresholds": [chosen, *facts.thresholds["others"]],
        "calibration": {name: value for name, value in facts.calibration.items() if name != "reference"},
        "planted": None,
        "links": links,
        "verdicts": estimated(facts.verdicts, storage.parent(run.uri)) if facts.verdicts else None,
        "judged": _judged(facts.judged, *facts.contradictions) if facts.judged else None,
        "worklist": _expected(worklist.only("expected_right").read(0)["expected_right"].to_pylist()),
        "drift": None,
    }
    if facts.truth:
        ids = Each(made.clusters.only("site", "question_id", "cluster_id"))
        metrics["planted"] = run.record("planted", planted_in, ids, facts.truth, sites)
    metrics["not_measured"] = not_measured(metrics, has_links)
    if facts.previous:
        now, earlier = Whole(made.members.only("key", "id")), storage.join(facts.previous, "clusters")
        changed = run.record("changed", changed_since, now, earlier, sites)
        metrics["drift"] = {"previous": facts.previous, **_drift(metrics, read_metrics(facts.previous)), **changed}
    storage.write_json(storage.join(run.uri, "metrics.json"), metrics)
    run.report.rows_in = run.report.rows_out = metrics["questions"]


def _judged(judged: Judged, contradicted: int, contradicting: int) -> dict[str, int]:
    words = {word: int((judged.verdicts == code).sum()) for word, code in VERDICTS.items()}
    return {**words, "contradicted": contradicted, "contradicting": contradicting}


def counts_of(
    pairs: Iterator[pa.Table], clusters: Iterator[pa.Table], sizes: pa.Table, threshold: float, sites: list[str]
) -> dict[str, object]:
    """Return how many questions, pairs and clusters a run has."""
    sources, by_site, above, inside = Counter[str](), Counter[str](), 0, 0
    for table in pairs:
        sources.update(_counted(table["source"]))
        is_sure = pc.greater_equal(table["probability"], np.float32(threshold))
        above += pc.sum(pc.and_(pc.equal(table["source"], "encoder"), is_sure)).as_py() or 0
    for table in clusters:
        by_site.update(_counted(table["site"]))
        inside += pc.sum(pc.greater(table["cluster_size"], 1)).as_py() or 0
    return {
        "questions": sum(by_site.values()),
        "sites": {site: by_site[site] for site in sites},  # all: keys are numbered by them
        "exact_copies": sources["exact"],
        "near_duplicate_pairs": sources["near_duplicate"],
        "encoder_pairs": sources["encoder"],
        "encoder_pairs_above_threshold": above,
        "clusters": len(sizes),
        "questions_in_clusters": inside,
        "largest_cluster": pc.max(sizes["size"]).as_py() or 0,
    }


def _counted(column: pa.ChunkedArray) -> dict[str, int]:
    return {row["values"]: row["counts"] for row in pc.value_counts(column).to_pylist()}


def _expected(right: list[float]) -> dict[str, float]:
    """Return how many pairs of the worklist, and of its first, are expected to be right; `right` sums up over them."""
    first = right[:_FIRST]
    return {"pairs": len(right), "first": len(first), "expected_right": first[-1] if first else 0.0}


def planted_in(clusters: Iterator[pa.Table], truth: str, site_names: list[str]) -> dict[str, object]:
    """Return, of the planted pairs of each kind whose questions are in the archive, the share in one cluster."""
    sites = Sites(site_names)
    planted = planted_keys(truth, sites)
    ends = distinct(np.concatenate([np.zeros(0, np.int64), *(pairs.ravel() for pairs in planted.values())]))
    keys, owners = _clusters_of(ends, clusters, sites)
    measured: dict[str, object] = {}
    for kind, pairs in planted.items():
        there = pairs[are_among(keys, pairs).all(axis=1)]
        if len(there):
            left, right = owners[np.searchsorted(keys, there)].T
            measured[kind] = {"pairs": len(there), "same_cluster": float(np.mean(left == right))}
    return measured


def _clusters_of(keys: np.ndarray, clusters: Iterator[pa.Table], sites: Sites) -> tuple[np.ndarray, np.ndarray]:
    """Return those of `keys` (ascending) that are in the table, ascending, and the cluster of each, as a number."""
    found, names = [np.zeros(0, np.int64)], [pa.array([], pa.string())]
    for table in clusters:
        mine = sites.pack_columns(table["site"], table["question_id"], "clusters")
        inside = are_among(keys, mine)
        found.append(mine[inside])
        names += table.filter(pa.array(inside))["cluster_id"].chunks
    there = np.concatenate(found)
    order = np.argsort(there)
    return there[order], pc.dictionary_encode(pa.concat_arrays(names)).indices.to_numpy()[order]


def _drift(now: Mapping[str, Any], then: Mapping[str, Any]) -> dict[str, object]:
    """Return what an earlier run had of what this one has."""
    recalls = ((metrics.get("links") or {}).get("in_one_cluster") for metrics in (now, then))
    return {
        **{name: {"now": now[name], "then": then.get(name)} for name in _DRIFTING},
        "recall": dict(zip(("now", "then"), recalls, strict=True)),
    }


def changed_since(members: pa.Table, previous: str, sites: list[str]) -> dict[str, object]:
    """Return the share of questions of clusters that changed since an earlier run, whose clusters are at `previous`."""
    earlier = previous_clusters(previous, Sites(sites))
    order, now = np.argsort(earlier.keys), (members["key"].to_numpy(), members["id"].to_numpy())
    then = earlier.keys[order], earlier.clusters[order]
    return {"questions_of_clusters_changed": partners_changed(now, then)}
