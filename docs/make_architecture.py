"""Writes docs/pictures/imports.svg, the imports between the packages and modules of dupq/: `make docs`.

It prints their figures. `--root FOLDER` reads another checkout, whose picture is only drawn with `--picture FILE`.
"""

import argparse
import ast
import itertools
import json
import tomllib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[1]
PICTURE = Path(__file__).with_name("pictures") / "imports.svg"
Arrow = tuple[str, str]  # from a box to one that it imports


class Kind(NamedTuple):
    """Boxes of one colour: what they are for, their fill, and the colours of their edge and their letters."""

    about: str
    fill: str
    edge: str
    letters: str = "#1d2433"


KINDS = {
    "calls": Kind("what users call", "#ffe9c7", "#d9a441"),
    "jobs": Kind("jobs and their stages", "#3f51b5", "#3f51b5", "#fff"),
    "runs": Kind("finished runs", "#fbdde6", "#cf7f9a"),
    "algorithms": Kind("algorithms", "#d9f0e0", "#6fae86"),
    "runner": Kind("the runner", "#d8e3fb", "#3f51b5"),
    "ground": Kind("files, tables, settings", "#fff", "#9aa6bf"),
}
ABOUT = {  # of each box: its kind, and what it is
    "cli": ("calls", "the command line"),
    "commands": ("calls", "each command"),
    "pipelines": ("jobs", "each job on one page"),
    "stages": ("jobs", "stages and steps"),
    "api": ("calls", "dupq in Python"),
    "export": ("calls", "for other tools"),
    "review": ("calls", "judge in a terminal"),
    "serve": ("calls", "a run in a browser"),
    "report": ("runs", "report.html"),
    "runs": ("runs", "read a finished run"),
    "evaluation": ("algorithms", "measures, verdicts"),
    "training": ("algorithms", "teach an encoder"),
    "links": ("algorithms", "known duplicates"),
    "clusters": ("algorithms", "probability, clusters"),
    "encoders": ("algorithms", "texts to vectors"),
    "job": ("runner", "run, tables, tasks"),
    "neighbours": ("algorithms", "search of all pairs"),
    "near_duplicates": ("algorithms", "(near) copies"),
    "dump": ("algorithms", "read dumps"),
    "archive": ("ground", "tables of questions"),
    "text": ("algorithms", "words of a question"),
    "storage": ("ground", "files, by URI"),
    "settings": ("ground", "settings, presets"),
    "objects": ("ground", "object stores"),
    "patience": ("ground", "retries, their errors"),
    "kernel_cache": ("ground", "compiled functions"),
    "tables": ("ground", "schemas"),
    "system": ("ground", "devices, threads"),
    "local_files": ("ground", "the local disk"),
    "kinds": ("ground", "types of rows"),
    "errors": ("ground", "errors, exit codes"),
}


class Imports(NamedTuple):
    """The boxes of a checkout: the modules of each, and for each arrow the modules that make it."""

    boxes: dict[str, list[str]]
    arrows: dict[Arrow, list[str]]


# Reading the code


def imports_of(root: Path) -> Imports:
    """The imports between the packages and modules at the top of dupq in a checkout."""
    top = root / "dupq"
    files = [file for file in sorted(top.rglob("*.py")) if file != top / "__init__.py"]
    names = {file: file.relative_to(top).with_suffix("").parts for file in files}
    boxes: dict[str, list[str]] = defaultdict(list)
    for parts in names.values():
        boxes[parts[0]].append(".".join(("dupq", *parts)).removesuffix(".__init__"))
    arrows: dict[Arrow, list[str]] = defaultdict(list)
    for file, parts in names.items():
        package = ("dupq", *parts[:-1])
        for box in sorted({*_imported([ast.parse(file.read_text("utf-8"))], package)} & boxes.keys() - {parts[0]}):
            arrows[parts[0], box].append(".".join(("dupq", *parts)).removesuffix(".__init__"))
    return Imports(dict(boxes), dict(sorted(arrows.items())))


