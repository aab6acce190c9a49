"""The papers' tables on the user's data: every part computed or kept from before, then the pages.

questions, links  ──sources──▶  data sets: each site that has enough known duplicates, and each --pair-set
data sets         ──parts────▶  results, one for each row of a table (dupq/stages/papers.py)
results           ──pages────▶  papers/*.md, *.html, results.parquet, results.json; of a quick run papers/quick/
"""

from dataclasses import dataclass

from dupq import storage
from dupq.errors import DupqError, SettingError
from dupq.evaluation.papers.catalogue import TABLES
from dupq.evaluation.papers.choice import Shown, not_measured, shown
from dupq.evaluation.papers.sources import Source, folder_source, sites_of
from dupq.report.paper_index import write_index
from dupq.report.paper_pages import write_pages
from dupq.report.papers import Measured
from dupq.runs import lease, writer
from dupq.stages.papers import Work, measure_parts, opened, result_of, save_examples


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
        writer.check_output(self.output)
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


def measure_papers(job: PapersJob, checked: Checked | None = None) -> str:
    """Write the pages below `job.output`/papers; returns what the papers claim, and whether it holds, as text."""
    checked = checked or job.check()
    output = storage.absolute(job.output)
    folder = storage.join(output, "work", "papers")
    wanted = shown(job.tables, checked.sources, job.is_quick)
    parts = [part for one in wanted for part in one.parts.values()]
    needed = {name for part in parts for name in part.needs}
    with lease.held(folder):
        work = opened(folder, [source for source in checked.sources if source.name in needed])
        measure_parts(parts, work)
        folder = storage.join(output, "papers", *(["quick"] if job.is_quick else []))
        save_examples(storage.join(folder, "examples"), work, job.is_quick)
        pages = write_pages([_measured(one, work) for one in wanted], folder, job.is_quick)
        write_index(folder, job.is_quick, checked.remarks)
    figures = sum(len(page["rows"]) for page in pages)
    claims = [
        f"{verdict:14} {data:20} {text} ({shown_as})"
        for page in pages
        for text, data, verdict, _, shown_as, _ in page["claims"]
    ]
    return "\n".join([f"{figures} figures of {len(pages)} tables in {folder}", *checked.remarks, *claims])


def _measured(of: Shown, work: Work) -> Measured:
    results = {label: result_of(part, work) for label, part in of.parts.items()}
    return Measured(of.table, of.source.name, of.source.language, results, of.other)
