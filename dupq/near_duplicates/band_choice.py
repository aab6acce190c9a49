"""Choosing the number of bands and rows: datasketch's optimum, and the probability curve that it gives.

datasketch weighs the area under the collision curve left of the threshold (false candidates) against the area above it
right of the threshold (lost pairs) and takes the bands and rows with the smallest sum. Every candidate is verified, so
a false one costs a comparison of some microseconds, but a lost pair is lost: nearly all weight is on the latter. With
128 permutations, a threshold of 0.8 and 0.999 that gives 21 bands of 6 rows, which lose one in 590 pairs at the
threshold, one in 20,000 at 0.85 and next to none at 0.9.
"""

import functools

import numpy as np
from datasketch import MinHashLSH

from dupq.errors import SettingError
from dupq.settings.near_duplicates import NearDuplicateSettings

_FALSE_POSITIVE_WEIGHT = 1 - 0.999  # see above


def bands_of(settings: NearDuplicateSettings) -> tuple[int, int]:
    """Return the bands and rows of `settings`. Raises SettingError as `optimal_bands`."""
    return optimal_bands(settings.threshold, settings.permutations)


@functools.cache
def optimal_bands(
    threshold: float, permutations: int, false_positive_weight: float = _FALSE_POSITIVE_WEIGHT
) -> tuple[int, int]:
    """Return the bands and rows that `datasketch.MinHashLSH(weights=(weight, 1 - weight))` chooses.

    Raises SettingError if that would be fewer than two bands.
    """
    weights = (false_positive_weight, 1 - false_positive_weight)  # which datasketch requires to sum to 1 exactly
    try:
        chosen = MinHashLSH(threshold=threshold, num_perm=permutations, weights=weights)
    except ValueError as error:
        raise SettingError(
            f"no bands and rows for near_duplicates.threshold={threshold} and near_duplicates.permutations="
            f"{permutations} ({error}); set more permutations"
        ) from error
    return chosen.b, chosen.r


def collision_probability(similarities: np.ndarray, bands: int, rows: int) -> np.ndarray:
    """How likely a pair of each Jaccard coefficient is to become a candidate: 1 - (1 - s**rows)**bands."""
    return 1 - (1 - np.asarray(similarities, np.float64) ** rows) ** bands
