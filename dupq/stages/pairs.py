"""neighbours, terms, model → the candidate pairs, with their evidence and probability.

    candidates  both directions of a pair as one row
    wanted      the questions of a partition's pairs
    compared    what the texts of each pair have in common
    title_context      how alike each question's title is to the titles of its neighbours, over all of its pairs
    scored      the probability

A partition holds the pairs whose left key belongs to it (`partition_of`). Memory: its pairs, and the terms of their
questions, some 2 kB each.
"""

from typing import NamedTuple

import numpy as np
import pyarrow as pa

from dupq import kinds
from dupq.clusters.decision import PairScorer, compared, scored_table, undirected
from dupq.clusters.evidence import title_context, words_of
from dupq.job.run import Run
from dupq.job.stage import stage
from dupq.job.step import StepResult, step
from dupq.job.table import Broadcast, Shuffled, Table
from dupq.kinds import columns
from dupq.stages.terms import TermTables
from dupq.tables import CANDIDATES, COMPARED, KEY_PAIRS, KEYS, NEIGHBOURS, RARITIES, SCORED, TERMS, TITLE_CONTEXT
from dupq.text.keys import are_among, distinct, pairs_in

_COMPARED_AT_ONCE = 100_000  # pairs: their texts are in memory twice


class ScoredPairs(NamedTuple):
    """The candidate pairs, by their left keys, and what they were scored by."""

    scored: Table[kinds.Scored]
    compared: Table[kinds.Compared]
    around_for: Shuffled[kinds.TitleContext]  # of each partition's questions
    wanted: Shuffled[kinds.Key]  # these questions, by the partition of the key
    title_context: Table[kinds.TitleContext]  # by key


@stage("pairs", version=6)
def score_pairs(run: Run, directed: Shuffled[kinds.Neighbour], terms: TermTables, scale: PairScorer) -> ScoredPairs:
    """Score the candidate pairs in `directed`."""
    count = terms.terms.partitions
    pairs = run.map("candidates", candidates)(directed)
    wanted = run.shuffle("wanted", questions_of, count, by="key")(pairs)
    texts = run.look_up("terms", terms.terms, wanted)
    evidence = run.map("compared", compare)(pairs, texts, Broadcast(terms.rarities))
    listed = run.shuffle("listed", listed_by, count, by="key")(evidence)
    sums = run.map("around", sum_by_key)(listed)
    around_for = run.look_up("around_for", sums, wanted)
    scored = run.map("scored", score)(evidence, around_for, scale)
    run.report.rows_out = scored.rows
    return ScoredPairs(scored, evidence, around_for, wanted, sums)


@step(NEIGHBOURS, makes=CANDIDATES)
def candidates(directed: pa.Table) -> StepResult[pa.Table]:
    """Return rows of NEIGHBOURS as pairs (CANDIDATES), each once."""
    return StepResult(undirected(directed), {"rows_in": len(directed)})


@step(KEY_PAIRS, makes=KEYS)
def questions_of(pairs: pa.Table) -> pa.Table:
    """Return the questions of pairs, each once (KEYS)."""
    return pa.table([distinct(pairs_in(pairs))], schema=KEYS)


@step(CANDIDATES, TERMS, RARITIES, makes=COMPARED)
def compare(pairs: pa.Table, texts: pa.Table, rarities: pa.Table) -> pa.Table:
    """Return rows of CANDIDATES with what their texts (TERMS) have in common (COMPARED)."""
    keys, weights, parts = texts["key"].to_numpy(), rarities["rarity"].to_numpy(), [COMPARED.empty_table()]
    for start in range(0, len(pairs), _COMPARED_AT_ONCE):
        some = pairs.slice(start, _COMPARED_AT_ONCE)
        own = texts.filter(pa.array(are_among(distinct(pairs_in(some)), keys)))
        parts.append(compared(some, *words_of(own), weights).cast(COMPARED))
    return pa.concat_tables(parts)


@step(columns(COMPARED, "left", "right", "rank_left", "rank_right", "title_cosine"), makes=TITLE_CONTEXT)
def listed_by(pairs: pa.Table) -> pa.Table:
    """Return how alike each question's title is to the titles of the questions that it lists (TITLE_CONTEXT)."""
    are_listed = np.stack([pairs[f"rank_{side}"].to_numpy() for side in ("left", "right")]) > 0
    cosines = np.broadcast_to(pairs["title_cosine"].to_numpy(), are_listed.shape)
    return title_context(pairs_in(pairs).T[are_listed], cosines[are_listed])


@step(TITLE_CONTEXT, makes=TITLE_CONTEXT)
def sum_by_key(listed: pa.Table) -> pa.Table:
    """Sum up the rows of TITLE_CONTEXT of each question."""
    sums = listed.group_by("key").aggregate([("cosines", "sum"), ("listed", "sum")])
    return pa.table(sums.sort_by("key").columns, schema=TITLE_CONTEXT)


@step(COMPARED, TITLE_CONTEXT, makes=SCORED)
def score(pairs: pa.Table, title_context: pa.Table, scale: PairScorer) -> pa.Table:
    """Return SCORED of pairs, given the rows of TITLE_CONTEXT of their questions."""
    return scored_table(pairs, title_context, scale)
