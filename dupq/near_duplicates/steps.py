"""Steps: texts → exact copies, verified near duplicates, and the questions that represent others.

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

A task takes a range of shards of texts, a partition of hashes or bands, or a partition of pairs by their left key. Each
reads a batch of every task of the step before, so that the number of requests is the product of both. Therefore ranges
grow with the archive. The answer does not depend on their number.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dupq.archive import partition_of
from dupq.clusters.components import components, forest, joinable, represented
from dupq.job.run import Run
from dupq.job.step import Counted
from dupq.job.table import Batches, Each, Ranges, Shuffled, Table, Whole, one_batch
from dupq.job.tasks import CAP
from dupq.near_duplicates.asking import TitleComparer
from dupq.near_duplicates.minhash import band_keys, bands_of, text_signatures
from dupq.near_duplicates.pairing import (
    LIMIT,
    boilerplate,
    bucket_pairs,
    compare,
    copies,
    most_titles,
    shingle_table,
    verified_pairs,
)
from dupq.near_duplicates.shingles import compared
from dupq.settings.sections import NearDuplicateSettings
from dupq.system import side_by_side
from dupq.tables import (
    BAND_KEYS,
    KEY_PAIRS,
    KEYS,
    REPRESENTATIVES,
    SHINGLE_SETS,
    SHINGLES,
    TEXT_HASHES,
    TEXTS,
    TITLED_SHINGLES,
    VERIFIED,
    signatures,
)
from dupq.text.keys import Sites, are_among, distinct, distinct_pairs, pairs_in
from dupq.text.questions import rare_words
from dupq.text.steps import TextTables, find_repeated

_QUESTIONS_PER_RANGE = 50_000
_MOST_RANGES = 240  # 12 million questions; with more, ranges grow
_GROWTH = 4  # at most, as a task holds a range in memory
_ROWS_PER_PARTITION = 1_000_000  # hashes, or keys of a band: 24 bytes each
_BAND_KEYS_PER_TASK = 2_000_000
_TEXTS_AT_ONCE = 8_192
_OVERSIZED = f"{CAP}buckets over {LIMIT} questions"
_NO_PAIRS = np.zeros((0, 2), np.int64)
_INT32 = pa.int32()
_COMPARED = pa.schema([*TEXTS, SHINGLE_SETS.field("signs")])
_CANDIDATES = pa.schema([*KEY_PAIRS, ("bundle_left", _INT32), ("bundle_right", _INT32)])  # the ranges of their texts


class TextRanges(NamedTuple):
    """Texts, in ranges of shards for a task each: a large shard, or some small ones."""

    tables: TextTables
    ranges: tuple[range, ...]  # of shards
    questions: int

    def texts(self, *columns: str) -> Ranges:
        """Return columns of TEXTS."""
        return Ranges(self.tables.texts.only(*columns), self.ranges)

    def contents(self, *columns: str) -> Ranges:
        """Return columns of CONTENTS."""
        return Ranges(self.tables.contents.only(*columns), self.ranges)


class Signed(NamedTuple):
    """Exact copies, and the band keys of all other texts."""

    exact: Shuffled  # KEY_PAIRS: the first of the questions with a content, and another one
    bands: Shuffled  # BAND_KEYS; each band has as many partitions as the hashes


class Near(NamedTuple):
    """Near duplicates."""

    verified: Table  # VERIFIED, by the left key
    representatives: Table  # REPRESENTATIVES, in one partition


def text_ranges(tables: TextTables) -> TextRanges:
    """Return the texts of a run in ranges, which depend only on the shards and their sizes."""
    sizes = [counts["rows_out"] for counts in side_by_side(tables.texts.counts, range(tables.texts.partitions))]
    return TextRanges(tables, plan_ranges(sizes), sum(sizes))


def plan_ranges(sizes: Sequence[int]) -> tuple[range, ...]:
    """Return ranges of shards, which have `sizes` questions."""
    most = _GROWTH * _QUESTIONS_PER_RANGE
    enough = min(most, max(_QUESTIONS_PER_RANGE, -(-sum(sizes) // _MOST_RANGES)))
    ranges, start, questions = [], 0, 0
    for shard, size in enumerate(sizes, 1):
        questions += size
        if questions >= enough or shard == len(sizes):
            ranges.append(range(start, shard))
            start, questions = shard, 0
    return tuple(ranges)


def make_signatures(
    run: Run, texts: TextRanges, settings: NearDuplicateSettings, sites: Sites, partitions: int
) -> Signed:
    """Find exact copies, as pairs in `partitions`, and sign all other texts.

    Raises DupqError for a question that appears twice.
    """
    find_repeated(run, texts.tables.texts, sites)
    millions = max(1, -(-texts.questions // _ROWS_PER_PARTITION))
    contents = texts.texts("key", "text"), texts.contents("high", "low")
    hashes = run.shuffle("hashes", hashes_of, *contents, into=TEXT_HASHES, by="high", partitions=millions)
    copied = run.table("copies", KEYS, millions)
    exact = run.shuffle("exact", copies_of, hashes, into=KEY_PAIRS, by="left", partitions=partitions, second=copied)
    signed = run.table("signatures", signatures(settings.permutations), len(texts.ranges), keep=True)
    inputs = texts.texts(*TEXTS.names), Whole(copied), settings, sites.names, millions
    count = bands_of(settings)[0] * millions
    bands = run.shuffle("bands", sign, *inputs, into=BAND_KEYS, to="partition", partitions=count, second=signed)
    run.report.rows_in = run.report.rows_out = texts.questions
    return Signed(exact, bands)


def hashes_of(texts: Iterator[pa.Table], contents: Iterator[pa.Table]) -> pa.Table:
    """Return TEXT_HASHES of the texts that are not empty; `contents` are of the same questions."""
    hashes = [TEXT_HASHES.empty_table()]
    for table, content in zip(texts, contents, strict=True):
        columns = [*(content[half].to_numpy().view(np.uint64) for half in ("high", "low")), table["key"]]
        hashes.append(pa.table(columns, schema=TEXT_HASHES).filter(pc.not_equal(table["text"], "")))
    return pa.concat_tables(hashes)


def copies_of(hashes: pa.Table) -> Counted:
    """Return KEY_PAIRS of each copy and the first question with its content; the second table has the copies (KEYS)."""
    rows, firsts = copies(*(column.to_numpy() for column in hashes.columns))
    keys = hashes["key"].to_numpy()
    pairs = pa.table([keys[firsts], keys[rows]], schema=KEY_PAIRS)
    return Counted(pairs, {"exact copies": len(rows)}, pairs.select(["right"]).rename_columns(KEYS.names))


def sign(
    texts: Iterator[pa.Table], copied: pa.Table, settings: NearDuplicateSettings, sites: list[str], partitions: int
) -> Counted:
    """Return BAND_KEYS of the texts that are neither empty nor copies, in `partitions` for each band.

    The second table has their signatures.
    """
    others, keys, values = np.sort(copied["key"].to_numpy()), [np.zeros(0, np.int64)], []
    for batch in (batch for table in texts for batch in table.to_batches(_TEXTS_AT_ONCE)):
        is_copied = are_among(others, batch["key"].to_numpy())
        signed = batch.filter(pc.and_(pa.array(~is_copied), pc.not_equal(batch["text"], "")))
        keys.append(signed["key"].to_numpy())
        values.append(text_signatures(compared(signed["title"], signed["text"]), settings))
    members = np.concatenate(keys)
    every = np.concatenate([np.zeros((0, settings.permutations), np.uint32), *values])
    buckets = np.ascontiguousarray(band_keys(every, *bands_of(settings)).T)
    numbers = np.arange(len(buckets))[:, None] * partitions + partition_of(buckets, partitions)
    orders = np.roll(buckets, -1, axis=0)  # the keys in the next band
    columns = [*map(np.ravel, (buckets, orders)), np.tile(members, len(buckets)), numbers.ravel().astype(np.int32)]
    lists = pa.FixedSizeListArray.from_arrays(pa.array(every.ravel()), settings.permutations)
    table = pa.table([*Sites(sites).columns(members), lists], schema=signatures(settings.permutations))
    return Counted(pa.table(columns, names=[*BAND_KEYS.names, "partition"]), second=table)


def find_near_duplicates(
    run: Run,
    texts: TextRanges,
    signed: Signed,
    rarities: Table,
    settings: NearDuplicateSettings,
    language: str,
    apart: np.ndarray = _NO_PAIRS,
) -> Near:
    """Find the verified pairs and the representatives of texts in `language`.

    Every pair has a Jaccard coefficient of at least the threshold, and titles that ask the same. No question represents
    both of a pair `apart` (int64 keys, (m, 2)).
    """
    partitions, sources = signed.exact.partitions, len(texts.ranges)
    tasks = Ranges(Batches(signed.bands), band_tasks(signed.bands.partitions, bands_of(settings)[0], texts.questions))
    candidates = run.shuffle("candidates", candidates_of, tasks, into=_CANDIDATES, by="left", partitions=partitions)
    keys = run.shuffle("wanted", questions_of, candidates, into=KEYS, to="bundle", partitions=sources)
    titled = run.shuffled("titled", TITLED_SHINGLES, sources, partitions, by="shingle")
    inputs = texts.texts(*TEXTS.names), texts.contents("signs"), keys, settings.shingle_size
    sets = run.look_up_made("sets", sets_of, *inputs, keys=keys, into=SHINGLE_SETS, second=titled)
    common = run.gather("boilerplate", boilerplate_of, titled, most_titles(sets.rows), into=SHINGLES)
    forests = run.table("forests", KEY_PAIRS, partitions)
    tables = candidates, signed.exact, Batches(sets), Whole(common), Whole(rarities)
    rest = texts.questions, language, settings
    verified = run.map("verified", verify, *tables, *rest, into=VERIFIED, second=forests, keep=True)
    joined = Each(forests), Each(verified), apart
    representatives = run.map("representatives", representatives_of, *joined, into=REPRESENTATIVES, keep=True)
    run.report.rows_in, run.report.rows_out = texts.questions, verified.rows
    return Near(verified, representatives)


def band_tasks(partitions: int, bands: int, questions: int) -> tuple[range, ...]:
    """Return the partitions of band keys for each task: several in a small archive, one in a large archive."""
    keys = max(1, questions * bands // partitions)  # in a partition
    size = max(1, _BAND_KEYS_PER_TASK // keys)
    return tuple(range(start, min(start + size, partitions)) for start in range(0, partitions, size))


def candidates_of(partitions: Iterator[Iterable[pa.RecordBatch]]) -> Counted:
    """Return the distinct candidate pairs of partitions of BAND_KEYS, with the ranges of both questions' texts.

    Each partition has a batch per range.
    """
    every, ranges, oversized = [_NO_PAIRS], [_NO_PAIRS], 0
    for batches in partitions:
        tables = [pa.Table.from_batches([batch], BAND_KEYS) for batch in batches]
        numbers = np.repeat(np.arange(len(tables)), [len(table) for table in tables])
        buckets, orders, members = (column.to_numpy() for column in pa.concat_tables(tables).columns)
        rows, large = bucket_pairs(buckets, orders, members)
        every.append(members[rows])
        is_paired = np.zeros(len(numbers), bool)
        is_paired[rows] = True
        ranges.append(np.stack([members[is_paired], numbers[is_paired]], axis=1))
        oversized += large
    pairs, (keys, numbers) = distinct_pairs(np.concatenate(every)), distinct_pairs(np.concatenate(ranges)).T
    ends = numbers[np.searchsorted(keys, pairs)].astype(np.int32)
    return Counted(pa.table([*pairs.T, *ends.T], schema=_CANDIDATES), {_OVERSIZED: oversized})


def questions_of(candidates: pa.Table) -> pa.Table:
    """Return the distinct questions of candidate pairs (KEYS), and the number of each one's range."""
    ends = (np.concatenate([candidates[f"{name}{side}"] for side in ("left", "right")]) for name in ("", "bundle_"))
    keys, ranges = distinct_pairs(np.stack([*ends], axis=1)).T
    return pa.table([keys, ranges], names=[*KEYS.names, "bundle"])