def _imported(nodes: Iterable[ast.AST], package: Sequence[str]) -> Iterator[str]:
    """Yield the names at the top of dupq that a module of a package imports, but not those for types only."""
    for node in nodes:
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) + 1 - node.level] if node.level else ()
            base = ".".join([*above, *filter(None, [node.module])])
            names = [f"{base}.{alias.name}" for alias in node.names]
        yield from (name.split(".")[1] for name in names if name.startswith("dupq."))
        if isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING"):
            yield from _imported(node.orelse, package)
        else:
            yield from _imported(ast.iter_child_nodes(node), package)


# Floors


class Building(NamedTuple):
    """The floor of each box, its circles, and the arrows: that run upwards, that are drawn."""

    floors: dict[str, int]
    circles: list[list[str]]
    upwards: list[Arrow]
    drawn: list[Arrow]


def built(boxes: Iterable[str], arrows: Iterable[Arrow]) -> Building:
    """Put each box one floor above the highest that it imports. In a circle, as few arrows as possible run upwards."""
    boxes, arrows = sorted(boxes), sorted(arrows)
    reached = _reached(boxes, arrows)
    circles = {tuple(other for other in boxes if box in reached[other] and other in reached[box]) for box in boxes}
    circles -= {()}
    against = [arrow for circle in circles for arrow in _against(circle, arrows)]
    down = [arrow for arrow in arrows if arrow not in against]
    upwards = []
    for box, other in sorted(against):
        if box in _reached(boxes, down)[other]:
            upwards.append((box, other))
        else:
            down.append((box, other))
    reached = _reached(boxes, down)
    floors: dict[str, int] = {}
    for box in sorted(boxes, key=lambda box: (len(reached[box]), box)):  # what a box imports reaches less than it does
        floors[box] = 1 + max((floors[other] for other in reached[box]), default=-1)
    longer = {(box, other) for box, between in down for other in reached[between]}
    return Building(floors, sorted(map(list, circles)), upwards, sorted({*down, *upwards} - longer))


def _reached(boxes: Iterable[str], arrows: Iterable[Arrow]) -> dict[str, set[str]]:
    """The boxes that each box imports, directly or by others."""
    reached: dict[str, set[str]] = {box: {other for by, other in arrows if by == box} for box in boxes}
    for between in reached:
        for box, others in reached.items():
            if between in others:
                reached[box] = others | reached[between]
    return reached


def _against(circle: Sequence[str], arrows: Iterable[Arrow]) -> list[Arrow]:
    """The arrows of a circle that run against an order of its boxes, in which no box has a better place."""
    inside = [arrow for arrow in arrows if {*arrow} <= {*circle}]

    def against(order: list[str]) -> list[Arrow]:
        return [(box, other) for box, other in inside if order.index(box) > order.index(other)]

    order, before = list(circle), len(inside) + 1
    while len(against(order)) < before:
        before = len(against(order))
        for box in circle:
            rest = [other for other in order if other != box]
            places = [[*rest[:place], box, *rest[place:]] for place in range(len(order))]
            order = min([order, *places], key=lambda order: len(against(order)))
    return against(order)


def figures(root: Path) -> dict[str, Any]:
    """The figures of a checkout."""
    imports = imports_of(root)
    building = built(imports.boxes, imports.arrows)
    rules = contracts(root)
    layers = [line for rule in rules for line in rule.get("layers", [])]
    ranks = {box.strip().removeprefix("dupq."): rank for rank, line in enumerate(layers) for box in line.split("|")}
    wrong = [arrow for arrow in imports.arrows if ranks.get(arrow[0], 0) >= ranks.get(arrow[1], len(layers))]
    return {
        "boxes": len(imports.boxes),
        "modules": sum(map(len, imports.boxes.values())),
        "floors": 1 + max(building.floors.values()),
        "arrows": len(imports.arrows),
        "arrows drawn": len(building.drawn),
        "circles": building.circles,
        "boxes in circles": sum(map(len, building.circles)),
        "arrows upwards": [" → ".join(arrow) for arrow in building.upwards],
        "arrows against the layers": {" → ".join(arrow): imports.arrows[arrow] for arrow in wrong},
        "exemptions": [f"{rule['name']}: {left_out}" for rule in rules for left_out in rule.get("ignore_imports", [])],
    }


def contracts(root: Path) -> list[dict[str, Any]]:
    """The contracts of import-linter in a checkout's pyproject.toml."""
    tool = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))["tool"]
    found: list[dict[str, Any]] = tool["importlinter"]["contracts"]
    return found


