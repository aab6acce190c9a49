"""Where a run's duplicates are: by tag, month, pair of sites, and time between both questions.

Questions and pairs count by their probability, so a run that joins little shows where to look, too.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from dupq.report.charts import Bar
from dupq.report.explorer import open_tables
from dupq.report.summary import number, share
from dupq.runs.reader import Run

LEAST = 0.2  # probability of a pair that counts; below it too few are right
_TAGS = _SITE_PAIRS = 20  # shown
_MONTHS = 24  # shown at once; of more, years are
_AGES = {"a day": 1, "a week": 7, "a month": 31, "a year": 366, "three years": 1_096}  # days
_LIKELY = """CREATE TEMP TABLE likely AS
    SELECT site_left, question_id_left, site_right, question_id_right, (1e6 * probability)::BIGINT AS p FROM pairs
    WHERE joined OR probability >= ?"""  # whole numbers, whose sums do not depend on their order
_ASKED = """CREATE TEMP TABLE asked AS
    SELECT tags, strftime(make_timestamp_ms(epoch_ms(creation_date)), '%Y-%m') AS month, coalesce(p, 0) AS p
    FROM questions LEFT JOIN (
        SELECT site, question_id, max(p) AS p FROM (
            SELECT site_left AS site, question_id_left AS question_id, p FROM likely
            UNION ALL SELECT site_right, question_id_right, p FROM likely) GROUP BY ALL
    ) USING (site, question_id)"""
_BY_TAG = """SELECT tag AS name, sum(p) / 1e6 AS expected, count(*) AS of
    FROM (SELECT unnest(tags) AS tag, p FROM asked) WHERE tag IS NOT NULL
    GROUP BY tag HAVING sum(p) > 0 ORDER BY sum(p) DESC, tag LIMIT ?"""
_BY_MONTH = """SELECT month AS name, sum(p) / 1e6 AS expected, count(*) AS of FROM asked WHERE month IS NOT NULL
    GROUP BY month ORDER BY month"""
_BY_SITES = """SELECT concat_ws(' · ', site_left, nullif(site_right, site_left)) AS name, sum(p) / 1e6 AS expected,
    count(*) AS of FROM likely GROUP BY site_left, site_right ORDER BY sum(p) DESC, site_left, site_right LIMIT ?"""
_BY_DAYS = """SELECT abs(epoch_ms(one.creation_date) - epoch_ms(other.creation_date)) / 86400000 AS days, p
    FROM likely JOIN questions one ON one.site = site_left AND one.question_id = question_id_left
    JOIN questions other ON other.site = site_right AND other.question_id = question_id_right
    WHERE days IS NOT NULL"""


class Share(NamedTuple):
    """How many of some questions or pairs are expected to be duplicates."""

    name: str
    expected: float
    of: int


class Where(NamedTuple):
    """Shares of the questions by tag and month, and of the likely pairs by sites and age; empty where nothing is known.

    A question counts by its likeliest pair. Months are in UTC, in their order, tags and sites by what is expected.
    """

    tags: list[Share]
    months: list[Share]
    sites: list[Share]
    ages: list[Share]

    @property
    def years(self) -> list[Share]:
        """The months, added up."""
        names = sorted({share.name[:4] for share in self.months})
        of = {name: [share for share in self.months if share.name.startswith(name)] for name in names}
        return [
            Share(name, sum(share.expected for share in own), sum(share.of for share in own))
            for name, own in of.items()
        ]


def where(run: Run) -> Where:
    """Return where the duplicates of a run are. Reads its pairs, and tags and dates of its questions."""
    with open_tables(run) as tables:
        tables.make(_LIKELY, LEAST)
        tables.make(_ASKED)
        tags, months, sites = (
            [Share(**row) for row in tables.rows(sql, *limits)]
            for sql, *limits in ((_BY_TAG, _TAGS), (_BY_MONTH,), (_BY_SITES, _SITE_PAIRS))
        )
        days, p = (column.to_numpy() for column in tables.table(_BY_DAYS).columns)
    months = months if any(share.expected for share in months) else []
    return Where(tags, months, sites if len(run.metrics["sites"]) > 1 else [], _ages(days, p) if len(p) else [])


def _ages(days: np.ndarray, p: np.ndarray) -> list[Share]:
    """Return the shares of pairs by the `days` between their questions; `p` are millionths of probability."""
    bins = np.searchsorted([*_AGES.values()], days, "right")
    names = [f"within {name}" for name in _AGES] + [f"more than {[*_AGES][-1]}"]
    sums, counts = np.bincount(bins, p, len(names)) / 1e6, np.bincount(bins, minlength=len(names))
    return [Share(*row) for row in zip(names, sums.tolist(), counts.tolist(), strict=True)]


class Chart(NamedTuple):
    """Bars, with more of them to be unfolded."""

    title: str
    bars: list[Bar]
    more: Sequence[Bar] = ()


def charts(run: Run) -> list[Chart]:
    """Return the report's charts of where duplicates are; none without likely pairs, tags and dates."""
    found = where(run)
    tags, months, years, sites, ages = map(_bars, (found.tags, found.months, found.years, found.sites, found.ages))
    by_month, by_year = Chart("Questions by month", months), Chart("Questions by year", years, months)
    every = [
        Chart("Questions by tag", tags),
        by_year if len(months) > _MONTHS else by_month,
        Chart("Pairs by site", sites),
        Chart("Pairs by the time between both questions", ages),
    ]
    return [chart for chart in every if chart.bars]


def _bars(shares: list[Share]) -> list[Bar]:
    bars = []
    for name, expected, of in shares:
        shown = f"{expected:.1f}" if expected < 10 else number(round(expected))
        bars.append(Bar(name, expected, f"{shown} of {number(of)}" + (f" ({share(expected / of)})" if of else "")))
    return bars
