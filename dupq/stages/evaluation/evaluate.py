"""A run's tables → metrics.json: what was found, and how good it is on known duplicates.

One task. What is measured on links (quality.py) needs little memory. The comparison with BM25 holds the archive's
texts, embeddings, an index and four sets of shingles, about 12 kB a question of cs: archives of more than
`evaluation.bm25_limit` questions go without, and the manifest says so. jobs/evaluate.py has no limit.
"""

import csv
import io
from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dupq import storage
from dupq.config import Settings
from dupq.encoders.description import read_description, read_development_links, read_measure, read_split
from dupq.errors import DupqError
from dupq.evaluation.known_duplicates import balanced_pairs, labelled_pairs, pair_thresholds, retrieval, unseen_split
from dupq.evaluation.labels import unseen
from dupq.evaluation.planted import Planted, found_at_10, same_cluster
from dupq.evaluation.protocol import Ranker
from dupq.execution.tasks import Counts, Report, run_tasks
from dupq.links.split import split_links
from dupq.links.tables import known_duplicates
from dupq.runs.layout import EvaluationFiles, QualityFiles
from dupq.stages.clusters.clusters import previous_clusters
from dupq.stages.evaluation.quality import link_quality, partners_changed
from dupq.stages.evaluation.review import estimated
from dupq.tables import CLUSTER_STATS, CLUSTERS, MEMBERS, PAIRS, TEXTS
from dupq.text.keys import Sites

SHINGLE_SIZES = (1, 2, 3, 4)  # Bogdanova et al. 2015, section 5.2


def evaluate_run(files: EvaluationFiles, sites: Sites, settings: Settings) -> Report:
    """Write metrics.json."""
    return run_tasks("evaluate", _evaluate, [(files, sites.names, settings)])


def _evaluate(files: EvaluationFiles, site_names: list[str], settings: Settings) -> Counts:
    sites = Sites(site_names)
    metrics = _counted(files)
    measurable = metrics["questions"] <= settings.evaluation.bm25_limit
    metrics["known_duplicates"] = metrics["planted"] = metrics["links"] = None
    metrics["verdicts"] = estimated(files.verdicts, files.runs, sites) if files.verdicts else None
    if files.links:
        decided = {
            "thresholds": metrics["thresholds"],
            "linked_share": metrics["calibration"]["model"]["linked_share"],
        }
        quality = QualityFiles(files.shards, files.encoder, files.links, files.pairs, files.members, files.texts)
        metrics["links"] = link_quality(quality, sites, decided)
    metrics["drift"] = _drift(files, sites, metrics)
    if measurable and (files.links or files.truth):
        archive = read_archive(files.texts, files.embeddings, files.encoder, sites)
        if files.links:
            links = known_duplicates(files.links, sites)
            metrics["known_duplicates"] = measure_known(archive, links, files.encoder, sites, settings)
        if files.truth:
            metrics["planted"] = _measure_planted(archive, files, sites)
    storage.write_json(files.output, metrics)
    return {
        "rows_in": metrics["questions"],
        "rows_out": metrics["questions"],
        "cap: archives over evaluation.bm25_limit": int(not measurable),
    }


_DRIFTING = ("questions", "clusters", "questions_in_clusters", "largest_cluster", "threshold", "expected_precision")


def _drift(files: EvaluationFiles, sites: Sites, metrics: dict[str, Any]) -> dict[str, Any] | None:
    """What an earlier run had of what this one has, and how many questions changed their cluster."""
    if files.previous is None:
        return None
    then = storage.read_json(storage.join(files.previous, "metrics.json"))
    members = storage.read_table(files.members, MEMBERS)
    earlier = previous_clusters(storage.join(files.previous, "clusters"), sites)
    order = np.argsort(earlier.keys)
    return {
        "previous": files.previous,
        **{name: {"now": metrics[name], "then": then.get(name)} for name in _DRIFTING},
        "recall": {"now": _recall(metrics), "then": _recall(then)},
        "questions_of_clusters_changed": partners_changed(
            (members["key"].to_numpy(), members["id"].to_numpy()), (earlier.keys[order], earlier.clusters[order])
        ),
    }


def _recall(metrics: dict[str, Any]) -> float | None:
    return (metrics.get("links") or {}).get("in_one_cluster")