# The picture

WIDTH, BOX, HIGH, STOREY, LEFT, TOP = 900, 152, 42, 70, 44, 78
_LINE, _GAP, _PORTS = 16, 14, 17  # the room of an arrow that passes a floor; between boxes; between ends of arrows
_SWEEPS = 60
_UPRIGHT = 30  # how much an arrow that passes floors avoids bends
_RED, _BLUE = "#c62828", "#5c6b8a"
_FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"
_CAPTION = (
    "An arrow runs down to what a box imports. A box stands one floor above the highest that it imports.",
    "Left out: imports that longer ways show, those for types only, and what dupq itself imports at first use.",
)


class Place(NamedTuple):
    """A box on its floor, or a passing arrow on a floor between its ends."""

    floor: int
    name: str
    arrow: Arrow | None = None

    @property
    def width(self) -> int:
        """Its width."""
        return _LINE if self.arrow else BOX


class Plan(NamedTuple):
    """The places of each floor from left to right, the way of each arrow from its upper end, and the places on these
    next to each place: below and above.
    """

    storeys: list[list[Place]]
    ways: dict[Arrow, list[Place]]
    below: dict[Place, list[Place]]
    above: dict[Place, list[Place]]


def planned(building: Building) -> Plan:
    """Boxes and passing arrows in an order in which few arrows cross."""
    floors = building.floors
    storeys: list[list[Place]] = [[] for _ in range(1 + max(floors.values()))]
    for box in sorted(floors):
        storeys[floors[box]].append(Place(floors[box], box))
    ways: dict[Arrow, list[Place]] = {}
    for arrow in building.drawn:
        upper, lower = sorted(arrow, key=lambda box: -floors[box])
        passing = [Place(floor, "→".join(arrow), arrow) for floor in range(floors[upper] - 1, floors[lower], -1)]
        ways[arrow] = [Place(floors[upper], upper), *passing, Place(floors[lower], lower)]
        for place in passing:
            storeys[place.floor].append(place)
    below: dict[Place, list[Place]] = {place: [] for storey in storeys for place in storey}
    above: dict[Place, list[Place]] = {place: [] for place in below}
    for way in ways.values():
        for place, following in itertools.pairwise(way):
            below[place].append(following)
            above[following].append(place)
    plan = Plan(storeys, ways, below, above)
    best, fewest = [list(storey) for storey in storeys], _crossings(plan)
    for sweep in range(_SWEEPS):
        for storey in storeys if sweep % 2 else storeys[::-1]:
            storey[:] = _by_middle(storey, storeys, below if sweep % 2 else above)
        crossings = _crossings(plan)
        if crossings < fewest:
            best, fewest = [list(storey) for storey in storeys], crossings
    return plan._replace(storeys=best)


def _by_middle(storey: list[Place], storeys: list[list[Place]], beside: dict[Place, list[Place]]) -> list[Place]:
    """A floor by the mean rank of what each place leads to, relative to the size of that floor."""

    def middle(place: Place) -> float:
        ranks = [(storeys[at.floor].index(at) + 0.5) / len(storeys[at.floor]) for at in beside[place] or [place]]
        return sum(ranks) / len(ranks)

    return sorted(storey, key=lambda place: (middle(place), place.name))


def _crossings(plan: Plan) -> int:
    count = 0
    for storey, below in zip(plan.storeys[1:], plan.storeys, strict=False):
        lines = [(rank, below.index(to)) for rank, place in enumerate(storey) for to in plan.below[place]]
        count += sum(a[0] < b[0] and a[1] > b[1] for a in lines for b in lines)
    return count


def centres(plan: Plan) -> dict[Place, float]:
    """The middle of each place: as near to what it leads to as its neighbours on the floor allow."""
    x = {place: (LEFT + WIDTH) / 2 for storey in plan.storeys for place in storey}
    around = {place: plan.below[place] + plan.above[place] for place in x}

    def wanted(place: Place) -> float:
        weights = {other: _UPRIGHT if place.arrow and other.arrow else 1 for other in around[place]}
        return sum(x[other] * weight for other, weight in weights.items()) / sum(weights.values())

    for sweep in range(8 * _SWEEPS):
        for storey in plan.storeys[:: 1 if sweep % 2 else -1]:
            x.update(zip(storey, _apart(storey, [*map(wanted, storey)]), strict=True))
    return x


