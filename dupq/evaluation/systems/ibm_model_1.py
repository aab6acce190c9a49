"""IBM's model 1: the probabilities of word translations, learned from parallel texts (Brown et al. 1993, section 4.1).

    expected  E(w, t) = sum over the pairs (s, r) of n_r(w) n_s(t) T(w|t) / sum over the words u of s of n_s(u) T(w|u)
    maximised T(w|t)  = E(w, t) / sum over w of E(w, t)

s is the source and r the target; n_x(t) is how often x has t. Each source has one empty word beside its own, which
explains words of the target that have no counterpart. T starts uniform, and each iteration of the two steps raises the
likelihood of the targets, which has no local maxima beside the global ones.
"""

import numpy as np
from scipy import sparse

from dupq.kernel_cache import numba


def translation_probabilities(
    sources: sparse.csr_array, targets: sparse.csr_array, iterations: int
) -> sparse.csr_array:
    """T(w|t) in row t and column w, float64, (t + 1, t); the last row is the empty word's.

    `sources` and `targets` are the counts of the same t terms in m parallel texts (shape (m, t)). A row sums to 1, or
    is empty where no source has its word. `iterations` are at least 1; each takes time in the sum of |s| |r|.
    """
    one = sparse.csr_array(np.ones((sources.shape[0], 1)))
    sides = [_ordered(sparse.hstack([sources, one], format="csr")), _ordered(targets)]
    together = _ordered(sides[0].T @ sides[1])
    table = np.ones(together.nnz)  # uniform; the scale cancels in the first step
    for _ in range(iterations):
        expected = np.zeros(together.nnz)
        _expect(*_parts(sides[0]), *_parts(sides[1]), together.indptr, together.indices, table, expected)
        table = _normalised(expected, together.indptr)
    return sparse.csr_array((table, together.indices, together.indptr), shape=together.shape)


def _ordered(rows: sparse.csr_array) -> sparse.csr_array:
    """Without stored zeros, the columns of each row ascending."""
    rows = sparse.csr_array(rows, dtype=np.float64, copy=True)
    rows.eliminate_zeros()
    rows.sort_indices()
    return rows


def _parts(rows: sparse.csr_array) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    return rows.indptr, rows.indices, rows.data


def _normalised(values: np.ndarray, starts: np.ndarray) -> np.ndarray:
    """The values of each row, which are between two `starts`, as shares of their sum."""
    sizes = np.diff(starts)
    sums = np.bincount(np.repeat(np.arange(len(sizes)), sizes), weights=values, minlength=len(sizes))
    return values / np.repeat(sums, sizes)


@numba.njit(nogil=True, cache=True)
def _expect(
    source_starts: np.ndarray,
    source_words: np.ndarray,
    source_counts: np.ndarray,
    target_starts: np.ndarray,
    target_words: np.ndarray,
    target_counts: np.ndarray,
    starts: np.ndarray,
    words: np.ndarray,
    table: np.ndarray,
    expected: np.ndarray,
) -> None:
    """Add E(w, t) of all pairs to `expected`, whose places are those of `table`: row t is from `starts[t]` on.

    `words` are the columns of `table`, ascending in a row, among which those of a pair are sought.
    """
    for pair in range(len(source_starts) - 1):
        source = slice(source_starts[pair], source_starts[pair + 1])
        target = slice(target_starts[pair], target_starts[pair + 1])
        wanted, counts = target_words[target], target_counts[target]
        given, weights = source_words[source], source_counts[source]
        totals = np.zeros(len(wanted))
        places = np.empty((len(given), len(wanted)), np.int64)
        for i in range(len(given)):
            first, end = starts[given[i]], starts[given[i] + 1]
            for j in range(len(wanted)):
                first += np.searchsorted(words[first:end], wanted[j])
                places[i, j] = first
                totals[j] += weights[i] * table[first]
        for i in range(len(given)):
            for j in range(len(wanted)):
                place = places[i, j]
                expected[place] += counts[j] * weights[i] * table[place] / totals[j]
