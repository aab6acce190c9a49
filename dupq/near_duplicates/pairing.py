"""From buckets to candidate pairs, in time and memory linear in the number of texts; exact copies, by a hash of the
text; and boilerplate, which is left out of the comparison.
"""

from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import xxhash

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
    """Return the candidate pairs of one band, and how many buckets were oversized.

    Pairs are indices in `texts`, int64 of shape (m, 2); the left index has the smaller key. Which pairs there are
    does not depend on the order of the rows; `members` must be distinct.
    """
    kept = np.flatnonzero(shared(texts.buckets))  # most texts are alone in their bucket
    buckets, orders, members = (column[kept] for column in texts)
    order = np.lexsort((members, orders, buckets))
    buckets = buckets[order]
    _, sizes = np.unique(buckets, return_counts=True)
    is_large = np.repeat(sizes > rule.limit, sizes)
    pairs, left = [np.zeros((0, 2), np.int64)], np.arange(len(buckets))
    for distance in range(1, rule.links + 1):
        left = left[left + distance < len(buckets)]
        left = left[buckets[left] == buckets[left + distance]]
        if distance == 2:
            left = left[~is_large[left]]
        pairs.append(np.stack([left, left + distance], axis=1))
    indices = order[np.concatenate(pairs)]
    swapped = members[indices[:, 0]] > members[indices[:, 1]]
    indices[swapped] = indices[swapped, ::-1]
    return kept[indices], int((sizes > rule.limit).sum())


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
    """Return `pairs` (int64, shape (m, 2)) sorted, each once."""
    pairs = pairs[np.lexsort((pairs[:, 1], pairs[:, 0]))]
    is_first = np.ones(len(pairs), bool)
    is_first[1:] = (pairs[1:] != pairs[:-1]).any(axis=1)
    return pairs[is_first]


def shared(values: np.ndarray) -> np.ndarray:
    """Tell which of the values are repeated (bool)."""
    order = np.argsort(values)
    is_next = values[order[1:]] == values[order[:-1]]
    result = np.zeros(len(values), bool)
    result[order[1:][is_next]] = result[order[:-1][is_next]] = True
    return result


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
