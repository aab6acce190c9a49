"""Charts of a finished run for notebooks, by altair: `Run.plot`. Each reads only what it shows."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import altair as alt
import numpy as np
import pyarrow.compute as pc

from dupq.errors import DupqError
from dupq.report.charts import ENCODER, STEPS, Counts, at_thresholds, where_lost
from dupq.report.where import Where, where
from dupq.runs.reader import Run

_SIZE = {"width": 480, "height": 220}
_LOG = alt.Scale(type="log", domainMin=0.5)


@dataclass(frozen=True)
class Plots:
    """The charts of a run."""

    run: Run

    def probabilities(self) -> alt.LayerChart:
        """Return a histogram of the probabilities of the encoder's pairs, and of those that are known links."""
        counts, edges = Counts(self.run), np.linspace(0, 1, STEPS // 2 + 1).tolist()
        columns = (column[ENCODER].reshape(-1, 2).sum(axis=1).tolist() for column in (counts.pairs, counts.known))
        rows = [
            {"from": low, "to": high, "bottom": 0.5, "pairs": count, "which": which}
            for which, column in zip(("all", "known links"), columns, strict=True)
            for low, high, count in zip(edges[:-1], edges[1:], column, strict=True)
            if count
        ]
        bars = alt.Chart(alt.Data(values=rows)).mark_rect()
        bars = bars.encode(
            x=alt.X("from:Q", title="probability", scale=alt.Scale(domain=[0, 1])),
            x2="to:Q",
            y=alt.Y("pairs:Q", title="pairs (logarithmic)", scale=_LOG),
            y2="bottom:Q",
            color=alt.Color("which:N", title=None),
        )
        line = alt.Chart(alt.Data(values=[{"threshold": self.run.metrics["threshold"]}]))
        line = line.mark_rule(strokeDash=[4, 4]).encode(x="threshold:Q")
        return (bars + line).properties(title="How sure the pairs of the encoder are", **_SIZE)

    def thresholds(self) -> alt.Chart:
        """Return how many of the encoder's pairs are above each threshold, and how many of them are likely right."""
        found: Any = at_thresholds(self.run, Counts(self.run)) or {"threshold": [], "pairs": [], "expected": []}
        rows = [
            {"threshold": threshold, "pairs": count, "which": which}
            for threshold, above, right in zip(
                *(found[name] for name in ("threshold", "pairs", "expected")), strict=True
            )
            if above
            for which, count in (("all", above), ("likely right", above * right))
        ]
        x, y = alt.X("threshold:Q"), alt.Y("pairs:Q", title="pairs at or above it (logarithmic)", scale=_LOG)
        chart = alt.Chart(alt.Data(values=rows)).mark_line().encode(x, y, alt.Color("which:N", title=None))
        return chart.properties(title="Pairs by threshold", **_SIZE)

    def calibration(self) -> alt.LayerChart:
        """Return the share of linked pairs against the model's probability. Raises DupqError without links."""
        bins: Any = (self.run.metrics["links"] or {}).get("calibration") or {}
        columns = [bins.get(name) or [] for name in ("mean_probability", "share_right", "pairs")]
        rows = [dict(zip(("said", "linked", "pairs"), row, strict=True)) for row in zip(*columns, strict=True)]
        if not rows:
            raise DupqError(f"{self.run.uri}: no calibration, because the run was made without --links")
        line = alt.Chart(alt.Data(values=[{"said": 0, "linked": 0}, {"said": 1, "linked": 1}])).mark_line(
            strokeDash=[4, 4]
        )
        points = alt.Chart(alt.Data(values=rows)).mark_circle()
        x, y = alt.X("said:Q", title="probability by the model"), alt.Y("linked:Q", title="share that is linked")
        size = alt.Size("pairs:Q", title="pairs", scale=alt.Scale(type="sqrt"))
        chart = line.encode(x, y) + points.encode(x, y, size)
        return chart.properties(title="Probabilities beside known links, which are a lower bound", **_SIZE)

    def sizes(self) -> alt.Chart:
        """Return the number of clusters of each size."""
        column = self.run.cluster_stats.arrow(["size"])["size"]
        counts = pc.value_counts(column.filter(pc.greater(column, 1))).to_pylist()
        return _bars(
            [{"questions": row["values"], "clusters": row["counts"]} for row in counts],
            alt.X("clusters:Q"),
            alt.Y("questions:O", title="questions in the cluster"),
            "Clusters by size",
        )

    def lost(self) -> alt.Chart:
        """Return where known duplicates of the test part were lost. Raises DupqError without any."""
        links = self.run.metrics["links"] or {}
        shares = where_lost(links)
        if not shares:
            why = "no known duplicates were set aside as a test (--links gives them), or their links joined them"
            raise DupqError(f"{self.run.uri}: {why}")
        rows = [{"where": name, "links": round(value * links["test_links"])} for name, value in shares.items()]
        where = alt.Y("where:N", title=None, sort=None)
        return _bars(rows, alt.X("links:Q", title="known duplicates"), where, "Where known duplicates were lost")

    def changes(self) -> alt.Chart:
        """Return what became of the clusters of the earlier run. Raises DupqError without one."""
        counts = pc.value_counts(self.run.changes.arrow(["kind"])["kind"]).to_pylist()
        rows = [{"kind": row["values"], "clusters": row["counts"]} for row in counts]
        kind = alt.Y("kind:N", title=None, sort="-x")
        return _bars(rows, alt.X("clusters:Q"), kind, "Clusters since the earlier run")

    def tags(self) -> alt.Chart:
        """Return how many questions with each tag are expected to have a duplicate, for the tags with most."""
        return self._where("tags", "Questions with a duplicate by tag", sort="-x")

    def months(self) -> alt.Chart:
        """Return how many questions of each month are expected to have a duplicate."""
        return self._where("months", "Questions with a duplicate by month")

    def sites(self) -> alt.Chart:
        """Return how many likely pairs of each two sites are expected to be right."""
        return self._where("sites", "Likely pairs by sites", sort="-x")

    def ages(self) -> alt.Chart:
        """Return how many likely pairs are expected to be right, by the time between both questions."""
        return self._where("ages", "Likely pairs by the time between both questions")

    def _where(self, name: str, title: str, sort: str | None = None) -> alt.Chart:
        """Return a chart of a field of `where`. Raises DupqError if it is empty."""
        rows = [share._asdict() for share in getattr(self._found, name)]
        if not rows:
            raise DupqError(f"{self.run.uri}: no {name} to count by: no likely pairs, or the archive lacks them")
        label = alt.Y("name:N", title=None, sort=sort)
        return _bars(rows, alt.X("expected:Q", title="expected duplicates"), label, title)

    @cached_property
    def _found(self) -> Where:
        return where(self.run)


def evidence_chart(evidence: Mapping[str, float]) -> alt.Chart:
    """Return what each kind of evidence adds to the log-odds of a pair."""
    rows = [{"evidence": name, "added": value} for name, value in evidence.items() if value]
    x, y = alt.X("added:Q", title="added to the log-odds"), alt.Y("evidence:N", title=None, sort=None)
    return _bars(rows, x, y, "Why these two")


def _bars(rows: Sequence[Mapping[str, object]], x: alt.X, y: alt.Y, title: str) -> alt.Chart:
    return alt.Chart(alt.Data(values=rows)).mark_bar().encode(x=x, y=y).properties(title=title, width=_SIZE["width"])
