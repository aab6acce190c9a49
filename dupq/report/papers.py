"""The pages of the papers' tables: ours beside the paper's, as Markdown, HTML and rows of data."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from dupq.evaluation.papers.orders import CLAIMS, Claim
from dupq.evaluation.papers.results import Result
from dupq.evaluation.papers.rows import QUOTED, Row, Table
from dupq.evaluation.significance import bootstrap_interval, randomisation_test

_SEED = 1
_RESAMPLES = 2_000


@dataclass(frozen=True)
class Measured:
    """A table on one data set: the result of each row that was computed (dupq/evaluation/papers/measuring.py)."""

    table: Table
    data: str
    language: str
    results: Mapping[str, Result]  # by the rows' labels

    def rows(self) -> list[Row]:
        """The rows that are shown: computed ones, and those that can only be quoted."""
        return [row for row in self.table.rows if row.label in self.results or row.system == QUOTED]

    def value(self, label: str, measure: str) -> float | None:
        """Our figure."""
        found = self.results.get(label)
        return None if found is None else found["values"].get(measure)

    def each(self, label: str, measure: str) -> np.ndarray | None:
        """Our value of each query or pair."""
        found = self.results.get(label)
        return None if found is None or measure not in found["each"] else np.array(found["each"][measure])

    def published(self, row: Row, measure: str) -> dict[str, float]:
        """The paper's figures from 0 to 1, by its data sets: of a paper with several languages those of this one."""
        scale = 100.0 if self.table.percent else 1.0
        is_arabic = self.language == "arabic"
        there = {name: values for name, values in row.published.items() if measure in values}
        if any("Arabic" in name for name in there):
            there = {name: values for name, values in there.items() if ("Arabic" in name) == is_arabic}
        return {name: values[measure] / scale for name, values in there.items()}


def records(of: Measured) -> list[dict[str, object]]:
    """A row for each figure: what results.parquet and results.json hold."""
    found: list[dict[str, object]] = []
    for row in of.rows():
        result = of.results.get(row.label)
        sizes = result["sizes"] if result else {}
        for measure in of.table.measures:
            published: Mapping[str, float | None] = of.published(row, measure) or {"": None}
            interval = _interval(of, row.label, measure)
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
                    }
                )
    return found


def _interval(of: Measured, label: str, measure: str) -> tuple[float, float] | None:
    each = of.each(label, measure)
    if each is None or len(each) < 2:
        return None
    found = bootstrap_interval(each, _SEED, _RESAMPLES)
    return found.low, found.high


def columns(of: Measured) -> list[str]:
    """The headings of the table."""
    papers = _paper_columns(of)
    ours = [f"{title}" for title in of.table.measures.values()]
    theirs = [f"{title}, {name}" for name, measure in papers for title in [of.table.measures[measure]]]
    return ["System", *ours, *theirs, "Difference", "Pairs", "Seconds"]


def _paper_columns(of: Measured) -> list[tuple[str, str]]:
    """The paper's columns: its data sets, each with the measures that it has."""
    names = dict.fromkeys(
        (name, measure) for measure in of.table.measures for row in of.table.rows for name in of.published(row, measure)
    )
    return sorted(names, key=lambda one: one[0])


def lines(of: Measured) -> list[list[str]]:
    """The rows of the table as text; the difference is that of the first measure to the paper's first data set."""
    papers = _paper_columns(of)
    first = next(iter(of.table.measures))
    return [_line(of, row, papers, first) for row in of.rows()]


def _line(of: Measured, row: Row, papers: Sequence[tuple[str, str]], first: str) -> list[str]:
    ours = [_shown(of, row.label, measure) for measure in of.table.measures]
    theirs = [_figure(of.published(row, measure).get(name), of.table.percent) for name, measure in papers]
    published, value = list(of.published(row, first).values()), of.value(row.label, first)
    difference = "" if value is None or not published else _signed(value - published[0], of.table.percent)
    result = of.results.get(row.label)
    label = f"{row.label} (quoted)" if row.system == QUOTED else f"**{row.label}**" if row.is_ours else row.label
    pairs = "" if result is None else f"{result['sizes']['training_pairs']:,}"
    return [label, *ours, *theirs, difference, pairs, "" if result is None else f"{result['seconds']:.0f}"]


def _shown(of: Measured, label: str, measure: str) -> str:
    value, interval = of.value(label, measure), _interval(of, label, measure)
    if value is None or interval is None:
        return _figure(value, of.table.percent)
    low, high = (_figure(bound, of.table.percent) for bound in interval)
    return f"{_figure(value, of.table.percent)} ({low}–{high})"


def _figure(value: float | None, percent: bool) -> str:
    if value is None:
        return "–"
    return f"{100 * value:.1f}" if percent else f"{value:.3f}"


def _signed(value: float, percent: bool) -> str:
    return f"{100 * value:+.1f}" if percent else f"{value:+.3f}"


def best_two(of: Measured) -> str:
    """How sure it is that the first system is over the second, by the paired test on the first measure that has one."""
    for measure, title in of.table.measures.items():
        there = {row.label: each for row in of.rows() if (each := of.each(row.label, measure)) is not None}
        ranked = sorted(there, key=lambda label: (-float(np.mean(there[label])), label))[:2]
        if len(ranked) == 2 and len(there[ranked[0]]) == len(there[ranked[1]]) > 0:
            chance = randomisation_test(there[ranked[0]], there[ranked[1]], _SEED)
            return f"{title}: {ranked[0]} over {ranked[1]}, p = {chance:.3f} (paired randomisation test)."
    return ""


def sizes(of: Measured) -> str:
    """What the figures are of."""
    first = next(iter(of.results.values()), None)
    if first is None:
        return "Nothing of this table could be computed here."
    there = first["sizes"]
    tested = {
        "pairs": f"{there['test_pairs']:,} test pairs, {there['development_pairs']:,} validation pairs",
        "ranking": f"{there['test_queries']:,} test questions against all",
        "candidates": "ten candidates of each test question",
    }[of.table.task]
    return f"{there['questions']:,} questions; {tested}."


def verdict(claim: Claim, of: Measured) -> tuple[str, str] | None:
    """Whether a claim holds, and the figures; None where they were not computed."""
    labels = (*claim.better, *claim.worse)
    values = {label: value for label in labels if (value := of.value(label, claim.measure)) is not None}
    if len(values) < len(labels):
        return None
    least = min(values[label] for label in claim.better)
    most = max(values[label] for label in claim.worse)
    shown = ", ".join(f"{label} {_figure(value, of.table.percent)}" for label, value in values.items())
    holds = least > most if not claim.within else least >= most - claim.within
    return ("holds" if holds else "does not hold"), shown


def orders(measured: Sequence[Measured]) -> list[list[str]]:
    """The papers' claims: text, data set, whether it holds, figures."""
    return [
        [claim.text, of.data, *found]
        for claim in CLAIMS
        for of in measured
        if of.table.name == claim.table and (found := verdict(claim, of)) is not None
    ]
