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


def with_bands(settings: NearDuplicateSettings) -> NearDuplicateSettings:
    """`settings` with the optimal bands and rows where they are left open. Raises SettingError as `optimal_bands`."""
    if settings.bands:
        return settings
    bands, rows = optimal_bands(settings.threshold, settings.permutations, settings.false_negative_weight)
    return settings.changed(bands=bands, rows=rows)


@functools.cache
def optimal_bands(threshold: float, permutations: int, false_negative_weight: float) -> tuple[int, int]:
    """The bands and rows, as `datasketch.MinHashLSH(weights=(1 - weight, weight))` chooses them.

    Raises SettingError if that would be fewer than two bands.
    """
    false_positive_weight = 1 - false_negative_weight
    weights = (false_positive_weight, 1 - false_positive_weight)  # which datasketch requires to sum to 1 exactly
    try:
        chosen = MinHashLSH(threshold=threshold, num_perm=permutations, weights=weights)
    except ValueError as error:
        raise SettingError(
            f"no bands and rows for near_duplicates.threshold={threshold}, permutations={permutations}, "
            f"false_negative_weight={false_negative_weight} ({error}); set bands and rows, or more permutations"
        ) from error
    return chosen.b, chosen.r


def collision_probability(similarities: np.ndarray, bands: int, rows: int) -> np.ndarray:
    """How likely a pair of each Jaccard coefficient is to become a candidate: 1 - (1 - s**rows)**bands."""
    return 1 - (1 - np.asarray(similarities, np.float64) ** rows) ** bands
