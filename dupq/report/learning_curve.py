"""The learning curve of a training as an SVG file of its own, with its colours in it."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from markupsafe import Markup

if TYPE_CHECKING:
    from dupq.training.checkpoints import Epoch

# what epochs are measured by, the first that there is
NAMES = {
    "development_accuracy": "development accuracy",
    "development_map": "development MAP",
    "development_body_map": "development MAP of titles and their bodies",
}
_WIDTH, _HEIGHT, _LEFT, _RIGHT, _GAP = 720, 180, 70, 12, 64
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
    ).format(_WIDTH, height, said, Markup(_STYLE), Markup("").join(_panel(panel, epochs, best) for panel in panels))


def _panel(panel: _Panel, epochs: list[int], best: int) -> Markup:
    places = [(_across(index, len(epochs)), panel.up(value)) for index, value in enumerate(panel.values)]
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    parts = [_grid(panel, share) for share in (0.0, 0.5, 1.0)]
    parts.append(Markup('<text x="{}" y="{}">{}</text>').format(_LEFT, panel.top - 14, panel.title))
    parts.append(Markup('<polyline class="line" points="{}"/>').format(line))
    for index, (x, y) in enumerate(places):
        parts.append(_dot(x, y, epochs[index], panel.values[index], "best" if index == best else "dot"))
    parts += [_tick(panel, index, epochs) for index in range(0, len(epochs), -(-len(epochs) // _LABELS))]
    return Markup("").join(parts)


def _grid(panel: _Panel, share: float) -> Markup:
    value = panel.low + share * (panel.high - panel.low)
    y = panel.up(value)
    return Markup(
        '<line class="grid" x1="{}" x2="{}" y1="{:.1f}" y2="{:.1f}"/>'
        '<text class="value" x="{}" y="{:.1f}" text-anchor="end">{:.3g}</text>'
    ).format(_LEFT, _WIDTH - _RIGHT, y, y, _LEFT - 8, y + 4, value)


def _dot(x: float, y: float, epoch: int, value: float, kind: str) -> Markup:
    radius = 5 if kind == "best" else 3
    return Markup('<circle class="{}" cx="{:.1f}" cy="{:.1f}" r="{}"><title>{}</title></circle>').format(
        kind, x, y, radius, f"epoch {epoch}: {value:.4f}"
    )


def _tick(panel: _Panel, index: int, epochs: list[int]) -> Markup:
    return Markup('<text class="value" x="{:.1f}" y="{}" text-anchor="middle">{}</text>').format(
        _across(index, len(epochs)), panel.top + _HEIGHT + 18, epochs[index]
    )


def _across(index: int, count: int) -> float:
    room = _WIDTH - _RIGHT - _LEFT - 20
    return _LEFT + 10 + (room * index / (count - 1) if count > 1 else room / 2)
