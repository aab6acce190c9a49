"""Locality-sensitive hashing of signatures: bands, buckets and candidate pairs.

Texts whose signatures agree in all rows of at least one band fall into one bucket there. With b bands of r
rows that happens to texts of Jaccard coefficient s with probability 1 - (1 - s**r)**b: with 25 bands of 5
rows, 0.99995 at s = 0.8, 0.55 at 0.5 and 0.008 at 0.2. A bucket only proposes: each pair is verified.
"""

import numpy as np

_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)


def band_keys(signatures: np.ndarray, bands: int, rows: int) -> np.ndarray:
    """One 64-bit key a band: uint64 of shape (n, bands), from signatures of shape (n, at least bands * rows)."""
    used = signatures[:, : bands * rows].astype(np.uint64).reshape(len(signatures), bands, rows)
    keys = np.broadcast_to(np.arange(1, bands + 1, dtype=np.uint64), used.shape[:2]).copy()
    for row in range(rows):
        keys = (keys ^ used[:, :, row]) * _MULTIPLIER
        keys ^= keys >> np.uint64(32)
    return keys


def bucket_pairs(keys: np.ndarray, members: np.ndarray, limit: int) -> tuple[np.ndarray, int]:
    """The candidate pairs of one band, and how many buckets had more than `limit` members.

    `keys` are the band's keys (uint64), `members` the texts (int64, distinct). A bucket of up to `limit`
    members gives all its pairs; a larger one only those along its chain (neighbours in the order of
    members) and its star (each with the smallest), so that work stays linear in its size. Pairs have shape
    (m, 2), left < right.
    """
    order = np.lexsort((members, keys))
    keys, members = keys[order], members[order]
    starts = np.flatnonzero(np.r_[True, keys[1:] != keys[:-1]]) if len(keys) else np.zeros(0, int)
    sizes = np.diff(np.r_[starts, len(keys)])
    pairs = [np.zeros((0, 2), np.int64)]
    for size in np.unique(sizes[(sizes > 1) & (sizes <= limit)]):
        buckets = members[starts[sizes == size][:, None] + np.arange(size)]
        left, right = np.triu_indices(int(size), 1)
        pairs.append(np.stack([buckets[:, left].ravel(), buckets[:, right].ravel()], axis=1))
    oversized = np.flatnonzero(sizes > limit)
    for bucket in oversized:
        found = members[starts[bucket] : starts[bucket] + sizes[bucket]]
        pairs.append(np.stack([found[:-1], found[1:]], axis=1))
        pairs.append(np.stack([np.full(len(found) - 2, found[0]), found[2:]], axis=1))
    return np.concatenate(pairs), len(oversized)
