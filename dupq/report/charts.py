"""The report's charts: the counts and measures of one run as bars in tables; and the learning curve of a training.

Colours are classes of the page, so a chart follows its light and dark scheme and prints. Every bar carries its value as
text: nothing is said by length or colour alone. All text is escaped. A chart whose numbers the run does not have is
empty markup, and the page leaves it out.
"""

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from markupsafe import Markup

from dupq.report.counts import ENCODER, STEPS, Counts, steps_of
from dupq.report.summary import counted, number, score, share, words
from dupq.runs.reader import Run
from dupq.runs.records import LinkQuality, Metrics, PlantedMeasures

if TYPE_CHECKING:
    from dupq.training.checkpoints import Epoch


class Bar(NamedTuple):
    """One bar: its label, its length, and its value as the reader sees it."""

    label: str
    value: float
    text: str
    tone: str = "one"  # one, two or three: a colour of the page


def bars(title: str, description: str, records: Sequence[Bar], maximum: float | None = None) -> Markup:
    """Horizontal bars, in order; `maximum` fills the width, or else the largest value does.

    They are a table, which folds on a narrow screen and is read out row by row; nothing if there is none.
    """
    if not records:
        return Markup("")
    longest = maximum or max(record.value for record in records)
    rows = Markup("").join(
        Markup('<tr><th scope="row">{}</th><td>{}</td><td>{}</td></tr>').format(
            record.label, meter(record.value, longest, record.tone), record.text
        )
        for record in records
    )
    caption = f"{title}. {description}"
    return Markup('<table class="bars"><caption class="unseen">{}</caption>{}</table>').format(caption, rows)


def meter(value: float, maximum: float, tone: str = "one") -> Markup:
    """One bare bar for a table cell beside the value as text, so screen readers skip it."""
    return Markup(
        '<svg class="meter" viewBox="0 0 100 8" aria-hidden="true" preserveAspectRatio="none">'
        '<rect class="{}" width="{:.1f}" height="8"/></svg>'
    ).format(tone, max(1.0, min(1.0, value / maximum) * 100) if value >= 1e-9 and maximum > 0 else 0)


SITES = 20  # of recall by site
FEWEST = 10  # pairs of a bar of reliability
_TENTHS = 10
_SIZES = (2, 3, 4, 5, 10, 20, 50, 100, 1_000, math.inf)
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
    return bars("From questions to clusters", "Counts after each step.", records)


def nearest(links: LinkQuality) -> Markup:
    """How many known duplicates are among the nearest questions of each other."""
    shares = links.get("among_nearest") or {}
    records = [
        Bar(f"among the first {n}" if n != "1" else "first", value, share(value))
        for n, value in sorted(shares.items(), key=lambda item: int(item[0]))
    ]
    return bars("Known duplicates found by the encoder", "By the rank from either question.", records, 1)


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
    return bars("Probability and links", description, records, 1)


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
    return bars("Where known duplicates were lost", "Of the links of the test part.", records, 1)


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
    return bars("Known duplicates in one cluster, by site", "Of the links of the test part.", records, 1)


def probabilities(counts: Counts, threshold: float | None) -> Markup:
    """How sure the encoder's pairs are, by tenths of probability; bars are as long as the logarithms of the counts."""
    tenths = [column[ENCODER].reshape(_TENTHS, -1).sum(axis=1).tolist() for column in (counts.pairs, counts.known)]
    if not sum(tenths[0]):
        return Markup("")
    own = -1 if threshold is None else int(steps_of(np.array([threshold], np.float32))[0]) * _TENTHS // STEPS
    records = []
    for tenth, (pairs, known) in reversed([*enumerate(zip(*tenths, strict=True))]):
        label = f"{tenth / _TENTHS:.1f} to {(tenth + 1) / _TENTHS:.1f}"
        said = [counted(pairs, "pair"), *[counted(known, "known link")] * (known > 0)]
        said += [f"threshold {score(threshold)}"] * (tenth == own)
        records.append(Bar(label, math.log1p(pairs), ", ".join(said)))
    return bars("Probability of the encoder's pairs", "Lengths are logarithms of the counts.", records)


