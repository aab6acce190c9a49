"""Candidate pairs from buckets, exact copies, boilerplate, and the verification of candidate pairs.

`near_pairs` does all of it for texts in memory; stages/near_duplicates.py does the same partition by partition.
"""

from collections.abc import Iterable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import xxhash

from dupq.near_duplicates.minhash import band_keys, bands_of, text_signatures
from dupq.near_duplicates.shingles import Shingles, compared, jaccard, shingle_sets
from dupq.settings.sections import NearDuplicateSettings
from dupq.tables import SHINGLE_SETS, VERIFIED
from dupq.text.keys import RowsByKey, are_among, distinct, distinct_pairs
from dupq.text.title_intent import TitleComparer

# Candidate pairs, in time and memory linear in the number of texts.
#
# The members of a bucket are chained in the order of their keys in the next band (then of their own keys), so that
# texts that agree in two bands are adjacent, and the order differs from band to band. Each member is paired with the
# LINKS members that follow it in the chain. In a bucket of up to LINKS + 1 that leaves out no pair; in a larger one
# no member has more than 2 * LINKS partners. A bucket of more than LIMIT members is oversized: it is chained by
# single links and counted. The chains of other bands find what one band's chain leaves out: of real texts with 50 or 90
# edits each, 0.999 of the true pairs became candidates (32 links, limit 100). Beyond the limit pairs must be left out,
# or output would grow with the square of the bucket: 0.89 of them were found with 200 edits each, 0.09 with 1,000. Of
# the true pairs of these, 0.9996 still share a component.

LINKS, LIMIT = 32, 100


def bucket_pairs(buckets: np.ndarray, orders: np.ndarray, members: np.ndarray) -> tuple[np.ndarray, int]:
    """Return the candidate pairs in the buckets of bands, and the number of oversized buckets.

    Each row has a bucket (uint64), an order in its chain (uint64), and the key of a text in `members` (int64), which is
    in a bucket once. Pairs are row numbers, int64 of shape (m, 2); the left row has the smaller key. The same pairs are
    found for any order of the rows.
    """
    kept = np.flatnonzero(shared(buckets))  # most texts are alone in their bucket
    buckets, orders, members = buckets[kept], orders[kept], members[kept]
    order = np.lexsort((members, orders, buckets))
    buckets = buckets[order]
    _, sizes = np.unique(buckets, return_counts=True)
    is_large = np.repeat(sizes > LIMIT, sizes)
    pairs, left = [np.zeros((0, 2), np.int64)], np.arange(len(buckets))
    for distance in range(1, LINKS + 1):
        left = left[left + distance < len(buckets)]
        left = left[buckets[left] == buckets[left + distance]]
        if distance == 2:
            left = left[~is_large[left]]
        pairs.append(np.stack([left, left + distance], axis=1))
    indices = order[np.concatenate(pairs)]
    swapped = members[indices[:, 0]] > members[indices[:, 1]]
    indices[swapped] = indices[swapped, ::-1]
    return kept[indices], int((sizes > LIMIT).sum())


def candidate_pairs(keys: np.ndarray, members: np.ndarray) -> tuple[np.ndarray, int]:
    """Return the distinct candidate pairs of all bands, and the number of oversized buckets.

    `keys` are `band_keys` (uint64, (n, bands)), `members` the texts' keys (int64, distinct). Pairs are keys, shape
    (m, 2), left < right, sorted.
    """
    every, oversized = [np.zeros((0, 2), np.int64)], 0
    columns = np.ascontiguousarray(keys.T)
    for buckets, orders in zip(columns, np.roll(columns, -1, axis=0), strict=True):
        pairs, large = bucket_pairs(buckets, orders, members)
        every.append(members[pairs])
        oversized += large
    return distinct_pairs(np.concatenate(every)), oversized


def shared(values: np.ndarray) -> np.ndarray:
    """Return a mask of the values that are repeated."""
    _, rows, counts = np.unique(values, return_inverse=True, return_counts=True)
    return counts[rows] > 1


