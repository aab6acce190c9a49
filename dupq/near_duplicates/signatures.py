"""MinHash signatures, bit-identical to `datasketch.MinHash(scheme="affine32")` fed with the same hashes.

A shingle's low 32 bits are pre-mixed, then each permutation k maps them to a_k * h + b_k modulo 2**32; the
signature keeps the minimum of each permutation over the text's shingles.
"""

import numpy as np
from datasketch import MinHash

from dupq.near_duplicates.shingles import Shingles

EMPTY = np.uint32(0xFFFFFFFF)  # every value of an empty text's signature, as in datasketch
_CHUNK_SHINGLES = 65_536  # times 128 permutations of 4 bytes: 32 MB


def permutations(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """datasketch's multipliers and addends (uint32, shape (count,)) for a seed."""
    multipliers, addends = MinHash(num_perm=count, seed=seed, scheme="affine32").permutations
    return multipliers.astype(np.uint32), addends.astype(np.uint32)


def signatures(shingles: Shingles, count: int, seed: int) -> np.ndarray:
    """The signatures of n texts: uint32 of shape (n, count)."""
    multipliers, addends = permutations(count, seed)
    mixed = _premix((shingles.hashes & np.uint64(0xFFFFFFFF)).astype(np.uint32))
    offsets = shingles.offsets
    result = np.full((len(offsets) - 1, count), EMPTY, np.uint32)
    for start, end in _chunks(offsets):
        rows = np.flatnonzero(np.diff(offsets[start : end + 1])) + start
        if not len(rows):
            continue
        hashes = mixed[offsets[start] : offsets[end]]
        permuted = hashes[:, None] * multipliers + addends
        result[rows] = np.minimum.reduceat(permuted, offsets[rows] - offsets[start], axis=0)
    return result


def _chunks(offsets: np.ndarray) -> list[tuple[int, int]]:
    """Runs of texts that hold about _CHUNK_SHINGLES shingles together (more only for a single long text)."""
    chunks = []
    start, last = 0, len(offsets) - 1
    while start < last:
        end = int(np.searchsorted(offsets, offsets[start] + _CHUNK_SHINGLES, side="right")) - 1
        end = min(max(end, start + 1), last)
        chunks.append((start, end))
        start = end
    return chunks


def _premix(hashes: np.ndarray) -> np.ndarray:
    """MurmurHash3's 32-bit finaliser; uint32 in, uint32 out, wrapping as it is meant to."""
    hashes = (hashes ^ (hashes >> np.uint32(16))) * np.uint32(0x85EBCA6B)
    hashes = (hashes ^ (hashes >> np.uint32(13))) * np.uint32(0xC2B2AE35)
    return hashes ^ (hashes >> np.uint32(16))
