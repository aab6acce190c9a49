"""A hash of each question's embedding, by which a later run knows which embeddings have changed."""

import numpy as np
from scipy import sparse

from dupq.kernel_cache import numba as nb
from dupq.neighbours.embeddings import Embeddings

_ODD = np.uint64(0x9E3779B97F4A7C15)
EMPTY = 0  # of a question with a zero vector and no words


def fingerprints(embeddings: Embeddings) -> np.ndarray:
    """64 bits (int64, (n,)) a question, of its vector and its bag of words: of 24 million, one pair collides with
    probability 2e-5, and then only matters if it is one question's embedding of yesterday and of today.
    """
    bags = embeddings.words
    if bags is None:
        bags = sparse.csr_array((len(embeddings.keys), 0), dtype=np.float32)
    elif not bags.has_sorted_indices:
        bags = bags.sorted_indices()
    vectors = np.ascontiguousarray(embeddings.vectors, np.float16).view(np.uint16)
    weights = bags.data.astype(np.float32).view(np.uint32)
    values = _hashes(vectors, bags.indptr.astype(np.int64), bags.indices.astype(np.int32), weights).view(np.int64)
    return np.where(embeddings.is_empty, EMPTY, np.where(values == EMPTY, 1, values))


@nb.njit(nogil=True, cache=True)
def _hashes(vectors: np.ndarray, starts: np.ndarray, words: np.ndarray, weights: np.ndarray) -> np.ndarray:
    result = np.zeros(len(vectors), np.uint64)
    for row in range(len(vectors)):
        value = np.uint64(0)
        for bits in vectors[row]:
            value = _mixed(value, np.uint64(bits))
        for place in range(starts[row], starts[row + 1]):
            value = _mixed(value, np.uint64(words[place]) << np.uint64(32) | np.uint64(weights[place]))
        result[row] = value
    return result


@nb.njit(inline="always")
def _mixed(value: np.uint64, bits: np.uint64) -> np.uint64:
    value = (value ^ bits) * _ODD
    return value ^ (value >> np.uint64(29))
