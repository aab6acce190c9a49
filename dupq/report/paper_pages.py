"""Writing the pages of the papers' tables: one of Markdown and one of HTML a table, and an index of all."""

from collections.abc import Sequence
from dataclasses import dataclass

import jinja2

from dupq import storage
from dupq.report import paper_figures
from dupq.report.papers import Measured, best_two, columns, lines, orders, ours_against_others, sizes

_LEAD = (
    "Ours beside the paper's. Intervals are 95 % bootstrap intervals over test pairs or questions. The difference is "
    "to the paper's first data set, which is another than ours. Pairs are the labelled ones that a system has learned "
    "from: of both labels, of duplicates alone where it draws its own negatives, none where it learns from no pairs."
)
_QUICK = " This was a quick run: fewer pairs, epochs and questions than the experiment wants."


@dataclass(frozen=True)
class Section:
    """A table on one data set, as it is shown."""

    heading: str
    about: str
    columns: list[str]
    lines: list[list[str]]
    remarks: tuple[str, ...] = ()
    picture: str = ""  # SVG
    is_prose: bool = False  # cells are text rather than figures


def write_pages(measured: Sequence[Measured], folder: str, is_quick: bool, remarks: Sequence[str] = ()) -> None:
    """Write the page of each table, and of what the papers claim, below `folder`; the index shows `remarks` too."""
    lead = _LEAD + (_QUICK if is_quick else "")
    titles = []
    for name in dict.fromkeys(of.table.name for of in measured):
        own = [of for of in measured if of.table.name == name]
        table = own[0].table
        title = f"{table.paper}, {table.title}"
        titles.append((name, title))
        _write(folder, name, title, f"{lead} {table.note}".strip(), [_section(of) for of in own])
    claims = Section("The order of systems", _ABOUT_CLAIMS, _CLAIMED, orders(measured), is_prose=True)
    _write(folder, "orders", "What the papers claim", lead, [claims])
    index = [f"- [{title}]({name}.md) ([HTML]({name}.html))" for name, title in titles]
    index.append("- [What the papers claim](orders.md) ([HTML](orders.html))")
    notes = [f"\n{remark}" for remark in remarks]
    page = "\n".join(["# The papers' tables", "", *index, *notes, ""])
    storage.write_bytes(storage.join(folder, "index.md"), page.encode())


_CLAIMED = ["Claim", "Data", "Here", "p", "Figures", "Why not"]
_ABOUT_CLAIMS = (
    "What the papers say of it, and what we measured. p is that of a paired randomisation test between the two systems "
    "that decide: above .05 the order may be chance, whichever it is."
)


def _section(of: Measured) -> Section:
    made = paper_figures.chart(of)
    picture = "" if made is None else paper_figures.svg(made)
    remarks = tuple(text for text in (ours_against_others(of), best_two(of)) if text)
    return Section(of.data, sizes(of), columns(of), lines(of), remarks, picture)


def _write(folder: str, name: str, title: str, lead: str, sections: list[Section]) -> None:
    pictures = []
    for section in sections:
        file = f"figures/{name}-{section.heading}.svg"
        pictures.append(file if section.picture else "")
        if section.picture:
            storage.write_bytes(storage.join(folder, file), section.picture.encode())
    storage.write_bytes(storage.join(folder, f"{name}.md"), _markdown(title, lead, sections, pictures).encode())
    page = _template().render(title=title, lead=lead, sections=sections)
    storage.write_bytes(storage.join(folder, f"{name}.html"), page.encode())


def _markdown(title: str, lead: str, sections: list[Section], pictures: list[str]) -> str:
    parts = [f"# {title}", lead]
    for section, picture in zip(sections, pictures, strict=True):
        aligned = "---" if section.is_prose else "---:"
        rows = [section.columns, ["---"] + [aligned] * (len(section.columns) - 1), *section.lines]
        parts += [f"## {section.heading}", section.about]
        parts.append("\n".join(f"| {' | '.join(row)} |" for row in rows))
        parts += section.remarks
        parts += [f"![{section.heading}]({picture})"] if picture else []
    return "\n\n".join(parts) + "\n"


def _template() -> jinja2.Template:
    loader = jinja2.PackageLoader("dupq.report", "")
    return jinja2.Environment(loader=loader, autoescape=True).get_template("papers.html.jinja")