def _apart(storey: Sequence[Place], wanted: Sequence[float]) -> list[float]:
    """The middles nearest to the wanted ones that leave each place its room: a weighted isotonic regression."""
    offsets = [0.0]
    for place, following in itertools.pairwise(storey):
        offsets.append(offsets[-1] + (place.width + following.width) / 2 + _GAP)
    blocks: list[list[float]] = []  # their mean, weight and number of places
    for place, want, offset in zip(storey, wanted, offsets, strict=True):
        blocks.append([want - offset, 4.0 if place.arrow else 1.0, 1])
        while len(blocks) > 1 and blocks[-2][0] > blocks[-1][0]:
            mean, weight, count = blocks.pop()
            other = blocks[-1]
            total = other[1] + weight
            blocks[-1] = [(other[0] * other[1] + mean * weight) / total, total, other[2] + count]
    low = LEFT + storey[0].width / 2
    high = max(low, WIDTH - 14 - storey[-1].width / 2 - offsets[-1])
    starts = [min(max(mean, low), high) for mean, _, count in blocks for _ in range(int(count))]
    return [start + offset for start, offset in zip(starts, offsets, strict=True)]


def picture(root: Path = ROOT) -> str:
    """The whole picture, as SVG."""
    imports = imports_of(root)
    building = built(imports.boxes, imports.arrows)
    plan = planned(building)
    x = centres(plan)
    height = TOP + STOREY * len(plan.storeys) + 38
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" aria-labelledby="t d" '
        f'font-family="{_FONT}">',
        '<title id="t">The imports of dupq</title>',
        f'<desc id="d">{_described(building)}</desc>',
        f"<defs>{_head('a', _BLUE)}{_head('r', _RED)}</defs>",
        f'<rect width="{WIDTH}" height="{height}" rx="10" fill="#f7f8fb"/>',
        *_legend(building),
        *_storeys(len(plan.storeys)),
        *_arrows(building, plan, x),
        *(_box(place, x[place], len(plan.storeys)) for place in x if not place.arrow),
        *(_text(LEFT, height - 34 + 17 * at, line, 12, "#4a556e", "start") for at, line in enumerate(_CAPTION)),
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def _described(building: Building) -> str:
    by_floor = defaultdict(list)
    for box in sorted(building.floors):
        by_floor[building.floors[box]].append(box)
    floors = "; ".join(f"{floor}: {', '.join(by_floor[floor])}" for floor in sorted(by_floor, reverse=True))
    return f"The floors, from the top. {floors}. {_of_upwards(building)}"


def _of_upwards(building: Building) -> str:
    boxes = sum(map(len, building.circles))
    if not boxes:
        return "No arrow runs upwards, and there is no circle."
    return f"Red: {len(building.upwards)} arrows run upwards (thick), and {boxes} boxes import each other in circles."


def _head(name: str, colour: str) -> str:
    return (
        f'<marker id="{name}" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" '
        f'markerUnits="userSpaceOnUse" orient="auto"><path d="M0 0 8 4 0 8z" fill="{colour}"/></marker>'
    )


def _legend(building: Building) -> Iterator[str]:
    x = LEFT
    for kind in KINDS.values():
        yield f'<rect x="{x}" y="18" width="14" height="14" rx="3" fill="{kind.fill}" stroke="{kind.edge}"/>'
        yield _text(x + 20, 29, kind.about, 12, "#1d2433", "start")
        x += 42 + round(6.3 * len(kind.about))
    colour = _RED if building.circles else "#4a556e"
    yield _text(LEFT, 53, _of_upwards(building), 12, colour, "start")


def _storeys(count: int) -> Iterator[str]:
    for floor in range(count):
        y = _top(floor, count)
        band = f'x="{LEFT - 8}" y="{y - 5}" width="{WIDTH - LEFT - 2}" height="{HIGH + 10}"'
        yield f'<rect {band} rx="6" fill="#eceff6"/>'
        yield _text(20, y + HIGH / 2 + 4, str(floor), 12, "#7a86a0")


