"""How often each question of a collection has each term: what the term-based systems weigh."""

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from scipy import sparse

from dupq_papers.systems.bags import bags_of
from dupq_papers.systems.collection import Collection


class Occurrences(NamedTuple):
    """The m pairs of a question and a term that it has, and the collection (arrays are float64, (m,)).

    A question without terms counts as a question here, and lengths are exact. Lucene leaves it out, and rounds lengths
    from 40 on so that they fit a byte.
    """

    counts: np.ndarray  # n_d(t): how often the question has the term, at least 1
    lengths: np.ndarray  # |d|: the question's terms, with repeats
    questions_with: np.ndarray  # N_t: the questions that have the term
    totals: np.ndarray  # F_t: how often the collection has it
    questions: int  # N
    tokens: int  # the sum of all |d|

    @property
    def mean_length(self) -> float:
        """The mean length of a question, in terms."""
        return self.tokens / self.questions


@dataclass(frozen=True)
class TermCounts:
    """The counts of t terms in n questions; terms are stems, without stop words, of the collection's language."""

    keys: np.ndarray  # int64, ascending, (n,)
    terms: np.ndarray  # uint64 hashes of the stems, ascending, (t,)
    counts: sparse.csr_array  # float64, (n, t), rows sorted by term

    @cached_property
    def lengths(self) -> np.ndarray:
        """The terms of each question, with repeats (float64, (n,))."""
        return np.asarray(self.counts.sum(axis=1))

    @cached_property
    def totals(self) -> np.ndarray:
        """How often the collection has each term (float64, (t,))."""
        return np.asarray(self.counts.sum(axis=0))

    def rows(self, keys: np.ndarray) -> np.ndarray:
        """The row of each of `keys`, all of which are there (int64)."""
        return np.searchsorted(self.keys, keys)

    def occurrences(self) -> Occurrences:
        """Every entry of `counts` with what is known of its question and its term, in the order of `counts.data`."""
        rows = np.repeat(np.arange(self.counts.shape[0]), np.diff(self.counts.indptr))
        columns = self.counts.indices
        questions_with = np.bincount(columns, minlength=len(self.terms)).astype(np.float64)
        return Occurrences(
            self.counts.data,
            self.lengths[rows],
            questions_with[columns],
            self.totals[columns],
            len(self.keys),
            int(self.lengths.sum()),
        )


def term_counts(collection: Collection) -> TermCounts:
    """The counts of a collection's texts. One serves all systems over it, and all their parameters."""
    bags = bags_of(collection.texts, collection.language)
    return TermCounts(collection.keys, bags.terms, bags.over(bags.terms))
