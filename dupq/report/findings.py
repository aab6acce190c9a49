"""The report's findings: rows and counts of a run's tables, gathered in a few passes over them.

A pass holds one file, counts, and the rows that will be shown. The same run gives the same findings: every
order ends in the key of its rows.
"""

from collections import defaultdict
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dupq.report.axes import round_edges
from dupq.report.streaming import Histogram, Order, Selection
from dupq.runs.reader import Key, Question, Run, TableRow

SOURCES = ("exact", "near_duplicate", "encoder", "known_link")
CLUSTERS_SHOWN = 10  # in each list
QUESTIONS_SHOWN = 20  # of a cluster
PAIRS_SHOWN = 10  # of a cluster, and on either side of the threshold
SUREST_PAIRS = 10_000  # whose clusters are candidates for the most certain ones

_PROBABILITY_EDGES = np.linspace(0, 1, 51)
_SIMILARITY_BINS = 50  # at most
_JACCARD_EDGES = np.linspace(0, 1, 51)
_SIZE_EDGES = np.array([2, 3, 4, 5, 10, 20, 50, 100, 1_000, np.inf])

_PAIR_KEY: Order = [
    ("site_left", "ascending"),
    ("question_id_left", "ascending"),
    ("site_right", "ascending"),
    ("question_id_right", "ascending"),
    ("source", "ascending"),
]


@dataclass(frozen=True)
class Pair:
    """Two questions and the evidence that they are duplicates."""

    left: Key
    right: Key
    source: str
    jaccard: float | None
    similarity: float | None
    probability: float
    known_link: bool | None


class _Member(NamedTuple):
    """A question of a cluster."""

    key: Key
    is_canonical: bool


@dataclass(frozen=True)
class Cluster:
    """A cluster's figures, its first questions, and the weakest pairs between these."""

    cluster_id: str
    size: int
    edges: int
    density: float
    weakest_link: float
    bridges: int
    mean_probability: float
    canonical: Key | None
    questions: list[Key]
    pairs: list[Pair]


@dataclass
class SourceCount:
    """How many pairs a source gave, how many of them join their questions, and how many are known links."""

    source: str
    pairs: int = 0
    joining: int = 0
    known_links: int = 0


@dataclass(frozen=True)
class Findings:
    """Everything on the page that is not in the run's JSON files."""

    sources: list[SourceCount]
    probabilities: Histogram
    similarities: Histogram
    known: tuple[Histogram, Histogram]  # of the known links among them: probabilities, similarities
    jaccards: Histogram
    cluster_sizes: Histogram
    above: list[Pair]
    below: list[Pair]
    largest: list[Cluster]
    certain: list[Cluster]
    questions: dict[Key, Question]


class PairSurvey:
    """One pass over the pairs: counts, histograms, and the pairs at the top and round the threshold."""

    def __init__(self, threshold: float | None, scores: tuple[float, float]) -> None:
        """Without a threshold every pair joins, and none is near it; `scores` are the encoder's lowest and highest."""
        self.counts = {source: SourceCount(source) for source in SOURCES}
        self.probabilities = Histogram(_PROBABILITY_EDGES)
        self.similarities = Histogram(round_edges(*scores, _SIMILARITY_BINS))
        self.known = Histogram(_PROBABILITY_EDGES), Histogram(self.similarities.edges)
        self.jaccards = Histogram(_JACCARD_EDGES)
        self._threshold = threshold
        self._above = Selection(PAIRS_SHOWN, [("probability", "ascending"), *_PAIR_KEY])
        self._below = Selection(PAIRS_SHOWN, [("probability", "descending"), *_PAIR_KEY])
        self._surest = Selection(SUREST_PAIRS, [("probability", "descending"), *_PAIR_KEY])

    def add(self, pairs: pa.Table) -> None:
        """Take in one file of the table."""
        joins = _joins(pairs, self._threshold)
        for source, count in self.counts.items():
            from_source = pc.equal(pairs["source"], source)
            count.pairs += _true(from_source)
            count.joining += _true(pc.and_(from_source, joins))
            count.known_links += _true(pc.and_(from_source, pairs["known_link"]))
        self.jaccards.add(pairs["jaccard"])
        from_encoder = pc.equal(pairs["source"], "encoder")
        self.probabilities.add(pairs["probability"].filter(from_encoder))
        self.similarities.add(pairs["similarity"].filter(from_encoder))
        known = pairs.filter(pc.and_(from_encoder, pc.fill_null(pairs["known_link"], False)))
        for histogram, name in zip(self.known, ("probability", "similarity"), strict=True):
            histogram.add(known[name])
        over = pairs.filter(pc.and_(from_encoder, joins))
        self._surest.add(over)
        if self._threshold is not None:
            self._above.add(over)
            below = pc.less(pairs["probability"], pa.scalar(self._threshold, pa.float32()))
            self._below.add(pairs.filter(pc.and_(from_encoder, below)))

    def above(self) -> list[Pair]:
        """The encoder's pairs that only just joined."""
        return [_pair(row) for row in self._above.rows()]

    def below(self) -> list[Pair]:
        """The encoder's pairs that only just did not."""
        return [_pair(row) for row in self._below.rows()]

    def surest(self) -> list[Pair]:
        """The encoder's pairs of the highest probability."""
        return [_pair(row) for row in self._surest.rows()]