def _counted(files: EvaluationFiles) -> dict[str, Any]:
    decided, calibration = storage.read_json(files.threshold), storage.read_json(files.calibration)
    threshold = decided["chosen"]["threshold"]
    by_site: Counter[str] = Counter()
    in_clusters = 0
    for file in storage.list_files(files.clusters, ".parquet"):
        table = storage.read_table(file.uri, CLUSTERS, ["site", "cluster_size"])
        by_site.update({row["values"]: row["counts"] for row in pc.value_counts(table["site"]).to_pylist()})
        in_clusters += pc.sum(pc.greater(table["cluster_size"], 1)).as_py() or 0
    sources: Counter[str] = Counter()
    over = 0
    for file in storage.list_files(files.pairs, ".parquet"):
        table = storage.read_table(file.uri, PAIRS, ["source", "probability"])
        table_of_encoder = table.filter(pc.equal(table["source"], "encoder"))
        sources.update({row["values"]: row["counts"] for row in pc.value_counts(table["source"]).to_pylist()})
        over += pc.sum(pc.greater_equal(table_of_encoder["probability"], np.float32(threshold))).as_py() or 0
    sizes = [
        storage.read_table(file.uri, CLUSTER_STATS, ["size"])["size"]
        for file in storage.list_files(files.cluster_stats, ".parquet")
    ]
    representatives = sum(
        storage.read_counts(file.uri)["rows_out"] for file in storage.list_files(files.embeddings, ".parquet")
    )
    return {
        "questions": sum(by_site.values()),
        "sites": dict(by_site),
        "exact_copies": sources["exact"],
        "near_duplicate_pairs": sources["near_duplicate"],
        "representatives": representatives,
        "encoder_pairs": sources["encoder"],
        "encoder_pairs_above_threshold": over,
        "threshold": threshold,
        "expected_precision": decided["chosen"]["expected_precision"],
        "thresholds": [decided["chosen"], *decided["others"]],
        "calibration": {name: value for name, value in calibration.items() if name != "reference"},
        "clusters": sum(len(column) for column in sizes),
        "questions_in_clusters": in_clusters,
        "largest_cluster": max((pc.max(column).as_py() or 0 for column in sizes), default=0),
    }


@dataclass(frozen=True)
class Archive:
    """A whole archive in memory: keys (sorted), texts, and the systems that rank it."""

    keys: np.ndarray
    texts: pa.StringArray
    rankers: dict[str, Any]


def read_archive(texts: str, embeddings: str, encoder: str | None, sites: Sites) -> Archive:
    """Read an archive's texts and embeddings; questions without an embedding are encoded here.

    Without an encoder only the baselines are there.
    """
    from dupq.evaluation.rankers import BM25Ranker, EncoderRanker, ShingleRanker

    tables = [
        storage.read_table(file.uri, TEXTS, ["key", "title", "text"]) for file in storage.list_files(texts, ".parquet")
    ]
    table = pa.concat_tables(tables).sort_by("key").combine_chunks()
    keys, column = table["key"].to_numpy(), table["text"].chunk(0)
    strings = column.to_pylist()
    rankers: dict[str, Any] = {}
    if encoder is not None:
        embedded = _all_embeddings(table, embeddings, encoder, sites)
        rankers["encoder"] = EncoderRanker(embedded, read_measure(encoder))
    rankers |= {
        "bm25": BM25Ranker(keys, strings),
        **{f"shingle_jaccard_{size}": ShingleRanker(keys, column, size) for size in SHINGLE_SIZES},
    }
    return Archive(keys, column, rankers)


def _all_embeddings(table: pa.Table, embeddings: str, encoder: str, sites: Sites) -> Any:
    import torch

    from dupq.encoders.saved import load
    from dupq.neighbours.embeddings import Embeddings, gathered
    from dupq.runs.embeddings import read_embeddings

    torch.set_num_threads(1)
    pieces = [read_embeddings(file.uri, sites) for file in storage.list_files(embeddings, ".parquet")]
    embedded = np.concatenate([np.zeros(0, np.int64), *(piece.keys for piece in pieces)])
    missing = table.filter(pa.array(~np.isin(table["key"].to_numpy(), embedded)))
    return gathered([*pieces, Embeddings(missing["key"].to_numpy(), *load(encoder).reader.encode(missing)[0])])


