"""IBM's model 1: the probabilities of word translations, learned from parallel texts (Brown et al. 1993, section 4.1).

    expected  E(w, t) = sum over the pairs (s, r) of n_r(w) n_s(t) T(w|t) / sum over the words u of s of n_s(u) T(w|u)
    maximised T(w|t)  = E(w, t) / sum over w of E(w, t)

s is the source and r the target; n_x(t) is how often x has t. Each source has one empty word beside its own, which
explains words of the target that have no counterpart. T starts uniform, and each iteration of the two steps raises the
likelihood of the targets, which has no local maxima beside the global ones.
"""

from typing import NamedTuple

import numpy as np
from scipy import sparse

from dupq.kernel_cache import numba


class _Layout(NamedTuple):
    """What both steps go over: for each source word t the pairs, the targets of these, and row t of the table.

    The pairs whose source has t, and how often, are from `pair_starts[t]` on; the words of a pair's target from
    `target_starts[pair]` on; and those of row t from `starts[t]` on, which is spread out by word.
    """

    pair_starts: np.ndarray
    pairs: np.ndarray
    counts: np.ndarray
    target_starts: np.ndarray
    targets: np.ndarray
    starts: np.ndarray
    words: np.ndarray


def translation_probabilities(
    sources: sparse.csr_array, targets: sparse.csr_array, iterations: int
) -> sparse.csr_array:
    """T(w|t) in row t and column w, float64, (t + 1, t); the last row is the empty word's.

    `sources` and `targets` are the counts of the same t terms in m parallel texts (shape (m, t)). A row sums to 1, or
    is empty where no source has its word. `iterations` are at least 1; each takes time in the sum of |s| |r|.
    """
    empty_word = sparse.csr_array(np.ones((sources.shape[0], 1)))
    by_word = _without_zeros(sparse.hstack([sources, empty_word], format="csr").T.tocsr())
    targets = _without_zeros(targets)
    together = by_word @ targets  # has an entry where a source has t and its target w
    at = _Layout(*_parts(by_word), *_parts(targets)[:2], *_parts(together)[:2])
    table = np.ones(together.nnz)  # uniform; the scale cancels in the first step
    for _ in range(iterations):
        explained = np.zeros(targets.nnz)
        _explain(at, table, explained)
        _expect(at, targets.data / explained, table)
        table = _normalised(table, together.indptr)
    return sparse.csr_array((table, together.indices, together.indptr), shape=together.shape)


def _without_zeros(rows: sparse.csr_array) -> sparse.csr_array:
    rows = sparse.csr_array(rows, dtype=np.float64, copy=True)
    rows.eliminate_zeros()
    return rows


def _parts(rows: sparse.csr_array) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    return rows.indptr, rows.indices, rows.data


def _normalised(values: np.ndarray, starts: np.ndarray) -> np.ndarray:
    """The values of each row, which are between two `starts`, as shares of their sum."""
    sizes = np.diff(starts)
    sums = np.bincount(np.repeat(np.arange(len(sizes)), sizes), weights=values, minlength=len(sizes))
    return values / np.repeat(sums, sizes)


@numba.njit(nogil=True, cache=True)
def _explain(at: _Layout, table: np.ndarray, explained: np.ndarray) -> None:
    """Add to `explained` the sum over the words u of s of n_s(u) T(w|u), for each w of each target."""
    row = np.zeros(at.words.max() + 1 if len(at.words) else 0)
    for given in range(len(at.starts) - 1):
        for place in range(at.starts[given], at.starts[given + 1]):
            row[at.words[place]] = table[place]
        for pair in range(at.pair_starts[given], at.pair_starts[given + 1]):
            for target in range(at.target_starts[at.pairs[pair]], at.target_starts[at.pairs[pair] + 1]):
                explained[target] += at.counts[pair] * row[at.targets[target]]


@numba.njit(nogil=True, cache=True)
def _expect(at: _Layout, shares: np.ndarray, table: np.ndarray) -> None:
    """Replace T by E in `table`; `shares` are n_r(w) over what `_explain` gives, for each w of each target."""
    row = np.zeros(at.words.max() + 1 if len(at.words) else 0)
    for given in range(len(at.starts) - 1):
        for pair in range(at.pair_starts[given], at.pair_starts[given + 1]):
            for target in range(at.target_starts[at.pairs[pair]], at.target_starts[at.pairs[pair] + 1]):
                row[at.targets[target]] += at.counts[pair] * shares[target]
        for place in range(at.starts[given], at.starts[given + 1]):
            table[place] *= row[at.words[place]]
            row[at.words[place]] = 0.0
