"""The charts of one run: its counts and measures as records for `charts`.

A chart whose numbers the run does not have is empty markup, and the page leaves it out.
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from markupsafe import Markup

from dupq.near_duplicates.minhash import collision_probability, optimal_bands
from dupq.report import charts
from dupq.report.charts import Bar, Dot, Mark
from dupq.report.explorer_clusters import Histogram
from dupq.report.findings import Labelled, Point
from dupq.report.summary import counted, number, score, share, words
from dupq.runs.records import TITLE_WORDS, LinkQuality, LinksOf, Metrics, PlantedMeasures

SITES = 20  # of recall by site
_FUNNEL = [
    ("questions", "Questions", "one"),
    ("exact_copies", "Exact copies of another", "one"),
    ("near_duplicate_pairs", "Near-duplicate pairs", "two"),
    ("representatives", "Representatives, encoded", "one"),
    ("encoder_pairs_above_threshold", "Encoder pairs above the threshold", "two"),
    ("clusters", "Clusters", "three"),
    ("questions_in_clusters", "Questions in clusters", "one"),
]


def funnel(metrics: Metrics) -> Markup:
    """What is left of the questions, step by step."""
    questions = metrics.get("questions")
    records = []
    for name, label, tone in _FUNNEL:
        count = metrics.get(name)
        if isinstance(count, int):
            of_all = f" ({share(count / questions)})" if tone == "one" and questions else ""
            records.append(Bar(label, count, number(count) + of_all, tone))
    return _bars("From questions to clusters", "Counts after each step.", records)


def nearest(links: LinkQuality) -> Markup:
    """How many known duplicates are among the nearest questions of each other."""
    shares = links.get("among_nearest") or {}
    records = [Bar(f"among the first {n}" if n != "1" else "first", value, share(value)) for n, value in shares.items()]
    return _bars("Known duplicates found by the encoder", "By the rank from either question.", records, 1)


def reliability(links: LinkQuality) -> Markup:
    """What the model says of pairs with a test question, beside how many of them are linked."""
    bins = links.get("calibration") or {}
    records = []
    for low, high, pairs, said, linked in zip(
        *(bins.get(name, []) for name in ("lower", "upper", "pairs", "mean_probability", "share_right")), strict=True
    ):
        label = f"{low:.2f} to {high:.2f}"
        records.append(Bar(f"{label}: mean probability", said, f"{share(said)} of {counted(int(pairs), 'pair')}"))
        records.append(Bar("linked", linked, share(linked), "two"))
    description = "By probability, of the candidate pairs with a question of the test part."
    return _bars("Probability and links", description, records, 1)


def recall_by_site(links: LinkQuality) -> Markup:
    """The share of the test links in one cluster, by the left question's site; of the sites with the most links."""
    sites = links.get("by_site") or {}
    if len(sites) < 2:
        return Markup("")
    largest = sorted(sites, key=lambda site: (-sites[site]["links"], site))[:SITES]
    return _recall("Known duplicates in one cluster, by site", {site: sites[site] for site in largest})


def recall_by_title(links: LinkQuality) -> Markup:
    """The same by the length of its title."""
    groups = {int(name): row for name, row in (links.get("by_title_words") or {}).items()}
    begins = sorted({*TITLE_WORDS, *groups})  # empty groups are not in the metrics
    ends = dict(pairwise(begins))
    return _recall(
        "Known duplicates in one cluster, by length of title",
        {_title_length(begin, ends.get(begin)): groups[begin] for begin in sorted(groups)},
    )


def planted(kinds: Mapping[str, PlantedMeasures | None]) -> Markup:
    """How many of the pairs that were planted into the archive are in one cluster."""
    shares = {kind: (measures or {}).get("same_cluster") for kind, measures in kinds.items()}
    records = [Bar(words(kind), value, share(value)) for kind, value in shares.items() if value is not None]
    return _bars("Planted pairs in one cluster", "Shares of the pairs of each kind.", records, 1)


def probabilities(counts: Labelled, threshold: float | None) -> Markup:
    """How sure the candidate pairs are."""
    return _histogram("Probability of the encoder's pairs", counts, threshold)


