"""pairs → a sample of them to be judged by people: review.parquet with its strata, and review.tsv to be filled in.

counts  how many pairs there are of each probability, joined and not
drawn   the pairs that belong to the sample; then of all partitions: sample
titles  those of their questions
"""

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

from dupq import storage
from dupq.clusters.steps.make_worklist import TITLES, keys_of_pairs, titles_of
from dupq.evaluation import sampling
from dupq.evaluation.verdicts import Verdict, format_verdicts
from dupq.job.run import Counted, Run
from dupq.job.table import Each, Shards, Table, Whole
from dupq.tables import REVIEW, REVIEW_COUNTS
from dupq.text.keys import Sites

_COLUMNS = ("site_left", "question_id_left", "site_right", "question_id_right", "source", "probability", "joined")
_SEED = 1


def draw_review(run: Run, pairs: Table, questions: Shards, sites: Sites, size: int, run_id: str) -> None:
    """Write the sample of a run's encoder pairs, and the sheet that people fill in.

    A sheet that is there already stays as it is: it is of this sample, and may hold verdicts.
    """
    sheet, pairs = storage.join(run.uri, "review.tsv"), pairs.only(*_COLUMNS)
    counts = run.map("counts", counts_of, pairs, into=REVIEW_COUNTS)
    if not run.report.rows_in:
        if not storage.exists(sheet):
            storage.write_bytes(sheet, format_verdicts([]).encode())
        return
    columns = (column.to_numpy().reshape(pairs.parts, 2, -1).sum(axis=0) for column in Whole(counts).read().columns)
    planned = sampling.plan(sampling.Histogram(*columns), max(size, 4))
    drawn = run.map("drawn", draw, pairs, planned, sites.names, into=REVIEW)
    sample = run.map("sample", merge, Each(drawn), into=REVIEW)
    storage.write_table(storage.join(run.uri, "review.parquet"), sample.read(0), REVIEW)
    if not storage.exists(sheet):
        titles = run.map("titles", titles_of, questions, Whole(sample), into=TITLES)
        names = Whole(titles).read()
        of_keys = dict(zip(names["key"].to_pylist(), names["title"].to_pylist(), strict=True))
        storage.write_bytes(sheet, _sheet(_rows(sample.read(0)), of_keys, sites, run_id).encode())
    run.report.rows_out = sample.rows


def counts_of(pairs: pa.Table) -> Counted:
    """Return how many of the encoder's pairs have each probability (REVIEW_COUNTS)."""
    pairs = _of_encoder(pairs)
    found = sampling.histogram(pairs["probability"].to_numpy(), pairs["joined"].to_numpy())
    counts = pa.table([found.counts.ravel(), found.sums.ravel()], schema=REVIEW_COUNTS)
    return Counted(counts, {"rows_in": len(pairs)})


def _of_encoder(pairs: pa.Table) -> pa.Table:
    return pairs.filter(pc.equal(pairs["source"], "encoder"))


def draw(pairs: pa.Table, planned: sampling.Plan, sites: list[str]) -> pa.Table:
    """Return the pairs of a partition that may be in the sample (REVIEW)."""
    pairs = _of_encoder(pairs)
    strata = sampling.strata(pairs["probability"].to_numpy(), pairs["joined"].to_numpy(), planned)
    left, right = keys_of_pairs(pairs, Sites(sites)).T
    return _table(sampling.draw(left, right, strata, planned, _SEED))


def merge(drawn: Iterator[pa.Table]) -> pa.Table:
    """Return the sample (REVIEW) of what was drawn of each partition."""
    return _table(sampling.merge([_rows(table) for table in drawn]))


def _rows(table: pa.Table) -> sampling.Rows:
    return sampling.Rows(*(column.to_numpy() for column in table.columns))


def _table(rows: sampling.Rows) -> pa.Table:
    return pa.table([*map(pa.array, rows)], schema=REVIEW)


def _sheet(rows: sampling.Rows, titles: dict[int, str], sites: Sites, run_id: str) -> str:
    ends = [sites.unpack(side) for side in (rows.left, rows.right)]
    asked = [
        Verdict(*row, "") for row in zip(ends[0][0], ends[0][1].tolist(), ends[1][0], ends[1][1].tolist(), strict=True)
    ]
    more = {
        "title_left": [titles.get(key, "") for key in rows.left.tolist()],
        "title_right": [titles.get(key, "") for key in rows.right.tolist()],
        "run_id": [run_id] * len(asked),
    }
    order = sampling.asking_order(rows).tolist()
    shuffled = {name: [column[place] for place in order] for name, column in more.items()}
    return format_verdicts([asked[place] for place in order], shuffled)
