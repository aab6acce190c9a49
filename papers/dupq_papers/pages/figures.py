"""Charts of the papers' tables, by Vega-Lite: figures over epochs or sizes, and dots of ours beside the paper's."""

import json

import altair

from dupq_papers.pages.lines import Measured, records

Chart = altair.Chart | altair.LayerChart | altair.FacetChart

_WIDTH = 560
_ROW = 22  # pixels


def chart(of: Measured) -> Chart | None:
    """The chart of a table on a data set; None where nothing of it was computed."""
    if not of.results:
        return None
    made = {"epochs": _over_epochs, "pairs": _over_pairs, "": _dots}[of.table.figure](of)
    return None if made is None else made.properties(title=f"{of.table.title.partition(':')[0]}, {of.data}")


def svg(made: Chart) -> str:
    """A chart as a picture that needs nothing else."""
    import vl_convert

    return str(vl_convert.vegalite_to_svg(json.loads(made.to_json())))


def _over_epochs(of: Measured) -> Chart | None:
    wanted = {"loss", "training_accuracy", "validation_loss", "validation_accuracy"}
    if of.table.task == "pairs":
        wanted = {"best_validation_accuracy"}
    values = [
        {"system": label, "epoch": row["epoch"], "measure": name.replace("_", " "), "value": row[name]}
        for label, result in of.results.items()
        for row in result["curve"]
        for name in sorted(wanted & set(row))
    ]
    if not values:
        return None
    lines = altair.Chart(altair.Data(values=values)).mark_line(point=True)
    drawn = lines.encode(
        x=altair.X("epoch:Q", title="epoch", axis=altair.Axis(tickMinStep=1)),
        y=altair.Y("value:Q", title=None, scale=altair.Scale(zero=False)),
        color=altair.Color("system:N", title=None, sort=list(of.results)),
    )
    return drawn.properties(width=_WIDTH, height=160).facet(row=altair.Row("measure:N", title=None))


def _over_pairs(of: Measured) -> Chart | None:
    first, title = next(iter(of.table.measures.items()))
    values = [
        {"system": label.rpartition(", ")[0], "pairs": result["sizes"]["training_pairs"], "value": value}
        for label, result in of.results.items()
        if (value := result["values"].get(first)) is not None
    ]
    lines = altair.Chart(altair.Data(values=values)).mark_line(point=True)
    return lines.encode(
        x=altair.X("pairs:Q", title="pairs learned from", scale=altair.Scale(type="log")),
        y=altair.Y("value:Q", title=title, scale=altair.Scale(zero=False)),
        color=altair.Color("system:N", title=None, sort=list(dict.fromkeys(str(value["system"]) for value in values))),
    ).properties(width=_WIDTH, height=260)


def _dots(of: Measured) -> Chart | None:
    first, title = next(iter(of.table.measures.items()))
    rows = [row for row in records(of) if row["measure"] == first]
    ours = {row["system"]: row for row in rows if row["ours"] is not None}
    values = [{"system": name, "value": row["ours"], "of": of.data} for name, row in ours.items()]
    values += [
        {"system": row["system"], "value": row["paper"], "of": row["paper_data"]} for row in rows if row["paper"]
    ]
    data = list(dict.fromkeys(str(value["of"]) for value in values))  # ours first: it has the same colour in each chart
    bounds = [row for row in ours.values() if row["low"] is not None]
    spans = [{"system": row["system"], "low": row["low"], "high": row["high"]} for row in bounds]
    order = altair.Y("system:N", title=None, sort=list(dict.fromkeys(str(row["system"]) for row in rows)))
    dots = altair.Chart(altair.Data(values=values)).mark_point(filled=True, size=70)
    drawn = dots.encode(
        x=altair.X("value:Q", title=title, scale=altair.Scale(zero=False)),
        y=order,
        color=altair.Color("of:N", title=None, sort=data),
        shape=altair.Shape("of:N", title=None, sort=data),
    )
    lines = altair.Chart(altair.Data(values=spans)).mark_rule(opacity=0.5).encode(x="low:Q", x2="high:Q", y=order)
    return (lines + drawn).properties(width=_WIDTH, height=_ROW * len({str(row["system"]) for row in rows}))
