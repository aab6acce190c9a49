"""Embeddings and neighbours as arrays. Apart from the search, so that it needs no torch."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np


class Embeddings(NamedTuple):
    """Questions (keys, int64) and their embeddings (float16, shape (n, d))."""

    keys: np.ndarray
    vectors: np.ndarray


class Neighbours(NamedTuple):
    """Directed pairs: the neighbour at `rank` (1 = nearest) of each query, sorted by query and rank."""

    queries: np.ndarray  # int64
    neighbours: np.ndarray  # int64
    similarities: np.ndarray  # float32, cosine
    ranks: np.ndarray  # int32


def blocks(embeddings: Embeddings, rows: int) -> Iterator[Embeddings]:
    """`embeddings` cut into pieces of at most `rows` questions; one empty piece if there are none."""
    for start in range(0, max(1, len(embeddings.keys)), rows):
        yield Embeddings(embeddings.keys[start : start + rows], embeddings.vectors[start : start + rows])
