"""Writing the pages of the papers' tables: one of Markdown and one of HTML a table, and what an index needs of it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jinja2
from typing_extensions import TypedDict

from dupq import storage
from dupq_papers.pages import figures
from dupq_papers.pages.lines import Line, Measured, columns, lines, records, sizes
from dupq_papers.pages.orders import best_two, orders, ours_against_others

LEAD = (
    "Ours beside the paper's. Intervals are 95 % bootstrap intervals over test pairs or questions. The difference is "
    "to the paper's first data set, which is another than ours. Pairs are the labelled ones that a system has learned "
    "from: of both labels, of duplicates alone where it draws its own negatives, none where it learns from no pairs."
)
QUICK = " This was a quick run: fewer pairs, epochs and questions than the experiment wants."
TABLES_FOLDER = "tables"


class Page(TypedDict):
    """What the index and the results need of a table, kept as tables/NAME.json beside the pages."""

    title: str
    rows: list[dict[str, Any]]  # see `records`
    claims: list[list[str]]  # see `orders`


@dataclass(frozen=True)
class Section:
    """A table on one data set, as it is shown."""

    heading: str
    about: str
    columns: list[str]
    lines: list[Line]
    remarks: tuple[str, ...] = ()
    picture: str = ""  # SVG
    is_prose: bool = False  # cells are text rather than figures


def write_pages(measured: Sequence[Measured], folder: str, is_quick: bool) -> list[Page]:
    """Write the page of each table below `folder`, in place of an earlier one."""
    pages = []
    for name in dict.fromkeys(of.table.name for of in measured):
        own = [of for of in measured if of.table.name == name]
        table, rows = own[0].table, [row for of in own for row in records(of)]
        page = Page(title=f"{table.paper}, {table.title}", rows=rows, claims=orders(own))
        lead = f"{LEAD}{QUICK if is_quick else ''} {table.note}".strip()
        write_page(folder, name, page["title"], lead, [_section(of) for of in own])
        storage.write_json(storage.join(folder, TABLES_FOLDER, f"{name}.json"), page)
        pages.append(page)
    return pages


def _section(of: Measured) -> Section:
    made = figures.chart(of)
    picture = "" if made is None else figures.svg(made)
    remarks = tuple(text for text in (ours_against_others(of), best_two(of)) if text)
    return Section(of.data, sizes(of), columns(of), lines(of), remarks, picture)


def write_page(folder: str, name: str, title: str, lead: str, sections: Sequence[Section]) -> None:
    """Write NAME.md and NAME.html below `folder`, and the pictures of the sections."""
    pictures = []
    for section in sections:
        file = f"figures/{name}-{section.heading}.svg"
        pictures.append(file if section.picture else "")
        if section.picture:
            storage.write_bytes(storage.join(folder, file), section.picture.encode())
    storage.write_bytes(storage.join(folder, f"{name}.md"), _markdown(title, lead, sections, pictures).encode())
    page = _template().render(title=title, lead=lead, sections=sections)
    storage.write_bytes(storage.join(folder, f"{name}.html"), page.encode())


def _markdown(title: str, lead: str, sections: Sequence[Section], pictures: Sequence[str]) -> str:
    parts = [f"# {title}", lead]
    for section, picture in zip(sections, pictures, strict=True):
        aligned = "---" if section.is_prose else "---:"
        rows = [section.columns, ["---"] + [aligned] * (len(section.columns) - 1), *map(_cells, section.lines)]
        parts += [f"## {section.heading}", section.about]
        parts.append("\n".join(f"| {' | '.join(row)} |" for row in rows))
        parts += section.remarks
        parts += [f"![{section.heading}]({picture})"] if picture else []
    return "\n\n".join(parts) + "\n"


def _cells(line: Line) -> list[str]:
    label, *rest = line.cells
    return [f"**{label}**" if line.is_ours else label, *rest]


def _template() -> jinja2.Template:
    loader = jinja2.PackageLoader("dupq_papers", "pages")
    environment = jinja2.Environment(loader=loader, autoescape=True, undefined=jinja2.StrictUndefined)
    return environment.get_template("papers.html.jinja")