def sets_of(texts: Iterator[pa.Table], contents: Iterator[pa.Table], keys: pa.Table, size: int) -> Counted:
    """Return SHINGLE_SETS of the texts of some questions (KEYS); the second table has their TITLED_SHINGLES.

    `contents` are of the same questions as `texts`.
    """
    selected, tables = distinct(keys["key"].to_numpy()), [_COMPARED.empty_table()]
    for table, content in zip(texts, contents, strict=True):
        rows = pa.array(are_among(selected, table["key"].to_numpy()))
        tables.append(pa.table([*table.columns, content["signs"]], schema=_COMPARED).filter(rows))
    batch = one_batch(pa.concat_tables(tables))
    table, titled = shingle_table(size, *(batch[name] for name in ("key", "title", "text", "signs")))
    return Counted(table, {"texts compared": len(table)}, pa.table([*titled.T], schema=TITLED_SHINGLES))


def boilerplate_of(titled: pa.Table, most: int) -> Counted:
    """Return the shingles that have more than `most` titles (SHINGLES); `titled` has all titles of each."""
    shingles = boilerplate(np.stack([column.to_numpy() for column in titled.columns], axis=1), most)
    return Counted(pa.table([shingles], schema=SHINGLES), {"shingles of boilerplate": len(shingles)})


