"""MinHash signatures, bit-identical to `datasketch.MinHash(scheme="affine32")` fed with the same hashes.

The low 32 bits h of a shingle's hash are pre-mixed, then each permutation k maps them to a_k * h + b_k modulo 2**32.
The signature has the minimum of each permutation over the text's shingles.

The keys of a signature's bands propose candidate pairs; the number of bands and rows is datasketch's optimum.
"""

import functools

import numpy as np
import pyarrow as pa
from datasketch import MinHash, MinHashLSH

from dupq.errors import SettingError
from dupq.kernel_cache import numba
from dupq.near_duplicates.shingles import Shingles, shingle
from dupq.settings.sections import NearDuplicateSettings

# datasketch weighs the area under the collision curve left of the threshold (false candidates) against the area above
# it right of the threshold (lost pairs) and takes the bands and rows with the smallest sum. Every candidate is
# verified, so a false one costs a comparison of some microseconds, but a lost pair is lost: nearly all weight is on
# lost pairs. With 128 permutations, a threshold of 0.8 and 0.999 that gives 21 bands of 6 rows, which lose one in 590
# pairs at the threshold, one in 20,000 at 0.85 and next to none at 0.9.

_FALSE_POSITIVE_WEIGHT = 1 - 0.999
SCHEME = "affine32"
SEED = 1  # of the permutations: datasketch's default, so that signatures can be compared with its own
_MULTIPLIER, _HALF = np.uint64(0x9E3779B97F4A7C15), np.uint64(32)  # of the keys of bands
EMPTY = np.uint32(0xFFFFFFFF)  # every value of an empty text's signature, as in datasketch


@functools.cache
def bands_of(settings: NearDuplicateSettings) -> tuple[int, int]:
    """Return the bands and rows that datasketch chooses. Raises SettingError if that would be fewer than two bands."""
    threshold, permutations = settings.threshold, settings.permutations
    weights = (_FALSE_POSITIVE_WEIGHT, 1 - _FALSE_POSITIVE_WEIGHT)  # datasketch requires that they sum to 1 exactly
    try:
        chosen = MinHashLSH(threshold=threshold, num_perm=permutations, weights=weights)
    except ValueError as error:
        raise SettingError(
            f"no bands and rows for near_duplicates.threshold={threshold} and near_duplicates.permutations="
            f"{permutations} ({error}); set more permutations"
        ) from error
    return chosen.b, chosen.r


# Locality-sensitive hashing. Texts whose signatures agree in all rows of a band fall into one bucket there, which two
# texts of Jaccard coefficient s do with probability 1 - (1 - s**rows)**bands. pairing.py makes candidate pairs from
# buckets, and verifies each.


def band_keys(signatures: np.ndarray, bands: int, rows: int) -> np.ndarray:
    """Return one key per band (uint64, (n, bands)) from signatures (uint32, (n, >= bands * rows))."""
    values = signatures[:, : bands * rows].reshape(len(signatures), bands, rows)
    keys = np.tile(np.arange(1, bands + 1, dtype=np.uint64), (len(signatures), 1))  # bands differ for the same values
    for row in range(rows):
        keys = (keys ^ values[:, :, row]) * _MULTIPLIER
        keys ^= keys >> _HALF
    return keys


def text_signatures(texts: pa.StringArray, settings: NearDuplicateSettings) -> np.ndarray:
    """Return the signatures of n texts: uint32 of shape (n, settings.permutations)."""
    return signatures(shingle(texts, settings.shingle_size), settings.permutations)


def signatures(shingles: Shingles, count: int) -> np.ndarray:
    """Return the signatures of n texts from their shingles: uint32 of shape (n, count)."""
    multipliers, addends = MinHash(num_perm=count, seed=SEED, scheme=SCHEME).permutations.astype(np.uint32)
    return _sign_shingles(shingles.hashes, shingles.offsets, multipliers, addends)


@numba.njit(nogil=True, cache=True)
def _sign_shingles(hashes: np.ndarray, offsets: np.ndarray, multipliers: np.ndarray, addends: np.ndarray) -> np.ndarray:
    result = np.full((len(offsets) - 1, len(addends)), EMPTY)
    for text in range(len(result)):
        least, last = result[text], offsets[text + 1] - 1
        for first in range(offsets[text], last + 1, 4):  # four shingles at a time, for fewer reads and writes
            a, b = _premixed(hashes[first]), _premixed(hashes[min(first + 1, last)])
            c, d = _premixed(hashes[min(first + 2, last)]), _premixed(hashes[min(first + 3, last)])
            for k in range(len(least)):
                multiplier, addend = multipliers[k], addends[k]
                one = min(np.uint32(multiplier * a + addend), np.uint32(multiplier * b + addend))
                other = min(np.uint32(multiplier * c + addend), np.uint32(multiplier * d + addend))
                least[k] = min(least[k], one, other)
    return result


@numba.njit(nogil=True, cache=True)
def _premixed(wide: np.uint64) -> np.uint32:
    """Return MurmurHash3's 32-bit finaliser of the low half."""
    value = np.uint32(wide)
    value = np.uint32(np.uint32(value ^ np.uint32(value >> np.uint32(16))) * np.uint32(0x85EBCA6B))
    value = np.uint32(np.uint32(value ^ np.uint32(value >> np.uint32(13))) * np.uint32(0xC2B2AE35))
    return np.uint32(value ^ np.uint32(value >> np.uint32(16)))
