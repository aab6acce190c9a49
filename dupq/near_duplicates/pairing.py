"""From buckets to candidate pairs, in time and memory linear in the number of texts; exact copies, by a hash of the
text; and boilerplate, which is left out of the comparison.
"""

from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import xxhash

from dupq.kernel_cache import numba
from dupq.near_duplicates.shingles import Shingles
from dupq.text.keys import are_among

# From buckets to candidate pairs, in time and memory linear in the number of texts.
#
# The members of a bucket are chained in the order of their keys in the next band (then of their own keys), so that
# texts that agree in two bands are adjacent, and the order differs from band to band. Each member is paired with the
# `links` members that follow it in the chain: in a bucket of up to `links` + 1 that leaves out none, in a larger one no
# member has more than 2 * `links` partners. A bucket of more than `limit` members is oversized: it is chained by single
# links and counted. What one band's chain leaves out, the chains of other bands find: of real texts with 50 or 90 edits
# each, 0.999 of the true pairs became candidates (32 links, limit 100). Beyond the limit pairs are left out, and must
# be, or output would grow with the square of the bucket: 0.89 of them were found with 200 edits each, 0.09 with 1,000.
# Of the true pairs of these, 0.9996 still share a component.

_SLOTS_PER_KEY = 8  # of the sieve, two bits each: about one in eight of the unique keys passes it
_SMALL = 16  # members of a bucket that insertion sorts fast
_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)
_ONE = np.uint64(1)


class ChainRule(NamedTuple):
    """How the members of a bucket are paired; see above."""

    links: int
    limit: int


CHAIN = ChainRule(links=32, limit=100)  # see above


class Bucketed(NamedTuple):
    """The texts of one band: their bucket (uint64), their index in its chain (uint64) and their key (int64)."""

    buckets: np.ndarray
    orders: np.ndarray
    members: np.ndarray


def bucket_pairs(texts: Bucketed, rule: ChainRule) -> tuple[np.ndarray, int]:
    """The candidate pairs of one band, and how many buckets were oversized.

    Pairs are indices in `texts`, int64 of shape (m, 2); the left index has the smaller key. Which pairs there are
    does not depend on the order of the rows; `members` must be distinct.
    """
    kept = np.flatnonzero(shared(texts.buckets))  # most texts are alone in their bucket: only the others are sorted
    buckets, orders, members = (column[kept] for column in texts)
    order = _chained(buckets, orders, members)
    buckets = buckets[order]
    count, oversized = _count_pairs(buckets, rule.links, rule.limit)
    pairs = np.empty((count, 2), np.int64)
    _chain(buckets, rule.links, rule.limit, pairs)
    indices = order[pairs]
    swapped = members[indices[:, 0]] > members[indices[:, 1]]
    indices[swapped] = indices[swapped, ::-1]
    return kept[indices], int(oversized)


def _chained(buckets: np.ndarray, orders: np.ndarray, members: np.ndarray) -> np.ndarray:
    """The rows sorted by bucket, then order, then member: as lexsort does, which sorts three times, in a third of the
    time, since most buckets are of two or three.
    """
    result = np.argsort(buckets)
    is_large = np.zeros(len(result), np.bool_)
    _sort_small(buckets, orders, members, result, is_large)
    rows = result[is_large]
    result[is_large] = rows[np.lexsort((members[rows], orders[rows], buckets[rows]))]
    return result


def candidate_pairs(keys: np.ndarray, members: np.ndarray, rule: ChainRule) -> tuple[np.ndarray, int]:
    """The distinct candidate pairs of all bands, and how many buckets were oversized: for one process.

    `keys` is what `band_keys` gives (uint64, shape (n, bands)), `members` the texts' keys (int64, distinct). Pairs
    are keys, shape (m, 2), left < right, sorted.
    """
    found, oversized = [np.zeros((0, 2), np.int64)], 0
    columns = np.ascontiguousarray(keys.T)
    for band, buckets in enumerate(columns):
        pairs, large = bucket_pairs(Bucketed(buckets, columns[next_band(band, len(columns))], members), rule)
        found.append(members[pairs])
        oversized += large
    return distinct_pairs(np.concatenate(found)), oversized


