"""Counts of a run's candidate pairs, by source and probability, and what the run would give at other thresholds.

Pairs are counted exactly. Clusters at a threshold are counted as connected components; a run also splits components
whose pairs disagree (dupq/clusters/partition.py), so it may have fewer questions in clusters.
"""

from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from typing_extensions import TypedDict

from dupq.clusters.components import connected
from dupq.runs.reader import Run
from dupq.runs.records import AtThreshold
from dupq.runs.scoring import KEYS, ends
from dupq.text.keys import Sites

SOURCES = ("exact", "near_duplicate", "encoder", "known_link", "verdict")
ENCODER = SOURCES.index("encoder")
STEPS = 100  # of probability
LOWEST = 10  # step of the slider: below it, pairs that are hardly ever duplicates join nearly everything
PAIRS = 4_000_000  # in memory at most: those that always join, then the most probable

_COUNTED = ["source", "probability", "joined", "known_link"]


def steps_of(probabilities: np.ndarray) -> np.ndarray:
    """Return the step s (int64, 0 to STEPS - 1) of each probability: s / STEPS is the last threshold that it reaches.

    Both are compared as float32, as the run does.
    """
    edges = (np.arange(STEPS) / STEPS).astype(np.float32)
    return np.searchsorted(edges, probabilities, "right") - 1


class Counts:
    """The numbers of pairs, of pairs that join their questions, and of known links: int64, (len(SOURCES), STEPS)."""

    def __init__(self, threshold: float | None) -> None:
        """`threshold` is the run's own: below it no pair of the encoder joins, even if other pairs join its ends."""
        self.pairs, self.joining, self.known = (np.zeros((len(SOURCES), STEPS), np.int64) for _ in range(3))
        self.sums = np.zeros(STEPS)  # of the probabilities of the encoder's pairs
        self.is_linked = False  # whether the run has links
        self.run_known = 0  # known links among the encoder's pairs from the threshold on
        self._threshold = np.float32(0 if threshold is None else threshold)

    def add(self, pairs: pa.Table) -> None:
        """Count rows of `pairs`."""
        sources = pc.index_in(pairs["source"], pa.array(SOURCES)).to_numpy()
        probabilities, known = pairs["probability"].to_numpy(), pc.fill_null(pairs["known_link"], False).to_numpy()
        steps, is_encoders, is_sure = steps_of(probabilities), sources == ENCODER, probabilities >= self._threshold
        joins = pairs["joined"].to_numpy() & (is_sure | ~is_encoders)
        cells = sources * STEPS + steps
        for counts, rows in ((self.pairs, cells), (self.joining, cells[joins]), (self.known, cells[known])):
            counts += np.bincount(rows, minlength=counts.size).reshape(counts.shape)
        self.sums += np.bincount(steps[is_encoders], probabilities[is_encoders].astype(np.float64), STEPS)
        self.is_linked |= pairs["known_link"].null_count < len(pairs)
        self.run_known += int((known & is_encoders & is_sure).sum())


def counted(run: Run) -> Counts:
    """Count the pairs of `run`, one file at a time."""
    counts = Counts(run.metrics.get("threshold"))
    for table in run.pairs.files(_COUNTED):
        counts.add(table)
    return counts


class Steps(TypedDict):
    """What joins at each threshold: lists with a value for each step from the lowest to the highest."""

    threshold: list[float]
    pairs: list[int]  # of the encoder
    expected: list[float | None]  # their mean probability; None without pairs
    known: list[int | None]  # how many of them are known links; None if the run has no links
    clusters: list[int]
    questions: list[int]  # in clusters
    largest: list[int]
    left_out: int  # pairs from LOWEST on, but below the lowest step
    run_known: int | None  # known links at the run's own threshold
    found: list[float | None] | None  # recall of the known duplicates that nothing was fitted on; None if not measured
    linked: list[float | None] | None  # share of linked pairs among those with such a question: a lower bound


