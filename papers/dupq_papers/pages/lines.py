"""The pages of the papers' tables: ours beside the paper's, as Markdown, HTML and rows of data."""

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from dupq.evaluation.measures import bootstrap_interval
from dupq_papers.experiments.results import Result
from dupq_papers.experiments.rows import QUOTED, Row, Table

SEED = 1  # of resamples
_RESAMPLES = 2_000
_FURTHER = ("mrr", "ndcg_at_10")  # measures that no paper prints: in the results only


@dataclass(frozen=True)
class Measured:
    """A table on one data set: the result of each row that was computed (experiments/measuring.py)."""

    table: Table
    data: str
    language: str
    results: Mapping[str, Result]  # by the rows' labels
    other: str | None = None  # the second data set, of rows that need one

    def rows(self) -> list[Row]:
        """The rows that are shown: computed ones, those that can only be quoted, and those without a second data set.

        What a quick run leaves out is not.
        """
        return [row for row in self.table.rows if row.label in self.results or self.why_empty(row)]

    def why_empty(self, row: Row) -> str:
        """Why a row has no figure of ours."""
        if row.system == QUOTED:
            return "quoted"
        return "needs a second data set" if row.needs_other and self.other is None else ""

    def value(self, label: str, measure: str) -> float | None:
        """Our figure."""
        found = self.results.get(label)
        return None if found is None else found["values"].get(measure)

    def each(self, label: str, measure: str) -> np.ndarray | None:
        """Our value of each query or pair."""
        found = self.results.get(label)
        return None if found is None or measure not in found["each"] else np.array(found["each"][measure])

    @functools.cached_property
    def intervals(self) -> dict[tuple[str, str], tuple[float, float]]:
        """The 95 % interval of each figure that has several values, by the row's label and the measure."""
        found = {}
        for label in self.results:
            for measure in (*self.table.measures, *_FURTHER):
                each = self.each(label, measure)
                if each is not None and len(each) > 1:
                    found[label, measure] = bootstrap_interval(each, SEED, _RESAMPLES)
        return found

    def published(self, row: Row, measure: str) -> dict[str, float]:
        """The paper's figures from 0 to 1, by its data sets: of a paper with several languages those of this one."""
        scale = 100.0 if self.table.percent else 1.0
        is_arabic = self.language == "arabic"
        there = {name: values for name, values in row.published.items() if measure in values}
        if any("Arabic" in name for name in there):
            there = {name: values for name, values in there.items() if ("Arabic" in name) == is_arabic}
        return {name: values[measure] / scale for name, values in there.items()}


class Line(NamedTuple):
    """A row of a table as text."""

    cells: list[str]
    is_ours: bool  # dupq's own


def records(of: Measured) -> list[dict[str, object]]:
    """A row for each figure: what results.json holds, and results.parquet but for what was tuned and left out."""
    found: list[dict[str, object]] = []
    for row in of.rows():
        result = of.results.get(row.label)
        sizes = result["sizes"] if result else {}
        further = [name for name in _FURTHER if result is not None and name in result["values"]]
        for measure in dict.fromkeys([*of.table.measures, *further]):
            published: Mapping[str, float | None] = of.published(row, measure) or {"": None}
            interval = of.intervals.get((row.label, measure))
            for paper_data, value in published.items():
                ours = of.value(row.label, measure)
                found.append(
                    {
                        "table": of.table.name,
                        "data": of.data,
                        "system": row.label,
                        "measure": measure,
                        "ours": ours,
                        "low": interval[0] if interval else None,
                        "high": interval[1] if interval else None,
                        "paper_data": paper_data or None,
                        "paper": value,
                        "difference": None if ours is None or value is None else ours - value,
                        "training_pairs": sizes.get("training_pairs"),
                        "questions": sizes.get("questions"),
                        "seconds": result["seconds"] if result else None,
                        "parameters": result["parameters"] if result else {},
                        "left_out": result["counts"] if result else {},
                    }
                )
    return found


def columns(of: Measured) -> list[str]:
    """The headings of the table."""
    theirs = [f"{of.table.measures[measure]}, {name}" for name, measure in _paper_columns(of)]
    difference = ["Difference"] if theirs else []
    return ["System", *of.table.measures.values(), *theirs, *difference, "Pairs", "Seconds"]


def _paper_columns(of: Measured) -> list[tuple[str, str]]:
    """The paper's columns: its data sets, each with the measures that it has."""
    names = dict.fromkeys(
        (name, measure) for measure in of.table.measures for row in of.table.rows for name in of.published(row, measure)
    )
    return sorted(names, key=lambda one: one[0])


def lines(of: Measured) -> list[Line]:
    """The rows of the table as text; the difference is that of the first measure to the paper's first data set."""
    papers = _paper_columns(of)
    first = next(iter(of.table.measures))
    return [_line(of, row, papers, first) for row in of.rows()]


def _line(of: Measured, row: Row, papers: Sequence[tuple[str, str]], first: str) -> Line:
    ours = [_shown(of, row.label, measure) for measure in of.table.measures]
    theirs = [figure(of.published(row, measure).get(name), of.table.percent) for name, measure in papers]
    published, value = list(of.published(row, first).values()), of.value(row.label, first)
    difference = "" if value is None or not published else signed(value - published[0], of.table.percent)
    differences = [difference] if papers else []
    result = of.results.get(row.label)
    why = of.why_empty(row)
    label = f"{row.label} ({why})" if why else row.label
    learned = result["sizes"]["training_pairs"] if result else 0
    ends = [f"{learned:,}" if learned else "", f"{result['seconds']:.0f}" if result else ""]
    return Line([label, *ours, *theirs, *differences, *ends], row.is_ours)


def _shown(of: Measured, label: str, measure: str) -> str:
    value, interval = of.value(label, measure), of.intervals.get((label, measure))
    if value is None or interval is None:
        return figure(value, of.table.percent)
    low, high = (figure(bound, of.table.percent) for bound in interval)
    return f"{figure(value, of.table.percent)} ({low}–{high})"


def figure(value: float | None, percent: bool) -> str:
    """A figure as tables show it."""
    if value is None:
        return "–"
    return f"{100 * value:.1f}" if percent else f"{value:.3f}"


def signed(value: float, percent: bool) -> str:
    """A difference, likewise."""
    return f"{100 * value:+.1f}" if percent else f"{value:+.3f}"


def sizes(of: Measured) -> str:
    """What the figures are of."""
    first = next(iter(of.results.values()), None)
    if first is None:
        return "Nothing of this table could be computed here."
    there, counts = first["sizes"], first["counts"]
    over = {name: counts.get(f"test: {name} over the limit", 0) for name in ("pairs", "queries")}
    known = f" ({over['pairs']:,} known ones over the limit are left out)" if over["pairs"] else ""
    asked = max(map(len, first["each"].values()), default=0)  # SemEval's without a known duplicate count too, as 0
    queries = f"{asked:,} of {asked + over['queries']:,} test questions"
    tested = {
        "pairs": f"{there['test_pairs']:,} test pairs{known}, {there['development_pairs']:,} validation pairs",
        "ranking": f"{queries} against all",
        "candidates": f"ten candidates of each of {queries}",
    }[of.table.task]
    uses_other = any(row.needs_other and row.label in of.results for row in of.table.rows)
    other = f" The other data set is {of.other}." if uses_other else ""
    return f"{there['questions']:,} questions; {tested}.{other}"
