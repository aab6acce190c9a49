"""The papers' tables on the user's data: every part computed or kept from before, then the pages.

questions, links  ──sources──▶  data sets: each site that has enough known duplicates, and each --pair-set
data sets         ──parts────▶  results, one for each row of a table (steps.py)
results           ──pages────▶  papers/*.md, *.html, results.parquet, results.json; of a quick run papers/quick/
"""

from dupq import storage
from dupq.job import lease
from dupq_papers.arguments import Checked, PapersJob
from dupq_papers.experiments.choice import Shown, shown
from dupq_papers.pages.index import write_index
from dupq_papers.pages.lines import Measured
from dupq_papers.pages.pages import write_pages
from dupq_papers.steps import Work, measure_parts, opened, result_of, save_examples


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
