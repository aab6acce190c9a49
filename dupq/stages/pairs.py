"""neighbours, terms → the candidate pairs, with their evidence and probability."""

from typing import NamedTuple

import numpy as np
import pyarrow as pa

from dupq import tables
from dupq.clusters import decision
from dupq.clusters.decision import Scale
from dupq.clusters.evidence import around, words_of
from dupq.job.run import Run
from dupq.job.step import Counted
from dupq.job.table import Shuffled, Table, Whole
from dupq.stages.terms import TermTables
from dupq.text.keys import are_among, distinct, pairs_in

_COMPARED_AT_ONCE = 100_000  # pairs: their texts are in memory twice


class ScoredPairs(NamedTuple):
    """The candidate pairs, by their left keys, and what they were scored by."""

    scored: Table  # SCORED
    compared: Table  # COMPARED
    around_for: Shuffled  # AROUND, of each partition's questions
    wanted: Shuffled  # KEYS, likewise, by the partition of the key
    around: Table  # AROUND, by key


def score_pairs(run: Run, directed: Shuffled, terms: TermTables, scale: Scale) -> ScoredPairs:
    """Make SCORED of the candidate pairs in `directed` (NEIGHBOURS)."""
    pairs = run.map("candidates", candidates, directed, into=tables.CANDIDATES)
    wanted = run.shuffle("wanted", questions_of, pairs, into=tables.KEYS, by="key", partitions=terms.terms.partitions)
    texts = run.look_up("terms", terms.terms, wanted)
    evidence = run.map("compared", compare, pairs, texts, Whole(terms.rarities), into=tables.COMPARED)
    listed = run.shuffle("listed", listed_by, evidence, into=tables.AROUND, by="key", partitions=terms.terms.partitions)
    sums = run.map("around", sum_by_key, listed, into=tables.AROUND)
    around_for = run.look_up("around_for", sums, wanted)
    scored = run.map("scored", decision.scored_table, evidence, around_for, scale, into=tables.SCORED)
    run.report.rows_out = scored.rows
    return ScoredPairs(scored, evidence, around_for, wanted, sums)


def candidates(directed: pa.Table) -> Counted:
    """Return rows of NEIGHBOURS as pairs (CANDIDATES), each once."""
    return Counted(decision.undirected(directed), {"rows_in": len(directed)})


def questions_of(pairs: pa.Table) -> pa.Table:
    """Return the questions of pairs, each once (KEYS)."""
    return pa.table([distinct(pairs_in(pairs))], schema=tables.KEYS)


def compare(pairs: pa.Table, texts: pa.Table, rarities: pa.Table) -> pa.Table:
    """Return rows of CANDIDATES with what their texts (TERMS) have in common (COMPARED)."""
    keys, weights, parts = texts["key"].to_numpy(), rarities["rarity"].to_numpy(), [tables.COMPARED.empty_table()]
    for start in range(0, len(pairs), _COMPARED_AT_ONCE):
        some = pairs.slice(start, _COMPARED_AT_ONCE)
        own = texts.filter(pa.array(are_among(distinct(pairs_in(some)), keys)))
        parts.append(decision.compared(some, *words_of(own), weights).cast(tables.COMPARED))
    return pa.concat_tables(parts)


def listed_by(pairs: pa.Table) -> pa.Table:
    """Return how alike each question's title is to the titles of the questions that it lists (AROUND)."""
    are_listed = np.stack([pairs[f"rank_{side}"].to_numpy() for side in ("left", "right")]) > 0
    cosines = np.broadcast_to(pairs["title_cosine"].to_numpy(), are_listed.shape)
    return around(pairs_in(pairs).T[are_listed], cosines[are_listed])


def sum_by_key(listed: pa.Table) -> pa.Table:
    """Sum up the rows of AROUND of each question."""
    sums = listed.group_by("key").aggregate([("cosines", "sum"), ("listed", "sum")])
    return pa.table(sums.sort_by("key").columns, schema=tables.AROUND)
