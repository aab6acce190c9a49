"""A run's tables → metrics.json: what was found, and how good it is on known duplicates.

    links       many tasks    what the tables say of linked questions (quality.py)
    evaluate    one task      counts, all measures, and what changed since an earlier run

Memory: a shard or a file of the tables, and what is measured on. The last task: 50 bytes a question in clusters, of
either run if there is an earlier one; a byte and a word each a cluster.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dupq import storage
from dupq.clusters.steps.make_clusters import previous_clusters
from dupq.evaluation.not_measured import not_measured
from dupq.evaluation.truth_files import planted_keys
from dupq.evaluation.verdict_files import read_verdicts
from dupq.evaluation.verdicts import VERDICTS
from dupq.execution.tasks import Report, run_tasks
from dupq.execution.units import Counts
from dupq.runs.layout import EvaluationFiles
from dupq.runs.reader import read_metrics
from dupq.runs.sample import estimated
from dupq.stages.evaluation.quality import Decided, link_quality, partners_changed, read_linked
from dupq.tables import CLUSTER_STATS, CLUSTERS, MEMBERS, PAIRS, WORKLIST
from dupq.text.keys import Sites, are_among, distinct

_FIRST = 50  # pairs of the worklist, of which the summary says how many are expected to be right


def evaluate_run(files: EvaluationFiles, sites: Sites, contradicted: int) -> Report:
    """Write metrics.json; `contradicted` are verdicts that a later one on the same pair replaced."""
    linked = read_linked(files.quality, sites) if files.links else Report()
    report = run_tasks("evaluate", _evaluate, [(files, sites.names, contradicted)])
    report.add(linked)
    return report


def _evaluate(files: EvaluationFiles, site_names: list[str], contradicted: int) -> Counts:
    sites = Sites(site_names)
    metrics = _counted(files, sites)
    metrics["planted"] = _planted(files, sites) if files.truth else None
    metrics["links"] = None
    metrics["verdicts"] = estimated(files.verdicts, files.runs) if files.verdicts else None
    metrics["judged"] = _judged(files, sites, contradicted) if files.judged else None
    metrics["worklist"] = _worklist(files)
    if files.links:
        linked_share = metrics["calibration"]["model"]["linked_share"]
        decided = Decided(thresholds=metrics["thresholds"], linked_share=linked_share)
        metrics["links"] = link_quality(files.quality, sites, decided)
    metrics["not_measured"] = not_measured(metrics, files.links is not None)
    metrics["drift"] = _drift(files, sites, metrics)
    storage.write_json(files.output, metrics)
    return {"rows_in": metrics["questions"], "rows_out": metrics["questions"]}


def _judged(files: EvaluationFiles, sites: Sites, contradicted: int) -> dict[str, int]:
    judged = read_verdicts(files.judged, sites)
    return {
        **{word: int((judged.verdicts == code).sum()) for word, code in VERDICTS.items()},
        "contradicted": contradicted,
        "contradicting": storage.read_counts(files.joined)["verdicts that others contradict"],
    }


def _worklist(files: EvaluationFiles) -> dict[str, float]:
    expected = storage.read_table(files.worklist, WORKLIST, ["expected_right"])["expected_right"].to_pylist()
    first = expected[:_FIRST]
    return {"pairs": len(expected), "first": len(first), "expected_right": first[-1] if first else 0.0}


_DRIFTING = ("questions", "clusters", "questions_in_clusters", "largest_cluster", "threshold", "expected_precision")


def _drift(files: EvaluationFiles, sites: Sites, metrics: dict[str, Any]) -> dict[str, object] | None:
    """What an earlier run had of what this one has, and how many questions changed their cluster."""
    if files.previous is None:
        return None
    then = read_metrics(files.previous)
    members = storage.read_table(files.members, MEMBERS, ["key", "id"])
    earlier = previous_clusters(storage.join(files.previous, "clusters"), sites)
    order = np.argsort(earlier.keys)
    return {
        "previous": files.previous,
        **{name: {"now": metrics[name], "then": then.get(name)} for name in _DRIFTING},
        "recall": {"now": _recall(metrics["links"]), "then": _recall(then.get("links"))},
        "questions_of_clusters_changed": partners_changed(
            (members["key"].to_numpy(), members["id"].to_numpy()), (earlier.keys[order], earlier.clusters[order])
        ),
    }


def _recall(links: Mapping[str, Any] | None) -> float | None:
    return (links or {}).get("in_one_cluster")


def _counted(files: EvaluationFiles, sites: Sites) -> dict[str, Any]:
    decided, calibration = storage.read_json(files.threshold), storage.read_json(files.calibration)
    threshold = decided["chosen"]["threshold"]
    sources, above = _tally(files.pairs, PAIRS, ["source", "probability"], lambda pairs: _is_above(pairs, threshold))
    by_site, in_clusters = _tally(
        files.clusters, CLUSTERS, ["site", "cluster_size"], lambda rows: pc.greater(rows["cluster_size"], 1)
    )
    sizes = [
        storage.read_table(file.uri, CLUSTER_STATS, ["size"])["size"]
        for file in storage.list_files(files.cluster_stats, ".parquet")
    ]
    representatives = sum(
        storage.read_counts(file.uri)["rows_out"] for file in storage.list_files(files.embeddings, ".parquet")
    )
    return {
        "questions": sum(by_site.values()),
        "sites": {site: by_site[site] for site in sites.names},  # all: keys are numbered by them
        "exact_copies": sources["exact"],
        "near_duplicate_pairs": sources["near_duplicate"],
        "representatives": representatives,
        "encoder_pairs": sources["encoder"],
        "encoder_pairs_above_threshold": above,
        "threshold": threshold,
        "expected_precision": decided["chosen"]["expected_precision"],
        "thresholds": [decided["chosen"], *decided["others"]],
        "calibration": {name: value for name, value in calibration.items() if name != "reference"},
        "clusters": sum(len(column) for column in sizes),
        "questions_in_clusters": in_clusters,
        "largest_cluster": max((pc.max(column).as_py() or 0 for column in sizes), default=0),
    }


def _is_above(pairs: pa.Table, threshold: float) -> pa.ChunkedArray:
    """Which pairs are the encoder's and have at least that probability."""
    return pc.and_(pc.equal(pairs["source"], "encoder"), pc.greater_equal(pairs["probability"], np.float32(threshold)))


