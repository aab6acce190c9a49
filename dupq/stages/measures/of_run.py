"""The stage that measures a run's tables and writes metrics.json.

    counts   of the tables that people read
    links    the clusters compared with known duplicates (links.py)
    planted  per kind of planted pairs, how many are in one cluster
    changed  how many clustered questions an earlier run has in another cluster

Memory: four files of a table, and the known duplicates; 8 bytes per question with planted pairs. The last task: 50
bytes per clustered question of either run.
"""

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dupq import kinds, storage
from dupq.clusters.calibration import Calibrated, Model
from dupq.clusters.components import are_together
from dupq.clusters.decision import Thresholds
from dupq.evaluation import measures
from dupq.evaluation.measures import encoder_pairs
from dupq.evaluation.sampling import Judged
from dupq.evaluation.verdicts import DIFFERENT, SAME, VERDICTS, planted_keys
from dupq.job.records import Measures
from dupq.job.run import Run
from dupq.job.stage import stage
from dupq.job.step import step
from dupq.job.table import Broadcast, Shards, Streamed, Table
from dupq.judging.trust import least_share
from dupq.kinds import JSON, columns, streamed
from dupq.runs.queries import estimated
from dupq.runs.reader import read_metrics
from dupq.stages.clusters import ClusterTables, with_earlier
from dupq.stages.measures.links import measure_links
from dupq.stages.partition import RunKnowledge
from dupq.tables import CLUSTER_STATS, CLUSTERS, KEYS, LABELS, MEMBERS, PAIRS, WORKLIST
from dupq.text.keys import Sites, are_pairs_among, pairs_among, sorted_keys

_CHECKED = columns(
    PAIRS, *("site_left", "question_id_left", "site_right", "question_id_right", "source", "probability")
)
_EIGHTY = 1.28  # spreads of a normal distribution to either side: 80 %
_FIRST = 50  # pairs of the worklist; the summary says how many of them are expected to be right
_DRIFTING = ("questions", "clusters", "questions_in_clusters", "largest_cluster", "threshold", "expected_precision")


@dataclass(frozen=True)
class MeasureInputs:
    """A run's decisions and input files that are measured, besides its tables and the known duplicates."""

    thresholds: Thresholds
    calibration: Calibrated
    representatives: int  # questions with embeddings
    contradictions: tuple[int, int] | None  # verdicts that a later one on the pair replaced, and that others
    # contradict; None without verdicts
    verdicts: str | None  # a filled-in review.tsv of an earlier run
    truth: str | None  # planted pairs
    judge: Mapping[str, Any] | None  # what came of asking a judge
    error: float  # spread of ln (right / expected) in the first pairs of a worklist


@stage("evaluate", version=13, drops="work/evaluate")
def measure_run(
    run: Run,
    made: ClusterTables,
    worklist: Table[kinds.Work],
    known: RunKnowledge,
    texts: Table[kinds.QuestionText],
    questions: Shards[kinds.Question],
    inputs: MeasureInputs,
) -> None:
    """Write metrics.json: what the run found, and how good it is on known duplicates."""
    sites, chosen, owners = known.sites.names, inputs.thresholds["chosen"], Broadcast(made.members)
    pairs, clusters, stats = Streamed(made.pairs), Streamed(made.clusters), Broadcast(made.stats)
    counts = run.record("counts", counts_of)(pairs, clusters, stats, chosen["threshold"], sites)
    measured: dict[str, Measures | None] = dict.fromkeys(("links", "planted", "checked", "changed"))
    if known.links is not None:
        thresholds = [chosen, *inputs.thresholds["others"]]
        share = Model.from_dict(inputs.calibration["model"]).linked_share
        measured["links"] = measure_links(run, made, known, texts, questions, thresholds, share)
    if inputs.truth:
        measured["planted"] = run.record("planted", planted_in)(Streamed(texts), owners, inputs.truth, sites)
    if known.previous:
        measured["changed"] = run.record("changed", changed_since)(owners, known.previous, sites)
    if inputs.contradictions:
        measured["checked"] = run.record("checked", checked_by)(pairs, chosen["threshold"], known.sites, known.judged)
    write = run.write("metrics.json", metrics_of, publish=True)
    write(worklist, counts, measured, known, inputs, storage.parent(run.uri))
    run.report.rows_in = run.report.rows_out = counts["questions"]


