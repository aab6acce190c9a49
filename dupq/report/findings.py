"""Counts of a run's tables for the report's charts, in a pass over `pairs` and one over `cluster_stats`.

A pass holds one file and its counts. They depend neither on the files nor on the order of the rows.
"""

from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dupq.runs.reader import Run

SOURCES = ("exact", "near_duplicate", "encoder", "known_link", "verdict")
_PROBABILITIES = np.linspace(0, 1, 51)
_SIZES = np.array([2, 3, 4, 5, 10, 20, 50, 100, 1_000, np.inf])


class Histogram:
    """Counts between fixed edges; values beyond the ends count in the end bins."""

    def __init__(self, edges: np.ndarray) -> None:
        """All counts are zero; the last edge may be infinite."""
        self.edges = edges
        self.counts = np.zeros(len(edges) - 1, np.int64)

    def add(self, values: pa.ChunkedArray) -> None:
        """Count `values`; nulls are left out."""
        inside = np.clip(values.drop_null().to_numpy(), self.edges[0], self.edges[-1])
        self.counts += np.histogram(inside, self.edges)[0]

    @property
    def total(self) -> int:
        """How many values were counted."""
        return int(self.counts.sum())

    def occupied(self, *marks: float) -> tuple[list[float], list[int]]:
        """Return edges and counts from the first to the last bin that holds a value or one of `marks`."""
        used = np.flatnonzero(self.counts + np.histogram(np.array(marks, np.float64), self.edges)[0])
        first, last = (used[0], used[-1]) if used.size else (0, 0)
        return self.edges[first : last + 2].tolist(), self.counts[first : last + 1].tolist()


@dataclass
class SourceCount:
    """How many pairs a source gave, how many of them join their questions, and how many are known links."""

    source: str
    pairs: int = 0
    joining: int = 0
    known_links: int = 0


@dataclass
class Findings:
    """What the report says of a run that is not in the run's JSON files."""

    sources: list[SourceCount] = field(default_factory=lambda: [SourceCount(source) for source in SOURCES])
    probabilities: Histogram = field(default_factory=lambda: Histogram(_PROBABILITIES))  # of the encoder's pairs
    known: Histogram = field(default_factory=lambda: Histogram(_PROBABILITIES))  # of those of them that are known links
    cluster_sizes: Histogram = field(default_factory=lambda: Histogram(_SIZES))

    def add(self, pairs: pa.Table, threshold: float | None) -> None:
        """Count the rows of a file of `pairs`."""
        is_encoders = pc.equal(pairs["source"], "encoder")
        joins = pairs["joined"]
        if threshold is not None:  # below it a pair of the encoder joins nothing: others have joined its questions
            is_sure = pc.greater_equal(pairs["probability"], pa.scalar(threshold, pa.float32()))
            joins = pc.and_(joins, pc.or_(pc.invert(is_encoders), is_sure))
        for count in self.sources:
            is_its = pc.equal(pairs["source"], count.source)
            count.pairs += _true(is_its)
            count.joining += _true(pc.and_(is_its, joins))
            count.known_links += _true(pc.and_(is_its, pairs["known_link"]))
        self.probabilities.add(pairs["probability"].filter(is_encoders))
        is_known = pc.and_(is_encoders, pc.fill_null(pairs["known_link"], False))
        self.known.add(pairs["probability"].filter(is_known))


def findings(run: Run) -> Findings:
    """Return the counts of `run`."""
    found = Findings()
    for pairs in run.pairs.files():
        found.add(pairs, run.metrics.get("threshold"))
    for stats in run.cluster_stats.files(["size"]):
        found.cluster_sizes.add(stats["size"].filter(pc.greater(stats["size"], 1)))
    return found


def _true(mask: pa.ChunkedArray) -> int:
    return pc.sum(mask).as_py() or 0
