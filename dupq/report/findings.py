"""The report's findings: rows and counts of a run's tables, gathered in a few passes over them.

A pass holds one file, counts, and the rows that will be shown. The same run gives the same findings: every
order ends in the key of its rows.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dupq.errors import DupqError
from dupq.near_duplicates.minhash import SEED, band_keys, bands_of, text_signatures
from dupq.near_duplicates.shingles import jaccard, shingle_sets
from dupq.report.charts import round_edges
from dupq.report.explorer_clusters import (
    Contents,
    Histogram,
    Order,
    Selection,
    Text,
    clusters_of,
    least_probable,
    share_few_words,
)
from dupq.runs.reader import Key, Run, TableRow, ends_of
from dupq.settings import config
from dupq.settings.sections import NearDuplicateSettings
from dupq.text.questions import texts_table

# How often texts of the run's own questions meet in a band, by their exact Jaccard coefficient.
#
# The pairs that the run found in its bands say nothing of those that it missed. So a sample of its pairs is signed
# anew, with other permutations than the run's: whether they meet then depends neither on what the bands found nor on
# what only the encoder did. Few archives have pairs of every coefficient; so some texts are also paired with their own
# beginnings, which have about the share of their shingles.

PAIRS = 1_000  # of the near duplicates, and of the encoder's pairs
SEEDS = 16  # how often each is signed
TEXTS = 50  # that are paired with their beginnings, of
_BEGINNINGS = [share / 20 for share in range(6, 20)]  # of their words
_EDGES = np.linspace(0, 1, 21)


class Point(NamedTuple):
    """The pairs of a range of coefficients."""

    similarity: float  # the mean of their coefficients
    share: float  # of the times that they were signed, how often they met in a band
    pairs: int


def measured(run: Run, pairs: list[tuple[Key, Key]], whole: dict[Key, tuple[str, str]]) -> list[Point]:
    """The points of `pairs`, of questions whose titles and bodies (HTML) are `whole`; pairs of others are left out.

    None are told if the run's settings are not those of this version.
    """
    try:
        settings = config.from_dict(run.config)
    except DupqError:
        return []
    there = [pair for pair in pairs if pair[0] in whole and pair[1] in whole]
    if not there:
        return []
    rows = {key: row for row, key in enumerate(whole)}
    titles, bodies = (pa.array(column, pa.string()) for column in zip(*whole.values(), strict=True))
    texts = texts_table(pa.array(range(len(whole)), pa.int64()), titles, bodies, settings.text)["text"].to_pylist()
    ends = [(rows[one], rows[other]) for one, other in there]
    for row in range(min(TEXTS, len(texts))):
        ends += [(row, len(texts) + number) for number in range(len(_BEGINNINGS))]
        texts += _beginnings(texts[row])
    left, right = np.array(ends).T
    return points(pa.array(texts, pa.string()), left, right, settings.near_duplicates)


def _beginnings(text: str) -> list[str]:
    words = text.split(" ")
    return [" ".join(words[: round(share * len(words))]) for share in _BEGINNINGS]


def points(texts: pa.StringArray, left: np.ndarray, right: np.ndarray, near: NearDuplicateSettings) -> list[Point]:
    """The points of pairs of rows of `texts` (tokens joined by single spaces)."""
    coefficients = jaccard(shingle_sets(texts, near.shingle_size), left, right)
    met = np.zeros(len(left))
    for seed in range(SEED + 1, SEED + 1 + SEEDS):
        keys = band_keys(text_signatures(texts, near, seed), *bands_of(near))
        met += (keys[left] == keys[right]).any(axis=1)
    bins = np.clip(np.searchsorted(_EDGES, coefficients, "right") - 1, 0, len(_EDGES) - 2)
    pairs, shares, sums = (np.bincount(bins, weights, len(_EDGES) - 1) for weights in (None, met / SEEDS, coefficients))
    return [Point(sums[at] / pairs[at], shares[at] / pairs[at], int(pairs[at])) for at in np.flatnonzero(pairs)]


SOURCES = ("exact", "near_duplicate", "encoder", "known_link", "verdict")
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


class Labelled:
    """Counts of all values, and of those of known links."""

    def __init__(self, edges: np.ndarray) -> None:
        """All counts are zero."""
        self.all, self.known = Histogram(edges), Histogram(edges)

    def add(self, pairs: pa.Table, name: str) -> None:
        """Count the column `name` of rows of `pairs`."""
        self.all.add(pairs[name])
        self.known.add(pairs[name].filter(pc.fill_null(pairs["known_link"], False)))


@dataclass(frozen=True)
class Findings:
    """Everything on the page that is not in the run's JSON files."""

    sources: list[SourceCount]
    probabilities: Labelled  # of the encoder's pairs
    in_words: Labelled  # of those of them that share words
    in_meaning: Labelled  # of those that share few
    similarities: Labelled
    jaccards: Labelled
    collisions: list[Point]
    cluster_sizes: Histogram
    above: list[Pair]
    below: list[Pair]
    largest: list[Cluster]
    certain: list[Cluster]
    texts: dict[Key, Text]  # of questions


