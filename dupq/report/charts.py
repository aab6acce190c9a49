"""The report's charts, and the counts behind them: pairs by source and probability, and what other thresholds give.

Charts are bars in tables (macros.html.jinja). Colours are classes of the page, so a chart follows its light and dark
scheme and prints. Each bar has its value as text: nothing is shown by length or colour alone. A chart whose numbers the
run lacks has no bars, and the page leaves it out.
"""

import math
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dupq.clusters.components import connected
from dupq.job.records import Measures, Metrics
from dupq.report.summary import counted, number, score, share
from dupq.runs.reader import Run
from dupq.runs.scoring import ENDS
from dupq.text.keys import Sites

SOURCES = ("exact", "near_duplicate", "encoder", "known_link", "verdict")
ENCODER = SOURCES.index("encoder")
STEPS = 100  # of probability
LOWEST = 10  # step of the slider: below it, pairs that are hardly ever duplicates join nearly everything
PAIRS = 4_000_000  # in memory at most: those that always join, then the most probable
FEWEST = 10  # pairs in a bar of reliability
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


def steps_of(probabilities: np.ndarray) -> np.ndarray:
    """Return the step s (int64, 0 to STEPS - 1) of each probability: s / STEPS is the last threshold that it reaches.

    Both are compared as float32, as the run does.
    """
    edges = (np.arange(STEPS) / STEPS).astype(np.float32)
    return np.searchsorted(edges, probabilities, "right") - 1


class Counts:
    """The numbers of pairs, of pairs that join their questions, and of known links: int64, (len(SOURCES), STEPS)."""

    def __init__(self, run: Run) -> None:
        """Count the pairs of `run`, one file at a time.

        Below the run's own threshold no pair of the encoder joins, even if other pairs join its ends.
        """
        self.pairs, self.joining, self.known = (np.zeros((len(SOURCES), STEPS), np.int64) for _ in range(3))
        self.sums = np.zeros(STEPS)  # of the probabilities of the encoder's pairs
        self.is_linked = False  # whether the run has links
        self.run_known = 0  # known links among the encoder's pairs from the threshold on
        threshold = np.float32(run.metrics["threshold"])
        for pairs in run.pairs.files(["source", "probability", "joined", "known_link"]):
            sources = pc.index_in(pairs["source"], pa.array(SOURCES)).to_numpy()
            probabilities, known = pairs["probability"].to_numpy(), pc.fill_null(pairs["known_link"], False).to_numpy()
            steps, is_encoders, is_sure = steps_of(probabilities), sources == ENCODER, probabilities >= threshold
            joins = pairs["joined"].to_numpy() & (is_sure | ~is_encoders)
            cells = sources * STEPS + steps
            for counts, rows in ((self.pairs, cells), (self.joining, cells[joins]), (self.known, cells[known])):
                counts += np.bincount(rows, minlength=counts.size).reshape(counts.shape)
            self.sums += np.bincount(steps[is_encoders], probabilities[is_encoders].astype(np.float64), STEPS)
            self.is_linked |= pairs["known_link"].null_count < len(pairs)
            self.run_known += int((known & is_encoders & is_sure).sum())


def at_thresholds(run: Run, counts: Counts) -> dict[str, object] | None:
    """Return what other thresholds would give, in lists with a value for each step; reads the pairs of these once more.

    Clusters are counted as connected components. A run also splits components whose pairs disagree, so it may have
    fewer questions in clusters. The result is None if the run has no candidate pair, or more than PAIRS pairs at each
    step.
    """
    pairs = counts.pairs[ENCODER]
    always = counts.joining.sum() - counts.joining[ENCODER].sum()
    has_room = np.flatnonzero(_from(pairs)[LOWEST:] + always <= PAIRS)
    if not pairs.any() or not len(has_room):
        return None
    first = LOWEST + int(has_room[0])
    clusters, questions, largest = _components(*_ends(run, Sites(sorted(run.metrics["sites"])), first), first)
    above, known = (_from(column)[first:].tolist() for column in (pairs, counts.known[ENCODER]))
    expected = zip(_from(counts.sums)[first:].tolist(), above, strict=True)
    by_step = {round(row["threshold"] * STEPS): row for row in (run.metrics["links"] or {}).get("by_threshold") or []}

    def measured(name: str) -> list[float | None] | None:
        values = (by_step.get(step, {}).get(name) for step in range(first, STEPS))
        return [None if value is None else round(value, 6) for value in values] if by_step else None

    return {
        "threshold": [step / STEPS for step in range(first, STEPS)],
        "pairs": above,  # of the encoder
        "expected": [round(total / count, 4) if count else None for total, count in expected],  # mean probability
        "known": known if counts.is_linked else [None] * len(above),  # known links among the pairs
        "clusters": clusters,
        "questions": questions,  # in clusters
        "largest": largest,
        "left_out": int(pairs[LOWEST:first].sum()),  # pairs from LOWEST on, but below the lowest step
        "run_known": counts.run_known if counts.is_linked else None,  # known links at the run's own threshold
        "found": measured("links_found"),  # recall of the known duplicates that nothing was fitted on
        "linked": measured("lower_bound_precision"),  # share of linked pairs among those with such a question
    }


def _from(counts: np.ndarray) -> np.ndarray:
    """Return the sums from each step on."""
    return np.cumsum(counts[::-1])[::-1]


