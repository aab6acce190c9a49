"""Small bar charts as tables and inline SVG: records in, markup out.

Colours are classes of the page, so a chart follows its light and dark scheme and prints. Every bar carries
its value as text: nothing is said by length or colour alone. All text is escaped.
"""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from markupsafe import Markup

from dupq.report.summary import counted, number

if TYPE_CHECKING:
    from dupq.training.checkpoints import Epoch


def round_step(span: float, most: int) -> float:
    """The least of 1, 2 and 5 times the powers of ten that cuts `span`, more than 0, into at most `most` steps."""
    power = 10.0 ** math.floor(math.log10(span / most))
    return next(step for step in (power, 2 * power, 5 * power, 10 * power, 20 * power) if span <= most * step)


def ticks(low: float, high: float, most: int = 10) -> list[tuple[float, str]]:
    """The round places from `low` to `high`, and what is written there; about `most`."""
    step = round_step(high - low, most)
    decimals = max(0, math.ceil(-math.log10(step) - 1e-9))
    places = range(math.ceil(low / step - 1e-6), math.floor(high / step + 1e-6) + 1)
    return [(place * step, f"{place * step:.{decimals}f}") for place in places]


_WIDTH = 720
_PLOT_TOP, _PLOT_BOTTOM, _PLOT_LEFT = 44, 224, 84


class Bar(NamedTuple):
    """One bar: its label, its length, and its value as the reader sees it."""

    label: str
    value: float
    text: str
    tone: str = "one"  # one, two or three: a colour of the page


class Mark(NamedTuple):
    """A place on a histogram's axis that matters, such as a threshold."""

    value: float
    label: str


def bars(title: str, description: str, records: Sequence[Bar], maximum: float | None = None) -> Markup:
    """Horizontal bars, in order; `maximum` fills the width, or else the largest value does.

    They are a table, which folds on a narrow screen and is read out row by row.
    """
    longest = maximum or max((record.value for record in records), default=0)
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
    ).format(tone, _length(value, maximum, 100))


def histogram(
    title: str,
    description: str,
    edges: Sequence[float],
    counts: Sequence[int],
    mark: Mark | None = None,
    inner: Sequence[int] | None = None,
    axes: tuple[str, str] = ("", ""),
) -> Markup:
    """Counts between consecutive `edges` on a logarithmic axis, with `mark` as a line across.

    A bin of one stands out from an empty one: heights follow log(1 + count). `inner` are parts of the counts, in front.
    `axes` names what is across, and what is up.
    """
    low, high = edges[0], edges[-1]
    decades = max(1, math.ceil(math.log10(1 + max(counts))))
    parts = [_grid_line(10**power, decades) for power in range(decades + 1)]
    for left, right, count in zip(edges, edges[1:], counts, strict=False):
        parts.append(_column((left, right), count, (low, high), decades))
    for left, right, count in zip(edges, edges[1:], inner or [], strict=False):
        if count:
            parts.append(_column((left, right), count, (low, high), decades, "two"))
    parts += [_tick(value, label, low, high) for value, label in ticks(low, high)]
    if mark and low <= mark.value <= high:
        parts.append(_mark(mark, low, high))
    parts.append(
        Markup(
            '<text class="axis" x="{}" y="{}" text-anchor="middle">{}</text><text class="axis" x="0" y="16">{}</text>'
        ).format((_PLOT_LEFT + _WIDTH) / 2, _PLOT_BOTTOM + 44, *axes)
    )
    return _svg(title, description, _PLOT_BOTTOM + 52, Markup("").join(parts))


def _column(bin: tuple[float, float], count: int, ends: tuple[float, float], decades: int, tone: str = "one") -> Markup:
    x, end, y = _across(bin[0], *ends), _across(bin[1], *ends), _up(count, decades)
    said = f"{bin[0]:.4g} to {bin[1]:.4g}: {counted(count, 'known link') if tone == 'two' else number(count)}"
    return Markup(
        '<rect class="{}" x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.1f}"><title>{}</title></rect>'
    ).format(tone, x, y, max(1, end - x - 1), _PLOT_BOTTOM - y, said)


def _grid_line(count: int, decades: int) -> Markup:
    return _across_the_plot(_up(count, decades), f"{count:,}")


def _across_the_plot(y: float, label: str) -> Markup:
    return Markup(
        '<line class="grid" x1="{}" x2="{}" y1="{:.1f}" y2="{:.1f}"/>'
        '<text class="axis" x="{}" y="{:.1f}" text-anchor="end">{}</text>'
    ).format(_PLOT_LEFT, _WIDTH, y, y, _PLOT_LEFT - 8, y + 4, label)


def _tick(value: float, label: str, low: float, high: float) -> Markup:
    return Markup('<text class="axis" x="{:.1f}" y="{}" text-anchor="middle">{}</text>').format(
        _across(value, low, high), _PLOT_BOTTOM + 20, label
    )


def _mark(mark: Mark, low: float, high: float) -> Markup:
    x = _across(mark.value, low, high)
    anchor = "end" if x > (_PLOT_LEFT + _WIDTH) / 2 else "start"
    return Markup(
        '<line class="mark" x1="{:.1f}" x2="{:.1f}" y1="22" y2="{}"/>'
        '<text class="mark-label" x="{:.1f}" y="34" text-anchor="{}">{}</text>'
    ).format(x, x, _PLOT_BOTTOM, x - 6 if anchor == "end" else x + 6, anchor, mark.label)


def _across(value: float, low: float, high: float) -> float:
    return _PLOT_LEFT + (value - low) / (high - low) * (_WIDTH - _PLOT_LEFT - 12)


def _up(count: int, decades: int) -> float:
    return _PLOT_BOTTOM - math.log10(1 + count) / math.log10(1 + 10**decades) * (_PLOT_BOTTOM - _PLOT_TOP)


def _length(value: float, longest: float, room: float) -> float:
    if value < 1e-9 or longest <= 0:
        return 0
    return max(1.0, min(1.0, value / longest) * room)


def _svg(title: str, description: str, height: int, content: Markup) -> Markup:
    return Markup(
        '<div><svg class="chart" role="img" viewBox="0 0 {} {}"><title>{}</title><desc>{}</desc>{}</svg></div>'
    ).format(_WIDTH, height, title, description, content)


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
