"""MinHash signatures, bit-identical to `datasketch.MinHash(scheme="affine32")` fed with the same hashes.

A shingle's low 32 bits are pre-mixed, then each permutation k maps them to a_k * h + b_k modulo 2**32; the
signature keeps the minimum of each permutation over the text's shingles.
"""

import numpy as np
import pyarrow as pa
from datasketch import MinHash

from dupq.kernel_cache import Integer, numba
from dupq.near_duplicates.hashing import SLACK, room_for, shingle_hashes, whole_vectors
from dupq.near_duplicates.minhash import GROUP, TOGETHER, least_values
from dupq.near_duplicates.shingles import Shingles
from dupq.settings.near_duplicates import NearDuplicateSettings
from dupq.text.strings import longest, strings_of

SCHEME = "affine32"
SEED = 1  # of the permutations: datasketch's default, so that signatures can be compared with its own
EMPTY = np.uint32(0xFFFFFFFF)  # every value of an empty text's signature, as in datasketch

_U = np.uint64


def permutations(count: int, seed: int = SEED) -> tuple[np.ndarray, np.ndarray]:
    """datasketch's multipliers and addends (uint32, shape (count,)) for a seed."""
    multipliers, addends = MinHash(num_perm=count, seed=seed, scheme=SCHEME).permutations
    return multipliers.astype(np.uint32), addends.astype(np.uint32)


def text_signatures(texts: pa.StringArray, settings: NearDuplicateSettings, seed: int = SEED) -> np.ndarray:
    """The signatures of n texts: uint32 of shape (n, settings.permutations). One pass; shingles are never stored."""
    offsets, data = strings_of(texts)
    result = np.empty((len(texts), settings.permutations), np.uint32)
    _sign_texts(data, offsets, settings.shingle_size, *_in_groups(settings.permutations, seed), result)
    return result


def signatures(shingles: Shingles, count: int, seed: int = SEED) -> np.ndarray:
    """The signatures of n texts from their shingles: uint32 of shape (n, count)."""
    result = np.empty((len(shingles.offsets) - 1, count), np.uint32)
    _sign_shingles(shingles.hashes, shingles.offsets, *_in_groups(count, seed), result)
    return result


def _in_groups(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """`permutations`, with others behind them that make whole groups."""
    multipliers, addends = (np.pad(numbers, (0, -count % GROUP)) for numbers in permutations(count, seed))
    return multipliers, addends


@numba.njit(nogil=True, cache=True)
def _sign_texts(
    data: np.ndarray, offsets: np.ndarray, size: int, multipliers: np.ndarray, addends: np.ndarray, result: np.ndarray
) -> None:
    most = longest(offsets) + 1
    room, hashes, mixed = room_for(most), np.empty(most + SLACK, np.uint64), np.empty(most + SLACK, np.uint32)
    least = np.empty(len(addends), np.uint32)
    for text in range(len(result)):
        count = shingle_hashes(data, offsets[text], offsets[text + 1], size, room, hashes)
        _premix(hashes, whole_vectors(count), mixed)
        _sign(mixed, count, multipliers, addends, least, result[text])


@numba.njit(nogil=True, cache=True)
def _sign_shingles(
    hashes: np.ndarray, offsets: np.ndarray, multipliers: np.ndarray, addends: np.ndarray, result: np.ndarray
) -> None:
    mixed = np.empty(longest(offsets) + SLACK, np.uint32)
    least = np.empty(len(addends), np.uint32)
    for text in range(len(result)):
        count = offsets[text + 1] - offsets[text]
        _premix(hashes[offsets[text] : offsets[text + 1]], count, mixed)
        _sign(mixed, count, multipliers, addends, least, result[text])


@numba.njit(nogil=True, cache=True)
def _premix(hashes: np.ndarray, count: Integer, mixed: np.ndarray) -> None:
    """MurmurHash3's 32-bit finaliser of the low halves."""
    for index in range(count):
        value = np.uint32(hashes[_U(index)])
        value = np.uint32(np.uint32(value ^ np.uint32(value >> np.uint32(16))) * np.uint32(0x85EBCA6B))
        value = np.uint32(np.uint32(value ^ np.uint32(value >> np.uint32(13))) * np.uint32(0xC2B2AE35))
        mixed[_U(index)] = np.uint32(value ^ np.uint32(value >> np.uint32(16)))


@numba.njit(nogil=True, cache=True)
def _sign(
    mixed: np.ndarray, count: Integer, multipliers: np.ndarray, addends: np.ndarray, least: np.ndarray, row: np.ndarray
) -> None:
    """Write the signature of a text of `count` shingles to `row`. The last one is repeated: that changes no minimum."""
    if count == 0:
        row[:] = EMPTY
        return
    for index in range(count, count + TOGETHER):
        mixed[_U(index)] = mixed[_U(count - 1)]
    least_values(mixed, count, multipliers, addends, least)
    for k in range(len(row)):
        row[k] = least[k]