class ClusterSurvey:
    """One pass over the clusters' figures: how large they are, the largest and the most certain of them."""

    def __init__(self, candidates: set[str]) -> None:
        """The most certain clusters are chosen from the ids in `candidates`."""
        self.sizes = Histogram(_SIZE_EDGES)
        self._candidates = pa.array(sorted(candidates), pa.string())
        self._largest = Selection(CLUSTERS_SHOWN, [("size", "descending"), ("cluster_id", "ascending")])
        self._certain = Selection(CLUSTERS_SHOWN, [("weakest_link", "descending"), ("cluster_id", "ascending")])

    def add(self, stats: pa.Table) -> None:
        """Take in one file of the table."""
        several = stats.filter(pc.greater(stats["size"], 1))
        self.sizes.add(several["size"])
        self._largest.add(several)
        self._certain.add(several.filter(pc.is_in(several["cluster_id"], self._candidates)))

    def largest(self) -> list[TableRow]:
        """The figures of the largest clusters."""
        return self._largest.rows()

    def certain(self) -> list[TableRow]:
        """The figures of the candidates whose weakest link is strongest."""
        return self._certain.rows()


def gather(run: Run) -> Findings:
    """The findings of `run`.

    A cluster's weakest link is no stronger than its strongest pair, so the most certain of the clusters that
    the encoder joined are found among those of its surest pairs.
    """
    threshold = run.metrics.get("threshold")
    pairs = PairSurvey(threshold, _score_range(run))
    for table in run.pairs.files():
        pairs.add(table)
    clusters = ClusterSurvey(_clusters_of(run, pairs.surest()))
    for table in run.cluster_stats.files():
        clusters.add(table)
    largest, certain = clusters.largest(), clusters.certain()
    members = _members(run, {row["cluster_id"] for row in largest + certain})
    evidence = _evidence(run, members, threshold)
    above, below = pairs.above(), pairs.below()
    shown = {member.key for some in members.values() for member in some}
    shown |= {key for pair in above + below for key in (pair.left, pair.right)}
    return Findings(
        sources=list(pairs.counts.values()),
        probabilities=pairs.probabilities,
        similarities=pairs.similarities,
        known=pairs.known,
        jaccards=pairs.jaccards,
        cluster_sizes=clusters.sizes,
        above=above,
        below=below,
        largest=[_cluster(row, members, evidence) for row in largest],
        certain=[_cluster(row, members, evidence) for row in certain],
        questions=run.titles(shown),
    )


def _score_range(run: Run) -> tuple[float, float]:
    """The lowest and the highest similarity; an encoder's measure may have any range."""
    ranges = [pc.min_max(table["similarity"]).as_py() for table in run.pairs.files(["similarity"])]
    there = [found for found in ranges if found["min"] is not None]
    return min((found["min"] for found in there), default=0.0), max((found["max"] for found in there), default=0.0)