class PairSurvey:
    """One pass over the pairs: counts, histograms, and the pairs at the top and round the threshold."""

    def __init__(self, threshold: float | None, scores: tuple[float, float]) -> None:
        """Without a threshold no pair is near it; `scores` are the encoder's lowest and highest."""
        self.counts = {source: SourceCount(source) for source in SOURCES}
        self.probabilities, self.in_words, self.in_meaning = (Labelled(_PROBABILITY_EDGES) for _ in range(3))
        self.similarities = Labelled(round_edges(*scores, _SIMILARITY_BINS))
        self.jaccards = Labelled(_JACCARD_EDGES)
        self._threshold = threshold
        self._above = Selection(PAIRS_SHOWN, [("probability", "ascending"), *_PAIR_KEY])
        self._below = Selection(PAIRS_SHOWN, [("probability", "descending"), *_PAIR_KEY])
        self._surest = Selection(SUREST_PAIRS, [("probability", "descending"), *_PAIR_KEY])
        self._copies = Selection(PAIRS, [("jaccard", "ascending"), *_PAIR_KEY])
        self._in_words = Selection(PAIRS, [("text_overlap", "descending"), *_PAIR_KEY])

    def add(self, pairs: pa.Table) -> None:
        """Take in one file of the table."""
        joins = _joins(pairs, self._threshold)
        for source, count in self.counts.items():
            from_source = pc.equal(pairs["source"], source)
            count.pairs += _true(from_source)
            count.joining += _true(pc.and_(from_source, joins))
            count.known_links += _true(pc.and_(from_source, pairs["known_link"]))
        self.jaccards.add(pairs, "jaccard")
        self._copies.add(pairs.filter(pc.equal(pairs["source"], "near_duplicate")))
        from_encoder = pc.equal(pairs["source"], "encoder")
        self._add_encoders(pairs.filter(from_encoder))
        over = pairs.filter(pc.and_(from_encoder, joins))
        self._surest.add(over)
        if self._threshold is not None:
            self._above.add(over)
            below = pc.less(pairs["probability"], pa.scalar(self._threshold, pa.float32()))
            self._below.add(pairs.filter(pc.and_(from_encoder, below)))

    def _add_encoders(self, pairs: pa.Table) -> None:
        self.probabilities.add(pairs, "probability")
        self.similarities.add(pairs, "similarity")
        in_meaning = share_few_words(pairs)
        self.in_meaning.add(pairs.filter(in_meaning), "probability")
        self.in_words.add(pairs.filter(pc.invert(in_meaning)), "probability")
        self._in_words.add(pairs)

    def to_sign(self) -> list[tuple[Key, Key]]:
        """Pairs over the whole range of Jaccard coefficients, as far as there are any, for `collisions.measured`."""
        return [ends_of(row) for row in self._copies.rows() + self._in_words.rows()]

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