def _tally(
    folder: str, schema: pa.Schema, columns: list[str], is_meant: Callable[[pa.Table], pa.ChunkedArray]
) -> tuple[Counter[str], int]:
    """Count the rows of a table's files by the first of `columns`, and those that are meant. Memory: a file's."""
    counts: Counter[str] = Counter()
    meant = 0
    for file in storage.list_files(folder, ".parquet"):
        table = storage.read_table(file.uri, schema, columns)
        counts.update({row["values"]: row["counts"] for row in pc.value_counts(table[columns[0]]).to_pylist()})
        meant += pc.sum(is_meant(table)).as_py() or 0
    return counts, meant


def _planted(files: EvaluationFiles, sites: Sites) -> dict[str, dict[str, float]]:
    """Measure the planted pairs of each kind whose questions are in the archive."""
    planted = planted_keys(str(files.truth), sites)
    ends = distinct(np.concatenate([np.zeros(0, np.int64), *(pairs.ravel() for pairs in planted.values())]))
    keys, clusters = _clusters_of(ends, files.clusters, sites)
    measured: dict[str, dict[str, float]] = {}
    for kind, pairs in planted.items():
        there = pairs[are_among(keys, pairs).all(axis=1)]
        if len(there):
            left, right = clusters[np.searchsorted(keys, there)].T
            measured[kind] = {"pairs": len(there), "same_cluster": float(np.mean(left == right))}
    return measured


def _clusters_of(keys: np.ndarray, folder: str, sites: Sites) -> tuple[np.ndarray, np.ndarray]:
    """Those of `keys` (sorted) that are in the table, sorted, and the cluster of each, as a number."""
    found, names = [np.zeros(0, np.int64)], [pa.array([], pa.string())]
    for file in storage.list_files(folder, ".parquet"):
        table = storage.read_table(file.uri, CLUSTERS, ["site", "question_id", "cluster_id"])
        mine = sites.pack_columns(table["site"], table["question_id"], file.uri)
        inside = are_among(keys, mine)
        found.append(mine[inside])
        names += table.filter(pa.array(inside))["cluster_id"].chunks
    there = np.concatenate(found)
    order = np.argsort(there)
    return there[order], pc.dictionary_encode(pa.concat_arrays(names)).indices.to_numpy()[order]
