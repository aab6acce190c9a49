"""BM25 as in Lucene (Kamphuis et al. 2020, table 1), over stems without stop words, for one part of an archive.

    score(q, d) = sum over the terms t of q of n_q(t) idf(t) n_d(t) / (k1 (1 - b + b |d| / mean) + n_d(t))
    idf(t)      = ln(1 + (N - N_t + 1/2) / (N_t + 1/2))

n_x(t): how often x has t; |d|: the terms of d, with repeats; mean: of all texts; N: texts, N_t of them have t. What is
needed of the whole archive is `Statistics`, so each part of it is ranked alone and a score is the same in any part.
"""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import xxhash
from scipy import sparse

from dupq.evaluation.sparse_search import best, columns_of, matrix
from dupq.text.stop_words import is_stop_word
from dupq.text.word_forms import stems
from dupq.text.words import distinct_words

K1, B = 1.5, 0.75


class Bags(NamedTuple):
    """How often each of n texts has each of t terms; terms are the 64-bit hashes of stems."""

    terms: np.ndarray  # uint64, ascending, (t,)
    counts: sparse.csr_array  # int32, (n, t)

    @property
    def lengths(self) -> np.ndarray:
        """The terms of each text, with repeats (int64, (n,))."""
        return np.asarray(self.counts.sum(axis=1, dtype=np.int64))

    def over(self, terms: np.ndarray) -> sparse.csr_array:
        """The counts of `terms` (uint64, ascending) alone: float64, (n, len(terms))."""
        columns = columns_of(self.terms, terms)[self.counts.indices]
        return matrix(columns, self.counts.data, self.counts.indptr, len(terms))


class Counted(NamedTuple):
    """What one part of an archive adds to the statistics."""

    questions: int
    tokens: int
    terms: np.ndarray  # uint64, ascending
    frequencies: np.ndarray  # int64: how many of its questions have each term


class Statistics(NamedTuple):
    """What BM25 needs to know of an archive, for the terms that are looked up."""

    questions: int
    tokens: int
    terms: np.ndarray  # uint64, ascending, (t,)
    frequencies: np.ndarray  # int64, (t,)

    @property
    def rarities(self) -> np.ndarray:
        """The inverse document frequencies (float64, (t,))."""
        return np.log1p((self.questions - self.frequencies + 0.5) / (self.frequencies + 0.5))


def bags_of(texts: pa.StringArray, language: str) -> Bags:
    """The bags of tokenised texts (tokens joined by single spaces)."""
    numbers, begins, distinct = distinct_words(texts)
    words, stem = distinct.to_pylist(), stems(language)
    hashes = np.array([xxhash.xxh3_64_intdigest(stem(word).encode()) for word in words], np.uint64)
    is_kept = np.array([not is_stop_word(word, language) for word in words], bool)
    terms = np.unique(hashes[is_kept])
    tokens = np.where(is_kept, columns_of(hashes, terms), -1)[numbers]
    rows = np.repeat(np.arange(len(texts)), np.diff(begins))
    inside = tokens >= 0
    ones = np.ones(int(inside.sum()), np.int32)
    counts = sparse.csr_array((ones, (rows[inside], tokens[inside])), shape=(len(texts), len(terms)))
    counts.sum_duplicates()
    return Bags(terms, counts)


def counted(bags: Bags) -> Counted:
    """What these texts add to the statistics."""
    frequencies = np.bincount(bags.counts.indices, minlength=len(bags.terms))
    return Counted(bags.counts.shape[0], int(bags.lengths.sum()), bags.terms, frequencies)


def statistics(parts: Iterable[Counted], terms: np.ndarray) -> Statistics:
    """The statistics of an archive from those of its parts, for `terms` (uint64, ascending)."""
    questions = tokens = 0
    frequencies = np.zeros(len(terms), np.int64)
    for part in parts:
        questions, tokens = questions + part.questions, tokens + part.tokens
        columns = columns_of(part.terms, terms)
        frequencies[columns[columns >= 0]] += part.frequencies[columns >= 0]
    return Statistics(questions, tokens, terms, frequencies)


def rank(
    queries: tuple[np.ndarray, Bags], texts: tuple[np.ndarray, Bags], archive: Statistics, k: int
) -> tuple[np.ndarray, np.ndarray]:
    """The k best of `texts` for each of `queries` (keys and bags), as `best` gives them.

    The terms of the queries are among those of `archive`.
    """
    query_keys, query_bags = queries
    keys, bags = texts
    return best((query_keys, query_bags.over(archive.terms)), (keys, _weights(bags, archive)), k)


def pair_scores(bags: Bags, left: np.ndarray, right: np.ndarray, archive: Statistics) -> np.ndarray:
    """The left text's score for the right one as a share of its score for itself; 0 for an empty text (float64, (m,)).

    `left` and `right` are rows of `bags`.
    """
    query_bags, weights = bags.over(archive.terms), _weights(bags, archive)
    itself = np.asarray(query_bags.multiply(weights).sum(axis=1))[left]
    scores = np.asarray(query_bags[left].multiply(weights[right]).sum(axis=1))
    return np.divide(scores, itself, out=np.zeros(len(left)), where=itself > 0)


def _weights(bags: Bags, archive: Statistics) -> sparse.csr_array:
    """What each term of each text adds to the score of a query that has it once."""
    counts = bags.over(archive.terms)
    mean = max(1, archive.tokens) / max(1, archive.questions)
    saturation = K1 * (1 - B + B * bags.lengths / mean)
    rows = np.repeat(np.arange(counts.shape[0]), np.diff(counts.indptr))
    weights = archive.rarities[counts.indices] * counts.data / (saturation[rows] + counts.data)
    return sparse.csr_array((weights, counts.indices, counts.indptr), shape=counts.shape)
