"""Locality-sensitive hashing of signatures: the keys of their bands.

Texts whose signatures agree in all rows of at least one band fall into one bucket there: band_choice.py has how
likely that is, pairing.py the candidates that buckets give. A bucket only proposes: each pair is verified.
"""

import numpy as np

from dupq.kernel_cache import numba

_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)
_HALF = np.uint64(32)


def band_keys(signatures: np.ndarray, bands: int, rows: int) -> np.ndarray:
    """One 64-bit key a band: uint64 of shape (n, bands), from signatures (uint32) of shape (n, >= bands * rows)."""
    keys = np.empty((len(signatures), bands), np.uint64)
    _fill_keys(np.ascontiguousarray(signatures), rows, keys)
    return keys


@numba.njit(nogil=True, cache=True)
def _fill_keys(signatures: np.ndarray, rows: int, keys: np.ndarray) -> None:
    for text in range(keys.shape[0]):
        for band in range(keys.shape[1]):
            key = np.uint64(band + 1)  # so that the same values in another band have another key
            for row in range(band * rows, (band + 1) * rows):
                key = (key ^ np.uint64(signatures[text, row])) * _MULTIPLIER
                key ^= key >> _HALF
            keys[text, band] = key
