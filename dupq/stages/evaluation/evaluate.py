"""A run's tables → metrics.json: what was found, and how good it is on known duplicates.

    ranking     many tasks    known and planted duplicates looked up in the whole archive (ranking.py)
    count       many tasks    how many pairs and clusters there are (counts.py)
    links       many tasks    what the tables say of linked questions (quality.py)
    evaluate    one task      all of it together, and what changed since an earlier run

Memory: a shard or a file of the tables, and what is measured on. The last task: 50 bytes a question in clusters, of
either run if there is an earlier one; a byte and a word each a cluster.
"""

import functools
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dupq import storage
from dupq.encoders.description import read_description, read_development_links, read_split
from dupq.evaluation.known_duplicates import Seen, measure_known
from dupq.evaluation.not_measured import not_measured
from dupq.evaluation.planted import Planted, found_at_10, same_cluster
from dupq.evaluation.ranked import Archive
from dupq.evaluation.truth_files import planted_keys
from dupq.evaluation.verdict_files import read_verdicts
from dupq.evaluation.verdicts import VERDICTS
from dupq.execution.gpus import Gpus
from dupq.execution.tasks import Report, run_tasks
from dupq.execution.units import Counts
from dupq.links.tables import known_duplicates
from dupq.runs.layout import EvaluationFiles
from dupq.runs.reader import read_metrics
from dupq.runs.sample import estimated
from dupq.settings.config import Settings
from dupq.stages.clusters.clusters import previous_clusters
from dupq.stages.encoding.device import gpus_to_go_on
from dupq.stages.evaluation.compared import Ranking
from dupq.stages.evaluation.counts import count_tables, read_counts
from dupq.stages.evaluation.quality import Decided, link_quality, partners_changed, read_linked
from dupq.stages.evaluation.ranking import measure_ranked
from dupq.tables import CLUSTER_STATS, CLUSTERS, MEMBERS, WORKLIST
from dupq.text.keys import Sites, are_among, distinct

_FIRST = 50  # pairs of the worklist, of which the summary says how many are expected to be right


def evaluate_run(files: EvaluationFiles, sites: Sites, settings: Settings, gpus: Gpus, contradicted: int) -> Report:
    """Write metrics.json; `contradicted` are verdicts that a later one on the same pair replaced."""
    compared = Report()
    if files.links or files.truth:
        measure = functools.partial(_compared, files, sites.names, settings)
        taken = gpus_to_go_on(files.encoded_as, gpus)
        compared = measure_ranked(Ranking(files.ranking, sites.names, settings.text.language, taken), measure)
    compared.add(count_tables(files))
    if files.links:
        compared.add(read_linked(files.quality, sites))
    report = run_tasks("evaluate", _evaluate, [(files, sites.names, contradicted)])
    report.add(compared)
    return report


def _compared(files: EvaluationFiles, site_names: list[str], settings: Settings, archive: Archive) -> dict[str, object]:
    """What is measured by looking questions up in the archive; None of what the run was not given."""
    sites = Sites(site_names)
    known = planted = None
    if files.links:
        links, seen = known_duplicates(files.links, sites), read_seen(files.encoder, sites)
        known = measure_known(archive.rankers, archive.keys, links, seen, settings)
    if files.truth:
        planted = _measure_planted(archive, files, sites, settings.evaluation.queries)
    return {"known_duplicates": known, "planted": planted}