def verify(
    candidates: pa.Table,
    exact: pa.Table,
    sets: Iterable[pa.RecordBatch],
    common: pa.Table,
    rarities: pa.Table,
    questions: int,
    language: str,
    settings: NearDuplicateSettings,
) -> Counted:
    """Return VERIFIED: exact copies, and the candidates that are alike and ask the same; the second table is a forest.

    `sets` are SHINGLE_SETS of the candidates, `common` is boilerplate (SHINGLES), `rarities` are of an archive of so
    many `questions`.
    """
    pairs, copied = distinct_pairs(pairs_in(candidates)), pairs_in(exact)
    comparer = TitleComparer(language, rare_words(rarities["rarity"].to_numpy(), questions, language))
    coefficients, asks_same = compare(pairs, sets, np.sort(common["shingle"].to_numpy()), comparer, settings.threshold)
    alike = coefficients >= settings.threshold
    kept = alike & asks_same
    counts = {
        "candidates under the threshold": int((~alike).sum()),
        "near duplicates whose titles ask something else": int((alike & ~asks_same).sum()),
    }
    edges = forest(np.concatenate([copied, pairs[kept]]))
    verified = verified_pairs(copied, pairs[kept], coefficients[kept])
    return Counted(verified, counts, pa.table([*edges.T], schema=KEY_PAIRS))


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
    return pa.table([members, smallest], schema=REPRESENTATIVES)
