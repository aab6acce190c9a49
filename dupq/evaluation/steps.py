"""A run's tables → metrics.json: what was found, and how good it is on known duplicates.

    counts   of the tables that people read
    planted  of each kind of planted pairs, how many are in one cluster
    changed  how many questions of clusters an earlier run has elsewhere

Memory: a file of a table, and what is measured on. The last task: 50 bytes a question in clusters, of either run.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dupq import storage
from dupq.clusters.calibration import Calibrated, Model
from dupq.clusters.decision import Thresholds
from dupq.clusters.identity import read_clusters
from dupq.clusters.steps.decide import Known
from dupq.clusters.steps.make_clusters import (
    TITLED,
    TITLES,
    Clustered,
    keys_of_pairs,
    titles_of,
)
from dupq.evaluation import measures, sampling
from dupq.evaluation.measures import not_measured, partners_changed
from dupq.evaluation.sampling import Judged
from dupq.evaluation.verdicts import VERDICTS, Verdict, format_verdicts, planted_keys
from dupq.job.run import Run
from dupq.job.step import Counted
from dupq.job.table import Each, Shards, Table, Whole
from dupq.links import Split, represented_by, run_split, sets_in, sets_table
from dupq.runs.queries import estimated
from dupq.runs.question_tables import pairs_in, sorted_keys
from dupq.runs.reader import read_metrics
from dupq.runs.records import TITLE_WORDS, LinkQuality
from dupq.tables import KEY_PAIRS, KNOWN_SETS, PAIRS, REVIEW, REVIEW_COUNTS
from dupq.text.keys import ID_BITS, Sites, are_among, distinct, distinct_pairs, indices_among, pair_numbers, pairs_among

_FIRST = 50  # pairs of the worklist, of which the summary says how many are expected to be right
_DRIFTING = ("questions", "clusters", "questions_in_clusters", "largest_cluster", "threshold", "expected_precision")


@dataclass(frozen=True)
class Facts:
    """What a run decided and was given, besides its tables and what is known."""

    thresholds: Thresholds
    calibration: Calibrated
    representatives: int  # questions with embeddings
    contradictions: tuple[int, int] | None  # verdicts that a later one on the same pair replaced, and that others
    # contradict; None: there are no verdicts
    verdicts: str | None  # a filled-in review.tsv of an earlier run
    truth: str | None  # planted pairs


def measure_run(
    run: Run, made: Clustered, worklist: Table, known: Known, texts: Table, questions: Shards, facts: Facts
) -> None:
    """Write metrics.json: what was found, and how good it is on known duplicates."""
    has_links, sites, chosen = known.links is not None, known.sites.names, facts.thresholds["chosen"]
    rows, sizes = Each(made.clusters.only("site", "cluster_size")), Whole(made.stats.only("size"))
    pairs = Each(made.pairs.only("source", "probability", "joined"))
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
        "judged": _judged(known.judged, *facts.contradictions) if facts.contradictions else None,
        "worklist": _expected(worklist.only("expected_right").read(0)["expected_right"].to_pylist()),
        "drift": None,
    }
    if facts.truth:
        ids = Each(made.clusters.only("site", "question_id", "cluster_id"))
        metrics["planted"] = run.record("planted", planted_in, ids, facts.truth, sites)
    metrics["not_measured"] = not_measured(metrics, has_links)
    if known.previous:
        now, earlier = Whole(made.members.only("key", "id")), storage.join(known.previous, "clusters")
        changed = run.record("changed", changed_since, now, earlier, sites)
        metrics["drift"] = {"previous": known.previous, **_drift(metrics, read_metrics(known.previous)), **changed}
    storage.write_json(storage.join(run.uri, "metrics.json"), metrics)
    run.report.rows_in = run.report.rows_out = metrics["questions"]


def _judged(judged: Judged, contradicted: int, contradicting: int) -> dict[str, int]:
    words = {word: int((judged.verdicts == code).sum()) for word, code in VERDICTS.items()}
    return {**words, "contradicted": contradicted, "contradicting": contradicting}


def counts_of(
    pairs: Iterator[pa.Table], clusters: Iterator[pa.Table], sizes: pa.Table, threshold: float, sites: list[str]
) -> dict[str, object]:
    """Return how many questions, pairs and clusters a run has."""
    sources, by_site, inside = Counter[str](), Counter[str](), 0
    above, joined, right = 0, 0, 0.0  # encoder pairs
    for table in pairs:
        sources.update(_counted(table["source"]))
        table = table.filter(pc.equal(table["source"], "encoder"))
        p, are_joined = table["probability"].to_numpy().astype(np.float64), table["joined"].to_numpy()
        above += int((p >= np.float32(threshold)).sum())
        joined += int(are_joined.sum())
        right += float(p[are_joined].sum())
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
        "encoder_pairs_joined": joined,
        "expected_right": right,
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
        there = pairs_among(keys, pairs)
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
    earlier = read_clusters(previous, Sites(sites))
    order, now = np.argsort(earlier.keys), (members["key"].to_numpy(), members["id"].to_numpy())
    then = earlier.keys[order], earlier.clusters[order]
    return {"questions_of_clusters_changed": partners_changed(now, then)}


# A run's clusters beside the known duplicates that nothing was fitted on, at any size of the archive.
#
#     tested    the links of the test part; beside them the sets that all links form
#     searched  those of them that near duplicates leave to the encoder
#     pairs     the encoder's pairs with a linked question
#     said      the length of the title of linked questions
#     links     what is measured (`link_quality`)
#
# Links are far fewer than questions. Memory: the links, and in the first task 8 bytes a question, twice that while they
# are read; a shard or a file of pairs; in the last task 24 bytes a pair with a linked question and about 50 a question
# in clusters. Links are incomplete, so every precision here is a lower bound.

_COLUMNS = ("site_left", "question_id_left", "site_right", "question_id_right", "source", "probability", "rank")
_EDGES = (0.0, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
_THRESHOLDS = np.arange(10, 100) / 100  # those of the report's slider, at which recall is measured too
_FOUND = pa.schema([*KEY_PAIRS, *(PAIRS.field(name) for name in ("probability", "rank"))])
_NEAREST = (1, 5, 10)  # of either question
_UNLISTED = np.iinfo(np.int32).max  # the rank of a pair that is in no list
_SAID = pa.schema([pa.field(name, pa.int64(), False) for name in ("key", "words")])


def _measure_links(
    run: Run, made: Clustered, known: Known, texts: Table, questions: Shards, facts: Facts
) -> LinkQuality | None:
    """Record recall, lower-bound precision and calibration on the links of the test part; None without any."""
    sets, sites = run.table("sets", KNOWN_SETS), known.sites.names
    keys = Each(texts.only("key"))
    tested = run.map("tested", links_to_measure, keys, known.pairs, known.seen, into=KEY_PAIRS, second=sets)
    if not tested.rows:
        return None
    links, own = Whole(tested), Whole(sets)
    searched = Whole(run.map("searched", searched_links, links, known.representatives, into=KEY_PAIRS))
    near = Whole(run.map("pairs", pairs_of_linked, made.pairs.only(*_COLUMNS), own, searched, sites, into=_FOUND))
    said = Whole(run.map("said", said_by, replace(questions, columns=("question_id", "title")), links, into=_SAID))
    tables = links, searched, own, near, said, Whole(made.members.only("key", "cluster"))
    thresholds = [facts.thresholds["chosen"], *facts.thresholds["others"]]
    share = Model.from_dict(facts.calibration["model"]).linked_share
    measured: LinkQuality = run.record("links", link_quality, *tables, thresholds, share, sites)
    return measured


def links_to_measure(keys: Iterator[pa.Table], links: pa.Table, seen: dict[str, np.ndarray]) -> Counted:
    """Return the links of the test part (KEY_PAIRS); the second table are the sets that all links form."""
    pairs = pairs_in(links)
    pairs = pairs_among(sorted_keys(keys), pairs)  # dumps name questions that are deleted
    split = run_split(pairs, seen)
    return Counted(pa.table([*split.links_of("test", pairs).T], schema=KEY_PAIRS), second=sets_table(split))


def searched_links(tested: pa.Table, representatives: pa.Table) -> pa.Table:
    """Return the links that near duplicates leave to the encoder: pairs of two representatives (KEY_PAIRS)."""
    pairs = distinct_pairs(np.sort(represented_by(representatives)(pairs_in(tested)), axis=1))
    return pa.table([*pairs[pairs[:, 0] != pairs[:, 1]].T], schema=KEY_PAIRS)


def pairs_of_linked(pairs: pa.Table, sets: pa.Table, searched: pa.Table, sites: list[str]) -> pa.Table:
    """Return the encoder's pairs, rows of PAIRS, that have a linked question of the test part, by keys."""
    linked = distinct(np.concatenate([sets_in(sets).questions_of("test"), pairs_in(searched).ravel()]))
    pairs = pairs.filter(pc.equal(pairs["source"], "encoder"))
    ends = keys_of_pairs(pairs, Sites(sites))
    rows = np.flatnonzero(are_among(linked, ends).any(axis=1))
    return pa.table([*ends[rows].T, *pairs.select(["probability", "rank"]).take(pa.array(rows)).columns], schema=_FOUND)


