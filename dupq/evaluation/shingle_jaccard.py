"""The Jaccard coefficient of shingle sets as one of the compared systems (Bogdanova et al. 2015, section 5.2)."""

from collections.abc import Iterable

import numpy as np
import pyarrow as pa

from dupq.near_duplicates.shingles import shingle_sets
from dupq.near_duplicates.verification import jaccard
from dupq.text.keys import are_among, distinct

SIZES = (1, 2, 3, 4)  # words of a shingle


class ShingleJaccard:
    """A Scorer by the coefficient of the sets of shingles of `size` words."""

    def __init__(self, texts: Iterable[tuple[np.ndarray, pa.StringArray]], size: int) -> None:
        """`texts` are parts of an archive, keys (int64) and texts; they are read again for each call."""
        self._texts = texts
        self._size = size

    def score(self, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        """See Scorer: the coefficient."""
        wanted = distinct(np.concatenate([left, right]))
        keys, strings = [np.zeros(0, np.int64)], [pa.array([], pa.string())]
        for of_part, texts in self._texts:
            kept = are_among(wanted, of_part)
            keys.append(of_part[kept])
            strings.append(texts.filter(pa.array(kept)))
        all_keys = np.concatenate(keys)
        order = np.argsort(all_keys)
        rows = (order[np.searchsorted(all_keys, side, sorter=order)] for side in (left, right))
        return jaccard(shingle_sets(pa.concat_arrays(strings), self._size), *rows)
