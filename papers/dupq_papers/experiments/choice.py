"""Which tables are measured on which data sets, and what is missing for the others."""

from collections.abc import Sequence
from dataclasses import dataclass

from dupq_papers.experiments.catalogue import TABLES, is_for
from dupq_papers.experiments.rows import Part, Table, part_of
from dupq_papers.experiments.sources import Source


@dataclass(frozen=True)
class Shown:
    """A table on a data set, the second data set if there is one, and the parts of its rows by their labels."""

    table: Table
    source: Source
    other: str | None
    parts: dict[str, Part]


def shown(tables: Sequence[str], sources: Sequence[Source], is_quick: bool) -> list[Shown]:
    """The tables of these names, each on all data sets that it is for."""
    return [
        _shown(TABLES[name], source, other_of(source, sources), is_quick)
        for name in tables
        for source in sources
        if _is_measured(TABLES[name], source, sources)
    ]


def not_measured(tables: Sequence[str], sources: Sequence[Source]) -> list[str]:
    """The tables that no data set is for, with what they need."""
    return [
        f"{name} (needs {_needed(TABLES[name])})"
        for name in tables
        if not any(_is_measured(TABLES[name], source, sources) for source in sources)
    ]


def other_of(source: Source, sources: Sequence[Source]) -> str | None:
    """The name of the next data set of the same kind and language."""
    alike = [one.name for one in sources if (one.kind, one.language) == (source.kind, source.language)]
    return alike[(alike.index(source.name) + 1) % len(alike)] if len(alike) > 1 else None


def _shown(table: Table, source: Source, other: str | None, is_quick: bool) -> Shown:
    parts = ((row.label, part_of(table, row, source.name, other, is_quick)) for row in table.rows)
    return Shown(table, source, other, {label: part for label, part in parts if part is not None})


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
    return source.kind != "semeval" and (source.has_bodies or not _reads_bodies(table))


def _needed(table: Table) -> str:
    if "arabic" in table.languages:
        return "an Arabic --pair-set"
    if table.task == "candidates":
        return "a site with more known duplicates, or SemEval's files as --pair-set"
    return f"a site with more known duplicates{'' if _reads_bodies(table) else ', or a --pair-set'}"


def _reads_bodies(table: Table) -> bool:
    return table.task == "ranking" and "text.fields=title" not in table.text