def said_by(questions: Iterator[pa.RecordBatch], tested: pa.Table) -> pa.Table:
    """Return how many words the titles of the left questions of links in a shard have."""
    wanted, found = distinct(tested["left"].to_numpy()), [_SAID.empty_table()]
    for batch in questions:
        some = batch.filter(pa.array(are_among(wanted, batch["key"].to_numpy())))
        words = pc.add(pc.count_substring(some["title"], " ").cast(pa.int64()), 1)
        found.append(pa.table([some["key"], words], schema=_SAID))
    return pa.concat_tables(found)


def link_quality(
    tested: pa.Table,
    searched: pa.Table,
    sets: pa.Table,
    pairs: pa.Table,
    said: pa.Table,
    members: pa.Table,
    thresholds: list[dict[str, float]],
    linked_share: float,
    sites: list[str],
) -> dict[str, object]:
    """Return recall, lower-bound precision and calibration on the `tested` links, of which there are some.

    `linked_share` is the share of the duplicates that is linked.
    """
    links, split = pairs_in(tested), sets_in(sets)
    linked = split.questions_of("test")
    keys, clusters = members["key"].to_numpy(), members["cluster"].to_numpy()
    every, ranks = pairs_in(pairs), pc.fill_null(pairs["rank"], _UNLISTED).to_numpy()
    is_tested = are_among(linked, every).any(axis=1)  # not only of a question that represents a linked one
    ends, p = every[is_tested], pairs["probability"].to_numpy()[is_tested].astype(np.float64)
    together = measures.joined(links, keys, clusters)
    sets_left, sets_right = (split.set_of(side) for side in ends.T)
    is_known = (sets_left >= 0) & (sets_left == sets_right)
    bins = measures.calibration(p, is_known, _EDGES)
    found = _found_as(links, linked, ends, p)
    apart = pairs_in(searched)
    rank = _found_as(apart, distinct(apart), every, ranks)
    return {
        "test_links": len(links),
        "in_pairs": float((found >= 0).mean()),
        "listed_apart": float(((found >= 0) & ~together).mean()),
        "searched_links": len(apart),
        "among_nearest": {str(n): float(((rank > 0) & (rank <= n)).mean()) for n in _NEAREST if len(apart)},
        "in_one_cluster": float(together.mean()),
        "lower_bound_precision": _lower_bound(split, linked, keys, clusters),
        "thresholds": [_at_threshold(row, found, p, is_known) for row in thresholds],
        "by_threshold": [_at_threshold({"threshold": float(at)}, found, p, is_known) for at in _THRESHOLDS],
        "calibration": {
            **{name: column.tolist() for name, column in bins._asdict().items()},
            "share_of_duplicates_linked": linked_share,
        },
        **_by_kind(said, sites, links, together),
    }