def planted(kinds: Mapping[str, PlantedMeasures | None]) -> Markup:
    """How many of the pairs that were planted into the archive are in one cluster."""
    shares = {kind: (measures or {}).get("same_cluster") for kind, measures in kinds.items()}
    records = [Bar(words(kind), value, share(value)) for kind, value in shares.items() if value is not None]
    return bars("Planted pairs in one cluster", "Shares of the pairs of each kind.", records, 1)


def cluster_sizes(run: Run) -> Markup:
    """How many clusters there are of each size."""
    counts = np.zeros(len(_SIZES) - 1, np.int64)
    for stats in run.cluster_stats.files(["size"]):
        counts += np.histogram(stats["size"].to_numpy(), _SIZES)[0]
    ranges = zip(_SIZES, _SIZES[1:], counts.tolist(), strict=False)
    records = [Bar(_range(low, high), count, number(count)) for low, high, count in ranges if count]
    return bars("Clusters by number of questions", "Clusters of each size.", records)


def _range(left: float, right: float) -> str:
    if right == float("inf"):
        return f"{left:,.0f} questions or more"
    return f"{left:,.0f} questions" if right - left == 1 else f"{left:,.0f} to {right - 1:,.0f} questions"


# what epochs are measured by, the first that there is
NAMES = {
    "development_map": "development MAP",
    "development_body_map": "development MAP of titles and their bodies",
}


_CURVE = (
    '<svg xmlns="http://www.w3.org/2000/svg" role="img" viewBox="0 0 720 {height}"><title>Learning curve</title>'
    "<desc>{said}</desc><style>svg {{ background: #fff; font: 13px system-ui, sans-serif }} "
    "polyline {{ fill: none; stroke: #0b6bcb; stroke-width: 2 }} circle {{ fill: #0b6bcb }} .best {{ fill: #b3261e }}"
    "</style>{panels}</svg>\n"
)
_PANEL, _TOP, _LEFT, _ACROSS, _UP = 260, 50, 70, 620, 170  # pixels: a panel, and where its values are drawn


def picture(curve: Sequence["Epoch"]) -> str:
    """Return an SVG file: what the best epoch is chosen by (one of NAMES) and the loss of each epoch."""
    rows = [dict[str, Any](row) for row in curve]
    measure = next((name for name in NAMES if any(row.get(name) is not None for row in rows)), None)
    best, kept = rows[-1], "the last one is kept"
    if measure is not None:
        best = max(rows, key=lambda row: row[measure])
        kept = f"the best is epoch {best['epoch']}, {NAMES[measure]} {best[measure]:.3f}"
    names = [name for name in (measure, "loss") if name is not None]
    panels = Markup("").join(_panel(name, rows, best, number * _PANEL) for number, name in enumerate(names))
    said = f"{counted(len(rows), 'epoch')}; {kept}."
    return Markup(_CURVE).format(height=len(names) * _PANEL, said=said, panels=panels)


def _panel(name: str, rows: list[dict[str, Any]], best: dict[str, Any], top: int) -> Markup:
    """One measure over the epochs, from 0 at the foot to its highest value at the top."""
    highest = max(1e-9, *(row[name] for row in rows))
    places = [
        (_LEFT + _ACROSS * index / max(1, len(rows) - 1), top + _TOP + _UP * (1 - row[name] / highest))
        for index, row in enumerate(rows)
    ]
    dots = Markup("").join(
        Markup('<circle class="{}" cx="{:.1f}" cy="{:.1f}" r="4"><title>epoch {}: {:.4f}</title></circle>').format(
            "best" if row is best else "dot", x, y, row["epoch"], row[name]
        )
        for row, (x, y) in zip(rows, places, strict=True)
    )
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    return Markup(
        '<text x="{}" y="{}">{}: {:.3g} at the top, 0 at the foot; epochs {} to {}</text><polyline points="{}"/>{}'
    ).format(_LEFT, top + 30, NAMES.get(name, name), highest, rows[0]["epoch"], rows[-1]["epoch"], line, dots)