def _top(floor: int, count: int) -> int:
    return TOP + STOREY * (count - 1 - floor)


def _box(place: Place, x: float, count: int) -> str:
    kind, about = ABOUT.get(place.name, ("ground", ""))
    fill, edge, letters = KINDS[kind][1:]
    y = _top(place.floor, count)
    name = _text(x, y + (18 if about else 26), place.name, 14, letters, weight=600)
    return (
        f'<rect x="{x - BOX / 2:.1f}" y="{y}" width="{BOX}" height="{HIGH}" rx="6" fill="{fill}" stroke="{edge}"/>\n'
        + name
        + (f"\n{_text(x, y + 33, about, 12, letters)}" if about else "")
    )


def _text(x: float, y: float, words: str, size: float, colour: str, anchor: str = "middle", weight: int = 400) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}" font-weight="{weight}" '
        f'fill="{colour}">{words}</text>'
    )


def _arrows(building: Building, plan: Plan, x: dict[Place, float]) -> Iterator[str]:
    count = len(plan.storeys)
    leaving, arriving = (_ends(plan, x, step) for step in (1, -1))
    circle_of = {box: number for number, circle in enumerate(building.circles) for box in circle}
    for arrow, way in plan.ways.items():
        points = [(leaving[arrow], _top(way[0].floor, count) + HIGH)]
        for place in way[1:-1]:
            points += [(x[place], _top(place.floor, count)), (x[place], _top(place.floor, count) + HIGH)]
        points.append((arriving[arrow], _top(way[-1].floor, count)))
        is_up = arrow in building.upwards
        points = points[::-1] if is_up else points
        is_red = arrow[0] in circle_of and circle_of.get(arrow[0]) == circle_of.get(arrow[1])
        width = 2 if is_up else 1.1
        colour, head = (_RED, "r") if is_red else (_BLUE, "a")
        yield (
            f'<path d="{_curve(points)}" fill="none" stroke="{colour}" stroke-width="{width}" '
            f'marker-end="url(#{head})"/>'
        )


def _ends(plan: Plan, x: dict[Place, float], step: int) -> dict[Arrow, float]:
    """Where arrows touch a box: at its lower edge (step 1) or its upper one (-1), in the order of where they lead."""
    of_box: dict[Place, list[tuple[float, Arrow]]] = defaultdict(list)
    for arrow, way in plan.ways.items():
        box, following = way[:2] if step == 1 else way[:-3:-1]
        of_box[box].append((x[following], arrow))
    found: dict[Arrow, float] = {}
    for box, ends in of_box.items():
        apart = min(_PORTS, (BOX - 20) / max(1, len(ends) - 1))
        for number, (_, arrow) in enumerate(sorted(ends)):
            found[arrow] = x[box] + apart * (number - (len(ends) - 1) / 2)
    return found


def _curve(points: Sequence[tuple[float, float]]) -> str:
    """A path through points, upright at each; a straight line where an arrow passes a floor."""
    (x, y), *others = points
    path = [f"M{x:.1f} {y:.1f}"]
    for a, b in others:
        middle = (y + b) / 2
        path.append(
            f"L{a:.1f} {b:.1f}" if abs(x - a) < 0.5 else f"C{x:.1f} {middle:.1f} {a:.1f} {middle:.1f} {a:.1f} {b:.1f}"
        )
        x, y = a, b
    return " ".join(path)


def main() -> None:
    """Write the picture and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--root", type=Path, default=ROOT, help="a checkout")
    parser.add_argument("--picture", type=Path, help="an SVG")
    parser.add_argument("--json", type=Path, help="a file for the figures")
    arguments = parser.parse_args()
    file = arguments.picture or (PICTURE if arguments.root.resolve() == ROOT else None)
    if file:
        file.write_text(picture(arguments.root), "utf-8")
    found = figures(arguments.root)
    if arguments.json:
        arguments.json.write_text(json.dumps(found, indent=2, ensure_ascii=False) + "\n", "utf-8")
    for name, value in found.items():
        many = "" if isinstance(value, int) else f"{len(value)} " + json.dumps(value, ensure_ascii=False)
        print(f"{name}: {many or value}")


if __name__ == "__main__":
    main()
