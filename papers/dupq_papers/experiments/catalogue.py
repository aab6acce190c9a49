"""All tables and figures of the papers, by the names that --table takes."""

from dupq_papers.experiments import bogdanova, dos_santos, hazem, othman
from dupq_papers.experiments.rows import Table

TABLES: dict[str, Table] = {
    table.name: table for paper in (bogdanova, dos_santos, othman, hazem) for table in paper.TABLES
}


def is_for(table: Table, language: str) -> bool:
    """Whether a table is measured on data sets of a language."""
    return not table.languages or language in table.languages
