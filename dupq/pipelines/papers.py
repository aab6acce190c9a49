"""The papers' tables on the user's data: every part computed or kept from before, then the pages.

questions, links  ──sources──▶  data sets: each site that has known duplicates, and each --pair-set
data sets         ──parts────▶  results, one for each row of a table (dupq/stages/papers.py)
results           ──pages────▶  papers/*.md, *.html, results.parquet, results.json
"""

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from dupq import storage
from dupq.errors import DupqError, SettingError
from dupq.evaluation.papers.catalogue import TABLES, is_for
from dupq.evaluation.papers.rows import Part, Table, part_of
from dupq.evaluation.papers.sources import Source, folder_source, sites_of
from dupq.report.paper_pages import write_pages
from dupq.report.papers import Measured, orders, records
from dupq.runs import lease, writer
from dupq.stages.papers import Work, measure_parts, result_of
from dupq.tables import PAPER_RESULTS


@dataclass(frozen=True)
class PapersJob:
    """The arguments: an ingested archive, folders with pair sets, the names of tables."""

    questions: str
    links: str
    output: str
    tables: tuple[str, ...]
    pair_sets: tuple[str, ...] = ()
    is_quick: bool = False

    def check(self) -> list[Source]:
        """The data sets; raises DupqError for what is wrong, before any work."""
        writer.check_output(self.output)
        unknown = [name for name in self.tables if name not in TABLES]
        if unknown or not self.tables:
            raise SettingError(f"--table {', '.join(unknown)}: no such table; there are {', '.join(TABLES)}")
        sources = [*sites_of(self.questions, self.links), *map(folder_source, self.pair_sets)]
        names = [source.name for source in sources]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise DupqError(f"--pair-set: two data sets have the name {twice[0]}; rename one of the folders")
        return sources


@dataclass(frozen=True)
class _Shown:
    """A table on a data set, and the parts of its rows by their labels."""

    table: Table
    source: Source
    parts: dict[str, Part]


def measure_papers(job: PapersJob, checked: list[Source] | None = None) -> str:
    """Write the pages below `job.output`/papers; returns what the papers claim, and whether it holds, as text."""
    sources = checked or job.check()
    output = storage.absolute(job.output)
    work = Work(storage.join(output, "work", "papers"), {source.name: source for source in sources})
    shown = [
        _Shown(TABLES[name], source, _parts(TABLES[name], source, sources, job.is_quick))
        for name in job.tables
        for source in sources
        if _is_measured(TABLES[name], source, sources)
    ]
    with lease.held(work.folder):
        measure_parts([part for one in shown for part in one.parts.values()], work)
        measured = [_measured(one, work) for one in shown]
        folder = storage.join(output, "papers")
        rows = [row for of in measured for row in records(of)]
        table = pa.Table.from_pylist(rows, schema=PAPER_RESULTS)
        storage.write_table(storage.join(folder, "results.parquet"), table, PAPER_RESULTS)
        storage.write_json(storage.join(folder, "results.json"), {"quick": job.is_quick, "rows": rows})
        write_pages(measured, folder, job.is_quick)
    claims = [f"{verdict:14} {data:20} {text} ({figures})" for text, data, verdict, figures in orders(measured)]
    return "\n".join([f"{len(rows)} figures of {len(job.tables)} tables in {folder}", *claims])


def _is_measured(table: Table, source: Source, sources: Sequence[Source]) -> bool:
    """Whether a table makes sense on a data set.

    Candidates are ranked where a data set gives some, as in the paper; if none does, they are made of the sites' known
    duplicates.
    """
    if not is_for(table, source.language):
        return False
    if table.task == "candidates":
        gives = any(one.kind == "semeval" for one in sources)
        return source.kind == ("semeval" if gives else "site")
    reads_bodies = table.task == "ranking" and "text.fields=title" not in table.text
    return source.kind != "semeval" and (source.has_bodies or not reads_bodies)


def _parts(table: Table, source: Source, sources: Sequence[Source], is_quick: bool) -> dict[str, Part]:
    """The parts of the rows that can be computed; the other data set is the next one of its kind and language."""
    alike = [one for one in sources if (one.language, one.has_bodies) == (source.language, source.has_bodies)]
    place = alike.index(source)
    other = alike[(place + 1) % len(alike)].name if len(alike) > 1 else None
    made = ((row.label, part_of(table, row, source.name, other, is_quick)) for row in table.rows)
    return {label: part for label, part in made if part is not None}


def _measured(shown: _Shown, work: Work) -> Measured:
    results = {label: result_of(part, work) for label, part in shown.parts.items()}
    return Measured(shown.table, shown.source.name, shown.source.language, results)