def next_band(band: int, bands: int) -> int:
    """The band whose keys order the buckets of `band`."""
    return (band + 1) % bands


def distinct_pairs(pairs: np.ndarray) -> np.ndarray:
    """`pairs` (int64, shape (m, 2)) sorted, each once.

    Near copies agree in most of their bands, so that most pairs are found many times: a hash table removes repeats
    before the others are sorted.
    """
    slots = np.full(1 << max(1, (2 * len(pairs)).bit_length()), -1, np.int64)
    kept = np.empty(len(pairs), np.int64)
    pairs = pairs[kept[: _first_of_each(pairs, slots, kept)]]
    return pairs[np.lexsort((pairs[:, 1], pairs[:, 0]))]


def shared(buckets: np.ndarray) -> np.ndarray:
    """Which of the keys may be repeated (bool): all that are, and a few more.

    A sieve of two bits a slot (empty, one key, more) takes two passes over the keys, where sorting them all would
    take many.
    """
    bits = max(6, int(len(buckets) * _SLOTS_PER_KEY - 1).bit_length()) if len(buckets) else 6
    result = np.empty(len(buckets), np.bool_)
    _sieve(buckets, np.zeros(1 << (bits - 5), np.uint64), np.uint64(64 - bits), result)
    return result


@numba.njit(nogil=True, cache=True)
def _sieve(buckets: np.ndarray, slots: np.ndarray, shift: np.uint64, result: np.ndarray) -> None:
    five, low = np.uint64(5), np.uint64(31)
    for row in range(len(buckets)):
        slot = (buckets[row] * _MULTIPLIER) >> shift
        index = (slot & low) << _ONE
        word = slots[slot >> five]
        seen = (word >> index) & _ONE
        slots[slot >> five] = word | (_ONE << index) | (seen << (index + _ONE))
    for row in range(len(buckets)):
        slot = (buckets[row] * _MULTIPLIER) >> shift
        result[row] = (slots[slot >> five] >> (((slot & low) << _ONE) + _ONE)) & _ONE


@numba.njit(nogil=True, cache=True)
def _first_of_each(pairs: np.ndarray, slots: np.ndarray, kept: np.ndarray) -> int:
    """Write the rows that no earlier row equals to `kept`; how many those are. `slots` (a power of two): -1 is free."""
    last, count = np.uint64(len(slots) - 1), 0
    for row in range(len(pairs)):
        hashed = (np.uint64(pairs[row, 0]) * _MULTIPLIER ^ np.uint64(pairs[row, 1])) * _MULTIPLIER
        slot = (hashed ^ (hashed >> np.uint64(32))) & last
        while slots[slot] >= 0:
            other = slots[slot]
            if pairs[other, 0] == pairs[row, 0] and pairs[other, 1] == pairs[row, 1]:
                break
            slot = (slot + _ONE) & last
        if slots[slot] < 0:
            slots[slot] = row
            kept[count] = row
            count += 1
    return count


@numba.njit(nogil=True, cache=True)
def _sort_small(
    buckets: np.ndarray, orders: np.ndarray, members: np.ndarray, rows: np.ndarray, is_large: np.ndarray
) -> None:
    """Sort the rows, which are sorted by bucket, within each small bucket by order and member; mark the others."""
    start = 0
    while start < len(rows):
        end = start + 1
        while end < len(rows) and buckets[rows[end]] == buckets[rows[start]]:
            end += 1
        if end - start > _SMALL:
            is_large[start:end] = True
        else:
            for index in range(start + 1, end):
                row, hole = rows[index], index
                while hole > start and _follows(orders, members, rows[hole - 1], row):
                    rows[hole] = rows[hole - 1]
                    hole -= 1
                rows[hole] = row
        start = end


@numba.njit(nogil=True, cache=True, inline="always")
def _follows(orders: np.ndarray, members: np.ndarray, row: int, other: int) -> bool:
    return orders[row] > orders[other] or (orders[row] == orders[other] and members[row] > members[other])


