"""What a run would give at other thresholds, for the report's slider.

Pairs are counted. Clusters and questions are those of connected components: a run then takes apart the components
whose pairs disagree (dupq/clusters/partition.py), so it has at most as many questions in clusters as are said here.
"""

from typing import Literal, TypedDict

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from scipy import sparse
from scipy.sparse.csgraph import connected_components

from dupq.runs.reader import Run
from dupq.runs.records import AtThreshold
from dupq.text.keys import Sites

STEPS = 100  # of the probability
LOWEST = 10  # step: below it, components of pairs that are hardly any duplicates join nearly everything
PAIRS = 4_000_000  # that are held at once, but for one file: those that always join, then the most probable

_SIDES = ("left", "right")
_COLUMNS = [f"{name}_{side}" for side in _SIDES for name in ("site", "question_id")]
_COLUMNS += ["source", "probability", "joined", "known_link"]


class Steps(TypedDict):
    """A row for each step, from the lowest one that is held to the highest: what joins from there on."""

    threshold: list[float]
    pairs: list[int]  # of the encoder
    expected: list[float | None]  # their mean probability; None where there are none
    known: list[int | None]  # of them are known links; None if the run was given no links
    clusters: list[int]
    questions: list[int]  # in clusters
    largest: list[int]
    left_out: int  # pairs from LOWEST on whose steps are not held
    run_known: int | None  # known links at the run's own threshold
    found: list[float | None] | None  # share of the known duplicates that nothing was fitted on; None if not measured
    linked: list[float | None] | None  # of the pairs with such a question, the share that is linked: a lower bound


def steps_of(probabilities: np.ndarray) -> np.ndarray:
    """The step (int64, 0 to STEPS - 1) of each probability (float32): at a threshold of s / STEPS it is above from s.

    Compared as the run does, in float32.
    """
    edges = (np.arange(STEPS) / STEPS).astype(np.float32)
    return np.searchsorted(edges, probabilities, "right") - 1


def at_thresholds(run: Run) -> Steps | None:
    """What other thresholds would give, in one pass over the pairs.

    None if the run has no counts of its sites or no candidate pair, or more than PAIRS pairs at every step.
    """
    if not run.metrics.get("sites"):
        return None
    survey = _Survey(Sites(sorted(run.metrics["sites"])), run.metrics.get("threshold"))
    for table in run.pairs.files(_COLUMNS):
        survey.add(table, run.pairs.place)
    if not survey.counts.any() or survey.first >= STEPS:
        return None
    return survey.steps(_measured(run))


def _measured(run: Run) -> dict[int, AtThreshold]:
    """What the run measured on known duplicates, by step."""
    rows = (run.metrics.get("links") or {}).get("by_threshold") or []
    return {round(row["threshold"] * STEPS): row for row in rows}


