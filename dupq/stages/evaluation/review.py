"""pairs → a sample of them to be judged by people; and what their verdicts tell.

count   a task a file   how many pairs there are of each probability, joined and not
draw    a task a file   the pairs that belong to the sample
titles  a task a shard  the titles of their questions
write   here            review.parquet with the strata, and review.tsv to be filled in
"""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dupq import storage
from dupq.clusters.worklist import Titled
from dupq.evaluation import review
from dupq.evaluation.verdict_files import read_rows
from dupq.evaluation.verdicts import Verdict, format_verdicts
from dupq.execution.tasks import Report, run_tasks
from dupq.execution.units import Counts, skip_or
from dupq.runs.layout import ReviewFiles
from dupq.shards import Shard
from dupq.stages.titles import read_titles
from dupq.tables import PAIRS, REVIEW, REVIEW_COUNTS
from dupq.text.keys import Sites, distinct

_COLUMNS = ["site_left", "question_id_left", "site_right", "question_id_right", "source", "probability", "joined"]
_SEED = 1


def make_review(files: ReviewFiles, shards: list[Shard], sites: Sites, size: int, run_id: str) -> Report:
    """Write the sample of a run's encoder pairs, and the sheet that people fill in.

    A sheet that is there already stays as it is: it is of this sample, and may hold verdicts.
    """
    names = [file.relative for file in storage.list_files(files.pairs, ".parquet")]
    report = run_tasks("review", _count, [(files, name) for name in names])
    if not report.rows_in:
        if not storage.exists(files.sheet):
            storage.write_bytes(files.sheet, format_verdicts([]).encode())
        return report
    planned = review.plan(_histogram(files, names), max(size, 4))
    report.add(run_tasks("review", _draw, [(files, sites.names, planned, name) for name in names]))
    rows = review.merge([read_rows(storage.join(files.folder, "drawn", name)) for name in names])
    _write_rows(files.output, rows)
    if not storage.exists(files.sheet):
        keys = distinct(np.concatenate([rows.left, rows.right]))
        read, titles = read_titles("review", storage.join(files.folder, "titles"), keys, shards, sites)
        report.add(read)
        storage.write_bytes(files.sheet, _sheet(rows, titles, sites, run_id).encode())
    report.rows_out = len(rows.left)
    return report


def _encoder_pairs(files: ReviewFiles, name: str) -> pa.Table:
    table = storage.read_table(storage.join(files.pairs, name), PAIRS, _COLUMNS)
    return table.filter(pc.equal(table["source"], "encoder"))


def _count(files: ReviewFiles, name: str) -> Counts:
    output = storage.join(files.folder, "counts", name)

    def make() -> Counts:
        table = _encoder_pairs(files, name)
        found = review.histogram(table["probability"].to_numpy(), table["joined"].to_numpy())
        columns = [pa.array(found.counts.ravel()), pa.array(found.sums.ravel())]
        storage.write_table(output, pa.table(columns, schema=REVIEW_COUNTS), REVIEW_COUNTS)
        return {"rows_in": len(table)}

    return skip_or(output, make)


def _histogram(files: ReviewFiles, names: list[str]) -> review.Histogram:
    tables = [storage.read_table(storage.join(files.folder, "counts", name), REVIEW_COUNTS) for name in names]
    columns = (sum(table[column].to_numpy() for table in tables) for column in REVIEW_COUNTS.names)
    return review.Histogram(*(np.asarray(column).reshape(2, -1) for column in columns))


def _draw(files: ReviewFiles, site_names: list[str], planned: review.Plan, name: str) -> Counts:
    output = storage.join(files.folder, "drawn", name)

    def make() -> Counts:
        table, sites = _encoder_pairs(files, name), Sites(site_names)
        left, right = (
            sites.pack_columns(table[f"site_{side}"], table[f"question_id_{side}"], name) for side in ("left", "right")
        )
        strata = review.strata(table["probability"].to_numpy(), table["joined"].to_numpy(), planned)
        _write_rows(output, review.draw(left, right, strata, planned, _SEED))
        return {}

    return skip_or(output, make)


def _write_rows(uri: str, rows: review.Rows) -> None:
    storage.write_table(uri, pa.table([pa.array(column) for column in rows], schema=REVIEW), REVIEW)


def _sheet(rows: review.Rows, titles: dict[int, Titled], sites: Sites, run_id: str) -> str:
    ends = [sites.unpack(side) for side in (rows.left, rows.right)]
    asked = [
        Verdict(*row, "") for row in zip(ends[0][0], ends[0][1].tolist(), ends[1][0], ends[1][1].tolist(), strict=True)
    ]
    more = {
        "title_left": [titles[key].title if key in titles else "" for key in rows.left.tolist()],
        "title_right": [titles[key].title if key in titles else "" for key in rows.right.tolist()],
        "run_id": [run_id] * len(asked),
    }
    order = review.asking_order(rows).tolist()
    shuffled = {name: [column[place] for place in order] for name, column in more.items()}
    return format_verdicts([asked[place] for place in order], shuffled)
