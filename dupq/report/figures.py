"""The charts of one run: its counts and measures as records for `charts`.

A chart whose numbers the run does not have is empty markup, and the page leaves it out.
"""

from collections.abc import Mapping

import numpy as np
from markupsafe import Markup

from dupq.report import charts
from dupq.report.charts import Bar, Mark
from dupq.report.findings import Findings, Histogram
from dupq.report.summary import counted, number, score, share, words
from dupq.runs.records import LinkQuality, Metrics, PlantedMeasures

SITES = 20  # of recall by site
FEWEST = 10  # pairs of a bar of reliability
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
    records = [
        Bar(f"among the first {n}" if n != "1" else "first", value, share(value))
        for n, value in sorted(shares.items(), key=lambda item: int(item[0]))
    ]
    return _bars("Known duplicates found by the encoder", "By the rank from either question.", records, 1)


def reliability(links: LinkQuality) -> Markup:
    """What the model says of pairs with a test question, beside how many of them are linked."""
    bins = links.get("calibration") or {}
    columns = (bins.get(name, []) for name in ("lower", "upper", "pairs", "mean_probability", "share_right"))
    records = []
    for low, high, pairs, said, linked in _merged(list(zip(*columns, strict=True))):
        label = f"{low:.2f} to {high:.2f}"
        records.append(Bar(f"{label}: mean probability", said, f"{share(said)} of {counted(int(pairs), 'pair')}"))
        records.append(Bar("linked", linked, share(linked), "two"))
    description = "By probability, of the candidate pairs with a question of the test part."
    return _bars("Probability and links", description, records, 1)


def _merged(bins: list[tuple[float, ...]]) -> list[tuple[float, ...]]:
    """Bins of at least FEWEST pairs each, unless there are fewer: a share of two pairs tells nothing."""
    kept: list[tuple[float, ...]] = []
    for index, found in enumerate(bins):
        is_short = sum(later[2] for later in bins[index:]) < FEWEST  # what is left joins the last
        kept.append(_both(kept.pop(), found) if kept and (kept[-1][2] < FEWEST or is_short) else found)
    return kept


def _both(one: tuple[float, ...], other: tuple[float, ...]) -> tuple[float, ...]:
    """Two bins of reliability, next to each other, as one."""
    weights = [one[2], other[2]]
    said, linked = (float(np.average([one[place], other[place]], weights=weights)) for place in (3, 4))
    return one[0], other[1], sum(weights), said, linked


def lost(links: LinkQuality) -> Markup:
    """Where the known duplicates of the test part were lost."""
    records = [
        Bar(name, value, f"{counted(round(value * links['test_links']), 'link')} ({share(value)})")
        for name, value in where_lost(links).items()
    ]
    return _bars("Where known duplicates were lost", "Of the links of the test part.", records, 1)


def where_lost(links: LinkQuality) -> dict[str, float]:
    """Return the shares of the known duplicates of the test part, by where they are; empty if there are none."""
    grouped, listed = links.get("in_one_cluster"), links.get("listed_apart")
    if not links.get("test_links") or grouped is None or listed is None:
        return {}
    return {
        "in one cluster": grouped,
        "a candidate pair, not joined": listed,
        "no candidate pair": 1 - grouped - listed,
    }


def recall_by_site(links: LinkQuality) -> Markup:
    """The share of the test links in one cluster, by the left question's site; of the sites with the most links."""
    sites = links.get("by_site") or {}
    if len(sites) < 2:
        return Markup("")
    largest = sorted(sites, key=lambda site: (-sites[site]["links"], site))[:SITES]
    records = [
        Bar(name, row["in_one_cluster"], f"{share(row['in_one_cluster'])} of {counted(row['links'], 'link')}")
        for name, row in ((site, sites[site]) for site in largest)
    ]
    return _bars("Known duplicates in one cluster, by site", "Of the links of the test part.", records, 1)


def probabilities(found: Findings, threshold: float | None) -> Markup:
    """How sure the candidate pairs are, with known links in front."""
    if not found.probabilities.total:
        return Markup("")
    edges, counts = found.probabilities.occupied(*([] if threshold is None else [threshold]))
    first = int(np.searchsorted(found.probabilities.edges, edges[0]))
    known = found.known.counts[first : first + len(counts)].tolist()
    mark = Mark(threshold, f"threshold {score(threshold)}") if threshold is not None else None
    description = f"{counted(found.probabilities.total, 'pair')} on a logarithmic axis."
    if found.known.total:
        description += f" {counted(found.known.total, 'known link')} among them, in front."
    return charts.histogram(
        "Probability of the encoder's pairs", description, edges, counts, mark, known, ("probability", "pairs")
    )


def planted(kinds: Mapping[str, PlantedMeasures | None]) -> Markup:
    """How many of the pairs that were planted into the archive are in one cluster."""
    shares = {kind: (measures or {}).get("same_cluster") for kind, measures in kinds.items()}
    records = [Bar(words(kind), value, share(value)) for kind, value in shares.items() if value is not None]
    return _bars("Planted pairs in one cluster", "Shares of the pairs of each kind.", records, 1)


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


def _bars(title: str, description: str, records: list[Bar], maximum: float | None = None) -> Markup:
    return charts.bars(title, description, records, maximum) if records else Markup("")


def _range(left: float, right: float) -> str:
    if right == float("inf"):
        return f"{left:,.0f} questions or more"
    return f"{left:,.0f} questions" if right - left == 1 else f"{left:,.0f} to {right - 1:,.0f} questions"
