"""The arguments of `dupq evaluate` for the papers' tables."""

from dataclasses import dataclass

from dupq.errors import DupqError, SettingError
from dupq.job.records import check_output
from dupq_papers.experiments.catalogue import TABLES
from dupq_papers.experiments.choice import not_measured
from dupq_papers.experiments.sources import Source, folder_source, sites_of


@dataclass(frozen=True)
class Checked:
    """The data sets, and what is said of sites and tables that cannot be measured."""

    sources: list[Source]
    remarks: list[str]


@dataclass(frozen=True)
class PapersJob:
    """The arguments: an ingested archive, folders with pair sets, the names of tables."""

    questions: str
    links: str
    output: str
    tables: tuple[str, ...]
    pair_sets: tuple[str, ...] = ()
    is_quick: bool = False

    def check(self) -> Checked:
        """The data sets; raises DupqError for what is wrong, before any work.

        Of some tables each must have a data set; of all of them those without one are only told.
        """
        check_output(self.output)
        unknown = [name for name in self.tables if name not in TABLES]
        if unknown or not self.tables:
            raise SettingError(f"--table {', '.join(unknown)}: no such table; there are {', '.join(TABLES)}")
        sites = sites_of(self.questions, self.links)
        sources = [*sites.sources, *map(folder_source, self.pair_sets)]
        names = [source.name for source in sources]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise DupqError(f"--pair-set: two data sets have the name {twice[0]}; rename one of the folders")
        left_out = "; ".join(sites.left_out)
        if not sources:
            raise DupqError(f"{self.links}: nothing to measure on ({left_out})")
        missing = not_measured(self.tables, sources)
        if missing and set(self.tables) != set(TABLES):
            raise SettingError(f"--table {', '.join(missing)}" + (f"; {left_out}" if left_out else ""))
        return Checked(sources, [*sites.left_out, *(f"not measured: {name}" for name in missing)])
