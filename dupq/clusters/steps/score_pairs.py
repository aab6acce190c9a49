"""neighbours, terms, model → every candidate pair with its evidence and probability.

    candidates  both directions of a pair as one row
    wanted      the questions of a partition's pairs
    compared    what the two texts of a pair have in common
    around      how alike each question's title is to those of its neighbours, over all of its pairs
    scored      the probability

A partition holds the pairs whose left keys are in it (`partition_of`). Memory: its pairs, and the terms of their
questions, some 2 kB each.
"""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from dupq.clusters.evidence import around, shared
from dupq.clusters.scoring import Scale, arounds, scored_table, undirected
from dupq.clusters.steps.make_terms import TermTables, words_of
from dupq.clusters.thresholds import Spread as Histogram
from dupq.clusters.thresholds import Thresholds, spread_of
from dupq.job.run import Counted, Run
from dupq.job.table import Each, Spread, Table, Whole
from dupq.tables import AROUND, CANDIDATES, COMPARED, HISTOGRAM, KEYS, SCORED
from dupq.text.keys import distinct

_PRECISIONS = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95)  # their thresholds are stored beside the chosen one
_SIDES = ("left", "right")


def score_pairs(run: Run, directed: Spread, terms: TermTables, scale: Scale) -> tuple[Table, Table]:
    """Make SCORED of the candidate pairs in `directed` (NEIGHBOURS), and AROUND of their questions."""
    pairs = run.map("candidates", candidates, directed, into=CANDIDATES)
    wanted = run.shuffle("wanted", questions_of, pairs, into=KEYS, by="key", parts=terms.terms.parts)
    texts = run.look_up("terms", terms.terms, wanted)
    compared = run.map("compared", compare, pairs, texts, Whole(terms.rarities), into=COMPARED)
    listed = run.shuffle("listed", listed_by, compared, into=AROUND, by="key", parts=terms.terms.parts)
    sums = run.map("around", sum_by_key, listed, into=AROUND)
    scored = run.map("scored", score, compared, run.look_up("around_for", sums, wanted), scale, into=SCORED)
    run.report.rows_out = scored.rows
    return scored, sums


def candidates(directed: pa.Table) -> Counted:
    """Return rows of NEIGHBOURS as pairs (CANDIDATES), each once."""
    return Counted(undirected(directed), {"rows_in": len(directed)})


def questions_of(pairs: pa.Table) -> pa.Table:
    """Return the questions of pairs, each once (KEYS)."""
    keys = distinct(np.concatenate([pairs[side].to_numpy() for side in _SIDES]))
    return pa.table([pa.array(keys)], schema=KEYS)


def compare(pairs: pa.Table, texts: pa.Table, rarities: pa.Table) -> pa.Table:
    """Return rows of CANDIDATES with what the texts (TERMS) of each have in common (COMPARED)."""
    rows, words = words_of(texts)
    left, right = (rows.of(pairs[side].to_numpy()) for side in _SIDES)
    common = shared(words, left, right, rarities["rarity"].to_numpy())
    return pa.table([*pairs.columns, *map(pa.array, common)], schema=COMPARED)


def listed_by(compared: pa.Table) -> pa.Table:
    """Return for each question of pairs how alike its title is to those of the questions that it lists (AROUND)."""
    listed = [compared[f"rank_{side}"].to_numpy() > 0 for side in _SIDES]
    keys = [compared[side].to_numpy() for side in _SIDES]
    questions, cosines = distinct(np.concatenate(keys)), compared["title_cosine"].to_numpy()
    rows = np.searchsorted(questions, np.concatenate([key[some] for key, some in zip(keys, listed, strict=True)]))
    sums = around(rows, np.concatenate([cosines[some] for some in listed]), len(questions))
    return pa.table([pa.array(questions), *map(pa.array, sums)], schema=AROUND)


def sum_by_key(listed: pa.Table) -> pa.Table:
    """Return rows of AROUND, one per question: the sums of all rows of it."""
    names = AROUND.names[1:]
    sums = listed.group_by("key").aggregate([(name, "sum") for name in names]).sort_by("key")
    return pa.table([sums["key"], *(sums[f"{name}_sum"] for name in names)], schema=AROUND)


def score(compared: pa.Table, sums: pa.Table, scale: Scale) -> pa.Table:
    """Return rows of COMPARED as rows of SCORED; `sums` are the rows of AROUND of their questions."""
    return scored_table(compared, arounds([column.to_numpy() for column in sums.columns], compared), scale)


def choose_threshold(run: Run, scored: Table, precision: float, threshold: float) -> Thresholds:
    """Record the probability from which a pair may join: `threshold`, or if that is below 0 the one for `precision`.

    It is chosen over all candidate pairs, in steps of .001, and recorded with those for other precisions.
    """
    counted = run.map("histogram", histogram_of, scored.only("probability"), into=HISTOGRAM)
    thresholds: Thresholds = run.record("threshold", thresholds_of, Each(counted), precision, threshold)
    return thresholds


def thresholds_of(counted: Iterator[pa.Table], precision: float, threshold: float) -> Thresholds:
    """Return the chosen threshold, and those for other precisions, with what is expected of each."""
    columns = zip(*([column.to_numpy() for column in table.columns] for table in counted), strict=True)
    histogram = Histogram(*(np.sum(column, axis=0) for column in columns))
    at_threshold = {"precision": precision, **histogram.above(threshold)}
    chosen = histogram.choose(precision) if threshold < 0 else at_threshold
    return {"chosen": chosen, "others": [histogram.choose(wanted) for wanted in _PRECISIONS]}


def histogram_of(scored: pa.Table) -> pa.Table:
    """Return how many pairs have a probability of each step, and the sum of these (HISTOGRAM)."""
    return pa.table([*spread_of(scored["probability"].to_numpy())], schema=HISTOGRAM)
