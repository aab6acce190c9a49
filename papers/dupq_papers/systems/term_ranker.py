"""Ranking by weights of terms: what BM25, TFIDF, the language models and their like have in common."""

from collections.abc import Callable

import numpy as np
from scipy import sparse

from dupq_papers.systems.sparse_search import as_lists, best
from dupq_papers.systems.term_counts import Occurrences, TermCounts

Weighting = Callable[[Occurrences], np.ndarray]  # what each occurrence adds to a score, at least 0 (float64, (m,))


class TermRanker:
    """A Ranker whose score(q, d) is the sum over the terms t of q of n_q(t) weight(t, d), of which d's are weighed.

    A term that a query repeats counts as often, as in Lucene, which makes of it one clause with a boost.
    """

    def __init__(self, counts: TermCounts, weighting: Weighting) -> None:
        """`weighting` is called once."""
        self._counts = counts
        weights, entries = weighting(counts.occurrences()), counts.counts
        self._weights = sparse.csr_array((weights, entries.indices, entries.indptr), shape=entries.shape)
        self._itself = np.asarray(entries.multiply(self._weights).sum(axis=1))

    def rank(self, queries: np.ndarray, k: int) -> list[list[int]]:
        """See Ranker; a question that scores 0 is not ranked."""
        wanted = self._counts.counts[self._counts.rows(queries)]
        keys, _ = best((queries, wanted), (self._counts.keys, self._weights), k)
        return as_lists(keys)

    def score(self, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        """See Ranker: score(q, d) / score(q, q), the mean of both directions; 0 where a question scores 0 for itself.

        So the scores of pairs of long questions and of short ones can be compared with one threshold, and it does not
        matter which question is the left one.
        """
        rows = self._counts.rows(left), self._counts.rows(right)
        return (self._shares(*rows) + self._shares(*rows[::-1])) / 2

    def _shares(self, queries: np.ndarray, others: np.ndarray) -> np.ndarray:
        """The scores of `others` for `queries` (rows) as shares of the queries' scores for themselves."""
        wanted = self._counts.counts[queries]
        scores = np.asarray(wanted.multiply(self._weights[others]).sum(axis=1))
        itself = self._itself[queries]
        return np.divide(scores, itself, out=np.zeros(len(queries)), where=itself > 0)
