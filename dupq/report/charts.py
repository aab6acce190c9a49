"""Small bar charts as inline SVG: records in, markup out.

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
_ROW = 26
_LABEL = 250  # the right end of a bar's label
_VALUE = 130  # kept free for the value at the right of the longest bar
_PLOT_TOP, _PLOT_BOTTOM, _PLOT_LEFT = 24, 204, 60


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
    """Horizontal bars, in order; `maximum` fills the width, or else the largest value does."""
    longest = maximum or max((record.value for record in records), default=0)
    rows = Markup("").join(_row(record, index * _ROW, longest) for index, record in enumerate(records))
    values = "; ".join(f"{record.label}: {record.text}" for record in records)
    return _svg(title, f"{description} {values}", len(records) * _ROW, rows)


def _row(bar: Bar, top: float, longest: float) -> Markup:
    width = _length(bar.value, longest, _WIDTH - _LABEL - _VALUE)
    return Markup(
        '<text class="label" x="{label_end}" y="{base}" text-anchor="end">{bar.label}</text>'
        '<rect class="{bar.tone}" x="{start}" y="{top}" width="{width:.1f}" height="16" rx="2"/>'
        '<text x="{value_start:.1f}" y="{base}">{bar.text}</text>'
    ).format(
        bar=bar,
        label_end=_LABEL - 10,
        start=_LABEL,
        top=top + 5,
        base=top + 17,
        width=width,
        value_start=_LABEL + width + 8,
    )


def meter(value: float, maximum: float) -> Markup:
    """One bare bar for a table cell that holds the value as text, so screen readers skip it."""
    return Markup(
        '<svg class="meter" viewBox="0 0 100 8" aria-hidden="true" preserveAspectRatio="none">'
        '<rect class="one" width="{:.1f}" height="8"/></svg>'
    ).format(_length(value, maximum, 100))


def histogram(
    title: str,
    description: str,
    edges: Sequence[float],
    counts: Sequence[int],
    mark: Mark | None = None,
    inner: Sequence[int] | None = None,
) -> Markup:
    """Counts between consecutive `edges` on a logarithmic axis, with `mark` as a line across.

    A bin of one stands out from an empty one: heights follow log(1 + count). `inner` are parts of the counts, in front.
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
    return _svg(title, description, _PLOT_BOTTOM + 24, Markup("").join(parts))


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
        _across(value, low, high), _PLOT_BOTTOM + 18, label
    )


def _mark(mark: Mark, low: float, high: float) -> Markup:
    x = _across(mark.value, low, high)
    anchor = "end" if x > (_PLOT_LEFT + _WIDTH) / 2 else "start"
    return Markup(
        '<line class="mark" x1="{:.1f}" x2="{:.1f}" y1="6" y2="{}"/>'
        '<text class="mark-label" x="{:.1f}" y="15" text-anchor="{}">{}</text>'
    ).format(x, x, _PLOT_BOTTOM, x - 6 if anchor == "end" else x + 6, anchor, mark.label)


def _across(value: float, low: float, high: float) -> float:
    return _PLOT_LEFT + (value - low) / (high - low) * (_WIDTH - _PLOT_LEFT - 12)


def _up(count: int, decades: int) -> float:
    return _PLOT_BOTTOM - math.log10(1 + count) / math.log10(1 + 10**decades) * (_PLOT_BOTTOM - _PLOT_TOP)


def _length(value: float, longest: float, room: float) -> float:
    if value <= 0 or longest <= 0:
        return 0
    return max(1.0, min(1.0, value / longest) * room)


def _svg(title: str, description: str, height: int, content: Markup) -> Markup:
    return Markup(
        '<div class="scroll"><svg class="chart" role="img" viewBox="0 0 {} {}">'
        "<title>{}</title><desc>{}</desc>{}</svg></div>"
    ).format(_WIDTH, height, title, description, content)


# what epochs are measured by, the first that there is
NAMES = {
    "development_map": "development MAP",
    "development_body_map": "development MAP of titles and their bodies",
}
_LEARNING_CURVE_WIDTH, _HEIGHT, _LEFT, _RIGHT, _GAP = 720, 180, 70, 12, 64
_LABELS = 12  # of epochs along the axis, at most
_STYLE = """
svg { background: #fff; font: 13px system-ui, sans-serif; } text { fill: #333; } .value { fill: #666; }
.line { fill: none; stroke: #0b6bcb; stroke-width: 2; } .dot { fill: #0b6bcb; } .best { fill: #b3261e; }
.grid { stroke: #ddd; }
@media (prefers-color-scheme: dark) { svg { background: #16181c; } text { fill: #ddd; } .value { fill: #aaa; }
.line { stroke: #7ab7ff; } .dot { fill: #7ab7ff; } .best { fill: #ff8a80; } .grid { stroke: #3a3d44; } }
"""