def in_words(counts: Labelled, among: Labelled, threshold: float | None) -> Markup:
    """The same of pairs that share words, on the axis of all of them."""
    return _histogram("Probability of the encoder's pairs that share words", counts, threshold, among)


def in_meaning(counts: Labelled, among: Labelled, threshold: float | None) -> Markup:
    """The same of pairs that share few."""
    title = "Probability of the encoder's pairs that are alike in meaning, not in words"
    return _histogram(title, counts, threshold, among)


def similarities(counts: Labelled) -> Markup:
    """How alike the encoder finds its pairs, on its own scale. No threshold: that is a probability."""
    return _histogram("Similarity of the encoder's pairs", counts, None)


def jaccards(counts: Labelled, threshold: float | None) -> Markup:
    """How many shingles the verified copies share."""
    return _histogram("Jaccard coefficient of copies and near duplicates", counts, threshold)


def collisions(near_duplicates: dict[str, Any], measured: Sequence[Point] = ()) -> Markup:
    """How likely a pair of each Jaccard coefficient is to be compared, by the bands and rows of the run."""
    threshold, permutations = near_duplicates.get("threshold"), near_duplicates.get("permutations")
    if threshold is None or permutations is None:
        return Markup("")
    bands, rows = optimal_bands(threshold, permutations)
    similarities = np.linspace(0, 1, 101)
    chances = collision_probability(similarities, bands, rows)
    description = "; ".join(
        f"{similarities[place]:.1f}: {share(float(chances[place]))}" for place in range(10, len(similarities), 10)
    )
    points = list(zip(similarities.tolist(), chances.tolist(), strict=True))
    at_threshold = share(float(collision_probability(np.array(threshold), bands, rows)))
    mark = Mark(threshold, f"threshold {score(threshold)}: {at_threshold}")
    dots = [
        Dot(
            point.similarity,
            point.share,
            f"{score(point.similarity)}: {share(point.share)} of {counted(point.pairs, 'pair')}",
        )
        for point in measured
    ]
    return charts.curve("Pairs that are compared, by their Jaccard coefficient", description, points, mark, dots)


def cluster_sizes(counts: Histogram) -> Markup:
    """How many clusters there are of each size."""
    if not counts.total:
        return Markup("")
    edges, occupied = counts.occupied()
    records = [
        Bar(_range(left, right), count, number(count))
        for left, right, count in zip(edges, edges[1:], occupied, strict=False)
    ]
    return _bars("Clusters by number of questions", "Clusters of each size.", records)


def _title_length(begin: int, end: int | None) -> str:
    return f"{begin} words and more" if end is None else f"{max(begin, 1)} to {end - 1} words"


def _recall(title: str, groups: Mapping[str, LinksOf]) -> Markup:
    records = [
        Bar(name, row["in_one_cluster"], f"{share(row['in_one_cluster'])} of {counted(row['links'], 'link')}")
        for name, row in groups.items()
    ]
    return _bars(title, "Of the links of the test part.", records, 1)


def _bars(title: str, description: str, records: list[Bar], maximum: float | None = None) -> Markup:
    return charts.bars(title, description, records, maximum) if records else Markup("")


def _histogram(title: str, counts: Labelled, threshold: float | None, among: Labelled | None = None) -> Markup:
    """`counts`, on the axis of the values that they are among."""
    if not counts.all.total:
        return Markup("")
    marks = [] if threshold is None else [threshold]
    edges = (among or counts).all.occupied(*marks)[0]
    first = int(np.searchsorted(counts.all.edges, edges[0]))
    shown = slice(first, first + len(edges) - 1)
    occupied = counts.all.counts[shown].tolist()
    mark = Mark(threshold, f"threshold {score(threshold)}") if threshold is not None else None
    description = f"{counted(counts.all.total, 'pair')} on a logarithmic axis."
    inner: list[int] | None = None
    if counts.known.total:
        inner = counts.known.counts[shown].tolist()
        description += f" {counted(counts.known.total, 'known link')} among them, in front."
    return charts.histogram(title, description, edges, occupied, mark, inner)


def _range(left: float, right: float) -> str:
    if right == float("inf"):
        return f"{left:,.0f} questions or more"
    return f"{left:,.0f} questions" if right - left == 1 else f"{left:,.0f} to {right - 1:,.0f} questions"
