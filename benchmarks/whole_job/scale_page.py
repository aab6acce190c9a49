"""The figures of benchmarks/scale.py as a page of tables and a plot."""

import math
from pathlib import Path
from typing import Any

_CURVES = 9  # stages that are drawn with names: those that take longest


def page(found: dict[str, Any]) -> str:
    """Markdown."""
    sizes = sorted(map(int, found["sizes"]))
    lines = {size: {_name(line): line for line in found["sizes"][str(size)]["stages"]} for size in sizes}
    names = list(dict.fromkeys(name for size in sizes for name in lines[size]))
    machine = found["machine"]
    parts = [
        "# Made archives through the whole job",
        f"`python benchmarks/scale.py`, {machine['cpus']} CPUs ({machine['processor']}, {machine['memory_gb']} GiB)"
        f"{_kind(found)}. "
        f"{found['note']}".rstrip(),
        "Growth is the exponent between the two largest archives that a stage was measured on: 1 is linear. A + marks "
        "what an attempt before had begun.",
        "## Seconds\n\n" + _table(names, sizes, lines, "seconds"),
        "## CPU seconds of all tasks and of the driver\n\n" + _table(names, sizes, lines, "cpu"),
        "## Memory of the largest task, MB\n\n" + _table(names, sizes, lines, "task_mb"),
        "## Memory of the driver, MB\n\n" + _table(names, sizes, lines, "driver_mb"),
        "## Bytes written, MB\n\n" + _table(names, sizes, lines, "written"),
        "## What was found of what was planted\n\n" + _quality(found, sizes),
    ]
    return "\n\n".join(parts)


def _kind(found: dict[str, Any]) -> str:
    """How the archives were made and searched, where that is not by default."""
    alike = f"{found['alike']} questions on a subject on average" if found.get("alike") else ""
    return "".join(f", {said}" for said in ("short bodies" if found["short"] else "", alike, *found["set"]) if said)


def _name(line: dict[str, Any]) -> str:
    return f"{line['job']} {line['stage']}"


def value_of(line: dict[str, Any], what: str) -> float:
    """A figure of a stage."""
    if what == "cpu":
        return line["driver_cpu_s"] + line["tasks_cpu_s"]
    return line[what] / 1e6 if what == "written" else line[what]


def growth(values: dict[int, float]) -> float | None:
    """The exponent between the two largest sizes."""
    if len(values) < 2:
        return None
    (small, before), (large, after) = sorted(values.items())[-2:]
    return math.log(after / before) / math.log(large / small) if before > 0 and after > 0 else None


def _table(names: list[str], sizes: list[int], lines: dict[int, Any], what: str) -> str:
    heads = ["stage", *(f"{size:,}" for size in sizes), "growth"]
    rows = [heads, ["---", *["---:"] * (len(heads) - 1)]]
    for name in names:
        there = {size: lines[size][name] for size in sizes if name in lines[size]}
        values = {size: value_of(line, what) for size, line in there.items() if not line["is_rest"]}
        cells = [_cell(there[size], what) if size in there else "" for size in sizes]
        exponent = growth(values)
        cells.append("" if exponent is None else f"{exponent:.2f}")
        rows.append([name, *cells])
    if what in ("seconds", "cpu", "written"):
        sums = [sum(value_of(line, what) for line in lines[size].values()) for size in sizes]
        rows.append(["all", *(f"{total:,.1f}" for total in sums), ""])
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _cell(line: dict[str, Any], what: str) -> str:
    value = value_of(line, what)
    return (f"{value:,.0f}" if what.endswith("_mb") else f"{value:,.1f}") + "+" * line["is_rest"]


def _quality(found: dict[str, Any], sizes: list[int]) -> str:
    shown = [(kind, name) for kind in ("copy", "near_copy") for name in ("pairs", "same_cluster")]
    shown += [("rephrasing", name) for name in ("pairs", "same_cluster", "encoder_at_10", "bm25_at_10")]
    heads = ["questions", *(f"{kind} {name}".replace("_", " ") for kind, name in shown)]
    rows = [heads, ["---:"] * len(heads)]
    for size in sizes:
        measures = found["sizes"][str(size)]["quality"] or {}
        values = [(measures.get(kind) or {}).get(name) for kind, name in shown]
        rows.append([f"{size:,}", *("" if value is None else f"{value:,.4g}" for value in values)])
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def plot(found: dict[str, Any], place: Path) -> None:
    """Seconds, memory and bytes by the number of questions, a line a stage."""
    import altair as alt

    panels = {
        "seconds": "seconds",
        "task_mb": "MB of the largest task",
        "driver_mb": "MB of the driver",
        "written": "MB written",
    }
    largest = found["sizes"][max(found["sizes"], key=int)]["stages"]
    trained = [line for size in found["sizes"].values() for line in size["stages"] if line["stage"] == "fit"]
    slowest = sorted([*largest, *trained[:1]], key=lambda line: -line["seconds"])[:_CURVES]
    named = {_name(line) for line in slowest}
    rows = []
    for size, measured in found["sizes"].items():
        for line in measured["stages"]:
            for what, title in panels.items():
                value, name = max(value_of(line, what), 0.01), _name(line)
                color = name if name in named else "others"
                rows.append({"questions": int(size), "stage": color, "each": name, "what": title, "y": value})
    chart = (
        alt.Chart(alt.Data(values=rows))
        .mark_line(point=True)
        .encode(
            x=alt.X("questions:Q", scale=alt.Scale(type="log"), title="questions"),
            y=alt.Y("y:Q", scale=alt.Scale(type="log"), title=None),
            color=alt.Color("stage:N", scale=alt.Scale(scheme="tableau20")),
            detail="each:N",
        )
        .properties(width=300, height=220)
        .facet(facet=alt.Facet("what:N", title=None, sort=list(panels.values())), columns=2)
        .resolve_scale(y="independent")
    )
    chart.save(str(place))
