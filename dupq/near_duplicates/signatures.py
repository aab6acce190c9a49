"""MinHash signatures, bit-identical to `datasketch.MinHash(scheme="affine32")` fed with the same hashes.

A shingle's low 32 bits are pre-mixed, then each permutation k maps them to a_k * h + b_k modulo 2**32; the
signature keeps the minimum of each permutation over the text's shingles.
"""

import numpy as np
import pyarrow as pa
from datasketch import MinHash

from dupq.kernel_cache import numba
from dupq.near_duplicates.hashing import shingle_hashes
from dupq.near_duplicates.shingles import Shingles
from dupq.settings.near_duplicates import NearDuplicateSettings
from dupq.text.strings import longest, strings_of

SCHEME = "affine32"
SEED = 1  # of the permutations: datasketch's default, so that signatures can be compared with its own
EMPTY = np.uint32(0xFFFFFFFF)  # every value of an empty text's signature, as in datasketch


def permutations(count: int, seed: int = SEED) -> tuple[np.ndarray, np.ndarray]:
    """datasketch's multipliers and addends (uint32, shape (count,)) for a seed."""
    multipliers, addends = MinHash(num_perm=count, seed=seed, scheme=SCHEME).permutations
    return multipliers.astype(np.uint32), addends.astype(np.uint32)


def text_signatures(texts: pa.StringArray, settings: NearDuplicateSettings, seed: int = SEED) -> np.ndarray:
    """The signatures of n texts: uint32 of shape (n, settings.permutations). One pass; shingles are never stored."""
    offsets, data = strings_of(texts)
    return _sign_texts(data, offsets, settings.shingle_size, *permutations(settings.permutations, seed))


def signatures(shingles: Shingles, count: int, seed: int = SEED) -> np.ndarray:
    """The signatures of n texts from their shingles: uint32 of shape (n, count)."""
    return _sign_shingles(shingles.hashes, shingles.offsets, *permutations(count, seed))


@numba.njit(nogil=True, cache=True)
def _sign_texts(
    data: np.ndarray, offsets: np.ndarray, size: int, multipliers: np.ndarray, addends: np.ndarray
) -> np.ndarray:
    result = np.full((len(offsets) - 1, len(addends)), EMPTY)
    most = longest(offsets)
    words, hashes = np.empty(most, np.uint64), np.empty(most, np.uint64)
    for text in range(len(result)):
        count = shingle_hashes(data, offsets[text], offsets[text + 1], size, words, hashes)
        _lower(hashes[:count], multipliers, addends, result[text])
    return result


@numba.njit(nogil=True, cache=True)
def _sign_shingles(hashes: np.ndarray, offsets: np.ndarray, multipliers: np.ndarray, addends: np.ndarray) -> np.ndarray:
    result = np.full((len(offsets) - 1, len(addends)), EMPTY)
    for text in range(len(result)):
        _lower(hashes[offsets[text] : offsets[text + 1]], multipliers, addends, result[text])
    return result


@numba.njit(nogil=True, cache=True)
def _lower(hashes: np.ndarray, multipliers: np.ndarray, addends: np.ndarray, least: np.ndarray) -> None:
    """Lower `least` to the minimum of each permutation over the shingles, four at a time: fewer reads and writes."""
    last = len(hashes) - 1
    for first in range(0, len(hashes), 4):
        a, b = _premixed(hashes[first]), _premixed(hashes[min(first + 1, last)])
        c, d = _premixed(hashes[min(first + 2, last)]), _premixed(hashes[min(first + 3, last)])
        for k in range(len(least)):
            multiplier, addend = multipliers[k], addends[k]
            one = min(np.uint32(multiplier * a + addend), np.uint32(multiplier * b + addend))
            other = min(np.uint32(multiplier * c + addend), np.uint32(multiplier * d + addend))
            least[k] = min(least[k], one, other)


@numba.njit(nogil=True, cache=True)
def _premixed(wide: np.uint64) -> np.uint32:
    """MurmurHash3's 32-bit finaliser of the low half."""
    value = np.uint32(wide)
    value = np.uint32(np.uint32(value ^ np.uint32(value >> np.uint32(16))) * np.uint32(0x85EBCA6B))
    value = np.uint32(np.uint32(value ^ np.uint32(value >> np.uint32(13))) * np.uint32(0xC2B2AE35))
    return np.uint32(value ^ np.uint32(value >> np.uint32(16)))
