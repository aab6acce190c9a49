"""The features of pairs that the SVM of Bogdanova et al. 2015 reads (section 5.2)."""

from typing import NamedTuple

import numpy as np
import pyarrow as pa
from scipy import sparse

from dupq.text.token_arrays import distinct_words

LONGEST = 4  # words of an n-gram


class NGrams(NamedTuple):
    """How often each of n questions has each of V n-grams, and how many n-grams it has in all, also rare ones."""

    names: tuple[str, ...]  # words joined by spaces; the shorter first
    counts: sparse.csr_array  # float64, (n, V)
    totals: np.ndarray  # int64, (n,)


def frequent_ngrams(texts: pa.StringArray, training: np.ndarray, least: int) -> NGrams:
    """The n-grams that occur `least` times or more in the texts of `training` (rows of `texts`, without repeats)."""
    numbers, begins, distinct = distinct_words(texts)
    words = np.array(distinct.to_pylist(), object)
    rows = np.repeat(np.arange(len(texts)), np.diff(begins))  # the text of each place
    is_training = np.isin(rows, training)
    names: list[str] = []
    counts = [sparse.csr_array((len(texts), 0))]
    totals = np.zeros(len(texts), np.int64)
    grams, places = numbers.astype(np.int64), np.arange(len(numbers))  # the n-grams that begin at `places`
    for size in range(1, LONGEST + 1):
        if size > 1:
            fits = places + size - 1 < begins[1:][rows[places]]
            places = places[fits]
            grams = grams[fits] * len(words) + numbers[places + size - 1]
        _, first, grams = np.unique(grams, return_index=True, return_inverse=True)
        totals += np.bincount(rows[places], minlength=len(texts))
        frequent = np.flatnonzero(np.bincount(grams[is_training[places]], minlength=len(first)) >= least)
        names += [" ".join(words[numbers[place : place + size]]) for place in places[first[frequent]].tolist()]
        columns = np.full(len(first), -1)
        columns[frequent] = np.arange(len(frequent))
        kept = columns[grams] >= 0
        entries = (np.ones(int(kept.sum())), (rows[places[kept]], columns[grams[kept]]))
        counts.append(sparse.csr_array(entries, shape=(len(texts), len(frequent))))
    return NGrams(tuple(names), sparse.csr_array(sparse.hstack(counts, format="csr")), totals)


def pair_features(ngrams: NGrams, left: np.ndarray, right: np.ndarray) -> sparse.csr_array:
    """The features (float64, (m, 3 V)) of pairs of questions (rows): in the first, in the second, share in both.

    The share of an n-gram is its occurrences in both questions, divided by the n-grams of both.
    """
    own, others = ngrams.counts[left], ngrams.counts[right]
    totals = np.maximum(ngrams.totals[left] + ngrams.totals[right], 1)
    shares = sparse.diags_array(1.0 / totals) @ (own + others)
    return sparse.csr_array(sparse.hstack([own > 0, others > 0, shares], format="csr", dtype=np.float64))