def _found_as(tested: np.ndarray, linked: np.ndarray, pairs: np.ndarray, values: np.ndarray) -> np.ndarray:
    """The value (float64) of each of the links `tested` among `pairs`; -1 of one that is not among them."""
    inside = are_among(linked, pairs).all(axis=1)
    numbers = pair_numbers(linked, pairs[inside])
    order = np.argsort(numbers, kind="stable")
    places, are_there = indices_among(numbers[order], pair_numbers(linked, tested))
    found = np.full(len(tested), -1.0)
    found[are_there] = values[inside][order][places[are_there]]
    return found


def _lower_bound(split: Split, linked: np.ndarray, keys: np.ndarray, clusters: np.ndarray) -> float | None:
    """Of the partners in clusters of the questions `linked`, the share that is a known duplicate; None without any.

    Counted, not listed: a large cluster has as many partners for each of its linked questions. `linked` are whole sets
    of known duplicates, so that a known partner is one of them.
    """
    queries = linked[are_among(keys, linked)]
    own, by_cluster = clusters[np.searchsorted(keys, queries)], np.sort(clusters)
    sizes = np.searchsorted(by_cluster, own, "right") - np.searchsorted(by_cluster, own)
    partners = int((sizes - 1).sum())
    both = np.unique(np.stack([own, split.set_of(queries)]), axis=1, return_counts=True)[1]
    return int((both * (both - 1)).sum()) / partners if partners else None


def _at_threshold(
    row: dict[str, float], found: np.ndarray, p: np.ndarray, known: np.ndarray
) -> dict[str, float | None]:
    """What pairs of that probability would find and be worth, before any partition; `found` is that of each link."""
    above, threshold = p >= np.float32(row["threshold"]), np.float32(row["threshold"])
    return {
        **row,
        "links_found": float(((found >= 0) & (found >= threshold)).mean()),
        "lower_bound_precision": float(known[above].mean()) if above.any() else None,
    }


