"""Which questions a reranker reads: the ends of a site's likeliest pairs, or all of a small site.

cuts              from which probability on a site's pairs are read: its PAIRS likeliest, or more if it is large
likely, labelled  the questions of these pairs, and of pairs with links or verdicts
chosen            these, all questions of small sites, and a sample by hash: with their content hashes
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dupq import kinds, tables
from dupq.clusters import reranking
from dupq.encoders.sentence_models import Reranker
from dupq.job.run import Run
from dupq.job.step import step
from dupq.job.table import Broadcast, Shards, Streamed, Table
from dupq.kinds import columns, streamed
from dupq.neighbours.embeddings import keys_in
from dupq.text.keys import ID_BITS, Sites, are_among, distinct, key_hashes, pairs_in

PAIR_ENDS = tables.CALIBRATION_PAIRS.names[:4]
_NAMES = columns(tables.embeddings(1, False), "site", "question_id")
_LIKELY = columns(tables.SCORED, "left", "right", "probability")
_FEWEST, _MOST = 250, 5_000  # questions of a task: if there are few in all, and at most
_TASKS = 64  # of an archive, before they get larger
_DROPPED_BITS = np.uint32(8)  # of a probability, where pairs are counted
_HASHES = 1 << 64


@dataclass(frozen=True)
class Reading:
    """What is read, and how the reranker's vectors are made."""

    reranker: Reranker
    code: str  # the setting text.code
    sites: tuple[str, ...]  # that are read; others are in a language that the reranker does not know
    everything: bool  # the setting reranker.read=all
    prior: str = ""  # URI of another prior than dupq's, or empty


@dataclass(frozen=True)
class Scope:
    """Which questions of an archive are read."""

    sites: Sites
    read: np.ndarray  # bool, by the number of the site
    whole: np.ndarray  # bool, by the same: without a choice
    pairs: tuple[int, ...]  # likeliest ones of each site, whose questions are read
    sampled: int  # questions with a lower hash are read for the density
    shards: np.ndarray  # the number of the site of each shard
    tasks: int  # that read a shard

    def is_read(self, keys: np.ndarray) -> np.ndarray:
        """Tell which keys (any shape) are of sites that are read."""
        return np.asarray(self.read[keys >> ID_BITS])

    def is_whole(self, keys: np.ndarray) -> np.ndarray:
        """Tell which keys (any shape) are of sites that are read whole."""
        return np.asarray(self.whole[keys >> ID_BITS])

    def in_sample(self, keys: np.ndarray) -> np.ndarray:
        """Tell which keys (n,) are in the sample for the density."""
        return self.is_read(keys) & (key_hashes(keys) <= np.uint64(self.sampled))