class _Survey:
    """Counts of the encoder's pairs by step, and the ends of those from step `first` on."""

    def __init__(self, sites: Sites, threshold: float | None) -> None:
        """`threshold` is the run's own."""
        self.first = LOWEST
        self.counts = np.zeros(STEPS, np.int64)
        self._sums, self._known = np.zeros(STEPS), np.zeros(STEPS, np.int64)
        self._sites, self._threshold = sites, threshold
        self._is_linked, self._run_known = False, 0
        self._held = np.zeros(STEPS + 2, np.int64)  # pairs that were held, by step; none is above STEPS
        self._pieces = [(np.zeros((0, 2), np.int64), np.zeros(0, np.int64))]

    def add(self, pairs: pa.Table, place: str) -> None:
        """Take in one file of the table at `place`."""
        is_encoders = pc.equal(pairs["source"], "encoder").to_numpy()
        probabilities = pairs["probability"].to_numpy()
        self._count(probabilities[is_encoders], pairs["known_link"].filter(pa.array(is_encoders)))
        steps = np.where(is_encoders, steps_of(probabilities), STEPS)  # STEPS: joins at any threshold
        wanted = (steps >= self.first) & (is_encoders | pairs["joined"].to_numpy())
        self._hold(pairs.filter(pa.array(wanted)), steps[wanted], place)

    def _count(self, probabilities: np.ndarray, known_link: pa.ChunkedArray) -> None:
        steps, known = steps_of(probabilities), pc.fill_null(known_link, False).to_numpy()
        self.counts += np.bincount(steps, minlength=STEPS)
        self._sums += np.bincount(steps, probabilities.astype(np.float64), minlength=STEPS)
        self._known += np.bincount(steps[known], minlength=STEPS)
        self._is_linked |= known_link.null_count < len(known_link)
        if self._threshold is not None:
            self._run_known += int((probabilities[known] >= np.float32(self._threshold)).sum())

    def _hold(self, pairs: pa.Table, steps: np.ndarray, place: str) -> None:
        """Keep the ends of `pairs`, and let go of the lowest steps of which there is no room."""
        sides = [
            self._sites.pack_columns(pairs[f"site_{side}"], pairs[f"question_id_{side}"], place) for side in _SIDES
        ]
        self._pieces.append((np.stack(sides, axis=1).reshape(-1, 2), steps))
        self._held += np.bincount(steps, minlength=STEPS + 2)
        above = np.cumsum(self._held[::-1])[::-1]
        if above[self.first] > PAIRS:
            self.first = int(np.flatnonzero(above <= PAIRS)[0])
            self._pieces = [(ends[own >= self.first], own[own >= self.first]) for ends, own in self._pieces]

    def steps(self, measured: dict[int, AtThreshold]) -> Steps:
        """The columns, of what was added, and of what was `measured`."""
        counts, sums, known = (np.cumsum(column[::-1])[::-1] for column in (self.counts, self._sums, self._known))
        steps = range(self.first, STEPS)
        ends, own = (np.concatenate(column) for column in zip(*self._pieces, strict=True))
        clusters, questions, largest = _components(ends, own, steps)
        return {
            "threshold": [step / STEPS for step in steps],
            "pairs": [int(counts[step]) for step in steps],
            "expected": [round(float(sums[step] / counts[step]), 4) if counts[step] else None for step in steps],
            "known": [int(known[step]) if self._is_linked else None for step in steps],
            "clusters": clusters,
            "questions": questions,
            "largest": largest,
            "left_out": int(self.counts[LOWEST : self.first].sum()),
            "run_known": self._run_known if self._is_linked and self._threshold is not None else None,
            "found": _column(measured, "links_found", steps),
            "linked": _column(measured, "lower_bound_precision", steps),
        }


def _column(
    measured: dict[int, AtThreshold], name: Literal["links_found", "lower_bound_precision"], steps: range
) -> list[float | None] | None:
    if not measured:
        return None
    values = (measured[step][name] if step in measured else None for step in steps)
    return [None if value is None else round(value, 6) for value in values]


def _components(ends: np.ndarray, own: np.ndarray, steps: range) -> tuple[list[int], list[int], list[int]]:
    """Clusters, questions in them and the largest at each of `steps`, of pairs (int64, (m, 2)) by their `own` steps."""
    nodes, places = np.unique(ends, return_inverse=True)
    places = places.reshape(ends.shape)
    labels = _joined(np.arange(len(nodes)), places[own == STEPS])
    clusters, questions, largest = list[int](), list[int](), list[int]()
    for step in reversed(steps):
        labels = _joined(labels, places[own == step])
        sizes = np.bincount(labels)
        several = sizes[sizes > 1]
        clusters.append(len(several))
        questions.append(int(several.sum()))
        largest.append(int(several.max(initial=0)))
    return clusters[::-1], questions[::-1], largest[::-1]


def _joined(labels: np.ndarray, pairs: np.ndarray) -> np.ndarray:
    """`labels` (int64, 0 to n - 1 without gaps) after the groups of both ends of `pairs` are joined."""
    if not len(pairs):
        return labels
    groups = int(labels.max()) + 1
    left, right = labels[pairs[:, 0]], labels[pairs[:, 1]]
    graph = sparse.coo_array((np.ones(len(left), np.int8), (left, right)), shape=(groups, groups))
    return connected_components(graph.tocsr(), directed=False)[1].astype(np.int64)[labels]