def at_thresholds(run: Run, counts: Counts) -> Steps | None:
    """Return what other thresholds would give; reads the pairs of these steps once more.

    The result is None if the run has no counts of its sites, no candidate pair, or more than PAIRS pairs at each step.
    """
    sites, pairs = run.metrics.get("sites"), counts.pairs[ENCODER]
    always = counts.joining.sum() - counts.joining[ENCODER].sum()
    has_room = np.flatnonzero(_from(pairs)[LOWEST:] + always <= PAIRS)
    if not sites or not pairs.any() or not len(has_room):
        return None
    first = LOWEST + int(has_room[0])
    clusters, questions, largest = _components(*_ends(run, Sites(sorted(sites)), first), range(first, STEPS))
    above, known = (_from(column)[first:].tolist() for column in (pairs, counts.known[ENCODER]))
    expected = zip(_from(counts.sums)[first:].tolist(), above, strict=True)
    rows = (run.metrics.get("links") or {}).get("by_threshold") or []
    measured = {round(row["threshold"] * STEPS): row for row in rows}
    has_threshold = run.metrics.get("threshold") is not None
    return {
        "threshold": [step / STEPS for step in range(first, STEPS)],
        "pairs": above,
        "expected": [round(total / count, 4) if count else None for total, count in expected],
        "known": known if counts.is_linked else [None] * len(above),
        "clusters": clusters,
        "questions": questions,
        "largest": largest,
        "left_out": int(pairs[LOWEST:first].sum()),
        "run_known": counts.run_known if counts.is_linked and has_threshold else None,
        "found": _measured(measured, "links_found", first),
        "linked": _measured(measured, "lower_bound_precision", first),
    }


def _from(counts: np.ndarray) -> np.ndarray:
    """Return the sums from each step on."""
    return np.cumsum(counts[::-1])[::-1]


def _ends(run: Run, sites: Sites, first: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the keys (int64, (m, 2)) of the pairs that join from step `first` on, and the step of each.

    The step is STEPS for pairs that always join.
    """
    keys, steps = [np.zeros((0, 2), np.int64)], [np.zeros(0, np.int64)]
    least = pa.scalar(first / STEPS, pa.float32())
    for table in run.pairs.files([*KEYS, "source", "probability", "joined"]):
        is_encoders = pc.equal(table["source"], "encoder")
        pairs = table.filter(pc.if_else(is_encoders, pc.greater_equal(table["probability"], least), table["joined"]))
        keys.append(ends(pairs, sites))
        is_encoders = pc.equal(pairs["source"], "encoder").to_numpy()
        steps.append(np.where(is_encoders, steps_of(pairs["probability"].to_numpy()), STEPS))
    return np.concatenate(keys), np.concatenate(steps)


def _measured(
    rows: dict[int, AtThreshold], name: Literal["links_found", "lower_bound_precision"], first: int
) -> list[float | None] | None:
    """Return what the run measured on known duplicates, from step `first` on."""
    if not rows:
        return None
    values = (rows[step][name] if step in rows else None for step in range(first, STEPS))
    return [None if value is None else round(value, 6) for value in values]


def _components(pairs: np.ndarray, own: np.ndarray, steps: range) -> tuple[list[int], list[int], list[int]]:
    """Return the clusters, the questions in them and the largest at each of `steps`, of pairs by their `own` steps."""
    nodes, indices = np.unique(pairs, return_inverse=True)
    indices = indices.reshape(pairs.shape)
    labels = connected(len(nodes), indices[own == STEPS])
    rows = []
    for step in reversed(steps):
        joining = labels[indices[own == step]]
        labels = connected(len(nodes), joining)[labels] if len(joining) else labels
        sizes = np.bincount(labels)
        several = sizes[sizes > 1]
        rows.append((len(several), int(several.sum()), int(several.max(initial=0))))
    clusters, questions, largest = (list(column) for column in zip(*reversed(rows), strict=True))
    return clusters, questions, largest