class _Panel(NamedTuple):
    """One measure over the epochs; numbers go from `low` at its foot to `high` at its top."""

    title: str
    values: list[float]
    low: float
    high: float
    top: int

    def up(self, value: float) -> float:
        """Where a value is."""
        return self.top + _HEIGHT - (value - self.low) / max(self.high - self.low, 1e-12) * _HEIGHT


def picture(curve: Sequence["Epoch"]) -> str:
    """An SVG file: what the best epoch is chosen by (one of NAMES) and the loss of each epoch."""
    losses = [float(row["loss"]) for row in curve]
    columns = {name: [dict[str, Any](row).get(key) for row in curve] for key, name in NAMES.items()}
    measured = {name: [float(value) for value in values if value is not None] for name, values in columns.items()}
    name, found = next(((name, values) for name, values in measured.items() if values), ("", []))
    best = max(range(len(found)), key=lambda place: found[place]) if found else len(curve) - 1
    panels = [_Panel(name, found, 0.0, max([*found, 0.1]), 36)] if found else []
    panels.append(_Panel("loss", losses, 0.0, max([*losses, 1e-6]), panels[-1].top + _HEIGHT + _GAP if found else 36))
    epochs = [int(row["epoch"]) for row in curve]
    height = panels[-1].top + _HEIGHT + 36
    kept = f"the best is epoch {epochs[best]}, {name} {found[best]:.3f}" if found else "the last one is kept"
    said = f"{len(curve)} epochs; {kept}."
    return Markup(
        '<svg xmlns="http://www.w3.org/2000/svg" role="img" viewBox="0 0 {} {}"><title>Learning curve</title>'
        "<desc>{}</desc><style>{}</style>{}</svg>\n"
    ).format(
        _LEARNING_CURVE_WIDTH,
        height,
        said,
        Markup(_STYLE),
        Markup("").join(_panel(panel, epochs, best) for panel in panels),
    )


def _panel(panel: _Panel, epochs: list[int], best: int) -> Markup:
    places = [(_learning_curve_across(index, len(epochs)), panel.up(value)) for index, value in enumerate(panel.values)]
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    parts = [_grid(panel, share) for share in (0.0, 0.5, 1.0)]
    parts.append(Markup('<text x="{}" y="{}">{}</text>').format(_LEFT, panel.top - 14, panel.title))
    parts.append(Markup('<polyline class="line" points="{}"/>').format(line))
    for index, (x, y) in enumerate(places):
        parts.append(_dot(x, y, epochs[index], panel.values[index], "best" if index == best else "dot"))
    parts += [_learning_curve_tick(panel, index, epochs) for index in range(0, len(epochs), -(-len(epochs) // _LABELS))]
    return Markup("").join(parts)


def _grid(panel: _Panel, share: float) -> Markup:
    value = panel.low + share * (panel.high - panel.low)
    y = panel.up(value)
    return Markup(
        '<line class="grid" x1="{}" x2="{}" y1="{:.1f}" y2="{:.1f}"/>'
        '<text class="value" x="{}" y="{:.1f}" text-anchor="end">{:.3g}</text>'
    ).format(_LEFT, _LEARNING_CURVE_WIDTH - _RIGHT, y, y, _LEFT - 8, y + 4, value)


def _dot(x: float, y: float, epoch: int, value: float, kind: str) -> Markup:
    radius = 5 if kind == "best" else 3
    return Markup('<circle class="{}" cx="{:.1f}" cy="{:.1f}" r="{}"><title>{}</title></circle>').format(
        kind, x, y, radius, f"epoch {epoch}: {value:.4f}"
    )


def _learning_curve_tick(panel: _Panel, index: int, epochs: list[int]) -> Markup:
    return Markup('<text class="value" x="{:.1f}" y="{}" text-anchor="middle">{}</text>').format(
        _learning_curve_across(index, len(epochs)), panel.top + _HEIGHT + 18, epochs[index]
    )


def _learning_curve_across(index: int, count: int) -> float:
    room = _LEARNING_CURVE_WIDTH - _RIGHT - _LEFT - 20
    return _LEFT + 10 + (room * index / (count - 1) if count > 1 else room / 2)