# Exact copies are questions whose title and body are equal but for white space, by a 128-bit hash. Among 24 million,
# two different ones share a hash with a probability of 1e-24. Copies form a star: each is paired with the one that has
# the smallest key, and only that one gets a signature.


def copies(high: np.ndarray, low: np.ndarray, keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the rows of the copies, and for each the row of the text with the smallest key (both int64).

    `high` and `low` are the halves of the texts' hashes (uint64), `keys` their keys (int64).
    """
    kept = np.flatnonzero(shared(high))
    high, low, keys = high[kept], low[kept], keys[kept]
    order = np.lexsort((keys, low, high))
    high, low = high[order], low[order]
    first = np.ones(len(order), bool)
    first[1:] = (high[1:] != high[:-1]) | (low[1:] != low[:-1])
    starts = np.maximum.accumulate(np.where(first, np.arange(len(order)), 0))
    return kept[order[~first]], kept[order[starts[~first]]]


def copies_within(
    high: np.ndarray, low: np.ndarray, keys: np.ndarray, times: np.ndarray, window: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return the rows of the copies of a text that was asked at most `window` before, and the last such row of each.

    All copies that such pairs can connect are connected by these, which are as many as the copies at most.
    """
    order = np.lexsort((keys, times, low, high))
    follows = np.ones(max(0, len(order) - 1), bool)
    for half in (high, low):
        follows &= half[order[1:]] == half[order[:-1]]
    follows &= times[order[1:]] - times[order[:-1]] <= window
    return order[1:][follows], order[:-1][follows]


# Boilerplate are shingles of many titles' texts, as those of templates, signatures and notes. They say nothing about
# the question, so that they are left out of the Jaccard coefficient. Titles are counted among the texts of candidate
# pairs: texts that fill in one template are among these, and ordinary phrases are hardly ever. Titles are counted
# rather than texts, so that a question that is asked a hundred times in the same words keeps its shingles.

_TITLES, _SHARE = 5, 1_000


def most_titles(compared: int) -> int:
    """Return the most titles that a shingle may have: 5, or one in 1,000 of the `compared` texts if that is more."""
    return max(_TITLES, compared // _SHARE)


def titled_shingles(sets: Shingles, titles: pa.Array, texts: pa.Array) -> np.ndarray:
    """Return each shingle with a hash of its text's title (uint64, (m, 2)), without texts that are only a title."""
    hashes = np.array([xxhash.xxh3_64_intdigest(title.encode()) for title in titles.to_pylist()], np.uint64)
    lengths = np.diff(sets.offsets)
    has_body = pc.not_equal(titles, texts).to_numpy(zero_copy_only=False)
    return np.stack([sets.hashes, np.repeat(hashes, lengths)], axis=1)[np.repeat(has_body, lengths)]


def boilerplate(titled: np.ndarray, most: int) -> np.ndarray:
    """Return the shingles (uint64, sorted) that have more than `most` titles in `titled` (see `titled_shingles`)."""
    pairs = distinct_pairs(titled.view(np.int64)).view(np.uint64)
    shingles, titles = np.unique(pairs[:, 0], return_counts=True)
    return shingles[titles > most]


def without_boilerplate(sets: Shingles, shingles: np.ndarray) -> Shingles:
    """Return `sets` without `shingles` (uint64, sorted)."""
    kept = ~are_among(shingles, sets.hashes)
    return Shingles(sets.hashes[kept], np.append(0, np.cumsum(kept))[sets.offsets])


# Verification of candidate pairs: their Jaccard coefficients, and whether their titles ask the same.

_PAIRS_AT_ONCE = 100_000  # with the shingle sets of their texts in memory


def shingle_table(
    size: int, keys: np.ndarray, titles: pa.StringArray, texts: pa.StringArray, written: pa.StringArray
) -> tuple[pa.Table, np.ndarray]:
    """Return SHINGLE_SETS of texts, and their `titled_shingles`."""
    sets = shingle_sets(compared(titles, texts, written), size)
    lists = pa.LargeListArray.from_arrays(sets.offsets, sets.hashes)
    return pa.table([keys, lists, titles, written], schema=SHINGLE_SETS), titled_shingles(sets, titles, texts)


def compare(
    pairs: np.ndarray, sets: Iterable[pa.RecordBatch], common: np.ndarray, comparer: TitleComparer, threshold: float
) -> tuple[np.ndarray, np.ndarray]:
    """Return the Jaccard coefficient of each pair (sorted) and, if it reaches the threshold, whether both ask the same.

    Pairs are compared in batches. Each batch reads all `sets`, and keeps in memory those of its questions. `common` is
    boilerplate.
    """
    coefficients, asks_same = np.zeros(len(pairs)), np.zeros(len(pairs), bool)
    for start in range(0, len(pairs), _PAIRS_AT_ONCE):
        rows = slice(start, start + _PAIRS_AT_ONCE)
        keys = distinct(pairs[rows])
        kept = (batch.filter(pa.array(are_among(keys, batch["key"].to_numpy()))) for batch in sets)
        table = pa.Table.from_batches([batch.replace_schema_metadata(None) for batch in kept], SHINGLE_SETS)
        left, right = RowsByKey(table["key"].to_numpy()).find(pairs[rows]).T
        lists, titles, written = (table[name].combine_chunks() for name in ("shingles", "title", "written"))
        shingles = Shingles(lists.values.to_numpy(), lists.offsets.to_numpy())
        coefficients[rows] = jaccard(without_boilerplate(shingles, common), left, right)
        alike = np.flatnonzero(coefficients[rows] >= threshold)
        asks_same[alike + start] = comparer.same_pairs(titles, written, left[alike], right[alike])
    return coefficients, asks_same


def verified_pairs(exact: np.ndarray, near: np.ndarray, coefficients: np.ndarray) -> pa.Table:
    """Return VERIFIED, by both keys: the pairs of `exact` copies, and `near` duplicates with their coefficients."""
    pairs = np.concatenate([exact, near])
    sources = pa.array(["exact"] * len(exact) + ["near_duplicate"] * len(near), pa.string())
    jaccards = pa.array(np.concatenate([np.ones(len(exact)), coefficients]).astype(np.float32))
    order = np.lexsort((pairs[:, 1], pairs[:, 0]))
    return pa.table([*pairs.T, sources, jaccards], schema=VERIFIED).take(pa.array(order))


def near_pairs(
    texts: pa.Table, written: pa.Array, hashes: np.ndarray, settings: NearDuplicateSettings, comparer: TitleComparer
) -> pa.Table:
    """Return the exact copies (each with the first of them) and near duplicates among n questions, as VERIFIED.

    `texts` are TEXTS, `written` their `written_titles`, and `hashes` their `content_hashes`. Keys are rows.
    """
    titles, tokens = (texts[name].combine_chunks() for name in ("title", "text"))
    rows = np.flatnonzero(pc.binary_length(tokens).to_numpy() > 0)
    high, low = hashes[rows].view(np.uint64).T
    later, first = copies(high, low, rows)
    exact = np.stack([rows[first], rows[later]], axis=1)
    rows = rows[~np.isin(rows, exact[:, 1])]
    signatures = text_signatures(compared(titles, tokens, written).take(pa.array(rows)), settings)
    candidates, _ = candidate_pairs(band_keys(signatures, *bands_of(settings)), rows)
    rows = distinct(candidates)
    columns = (column.take(pa.array(rows)) for column in (titles, tokens, written))
    sets, titled = shingle_table(settings.shingle_size, rows, *columns)
    common = boilerplate(titled, most_titles(len(rows)))
    coefficients, asks_same = compare(candidates, sets.to_batches(), common, comparer, settings.threshold)
    return verified_pairs(exact, candidates[asks_same], coefficients[asks_same])