def _by_kind(
    said: pa.Table, sites: list[str], links: np.ndarray, together: np.ndarray
) -> dict[str, dict[str, dict[str, float]]]:
    """The recall of links by their left question's site and length of title."""
    keys, words = (column.to_numpy() for column in said.sort_by("key").columns)
    rows = np.searchsorted(keys, links[:, 0])
    begins = np.array(TITLE_WORDS)
    groups = {
        "by_site": np.array(sites)[links[:, 0] >> ID_BITS],
        "by_title_words": begins[np.searchsorted(begins, words[rows], "right") - 1],
    }
    shown = {}
    for name, labels in groups.items():
        names, places, counts = np.unique(labels, return_inverse=True, return_counts=True)
        hits = np.bincount(places, together)
        shown[name] = {
            str(label): {"links": int(count), "in_one_cluster": float(hit / count)}
            for label, count, hit in zip(names.tolist(), counts, hits, strict=True)
        }
    return shown


# A sample of the pairs, to be judged by people: review.parquet with its strata, and review.tsv to be filled in.
#
#     counts  how many pairs there are of each probability, joined and not
#     drawn   the pairs that belong to the sample; then of all partitions: sample
#     titles  those of their questions

_DRAWN_COLUMNS = ("site_left", "question_id_left", "site_right", "question_id_right", "source", "probability", "joined")
_SEED = 1


def draw_review(run: Run, pairs: Table, questions: Shards, sites: Sites, size: int, run_id: str) -> None:
    """Write the sample of a run's encoder pairs, and the sheet that people fill in.

    A sheet that is there already stays as it is: it is of this sample, and may hold verdicts.
    """
    sheet, pairs = storage.join(run.uri, "review.tsv"), pairs.only(*_DRAWN_COLUMNS)
    counts = run.map("counts", spread_of, pairs, into=REVIEW_COUNTS)
    if not run.report.rows_in:
        if not storage.exists(sheet):
            storage.write_bytes(sheet, format_verdicts([]).encode())
        return
    columns = (
        column.to_numpy().reshape(pairs.partitions, 2, -1).sum(axis=0) for column in Whole(counts).read().columns
    )
    planned = sampling.plan(sampling.Histogram(*columns), max(size, 4))
    drawn = run.map("drawn", draw, pairs, planned, sites.names, into=REVIEW)
    sample = run.map("sample", merge, Each(drawn), into=REVIEW)
    storage.write_table(storage.join(run.uri, "review.parquet"), sample.read(0), REVIEW)
    if not storage.exists(sheet):
        titles = run.map("titles", titles_of, replace(questions, columns=TITLED), Whole(sample), into=TITLES)
        names = Whole(titles).read()
        of_keys = dict(zip(names["key"].to_pylist(), names["title"].to_pylist(), strict=True))
        storage.write_bytes(sheet, _sheet(sampling.rows_in(sample.read(0)), of_keys, sites, run_id).encode())
    run.report.rows_out = sample.rows


def spread_of(pairs: pa.Table) -> Counted:
    """Return how many of the encoder's pairs have each probability (REVIEW_COUNTS)."""
    pairs = _of_encoder(pairs)
    found = sampling.histogram(pairs["probability"].to_numpy(), pairs["joined"].to_numpy())
    counts = pa.table([found.counts.ravel(), found.sums.ravel()], schema=REVIEW_COUNTS)
    return Counted(counts, {"rows_in": len(pairs)})


def _of_encoder(pairs: pa.Table) -> pa.Table:
    return pairs.filter(pc.equal(pairs["source"], "encoder"))


def draw(pairs: pa.Table, planned: sampling.Plan, sites: list[str]) -> pa.Table:
    """Return the pairs of a partition that may be in the sample (REVIEW)."""
    pairs = _of_encoder(pairs)
    strata = sampling.strata(pairs["probability"].to_numpy(), pairs["joined"].to_numpy(), planned)
    left, right = keys_of_pairs(pairs, Sites(sites)).T
    return _review(sampling.draw(left, right, strata, planned, _SEED))


def merge(drawn: Iterator[pa.Table]) -> pa.Table:
    """Return the sample (REVIEW) of what was drawn of each partition."""
    return _review(sampling.merge([sampling.rows_in(table) for table in drawn]))


def _review(rows: sampling.Rows) -> pa.Table:
    return pa.table([*map(pa.array, rows)], schema=REVIEW)


def _sheet(rows: sampling.Rows, titles: dict[int, str], sites: Sites, run_id: str) -> str:
    ends = [sites.unpack(side) for side in (rows.left, rows.right)]
    asked = [
        Verdict(*row, "") for row in zip(ends[0][0], ends[0][1].tolist(), ends[1][0], ends[1][1].tolist(), strict=True)
    ]
    more = {
        "title_left": [titles.get(key, "") for key in rows.left.tolist()],
        "title_right": [titles.get(key, "") for key in rows.right.tolist()],
        "run_id": [run_id] * len(asked),
    }
    order = sampling.asking_order(rows).tolist()
    shuffled = {name: [column[place] for place in order] for name, column in more.items()}
    return format_verdicts([asked[place] for place in order], shuffled)
