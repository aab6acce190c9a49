"""Samples that are tuned and measured on, the same for the same data."""

from collections.abc import Mapping

import numpy as np

from dupq.text.keys import sample_by_hash


def some_queries(queries: Mapping[int, set[int]], most: int) -> dict[int, set[int]]:
    """At most `most` of the queries, chosen by a hash of their keys: the first ones would be the oldest questions."""
    kept = sample_by_hash(np.array(sorted(queries), np.int64), most)
    return {key: queries[key] for key in kept.tolist()}


def evenly(rows: np.ndarray, most: int) -> np.ndarray:
    """At most `most` of the rows, evenly spread from the first to the last."""
    return rows if len(rows) <= most else rows[np.linspace(0, len(rows) - 1, most).astype(np.int64)]