@numba.njit(nogil=True, cache=True)
def _count_pairs(buckets: np.ndarray, links: int, limit: int) -> tuple[int, int]:
    """How many pairs the buckets (sorted) give, and how many buckets are oversized."""
    count, oversized, start = 0, 0, 0
    while start < len(buckets):
        end = _end_of_bucket(buckets, start)
        size = end - start
        reach = min(size - 1, links)
        if size > limit:
            reach = 1
            oversized += 1
        count += reach * size - reach * (reach + 1) // 2
        start = end
    return count, oversized


@numba.njit(nogil=True, cache=True)
def _chain(buckets: np.ndarray, links: int, limit: int, pairs: np.ndarray) -> None:
    count, start = 0, 0
    while start < len(buckets):
        end = _end_of_bucket(buckets, start)
        reach = 1 if end - start > limit else links
        for left in range(start, end):
            for right in range(left + 1, min(left + reach + 1, end)):
                pairs[count, 0] = left
                pairs[count, 1] = right
                count += 1
        start = end


@numba.njit(nogil=True, cache=True, inline="always")
def _end_of_bucket(buckets: np.ndarray, start: int) -> int:
    end = start + 1
    while end < len(buckets) and buckets[end] == buckets[start]:
        end += 1
    return end


# Finding exact copies: questions whose title and body are the same but for white space, by a 128-bit hash.
#
# Two different ones of 24 million share a hash by chance with a probability of 1e-24. A star joins the copies: each is
# paired with the one of the smallest key, and only that one gets a signature.


class Hashed(NamedTuple):
    """Questions: both halves of their hash (uint64) and their key (int64)."""

    high: np.ndarray
    low: np.ndarray
    keys: np.ndarray


def copies(texts: Hashed) -> tuple[np.ndarray, np.ndarray]:
    """The rows of the copies, and for each the row of the text with the smallest key (both int64).

    The answer does not depend on the order of the rows.
    """
    kept = np.flatnonzero(shared(texts.high))
    high, low, keys = (column[kept] for column in texts)
    order = np.lexsort((keys, low, high))
    high, low = high[order], low[order]
    first = np.ones(len(order), bool)
    first[1:] = (high[1:] != high[:-1]) | (low[1:] != low[:-1])
    starts = np.maximum.accumulate(np.where(first, np.arange(len(order)), 0))
    return kept[order[~first]], kept[order[starts[~first]]]


# Boilerplate: shingles that stand under many titles, as those of templates, signatures and notes do.
#
# They say nothing of what is asked, so that they are left out of the Jaccard coefficient. Counted are the titles among
# the texts that are compared at all: two that fill in one template are, and ordinary phrases hardly ever get there.
# Titles are counted, not texts, so that a question that is asked a hundred times in the same words keeps them.

_TITLES, _SHARE = 5, 1_000


def most_titles(compared: int) -> int:
    """Over how many titles a shingle may stand if so many texts are compared: 5, of 6,000 and more one in 1,000."""
    return max(_TITLES, compared // _SHARE)


def titled_shingles(sets: Shingles, titles: pa.Array, texts: pa.Array) -> np.ndarray:
    """Each shingle of n texts and a hash of the title over it: uint64, shape (m, 2); of texts that are titles, none."""
    hashes = np.array([xxhash.xxh3_64_intdigest(title.encode()) for title in titles.to_pylist()], np.uint64)
    lengths = np.diff(sets.offsets)
    has_body = pc.not_equal(titles, texts).to_numpy(zero_copy_only=False)
    return np.stack([sets.hashes, np.repeat(hashes, lengths)], axis=1)[np.repeat(has_body, lengths)]


def boilerplate(titled: np.ndarray, most: int) -> np.ndarray:
    """The shingles (uint64, sorted) that stand over more than `most` titles; `titled` as `titled_shingles` gives it."""
    shingles = np.sort(distinct_pairs(titled.view(np.int64))[:, 0].view(np.uint64))
    starts = np.flatnonzero(np.append(True, shingles[1:] != shingles[:-1])) if len(shingles) else np.zeros(0, np.int64)
    return shingles[starts[np.diff(np.append(starts, len(shingles))) > most]]


def without_boilerplate(sets: Shingles, shingles: np.ndarray) -> Shingles:
    """`sets` without some shingles (uint64, sorted)."""
    kept = ~are_among(shingles, sets.hashes)
    return Shingles(sets.hashes[kept], np.append(0, np.cumsum(kept))[sets.offsets])
