"""A sample of pairs for people to judge: review.parquet with its strata, and review.tsv for people to fill in."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pyarrow as pa

from dupq import storage
from dupq.evaluation import sampling
from dupq.evaluation.measures import encoder_pairs
from dupq.evaluation.verdicts import Verdict, format_verdicts
from dupq.job.run import Run
from dupq.job.step import Counted
from dupq.job.table import Each, Shards, Table, Whole
from dupq.stages.worklist import TITLED, TITLES, titles_of
from dupq.tables import REVIEW
from dupq.text.keys import Sites, pairs_in

_COUNTED_COLUMNS = ("source", "probability", "joined")
_DRAWN_COLUMNS = ("site_left", "question_id_left", "site_right", "question_id_right", *_COUNTED_COLUMNS)
_SEED = 1


def draw_review(run: Run, pairs: Table, questions: Shards, sites: Sites, size: int, run_id: str) -> None:
    """Write the sample of a run's encoder pairs, and the sheet that people fill in.

    An existing sheet stays as it is: it has this sample, and may have verdicts.
    """
    sheet = storage.join(run.uri, "review.tsv")
    counted = run.record("counts", histogram_of, Each(pairs.only(*_COUNTED_COLUMNS)))  # one task reads all pairs
    if not run.report.rows_in:
        if not storage.exists(sheet):
            storage.write_bytes(sheet, format_verdicts([]).encode())
        return
    planned = sampling.plan(np.array([counted["pairs"], counted["millionths"]]), size)
    drawn = run.map("drawn", draw, pairs.only(*_DRAWN_COLUMNS), planned, sites.names, into=REVIEW)
    sample = run.map("sample", sampling.merge, Whole(drawn), into=REVIEW)
    storage.write_table(storage.join(run.uri, "review.parquet"), sample.read(0), REVIEW)
    if not storage.exists(sheet):
        titles = run.map("titles", titles_of, replace(questions, columns=TITLED), Whole(sample), into=TITLES)
        names = Whole(titles).read()
        title_of = dict(zip(names["key"].to_pylist(), names["title"].to_pylist(), strict=True))
        storage.write_bytes(sheet, _sheet(sample.read(0), title_of, sites, run_id).encode())
    run.report.rows_out = sample.rows


def histogram_of(pairs: Iterator[pa.Table]) -> Counted:
    """Count the encoder's pairs by decision and probability; see `sampling.histogram`."""
    total = np.zeros((2, 2, sampling.BINS), np.int64)
    for table in map(encoder_pairs, pairs):
        total += sampling.histogram(table["probability"].to_numpy(), table["joined"].to_numpy())
    return Counted({"pairs": total[0].tolist(), "millionths": total[1].tolist()}, {"rows_in": int(total[0].sum())})


def draw(pairs: pa.Table, planned: sampling.Plan, sites: list[str]) -> pa.Table:
    """Return the pairs of a partition that may be in the sample (REVIEW)."""
    pairs = encoder_pairs(pairs)
    strata = sampling.strata(pairs["probability"].to_numpy(), pairs["joined"].to_numpy(), planned)
    return sampling.draw(Sites(sites).pack_pairs(pairs, "pairs"), strata, planned, _SEED)


def _sheet(rows: pa.Table, titles: dict[int, str], sites: Sites, run_id: str) -> str:
    keys = pairs_in(rows)[sampling.asking_order(rows)].T
    (sites_left, ids_left), (sites_right, ids_right) = map(sites.unpack, keys)
    pairs = zip(sites_left, ids_left.tolist(), sites_right, ids_right.tolist(), strict=True)
    titles_left, titles_right = ([titles.get(key, "") for key in side.tolist()] for side in keys)
    more = {"title_left": titles_left, "title_right": titles_right, "run_id": [run_id] * len(rows)}
    return format_verdicts([Verdict(*pair, "") for pair in pairs], more)
