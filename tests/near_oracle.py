"""Near duplicates by comparing everything with everything."""

import random

import numpy as np
import pyarrow as pa

from dupq.near_duplicates.shingles import shingle_sets
from dupq.near_duplicates.verification import incidence_matrix

_ROWS_AT_ONCE = 500


def true_pairs(texts: pa.StringArray, size: int, threshold: float) -> dict[tuple[int, int], float]:
    """Each pair of rows whose shingle sets have at least that Jaccard coefficient: a product of sparse matrices."""
    sets = shingle_sets(texts, size)
    incidence, sizes = incidence_matrix(sets), np.diff(sets.offsets)
    found = {}
    for start in range(0, len(texts), _ROWS_AT_ONCE):
        common = (incidence[start : start + _ROWS_AT_ONCE] @ incidence.T).tocoo()
        left, right, both = common.row + start, common.col, common.data.astype(np.float64)
        coefficients = both / (sizes[left] + sizes[right] - both)
        kept = (left < right) & (coefficients >= threshold)
        found |= dict(
            zip(zip(left[kept].tolist(), right[kept].tolist(), strict=True), coefficients[kept].tolist(), strict=True)
        )
    return found


def edited(text: str, share: float, words: list[str], generator: random.Random) -> str:
    """`text` with that share of its words changed, added or taken out, at least one."""
    result = text.split()
    for _ in range(max(1, round(len(result) * share))):
        place, kind = generator.randrange(len(result)), generator.random()
        if kind < 0.5:
            result[place] = generator.choice(words)
        elif kind < 0.75 or len(result) == 1:
            result.insert(place, generator.choice(words))
        else:
            del result[place]
    return " ".join(result)
