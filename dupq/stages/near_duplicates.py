"""Texts → exact copies, verified near duplicates, and the questions that represent others.

    hashes           of the contents of questions
    exact            copies, which have the same hash: a star of pairs per content
    bands            keys of the MinHash signatures of all texts that are not copies
    candidates       pairs in one bucket of a band
    sets             the shingles of candidates' texts, for the partitions of pairs that compare them
    boilerplate      shingles of many titles' texts
    verified         copies, and candidates that are alike and whose titles ask the same
    representatives  components of the verified pairs; if verdicts forbid one, it is joined again, pair by pair

Copies are found first, so that a text with a thousand copies makes no bucket of a thousand. A pair that is not verified
is dropped before questions are joined, so that no chain of candidates makes a cluster. Both questions go on to the
encoder, like any others.

A task takes a shard of texts, a partition of hashes or band keys, or a partition of pairs by their left key.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, NewType

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dupq import kinds, tables
from dupq.clusters.components import components, forest, joinable, represented
from dupq.job.run import Run
from dupq.job.stage import stage
from dupq.job.step import StepResult, step
from dupq.job.table import Broadcast, InBatches, Shuffled, Streamed, Table, one_batch
from dupq.kinds import Schema, columns, streamed
from dupq.near_duplicates import pairing
from dupq.near_duplicates.minhash import band_keys, bands_of, text_signatures
from dupq.near_duplicates.shingles import compared
from dupq.neighbours.scopes import are_comparable, entries_of
from dupq.settings.sections import NearDuplicateSettings, NeighbourSettings
from dupq.stages.scopes import Scopes, make_grouped
from dupq.stages.texts import TextTables, find_repeated
from dupq.text.keys import (
    ID_BITS,
    RowsByKey,
    Sites,
    are_among,
    are_pairs_among,
    distinct,
    distinct_pairs,
    pairs_in,
    proper_pairs,
)
from dupq.text.questions import rare_words
from dupq.text.title_intent import TitleComparer

_HASHES_PER_TASK = 1_000_000  # 32 bytes each
_BAND_KEYS_PER_TASK = 2_000_000
_TEXTS_AT_ONCE = 8_192
_NO_PAIRS = np.zeros((0, 2), np.int64)
_MIXER = np.uint64(0x9E3779B97F4A7C15)  # odd, so that groups stay different
_INT32 = pa.int32()
_TEXTS = columns(tables.QUESTION_TEXTS, *tables.TEXTS.names)
_WRITTEN = columns(tables.CONTENTS, "written")
_Candidate = NewType("_Candidate", kinds.KeyPair)
_CANDIDATES: Schema[_Candidate] = pa.schema([*tables.KEY_PAIRS, ("shard_left", _INT32), ("shard_right", _INT32)])


class Signed(NamedTuple):
    """Exact copies, and what all other texts are compared by."""

    exact: Shuffled[kinds.KeyPair]  # by the left key
    bands: Shuffled[kinds.BandKey]  # by bucket


class NearDuplicates(NamedTuple):
    """Pairs that are verified, and the questions that represent others."""

    verified: Table[kinds.Verified]  # by the left key
    representatives: Table[kinds.Representative]  # one partition
    grouped: Table[kinds.Grouped] | None = None  # the entries of both sides; None: without scopes


@stage("signatures", version=4, folder="near_duplicates")
def make_signatures(
    run: Run,
    texts: TextTables,
    settings: NearDuplicateSettings,
    sites: Sites,
    partitions: int,
    groups: tuple[int, ...] = (),
    scopes: Scopes | None = None,
) -> Signed:
    """Find exact copies, in so many `partitions`, and sign all other texts.

    `groups` has a group for each site (`groups_of`). Raises DupqError for a question that appears twice.
    """
    own, window = (scopes.table, scopes.window) if scopes else (None, None)
    find_repeated(run, texts.texts, sites)
    questions = texts.texts.rows
    hash_tasks = max(1, -(-questions // _HASHES_PER_TASK))
    band_tasks = max(1, -(-questions * bands_of(settings)[0] // _BAND_KEYS_PER_TASK))
    hashes = run.shuffle("hashes", hashes_of, hash_tasks, by="high")(texts.texts, texts.contents, groups, own)
    copied = run.table("copies", tables.KEYS, hash_tasks)
    exact = run.shuffle("exact", copies_of, partitions, by="left", second=copied)(hashes, window)
    signed = run.table("signatures", tables.signatures(settings.permutations), texts.texts.partitions, keep=True)
    bands = run.shuffle("bands", sign, band_tasks, by="bucket", second=signed)(
        texts.texts, texts.contents, Broadcast(copied), settings, sites.names, groups, own
    )
    run.report.rows_in = run.report.rows_out = questions
    return Signed(exact, bands)


def groups_of(settings: NeighbourSettings, sites: Sequence[str]) -> tuple[int, ...]:
    """Return a group for each site: questions of different groups are not compared, and no one represents both."""
    if settings.scope == "site":
        return tuple(range(len(sites)))
    return tuple(int(site in settings.sites) for site in sites) if settings.sites else ()


@step(columns(tables.QUESTION_TEXTS, "key", "text"), columns(tables.CONTENTS, "high", "low"), makes=tables.TEXT_HASHES)
def hashes_of(
    texts: pa.Table, contents: pa.Table, groups: tuple[int, ...] = (), scopes: pa.Table | None = None
) -> pa.Table:
    """Return TEXT_HASHES of the texts that are not empty; `contents` and `scopes` (SCOPES) are of the same questions.

    With `scopes` a question has a row for each of its entries.
    """
    high, low = (contents[half].to_numpy().view(np.uint64) for half in ("high", "low"))
    low, times = _by_group(low, texts["key"].to_numpy(), groups), np.zeros(len(texts), np.int64)
    columns, has_text = [high, low, texts["key"].to_numpy(), times], pc.not_equal(texts["text"], "").to_numpy()
    if scopes is not None:
        rows, values, times = _entries(scopes)
        columns, has_text = [high[rows], low[rows] ^ _mixed(values), columns[2][rows], times], has_text[rows]
    return pa.table(columns, schema=tables.TEXT_HASHES).filter(pa.array(has_text))


@step(tables.TEXT_HASHES, makes=tables.KEY_PAIRS, second=tables.KEYS)
def copies_of(hashes: pa.Table, window: int | None = None) -> StepResult[pa.Table]:
    """Return KEY_PAIRS of each copy and the first question with its content; the second table has the copies (KEYS).

    With scopes there is a `window` (milliseconds; 0: they have no times). Within one, those are paired that follow one
    another, and none counts as a copy: each may be like others of its own time. Else a question counts as one if it has
    the same first question by all of its entries.
    """
    high, low, keys, times = (column.to_numpy() for column in hashes.columns)
    if window:
        rows, firsts = pairing.copies_within(high, low, keys, times, window)
    else:
        rows, firsts = pairing.copies(high, low, keys)
    pairs, copied = np.stack([keys[firsts], keys[rows]], axis=1), keys[rows]
    if window is not None:
        owners = keys.copy()
        owners[rows] = keys[firsts]
        owned = distinct_pairs(np.stack([keys, owners], axis=1))
        _, first, counts = np.unique(owned[:, 0], return_index=True, return_counts=True)
        sole = owned[first[counts == 1]]
        pairs, copied = proper_pairs(pairs), sole[sole[:, 0] != sole[:, 1], 0] if not window else _NO_PAIRS[:, 0]
    second = pa.table([copied], schema=tables.KEYS)
    return StepResult(pa.table([*pairs.T], schema=tables.KEY_PAIRS), {"exact copies": len(pairs)}, second)


@step(_TEXTS, _WRITTEN, tables.KEYS, makes=tables.BAND_KEYS, second=tables.SIGNATURES)
def sign(
    texts: pa.Table,
    contents: pa.Table,
    copied: pa.Table,
    settings: NearDuplicateSettings,
    sites: list[str],
    groups: tuple[int, ...] = (),
    scopes: pa.Table | None = None,
) -> StepResult[pa.Table]:
    """Return BAND_KEYS of the texts that are neither empty nor copies; the second table has their signatures.

    `contents` and `scopes` (SCOPES) are of the same questions as `texts`. With `scopes` a text has the keys of all of
    its entries.
    """
    others, keys = np.sort(copied["key"].to_numpy()), [np.zeros(0, np.int64)]
    values = [np.zeros((0, settings.permutations), np.uint32)]
    for batch in texts.append_column("written", contents["written"]).combine_chunks().to_batches(_TEXTS_AT_ONCE):
        is_copied = are_among(others, batch["key"].to_numpy())
        signed = batch.filter(pc.and_(pa.array(~is_copied), pc.not_equal(batch["text"], "")))
        keys.append(signed["key"].to_numpy())
        values.append(text_signatures(compared(signed["title"], signed["text"], signed["written"]), settings))
    members, every = np.concatenate(keys), np.concatenate(values)
    buckets = _by_group(np.ascontiguousarray(band_keys(every, *bands_of(settings)).T), members, groups)
    orders, owners = np.roll(buckets, -1, axis=0), members  # the keys in the next band
    if scopes is not None:
        repeated, scope_values, _ = _entries(scopes.take(pa.array(RowsByKey(scopes["key"].to_numpy()).find(members))))
        buckets, orders, owners = buckets[:, repeated] ^ _mixed(scope_values), orders[:, repeated], members[repeated]
    table = pa.table([buckets.ravel(), orders.ravel(), np.tile(owners, len(buckets))], schema=tables.BAND_KEYS)
    lists = pa.FixedSizeListArray.from_arrays(pa.array(every.ravel()), settings.permutations)
    second = pa.table([*Sites(sites).columns(members), lists], schema=tables.signatures(settings.permutations))
    return StepResult(table, second=second)


@stage("near_duplicates", version=4, drops="work/near_duplicates")
def find_near_duplicates(
    run: Run,
    texts: TextTables,
    signed: Signed,
    rarities: Table[kinds.Rarity],
    settings: NearDuplicateSettings,
    language: str,
    apart: np.ndarray = _NO_PAIRS,
    scopes: Scopes | None = None,
) -> NearDuplicates:
    """Find pairs that are alike, and the questions that represent others. The texts are in `language`.

    Every pair has a Jaccard coefficient of at least the threshold, and titles that ask the same. No question represents
    both of a pair `apart` (int64 keys, (m, 2)).
    """
    questions, partitions, shards = texts.texts.rows, signed.exact.partitions, texts.texts.partitions
    candidates = run.shuffle("candidates", candidates_of, partitions, by="left")(InBatches(signed.bands))
    keys = run.shuffle("wanted", questions_of, shards, to="shard")(candidates)
    titled = run.shuffled("titled", tables.TITLED_SHINGLES, shards, partitions, by="shingle")
    sets = run.shuffle("sets", sets_of, partitions, keys=keys, second=titled)(
        texts.texts, texts.contents, keys, settings.shingle_size
    )
    common = run.gather("boilerplate", boilerplate_of)(titled.table, pairing.most_titles(sets.rows))
    forests = run.table("forests", tables.KEY_PAIRS, partitions)
    own = scopes and run.look_up("scopes_of_candidates", scopes.table, keys)
    verified = run.map("verified", verify, second=forests, keep=True)(
        *(candidates, signed.exact, InBatches(sets), Broadcast(common), Broadcast(rarities)),
        *(questions, language, settings, own, scopes.window if scopes else 0),
    )
    representatives = run.map("representatives", representatives_of, keep=True)(
        Streamed(forests), Streamed(verified), apart
    )
    run.report.rows_in, run.report.rows_out = questions, verified.rows
    grouped = None if scopes is None else make_grouped(run, scopes.table, representatives)
    return NearDuplicates(verified, representatives, grouped)


@step(streamed(tables.BAND_KEYS), makes=_CANDIDATES)
def candidates_of(bands: Iterable[pa.RecordBatch]) -> StepResult[pa.Table]:
    """Return the distinct candidate pairs of a partition of BAND_KEYS, with the shards of both questions.

    There is a batch per shard.
    """
    batches = list(bands)
    shards = np.repeat(np.arange(len(batches), dtype=np.int32), [len(batch) for batch in batches])
    buckets, orders, members = (
        column.to_numpy() for column in pa.Table.from_batches(batches, tables.BAND_KEYS).columns
    )
    rows, oversized = pairing.bucket_pairs(buckets, orders, members)
    pairs = pa.table([*members[rows].T, *shards[rows].T], schema=_CANDIDATES)
    distinct_rows = pairs.group_by(pairs.column_names, use_threads=False).aggregate([])
    return StepResult(distinct_rows, caps={f"buckets over {pairing.LIMIT} questions": oversized})


@step(_CANDIDATES, makes=tables.KEYS)
def questions_of(candidates: pa.Table) -> pa.Table:
    """Return the distinct questions of candidate pairs (KEYS), and the shard of each."""
    ends = (np.concatenate([candidates[f"{name}{side}"] for side in ("left", "right")]) for name in ("", "shard_"))
    keys, shards = distinct_pairs(np.stack([*ends], axis=1)).T
    return pa.table([keys, shards], names=[*tables.KEYS.names, "shard"])


@step(_TEXTS, _WRITTEN, tables.KEYS, makes=tables.SHINGLE_SETS, second=tables.TITLED_SHINGLES)
def sets_of(texts: pa.Table, contents: pa.Table, keys: pa.Table, size: int) -> StepResult[pa.Table]:
    """Return SHINGLE_SETS of the texts of some questions (KEYS); the second table has their TITLED_SHINGLES.

    `contents` are of the same questions as `texts`.
    """
    rows = texts.append_column("written", contents["written"])
    is_wanted = are_among(distinct(keys["key"].to_numpy()), texts["key"].to_numpy())
    batch = one_batch(rows.filter(pa.array(is_wanted)))
    table, titled = pairing.shingle_table(size, *(batch[name] for name in ("key", "title", "text", "written")))
    return StepResult(table, {"texts compared": len(table)}, pa.table([*titled.T], schema=tables.TITLED_SHINGLES))


@step(tables.TITLED_SHINGLES, makes=tables.SHINGLES)
def boilerplate_of(titled: pa.Table, most: int) -> StepResult[pa.Table]:
    """Return the shingles that have more than `most` titles (SHINGLES); `titled` has all titles of each."""
    shingles = pairing.boilerplate(np.stack([column.to_numpy() for column in titled.columns], axis=1), most)
    return StepResult(pa.table([shingles], schema=tables.SHINGLES), {"shingles of boilerplate": len(shingles)})


@step(
    tables.KEY_PAIRS,
    tables.KEY_PAIRS,
    streamed(tables.SHINGLE_SETS),
    tables.SHINGLES,
    tables.RARITIES,
    makes=tables.VERIFIED,
    second=tables.KEY_PAIRS,
)
def verify(
    candidates: pa.Table,
    exact: pa.Table,
    sets: Iterable[pa.RecordBatch],
    common: pa.Table,
    rarities: pa.Table,
    questions: int,
    language: str,
    settings: NearDuplicateSettings,
    scopes: pa.Table | None = None,
    window: int = 0,
) -> StepResult[pa.Table]:
    """Return VERIFIED: exact copies, and the candidates that are alike and ask the same; the second table is a forest.

    `sets` are SHINGLE_SETS of the candidates, `common` is boilerplate (SHINGLES), `rarities` are of an archive of so
    many `questions`. Candidates that must not be compared, by their `scopes` (SCOPES), are left out.
    """
    pairs, copied = distinct_pairs(pairs_in(candidates)), pairs_in(exact)
    if scopes is not None:
        entries = entries_of(scopes)
        ends = np.searchsorted(entries.keys, pairs)
        is_open = are_comparable(entries, entries, ends[:, 0], ends[:, 1], window) & ~are_pairs_among(copied, pairs)
        pairs = pairs[is_open]
    comparer = TitleComparer(language, rare_words(rarities["rarity"].to_numpy(), questions, language))
    shingles = np.sort(common["shingle"].to_numpy())
    coefficients, asks_same = pairing.compare(pairs, sets, shingles, comparer, settings.threshold)
    alike, near = int((coefficients >= settings.threshold).sum()), pairs[asks_same]
    counts = {
        "candidates under the threshold": len(pairs) - alike,
        "near duplicates whose titles ask something else": alike - len(near),
    }
    edges = forest(np.concatenate([copied, near]))
    verified = pairing.verified_pairs(copied, near, coefficients[asks_same])
    return StepResult(verified, counts, pa.table([*edges.T], schema=tables.KEY_PAIRS))


@step(
    streamed(tables.KEY_PAIRS),
    streamed(columns(tables.VERIFIED, "left", "right", "jaccard")),
    makes=tables.REPRESENTATIVES,
)
def representatives_of(forests: Iterator[pa.Table], verified: Iterator[pa.Table], apart: np.ndarray) -> pa.Table:
    """Return REPRESENTATIVES: the smallest key of each component of verified pairs, which have these `forests`.

    A component with both of a pair `apart` (int64 keys, (m, 2)) is joined again without it, the most alike pairs first.
    """
    edges = np.concatenate([_NO_PAIRS, *map(pairs_in, forests)])
    members, smallest = components(edges)
    owners = represented(apart, members, smallest)
    split = members[np.isin(smallest, owners[owners[:, 0] == owners[:, 1], 0])]
    if len(split):
        rest = edges[~are_among(split, edges[:, 0])]
        inside = (table.filter(pa.array(are_among(split, table["left"].to_numpy()))) for table in verified)
        order = [("jaccard", "descending"), ("left", "ascending"), ("right", "ascending")]
        pairs = pairs_in(pa.concat_tables(inside).sort_by(order))
        members, smallest = components(np.concatenate([rest, pairs[joinable(pairs, apart)]]))
    return pa.table([members, smallest], schema=tables.REPRESENTATIVES)


def _entries(scopes: pa.Table) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return for each entry of SCOPES its row, its value and its time."""
    values, times = (pc.list_flatten(scopes[name]).to_numpy() for name in ("values", "times"))
    return pc.list_parent_indices(scopes["values"]).to_numpy(), values, times


def _mixed(values: np.ndarray) -> np.ndarray:
    """Return what makes hashes of different scope values (int64) different: uint64."""
    return values.view(np.uint64) * _MIXER


def _by_group(hashes: np.ndarray, keys: np.ndarray, groups: tuple[int, ...]) -> np.ndarray:
    """Return hashes (uint64, (…, n)) such that questions (int64 keys, (n,)) of different groups share none."""
    return hashes ^ (np.array(groups, np.uint64)[keys >> ID_BITS] * _MIXER) if groups else hashes