def measure_known(
    archive: Archive,
    links: np.ndarray,
    encoder: str | None,
    sites: Sites,
    settings: Settings,
    others: np.ndarray | None = None,
) -> dict[str, Any] | None:
    """The quality of all systems on duplicate links (keys); None without links.

    Measured are the links that the encoder never saw. Without an encoder they are the test part of the split that
    one trained with these settings would have. `others` (int64, shape (m, 2)) are pairs that people said to be no
    duplicates, of questions of the archive.
    """
    links = links[np.isin(links, archive.keys).all(axis=1)]
    if not len(links):
        return None
    given: dict[str, float] = {}
    tuned_links, seen = links[:0], links[:0].ravel()
    if encoder is None:
        split = split_links(links, settings.training)
        tuning = split
    else:
        parts = read_split(encoder, sites)
        seen = np.concatenate([parts["train"], parts["development"]])
        split = unseen_split(links, parts["train"], parts["development"])
        threshold = read_description(encoder)["pair_threshold"]
        given |= {} if threshold is None else {"encoder": threshold}
        if others is not None:  # labels of the user's own: few of them, if any, are of development questions
            tuned_links = read_development_links(encoder, sites)
            tuned_links = tuned_links[np.isin(tuned_links, archive.keys).all(axis=1)]
        tuning = unseen_split(np.concatenate([links, tuned_links]), parts["train"], parts["development"])
    compared: dict[str, Ranker] = {
        name: archive.rankers[name] for name in ("encoder", "bm25") if name in archive.rankers
    }
    thresholds = pair_thresholds(archive.rankers, given, tuning, np.concatenate([links, tuned_links]), archive.keys)
    left_out = {name: len(split.questions_of(name)) for name in ("train", "development")}
    known = {
        **retrieval(compared, split, len(archive.keys), settings.evaluation),
        "left_out": left_out,
        "balanced_pairs": balanced_pairs(archive.rankers, thresholds, split, links, archive.keys),
    }
    if others is not None:
        pairs = unseen(links, others, split, seen)
        left_out["labelled_pairs"] = len(links) + len(others) - len(pairs.labels)
        has_both = len(np.unique(pairs.labels)) == 2
        known["labelled_pairs"] = labelled_pairs(archive.rankers, thresholds, pairs) if has_both else None
    return known


def _measure_planted(archive: Archive, files: EvaluationFiles, sites: Sites) -> dict[str, Any]:
    parts = read_split(files.encoder, sites)
    seen = np.concatenate([parts["train"], parts["development"]])
    clusters = _clusters_of(archive.keys, files.clusters, sites)
    measured: dict[str, Any] = {}
    for kind, planted in _read_truth(str(files.truth), sites, seen, archive.keys).items():
        measured[kind] = {
            "pairs": len(planted.questions),
            "same_cluster": same_cluster(planted, archive.keys, clusters),
            **(found_at_10(planted, archive.rankers) if kind == "rephrasing" else {}),
        }
    return measured


def _clusters_of(keys: np.ndarray, folder: str, sites: Sites) -> np.ndarray:
    """The cluster of each key, as a number."""
    columns = ["site", "question_id", "cluster_id"]
    table = pa.concat_tables(
        [storage.read_table(file.uri, CLUSTERS, columns) for file in storage.list_files(folder, ".parquet")]
    )
    places = np.argsort(sites.pack_columns(table["site"], table["question_id"], folder))
    return pc.dictionary_encode(table["cluster_id"]).unify_dictionaries().combine_chunks().indices.to_numpy()[places]


def _read_truth(uri: str, sites: Sites, seen: np.ndarray, keys: np.ndarray) -> dict[str, Planted]:
    """The planted pairs by their kind, of questions that are in the archive."""
    text = storage.read_bytes(uri).decode()
    rows: dict[str, list[tuple[int, int]]] = {}
    for number, row in enumerate(csv.DictReader(io.StringIO(text), delimiter="\t"), start=2):
        try:
            ends = [
                sites.pack(row["site"], np.array([int(row[name])]), uri)[0] for name in ("question_id", "related_id")
            ]
            rows.setdefault(row["kind"], []).append((int(ends[0]), int(ends[1])))
        except (KeyError, TypeError, ValueError) as error:
            raise DupqError(f"{uri}: line {number} is not 'site, question_id, related_id, kind' ({error})") from error
    planted = {kind: np.array(pairs) for kind, pairs in rows.items()}
    there = {kind: pairs[np.isin(pairs, keys).all(axis=1)] for kind, pairs in planted.items()}
    return {kind: _planted(pairs, seen) for kind, pairs in there.items() if len(pairs)}


def _planted(pairs: np.ndarray, seen: np.ndarray) -> Planted:
    return Planted(pairs[:, 0], pairs[:, 1], np.asarray(np.isin(pairs, seen).any(axis=1)))