def scope_of(sites: Sites, questions: Shards[kinds.Question], sizes: Sequence[int], reading: Reading) -> Scope:
    """Return which questions are read, given the number of embedded questions of each shard, and by how many tasks."""
    shards = np.array([sites.names.index(shard.site) for shard in questions.shards], np.int64)
    counts = np.bincount(shards, sizes, len(sites.names)).astype(np.int64)
    read = np.isin(sites.names, reading.sites) & (counts > 0)
    whole = read & (reading.everything | (counts <= reranking.WHOLE))
    most = reranking.WHOLE if (whole == read).all() else reranking.SAMPLE
    sampled = min(_HASHES - 1, _HASHES * most // max(1, int(counts[read].sum())))
    pairs = np.maximum(reranking.PAIRS, counts // reranking.QUESTIONS_PER_PAIR)
    likely = np.minimum(sizes, 2 * pairs[shards] + reranking.SAMPLE)
    may_be_read = int(np.where(whole[shards], sizes, likely).sum())
    tasks = -(-max(min(_TASKS, 1 + may_be_read // _FEWEST), may_be_read // _MOST) // questions.partitions)
    return Scope(sites, read, whole, tuple(pairs.tolist()), sampled, shards, tasks)


def choose(
    run: Run,
    scored: Table[kinds.Scored],
    calibrated: Table[kinds.CalibrationPair],
    contents: Table[kinds.Content],
    embedded: Table[kinds.Embedded],
    scope: Scope,
) -> tuple[Table[kinds.ContentHash], Broadcast[kinds.Cut]]:
    """Return the questions of each shard that are read, and the least probability of the pairs that are."""
    cuts = Broadcast(run.map("cuts", cuts_of)(Streamed(scored), scope))
    likely = run.map("likely", likely_questions)(scored, cuts, scope)
    labelled = run.map("labelled", labelled_questions)(calibrated, scope)
    return run.map("chosen", chosen_of)(contents, embedded, Streamed(likely), Streamed(labelled), scope), cuts


@step(streamed(_LIKELY), makes=tables.CUTS)
def cuts_of(scored: Iterator[pa.Table], scope: Scope) -> pa.Table:
    """Return the least probability of the pairs of each site that are read (CUTS); a pair counts for its left side.

    Pairs are counted by the upper bits of their probability, which keep the order.
    """
    odds, counts = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    for pairs in scored:
        ends = pairs_in(pairs)
        rows = scope.is_read(ends).all(axis=1)
        bits = pairs["probability"].to_numpy()[rows].astype(np.float32).view(np.uint32) >> _DROPPED_BITS
        found = np.unique(((ends[rows, 0] >> ID_BITS) << 32) | bits, return_counts=True)
        odds.append(found[0])
        counts.append(found[1])
    keys, indices = np.unique(np.concatenate(odds), return_inverse=True)
    totals, sites, least = np.bincount(indices, np.concatenate(counts)), distinct(keys >> 32), []
    for site in sites.tolist():
        own = np.flatnonzero(keys >> 32 == site)[::-1]  # the likeliest first
        enough = np.flatnonzero(np.cumsum(totals[own]) >= scope.pairs[site])
        least.append(keys[own][enough[0]] & 0xFFFFFFFF if len(enough) else 0)
    return pa.table([sites, (np.array(least, np.uint32) << _DROPPED_BITS).view(np.float32)], schema=tables.CUTS)


@step(_LIKELY, tables.CUTS, makes=tables.KEYS)
def likely_questions(pairs: pa.Table, cuts: pa.Table, scope: Scope) -> pa.Table:
    """Return the questions of likely pairs that are read, without sites that are read whole (KEYS)."""
    ends = pairs_in(pairs)
    likely = are_likely(ends[:, 0], pairs["probability"].to_numpy(), cuts, len(scope.read))
    return _chosen_keys(ends[likely & scope.is_read(ends).all(axis=1)], scope)


@step(columns(tables.CALIBRATION_PAIRS, *PAIR_ENDS, "is_linked", "is_judged"), makes=tables.KEYS)
def labelled_questions(pairs: pa.Table, scope: Scope) -> pa.Table:
    """Return the same of rows of CALIBRATION_PAIRS with a link or a verdict (KEYS)."""
    known = pairs.filter(pc.or_(pairs["is_linked"], pairs["is_judged"]))
    ends = scope.sites.pack_pairs(known, "pairs")
    return _chosen_keys(ends[scope.is_read(ends).all(axis=1)], scope)


@step(tables.CONTENT_HASHES, _NAMES, streamed(tables.KEYS), streamed(tables.KEYS), makes=tables.CONTENT_HASHES)
def chosen_of(
    contents: pa.Table, embedded: pa.Table, likely: Iterator[pa.Table], labelled: Iterator[pa.Table], scope: Scope
) -> pa.Table:
    """Return the rows of `contents` (CONTENT_HASHES) of a shard's questions that are read, by key.

    `embedded` names the questions that have an embedding (`site`, `question_id`); `likely` and `labelled` have
    questions of all shards, sorted in each table (KEYS).
    """
    own, keys = keys_in(embedded, scope.sites.names), contents["key"].to_numpy()
    if scope.is_whole(own[:1]).all():
        return contents.filter(pa.array(are_among(np.sort(own), keys))).sort_by("key")
    is_read = are_among(np.sort(own[scope.in_sample(own)]), keys)
    for table in chain(likely, labelled):
        is_read |= are_among(table["key"].to_numpy(), keys)
    return contents.filter(pa.array(is_read)).sort_by("key")


def are_likely(left: np.ndarray, p: np.ndarray, cuts: pa.Table, sites: int) -> np.ndarray:
    """Tell which pairs (bool) are likely enough to be read, for their left site."""
    least = np.full(sites, np.inf)
    least[cuts["site"].to_numpy()] = cuts["probability"].to_numpy()
    return np.asarray(p >= least[left >> ID_BITS])


def _chosen_keys(ends: np.ndarray, scope: Scope) -> pa.Table:
    keys = distinct(ends)
    return pa.table([keys[~scope.is_whole(keys)]], schema=tables.KEYS)