def _joins(pairs: pa.Table, threshold: float | None) -> pa.ChunkedArray:
    verified = pc.not_equal(pairs["source"], "encoder")
    if threshold is None:
        return pc.or_(verified, True)
    over = pc.greater_equal(pairs["probability"], pa.scalar(threshold, pa.float32()))
    return pc.and_(pc.fill_null(pc.or_kleene(verified, over), False), pairs["joined"])


def _true(mask: pa.ChunkedArray) -> int:
    return pc.sum(mask).as_py() or 0


def _clusters_of(run: Run, pairs: list[Pair]) -> set[str]:
    """The clusters that hold both questions of a pair."""
    keys = {key for pair in pairs for key in (pair.left, pair.right)}
    ids = _id_set(keys)
    cluster_by_key: dict[Key, str] = {}
    for table in run.clusters.files(["site", "question_id", "cluster_id"]):
        rows = table.filter(pc.is_in(table["question_id"], ids)).to_pylist()
        cluster_by_key.update({_key(row): row["cluster_id"] for row in rows if _key(row) in keys})
    return {cluster_by_key[pair.left] for pair in pairs if _together(pair, cluster_by_key)}


def _members(run: Run, cluster_ids: set[str]) -> dict[str, list[_Member]]:
    """The first questions of each cluster, the canonical one before all."""
    order: Order = [("is_canonical", "descending"), ("site", "ascending"), ("question_id", "ascending")]
    selections = {cluster_id: Selection(QUESTIONS_SHOWN, order) for cluster_id in sorted(cluster_ids)}
    wanted = pa.array(list(selections), pa.string())
    for table in run.clusters.files():
        members = table.filter(pc.is_in(table["cluster_id"], wanted))
        for cluster_id in pc.unique(members["cluster_id"]).to_pylist():
            selections[cluster_id].add(members.filter(pc.equal(members["cluster_id"], cluster_id)))
    return {
        cluster_id: [_Member(_key(row), row["is_canonical"]) for row in selection.rows()]
        for cluster_id, selection in selections.items()
    }


def _evidence(run: Run, members: dict[str, list[_Member]], threshold: float | None) -> dict[str, list[Pair]]:
    """The joining pairs between the questions shown of each cluster, the weakest first."""
    cluster_by_key = {member.key: cluster_id for cluster_id, some in members.items() for member in some}
    ids = _id_set(set(cluster_by_key))
    found: dict[str, list[Pair]] = defaultdict(list)
    for table in run.pairs.files():
        inside = pc.and_(pc.is_in(table["question_id_left"], ids), pc.is_in(table["question_id_right"], ids))
        for row in table.filter(pc.and_(inside, _joins(table, threshold))).to_pylist():
            pair = _pair(row)
            if _together(pair, cluster_by_key):
                found[cluster_by_key[pair.left]].append(pair)
    return {
        cluster_id: sorted(pairs, key=lambda pair: (pair.probability, pair.left, pair.right, pair.source))
        for cluster_id, pairs in found.items()
    }


def _together(pair: Pair, cluster_by_key: dict[Key, str]) -> bool:
    return pair.left in cluster_by_key and cluster_by_key[pair.left] == cluster_by_key.get(pair.right)


def _id_set(keys: set[Key]) -> pa.Array:
    return pa.array(sorted({question_id for _, question_id in keys}), pa.int64())


def _key(row: TableRow) -> Key:
    return row["site"], row["question_id"]


def _pair(row: TableRow) -> Pair:
    return Pair(
        left=(row["site_left"], row["question_id_left"]),
        right=(row["site_right"], row["question_id_right"]),
        source=row["source"],
        jaccard=row["jaccard"],
        similarity=row["similarity"],
        probability=row["probability"],
        known_link=row["known_link"],
    )


def _cluster(stats: TableRow, members: dict[str, list[_Member]], evidence: dict[str, list[Pair]]) -> Cluster:
    some = members[stats["cluster_id"]]
    return Cluster(
        **stats,
        canonical=next((member.key for member in some if member.is_canonical), None),
        questions=[member.key for member in some],
        pairs=evidence.get(stats["cluster_id"], [])[:PAIRS_SHOWN],
    )