def _evaluate(files: EvaluationFiles, site_names: list[str], contradicted: int) -> Counts:
    sites = Sites(site_names)
    metrics = _counted(files, sites)
    metrics |= {"known_duplicates": None, "planted": None, "links": None}
    metrics["verdicts"] = estimated(files.verdicts, files.runs) if files.verdicts else None
    metrics["judged"] = _judged(files, sites, contradicted) if files.judged else None
    metrics["worklist"] = _worklist(files)
    if files.links or files.truth:
        metrics |= storage.read_json(files.ranking.measures)
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
    counted = read_counts(files)
    sizes = [
        storage.read_table(file.uri, CLUSTER_STATS, ["size"])["size"]
        for file in storage.list_files(files.cluster_stats, ".parquet")
    ]
    representatives = sum(
        storage.read_counts(file.uri)["rows_out"] for file in storage.list_files(files.embeddings, ".parquet")
    )
    return {
        "questions": sum(counted.sites.values()),
        "sites": {site: counted.sites.get(site, 0) for site in sites.names},  # all: keys are numbered by them
        "exact_copies": counted.sources["exact"],
        "near_duplicate_pairs": counted.sources["near_duplicate"],
        "representatives": representatives,
        "encoder_pairs": counted.sources["encoder"],
        "encoder_pairs_above_threshold": counted.above,
        "threshold": threshold,
        "expected_precision": decided["chosen"]["expected_precision"],
        "thresholds": [decided["chosen"], *decided["others"]],
        "calibration": {name: value for name, value in calibration.items() if name != "reference"},
        "clusters": sum(len(column) for column in sizes),
        "questions_in_clusters": counted.in_clusters,
        "largest_cluster": max((pc.max(column).as_py() or 0 for column in sizes), default=0),
    }


def read_seen(encoder: str | None, sites: Sites) -> Seen | None:
    """What an encoder was trained and tuned on; None without one."""
    if encoder is None:
        return None
    parts = read_split(encoder, sites)
    links = read_development_links(encoder, sites)
    return Seen(parts["train"], parts["development"], links, read_description(encoder)["pair_threshold"])


def _measure_planted(archive: Archive, files: EvaluationFiles, sites: Sites, most: int) -> dict[str, dict[str, float]]:
    parts = read_split(files.encoder, sites)
    seen = np.sort(np.concatenate([parts["train"], parts["development"]]))
    truth = _planted_by_kind(str(files.truth), sites, seen, archive.keys)
    ends = [np.concatenate([planted.questions, planted.originals]) for planted in truth.values()]
    keys = distinct(np.concatenate([np.zeros(0, np.int64), *ends]))
    clusters = _clusters_of(keys, files.clusters, sites)
    measured: dict[str, dict[str, float]] = {}
    for kind, planted in truth.items():
        measured[kind] = {
            "pairs": len(planted.questions),
            "same_cluster": same_cluster(planted, keys, clusters),
            **(found_at_10(planted, archive.rankers, most) if kind == "rephrasing" else {}),
        }
    return measured


def _clusters_of(keys: np.ndarray, folder: str, sites: Sites) -> np.ndarray:
    """The cluster of each of `keys` (sorted, all in the table), as a number."""
    found, names = [np.zeros(0, np.int64)], [pa.array([], pa.string())]
    for file in storage.list_files(folder, ".parquet"):
        table = storage.read_table(file.uri, CLUSTERS, ["site", "question_id", "cluster_id"])
        mine = sites.pack_columns(table["site"], table["question_id"], file.uri)
        inside = are_among(keys, mine)
        found.append(mine[inside])
        names += table.filter(pa.array(inside))["cluster_id"].chunks
    return pc.dictionary_encode(pa.concat_arrays(names)).indices.to_numpy()[np.argsort(np.concatenate(found))]


def _planted_by_kind(uri: str, sites: Sites, seen: np.ndarray, keys: np.ndarray) -> dict[str, Planted]:
    """The planted pairs by their kind, of questions that are in the archive; `seen` and `keys` are sorted."""
    there = {kind: pairs[are_among(keys, pairs).all(axis=1)] for kind, pairs in planted_keys(uri, sites).items()}
    return {kind: _planted(pairs, seen) for kind, pairs in there.items() if len(pairs)}


def _planted(pairs: np.ndarray, seen: np.ndarray) -> Planted:
    return Planted(pairs[:, 0], pairs[:, 1], np.asarray(are_among(seen, pairs).any(axis=1)))
