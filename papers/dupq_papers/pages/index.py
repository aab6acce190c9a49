"""What is written of all pages of the papers' tables together: the index, the papers' claims, and the results."""

from collections.abc import Sequence

import pyarrow as pa

from dupq import storage
from dupq.storage import read_as
from dupq_papers.pages.lines import Line
from dupq_papers.pages.pages import LEAD, QUICK, TABLES_FOLDER, Page, Section, write_page
from dupq_papers.schemas import PAPER_RESULTS

_REMEDY = "delete the file, and run its table again"
_CLAIMED = ["Claim", "Data", "Here", "p", "Figures", "Why not"]
_ABOUT_CLAIMS = (
    "What the papers say of it, and what we measured. p is that of a paired randomisation test between the two systems "
    "that decide: above .05 the order may be chance, whichever it is."
)


def write_index(folder: str, is_quick: bool, remarks: Sequence[str] = ()) -> None:
    """Write index.md, orders.*, results.json and results.parquet of every table that has a page below `folder`.

    So the tables of earlier runs stay beside those of this one. `remarks` are of this run.
    """
    files = storage.list_files(storage.join(folder, TABLES_FOLDER), ".json")
    pages = {storage.name(file.uri).removesuffix(".json"): read_as(file.uri, Page, _REMEDY) for file in files}
    rows = [row for page in pages.values() for row in page["rows"]]
    table = pa.Table.from_pylist(rows, schema=PAPER_RESULTS)
    storage.write_table(storage.join(folder, "results.parquet"), table, PAPER_RESULTS)
    storage.write_json(storage.join(folder, "results.json"), {"quick": is_quick, "rows": rows})
    claims = [Line(claim, is_ours=False) for page in pages.values() for claim in page["claims"]]
    section = Section("The order of systems", _ABOUT_CLAIMS, _CLAIMED, claims, is_prose=True)
    write_page(folder, "orders", "What the papers claim", LEAD + (QUICK if is_quick else ""), [section])
    index = [f"- [{page['title']}]({name}.md) ([HTML]({name}.html))" for name, page in pages.items()]
    index.append("- [What the papers claim](orders.md) ([HTML](orders.html))")
    notes = [f"\n{remark}" for remark in remarks]
    text = "\n".join(["# The papers' tables", "", *index, *notes, ""])
    storage.write_bytes(storage.join(folder, "index.md"), text.encode())
