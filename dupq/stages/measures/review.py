"""A sample of pairs for people to judge: review.parquet with its strata, and review.tsv for people to fill in.

counts  of pairs by probability, joined and not
drawn   the pairs of a partition that may be in the sample; then of all partitions: sample
titles  of the sample's questions
"""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from dupq import kinds, storage
from dupq.evaluation import sampling
from dupq.evaluation.measures import encoder_pairs
from dupq.evaluation.verdicts import Verdict, format_verdicts
from dupq.job.run import Run
from dupq.job.stage import stage
from dupq.job.step import StepResult, step
from dupq.job.table import Broadcast, Shards, Streamed, Table
from dupq.kinds import JSON, columns, streamed
from dupq.stages.worklist import TITLES, titles_of
from dupq.tables import PAIRS, REVIEW
from dupq.text.keys import Sites, pairs_in

_COUNTED = columns(PAIRS, "source", "probability", "joined")
_OF_PAIRS = columns(PAIRS, *PAIRS.names[:4], *_COUNTED.names)
_SEED = 1


@stage("review", version=4)
def draw_review(
    run: Run, pairs: Table[kinds.Pair], questions: Shards[kinds.Question], sites: Sites, size: int, run_id: str
) -> None:
    """Write the sample of a run's encoder pairs, if there are any, and the sheet that people fill in."""
    counted = run.record("counts", histogram_of)(Streamed(pairs))  # one task reads all pairs
    planned = sampling.plan(np.array([counted["pairs"], counted["millionths"]]), size)
    drawn = run.map("drawn", draw)(pairs, planned, sites.names)
    sample = run.map("sample", merged)(Broadcast(drawn))
    titles = run.map("titles", titles_of)(questions, Broadcast(sample))
    run.write("review.tsv", sheet_of, publish=True)(sample, Broadcast(titles), sites, run_id)
    if sample.rows:
        storage.write_table(run.path("review.parquet"), sample.read(), REVIEW)
    run.report.rows_out = sample.rows


@step(streamed(_COUNTED), makes=JSON)
def histogram_of(pairs: Iterator[pa.Table]) -> StepResult[dict[str, list[list[int]]]]:
    """Count the encoder's pairs by decision and probability; see `sampling.histogram`."""
    total = np.zeros((2, 2, sampling.BINS), np.int64)
    for table in map(encoder_pairs, pairs):
        total += sampling.histogram(table["probability"].to_numpy(), table["joined"].to_numpy())
    return StepResult({"pairs": total[0].tolist(), "millionths": total[1].tolist()}, {"rows_in": int(total[0].sum())})


@step(_OF_PAIRS, makes=REVIEW)
def draw(pairs: pa.Table, planned: sampling.Plan, sites: list[str]) -> pa.Table:
    """Return the pairs of a partition that may be in the sample (REVIEW)."""
    pairs = encoder_pairs(pairs)
    strata = sampling.strata(pairs["probability"].to_numpy(), pairs["joined"].to_numpy(), planned)
    return sampling.draw(Sites(sites).pack_pairs(pairs, "pairs"), strata, planned, _SEED)


@step(REVIEW, makes=REVIEW)
def merged(drawn: pa.Table) -> pa.Table:
    """Return the sample of all partitions (REVIEW)."""
    return sampling.merge(drawn)


@step(REVIEW, columns(TITLES, "key", "title"), makes=JSON)
def sheet_of(sample: pa.Table, titles: pa.Table, sites: Sites, run_id: str) -> bytes:
    """Return the sheet with the sample's pairs; without pairs, its heading alone."""
    if not len(sample):
        return format_verdicts([]).encode()
    title_of = dict(zip(titles["key"].to_pylist(), titles["title"].to_pylist(), strict=True))
    keys = pairs_in(sample)[sampling.asking_order(sample)].T
    (sites_left, ids_left), (sites_right, ids_right) = map(sites.unpack, keys)
    pairs = zip(sites_left, ids_left.tolist(), sites_right, ids_right.tolist(), strict=True)
    titles_left, titles_right = ([title_of.get(key, "") for key in side.tolist()] for side in keys)
    more = {"title_left": titles_left, "title_right": titles_right, "run_id": [run_id] * len(sample)}
    return format_verdicts([Verdict(*pair, "") for pair in pairs], more).encode()