@step(
    streamed(columns(PAIRS, "source", "probability", "joined")),
    streamed(columns(CLUSTERS, "site")),
    columns(CLUSTER_STATS, "size"),
    makes=JSON,
)
def counts_of(
    pairs: Iterator[pa.Table], clusters: Iterator[pa.Table], sizes: pa.Table, threshold: float, sites: list[str]
) -> Measures:
    """Count a run's questions, pairs and clusters."""
    sources, by_site = Counter[str](), Counter[str]()
    above, joined, right = 0, 0, 0.0  # encoder pairs
    for table in pairs:
        sources.update(_value_counts(table["source"]))
        table = encoder_pairs(table)
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


@step(streamed(_CHECKED), makes=JSON)
def checked_by(pairs: Iterator[pa.Table], threshold: float, sites: Sites, people: Judged) -> Measures:
    """Return how many pairs that may join by meaning people judged, how many are right, and the least share of these.

    The bound holds 95 times in 100 for pairs like the judged ones.
    """
    same, different = 0, 0
    for table in pairs:
        table = encoder_pairs(table)
        sure = table.filter(pa.array(table["probability"].to_numpy() >= np.float32(threshold)))
        keys = np.unique(sites.pack_pairs(sure, "pairs"), axis=0)
        same += int(are_pairs_among(keys, people.of(SAME)).sum())
        different += int(are_pairs_among(keys, people.of(DIFFERENT)).sum())
    return {"pairs": same + different, "right": same, "least": least_share(same, same + different)}


@step(streamed(KEYS), LABELS, makes=JSON)
def planted_in(keys: Iterator[pa.Table], members: pa.Table, truth: str, site_names: list[str]) -> Measures:
    """Return per kind how many planted pairs have both questions in the archive, and the share in one cluster."""
    archive, measured = sorted_keys(keys), dict[str, object]()
    for kind, planted in planted_keys(truth, Sites(site_names)).items():
        pairs = pairs_among(archive, planted)
        if len(pairs):
            together = are_together(pairs, members)
            measured[kind] = {"pairs": len(pairs), "same_cluster": float(together.mean())}
    return measured


@step(columns(MEMBERS, "key", "id"), makes=JSON)
def changed_since(members: pa.Table, previous: str, sites: list[str]) -> Measures:
    """Return the share of clustered questions that changed since the earlier run at `previous`."""
    return {"questions_of_clusters_changed": measures.partners_changed(*with_earlier(members, previous, sites)[:2])}


@step(columns(WORKLIST, "expected_right"), makes=JSON)
def metrics_of(
    worklist: pa.Table,
    counts: Measures,
    measured: Mapping[str, Measures | None],
    known: RunKnowledge,
    inputs: MeasureInputs,
    runs: str,
) -> Measures:
    """Return metrics.json, with `counts` and what else was `measured`: None without what it needs.

    The run that drew judged pairs is looked for in the folder `runs`.
    """
    chosen, right = inputs.thresholds["chosen"], worklist["expected_right"].to_pylist()  # running sums
    first = right[:_FIRST]
    metrics: dict[str, Any] = {
        **counts,
        "representatives": inputs.representatives,
        "threshold": chosen["threshold"],
        "expected_precision": chosen["expected_precision"],
        "thresholds": [chosen, *inputs.thresholds["others"]],
        "calibration": {name: value for name, value in inputs.calibration.items() if name != "reference"},
        "planted": measured["planted"],
        "links": measured["links"],
        "verdicts": estimated(inputs.verdicts, runs) if inputs.verdicts else None,
        "judged": None,
        "judge": inputs.judge,
        "checked": measured["checked"],
        "worklist": {
            "pairs": len(right),
            "first": len(first),
            "expected_right": first[-1] if first else 0.0,
            "factor": math.exp(_EIGHTY * inputs.error),  # expected / factor to expected x factor: 80 of 100 times
        },
        "drift": None,
    }
    if inputs.contradictions:
        judged = {word: len(known.judged.of(code)) for word, code in VERDICTS.items()}
        metrics["judged"] = judged | dict(zip(("contradicted", "contradicting"), inputs.contradictions, strict=True))
    metrics["not_measured"] = measures.not_measured(metrics, known.links is not None)
    if known.previous and measured["changed"]:
        both: dict[str, Mapping[str, Any]] = {"now": metrics, "then": read_metrics(known.previous)}
        drift = {name: {when: found.get(name) for when, found in both.items()} for name in _DRIFTING}
        recall = {when: (found.get("links") or {}).get("in_one_cluster") for when, found in both.items()}
        metrics["drift"] = {"previous": known.previous, **drift, "recall": recall, **measured["changed"]}
    return metrics


def _value_counts(column: pa.ChunkedArray) -> dict[str, int]:
    return {row["values"]: row["counts"] for row in pc.value_counts(column).to_pylist()}