@dataclass(frozen=True)
class Survey:
    """What was found in passes over all pairs and clusters, before the contents of what is shown are read."""

    pairs: PairSurvey
    clusters: ClusterSurvey

    @property
    def cluster_ids(self) -> set[str]:
        """The clusters to be shown."""
        return {row["cluster_id"] for row in self.clusters.largest() + self.clusters.certain()}

    @property
    def keys(self) -> set[Key]:
        """The questions of the pairs to be shown."""
        return {key for pair in self.pairs.above() + self.pairs.below() for key in (pair.left, pair.right)}

    @property
    def compared(self) -> set[Key]:
        """The questions whose whole texts are compared."""
        return {key for pair in self.pairs.to_sign() for key in pair}

    def findings(self, run: Run, held: Contents) -> Findings:
        """All of the findings; `held` has what is to be shown and compared."""
        return Findings(
            sources=list(self.pairs.counts.values()),
            probabilities=self.pairs.probabilities,
            in_words=self.pairs.in_words,
            in_meaning=self.pairs.in_meaning,
            similarities=self.pairs.similarities,
            jaccards=self.pairs.jaccards,
            collisions=measured(run, self.pairs.to_sign(), held.whole),
            cluster_sizes=self.clusters.sizes,
            above=self.pairs.above(),
            below=self.pairs.below(),
            largest=[_cluster(row, held) for row in self.clusters.largest()],
            certain=[_cluster(row, held) for row in self.clusters.certain()],
            texts=held.texts,
        )


def survey(run: Run) -> Survey:
    """The survey of `run`.

    A cluster's weakest link is no stronger than its strongest pair, so the most certain of the clusters that
    the encoder joined are found among those of its surest pairs.
    """
    pairs = PairSurvey(run.metrics.get("threshold"), _score_range(run))
    for table in run.pairs.files():
        pairs.add(table)
    clusters = ClusterSurvey(clusters_of(run, {pair.left for pair in pairs.surest()}))
    for table in run.cluster_stats.files():
        clusters.add(table)
    return Survey(pairs, clusters)


def _score_range(run: Run) -> tuple[float, float]:
    """The lowest and the highest similarity; an encoder's measure may have any range."""
    ranges = [pc.min_max(table["similarity"]).as_py() for table in run.pairs.files(["similarity"])]
    there = [found for found in ranges if found["min"] is not None]
    return min((found["min"] for found in there), default=0.0), max((found["max"] for found in there), default=0.0)


def _joins(pairs: pa.Table, threshold: float | None) -> pa.ChunkedArray:
    """The pairs in one cluster, without those of the encoder below the threshold."""
    if threshold is None:
        return pairs["joined"]
    above = pc.greater_equal(pairs["probability"], pa.scalar(threshold, pa.float32()))
    return pc.and_(pc.or_(pc.not_equal(pairs["source"], "encoder"), above), pairs["joined"])


def _true(mask: pa.ChunkedArray) -> int:
    return pc.sum(mask).as_py() or 0


def _pair(row: TableRow) -> Pair:
    left, right = ends_of(row)
    more = ("source", "jaccard", "similarity", "probability", "known_link")
    return Pair(left, right, **{name: row[name] for name in more})


def _cluster(stats: TableRow, held: Contents) -> Cluster:
    own = held.members.get(stats["cluster_id"])
    questions = own.keys[:QUESTIONS_SHOWN] if own else []
    inside = [row for row in held.pairs.get(stats["cluster_id"], []) if set(ends_of(row)) <= set(questions)]
    return Cluster(
        **stats,
        canonical=questions[0] if questions else None,
        questions=questions,
        pairs=[_pair(row) for row in least_probable(inside)[:PAIRS_SHOWN]],
    )
