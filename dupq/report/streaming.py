"""Counts and selections over tables that come one file at a time and together may be larger than memory."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dupq.runs.reader import TableRow

Order = list[tuple[str, str]]  # columns, each "ascending" or "descending"


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

    def occupied(self, *places: float) -> tuple[list[float], list[int]]:
        """Edges and counts from the first to the last bin that holds a value or one of `places`."""
        marks = np.histogram(np.array(places, np.float64), self.edges)[0]
        used = np.flatnonzero(self.counts + marks)
        first, last = (used[0], used[-1]) if used.size else (0, 0)
        return self.edges[first : last + 2].tolist(), self.counts[first : last + 1].tolist()


class Selection:
    """The first `limit` rows, in an order, nulls last, of all the tables added; never more are held."""

    def __init__(self, limit: int, order: Order) -> None:
        """If no two rows are equal in `order`, the answer depends neither on the files nor on their order."""
        self._limit = limit
        self._order = order
        self._kept: pa.Table | None = None

    def add(self, table: pa.Table) -> None:
        """Let the rows of `table` compete."""
        pool = table if self._kept is None else pa.concat_tables([self._kept, table])
        # select_k_unstable is faster, but until pyarrow 26 it fails without rows, and up to 24 it drops nulls
        self._kept = pool.take(pc.sort_indices(pool, sort_keys=self._order)[: self._limit])

    def rows(self) -> list[TableRow]:
        """The rows that won, first to last."""
        return [] if self._kept is None else self._kept.to_pylist()
