"""Finding exact copies: questions whose title and body are the same but for white space, by a 128-bit hash.

Two different ones of 24 million share a hash by chance with a probability of 1e-24. A star joins the copies: each
is paired with the one of the smallest key, and only that one gets a signature.
"""

from typing import NamedTuple

import numpy as np

from dupq.near_duplicates.pairing import shared


class Hashed(NamedTuple):
    """Questions: both halves of their hash (uint64) and their key (int64)."""

    high: np.ndarray
    low: np.ndarray
    keys: np.ndarray


def copies(texts: Hashed) -> tuple[np.ndarray, np.ndarray]:
    """The rows of the copies, and for each the row of the text with the smallest key (both int64).

    The answer does not depend on the order of the rows.
    """
    kept = np.flatnonzero(shared(texts.high))
    high, low, keys = (column[kept] for column in texts)
    order = np.lexsort((keys, low, high))
    high, low = high[order], low[order]
    first = np.ones(len(order), bool)
    first[1:] = (high[1:] != high[:-1]) | (low[1:] != low[:-1])
    starts = np.maximum.accumulate(np.where(first, np.arange(len(order)), 0))
    return kept[order[~first]], kept[order[starts[~first]]]
