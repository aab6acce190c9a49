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
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dupq import storage
from dupq.clusters.components import are_together
from dupq.evaluation import measures
from dupq.evaluation.measures import encoder_pairs
from dupq.evaluation.verdicts import VERDICTS, planted_keys
from dupq.job.run import Run
from dupq.job.table import Each, Shards, Table, Whole
from dupq.runs.queries import estimated
from dupq.runs.reader import read_metrics
from dupq.stages.clusters import Clustered, with_earlier
from dupq.stages.measures.links import Facts, _measure_links
from dupq.stages.partition import Known
from dupq.text.keys import Sites, pairs_among, sorted_keys

_EIGHTY = 1.28  # spreads of a normal distribution to either side: 80 %
_FIRST = 50  # pairs of the worklist; the summary says how many of them are expected to be right
_DRIFTING = ("questions", "clusters", "questions_in_clusters", "largest_cluster", "threshold", "expected_precision")


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


# A sample of pairs for people to judge: review.parquet with its strata, and review.tsv for people to fill in.
#
#     counts  of pairs by probability, joined and not
#     drawn   the pairs of a partition that may be in the sample; then of all partitions: sample
#     titles  of the sample's questions