def _ends(run: Run, sites: Sites, first: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the pairs (int64 keys, (m, 2)) that join from step `first` on, and the step of each; STEPS: always."""
    keys, steps = [np.zeros((0, 2), np.int64)], [np.zeros(0, np.int64)]
    for table in run.pairs.files([*ENDS, "source", "probability", "joined"]):
        others = np.where(table["joined"].to_numpy(), STEPS, -1)
        is_encoders = pc.equal(table["source"], "encoder").to_numpy()
        own = np.where(is_encoders, steps_of(table["probability"].to_numpy()), others)
        keys.append(sites.pack_pairs(table.filter(pa.array(own >= first)), "pairs"))
        steps.append(own[own >= first])
    return np.concatenate(keys), np.concatenate(steps)


def _components(pairs: np.ndarray, steps: np.ndarray, first: int) -> tuple[list[int], list[int], list[int]]:
    """Return the clusters, the questions in them and the largest at each step from `first` on; pairs have `steps`."""
    nodes, indices = np.unique(pairs, return_inverse=True)
    indices = indices.reshape(pairs.shape)
    labels = connected(len(nodes), indices[steps == STEPS])
    rows = []
    for step in range(STEPS - 1, first - 1, -1):
        joining = labels[indices[steps == step]]
        labels = connected(len(nodes), joining)[labels] if len(joining) else labels
        sizes = np.bincount(labels)
        several = sizes[sizes > 1]
        rows.append((len(several), int(several.sum()), int(several.max(initial=0))))
    clusters, questions, largest = (list(column) for column in zip(*reversed(rows), strict=True))
    return clusters, questions, largest


class Bar(NamedTuple):
    """A bar: its label, its length, and its value as the reader sees it."""

    label: str
    value: float
    text: str
    tone: str = "one"  # one, two or three: a colour of the page


def funnel(metrics: Metrics) -> list[Bar]:
    """Return the numbers of questions and pairs after each step."""
    counts, questions, bars = dict[str, Any](metrics), metrics["questions"], list[Bar]()
    for name, label, tone in _FUNNEL:
        count = counts[name]
        of_all = f" ({share(count / questions)})" if tone == "one" and questions else ""
        bars.append(Bar(label, count, number(count) + of_all, tone))
    return bars


def reliability(links: Measures) -> list[Bar]:
    """Return the mean probability of pairs with a test question, beside the share of them that is linked."""
    bins = links.get("calibration") or {}
    names = ("lower", "upper", "pairs", "mean_probability", "share_right")
    lower, upper, pairs, mean, linked = (np.array(bins.get(name, []), np.float64) for name in names)
    bars = []
    for rows in _merged(pairs):
        label, count = f"{lower[rows][0]:.2f} to {upper[rows][-1]:.2f}", counted(int(pairs[rows].sum()), "pair")
        probability, share_linked = (float(np.average(of[rows], weights=pairs[rows])) for of in (mean, linked))
        bars.append(Bar(f"{label}: mean probability", probability, f"{share(probability)} of {count}"))
        bars.append(Bar("linked", share_linked, share(share_linked), "two"))
    return bars


def _merged(pairs: np.ndarray) -> list[slice]:
    """Merge neighbouring bins until each has FEWEST pairs, if there are so many: a share of two pairs means nothing."""
    starts = [0][: len(pairs)]
    for bin in range(1, len(pairs)):
        if pairs[starts[-1] : bin].sum() >= FEWEST <= pairs[bin:].sum():
            starts.append(bin)
    return [slice(*ends) for ends in pairwise([*starts, len(pairs)])]


def lost(links: Measures) -> list[Bar]:
    """Return where the known duplicates of the test part were lost."""
    return [
        Bar(name, value, f"{counted(round(value * links['test_links']), 'link')} ({share(value)})")
        for name, value in where_lost(links).items()
    ]


def where_lost(links: Measures) -> dict[str, float]:
    """Return the shares of the known duplicates of the test part by where they ended; empty if there are none."""
    grouped, listed = links.get("in_one_cluster"), links.get("listed_apart")
    if not links.get("test_links") or grouped is None or listed is None:
        return {}
    return {
        "in one cluster": grouped,
        "a candidate pair, not joined": listed,
        "no candidate pair": max(0.0, 1 - grouped - listed),
    }


def probabilities(counts: Counts, threshold: float) -> list[Bar]:
    """Return how many of the encoder's pairs have each tenth of probability; lengths are logarithms of the counts."""
    tenths = [column[ENCODER].reshape(_TENTHS, -1).sum(axis=1).tolist() for column in (counts.pairs, counts.known)]
    if not sum(tenths[0]):
        return []
    own, bars = int(steps_of(np.array([threshold], np.float32))[0]) * _TENTHS // STEPS, []
    for tenth, (pairs, known) in reversed([*enumerate(zip(*tenths, strict=True))]):
        label = f"{tenth / _TENTHS:.1f} to {(tenth + 1) / _TENTHS:.1f}"
        texts = [counted(pairs, "pair"), *[counted(known, "known link")] * (known > 0)]
        texts += [f"threshold {score(threshold)}"] * (tenth == own)
        bars.append(Bar(label, math.log1p(pairs), ", ".join(texts)))
    return bars


def cluster_sizes(run: Run) -> list[Bar]:
    """Return how many clusters there are of each size."""
    counts = np.zeros(len(_SIZES) - 1, np.int64)
    for stats in run.cluster_stats.files(["size"]):
        counts += np.histogram(stats["size"].to_numpy(), _SIZES)[0]
    ranges = zip(_SIZES, _SIZES[1:], counts.tolist(), strict=False)
    return [Bar(_range(low, high), count, number(count)) for low, high, count in ranges if count]


def _range(left: float, right: float) -> str:
    if right == math.inf:
        return f"{left:,.0f} questions or more"
    return f"{left:,.0f} questions" if right - left == 1 else f"{left:,.0f} to {right - 1:,.0f} questions"
