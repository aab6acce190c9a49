"""The translation-based language model (Xue, Jeon and Croft 2008, section 3), TLM in Othman et al. (2021, table 2).

    P(q|d)    = product over the words w of q of (|d| P_mx(w|d) + mu P_ml(w|C)) / (|d| + mu)
    P_mx(w|d) = (1 - beta) P_ml(w|d) + beta sum over the words t of d of T(w|t) P_ml(t|d)

P_ml(w|x) is the share of w in the words of x, and C the collection: query likelihood with Dirichlet smoothing, where d
also has the words that its own are translated to. The score is (P(q|d) / P_ml(q|C))^(1/|q|), which is in the same
order for a query. T is that of IBM's model 1, learned as Xue et al. do from pairs in both directions, pooled. Theirs
are questions and answers; ours are known duplicates, and titles with their bodies. They add the likelihood of the
answer to that of the question; here questions have no answers.
"""

import itertools
from typing import NamedTuple

import numpy as np
from scipy import sparse

from dupq.training.pairs import Pairs
from dupq_papers.systems.bags import bags_of
from dupq_papers.systems.collection import Collection
from dupq_papers.systems.ibm_model_1 import translation_probabilities
from dupq_papers.systems.sparse_search import as_lists, best
from dupq_papers.systems.term_counts import TermCounts

GRID = tuple(  # the default first
    {"beta": beta, "mu": mu} for beta, mu in itertools.product((0.5, 0.2, 0.8), (20.0, 5.0, 10.0, 50.0, 100.0, 500.0))
)


class Parallel(NamedTuple):
    """The counts of t terms in m pairs of texts that say the same (float64, (m, t))."""

    sources: sparse.csr_array
    targets: sparse.csr_array


def parallel_texts(collection: Collection, counts: TermCounts, known: Pairs) -> Parallel:
    """The known duplicates of `known`, and every title with its body, in both directions; none with an empty side."""
    titles, bodies = (
        bags_of(texts, collection.language).over(counts.terms) for texts in (collection.titles, collection.bodies)
    )
    is_duplicate = known.labels > 0.5
    left, right = (counts.counts[counts.rows(keys[is_duplicate])] for keys in (known.left, known.right))
    sides = [sparse.vstack(side, format="csr") for side in ((left, titles), (right, bodies))]
    is_whole = np.logical_and(*(np.diff(side.indptr) > 0 for side in sides))
    rows = [side[is_whole] for side in sides]
    return Parallel(sparse.vstack(rows, format="csr"), sparse.vstack(rows[::-1], format="csr"))


def translations(parallel: Parallel, *, iterations: int = 5, least: float = 0.003) -> sparse.csr_array:
    """T(w|t) in row t and column w (float64, (t, t)), but for those below `least`, which are left out.

    What is left out is not shared among the rest. The empty word is left out, too: no question has it.
    """
    table = translation_probabilities(*parallel, iterations)[:-1]
    table.data[table.data < least] = 0.0
    table.eliminate_zeros()
    return table


def translated(counts: TermCounts, table: sparse.csr_array) -> sparse.csr_array:
    """How often the words of each question give each term: sum over t of n_d(t) T(w|t) (float64, (n, t)).

    One serves all parameters of the model. `table` is from `translations`; with its default a question has about a
    thousand terms then.
    """
    product = counts.counts @ table
    product.sort_indices()
    return product


class TLM:
    """A Ranker by the translation-based language model."""

    def __init__(
        self, counts: TermCounts, translated: sparse.csr_array, *, beta: float = 0.5, mu: float = 20.0
    ) -> None:
        """`translated` is from the function of that name; `beta` and `mu` > 0 are the formula's."""
        self._counts = counts
        mixed = sparse.csr_array((1 - beta) * counts.counts + beta * translated)  # |d| P_mx(w|d)
        in_collection = counts.totals / counts.totals.sum()
        weights = np.log1p(mixed.data / (mu * in_collection[mixed.indices]))
        self._weights = sparse.csr_array((weights, mixed.indices, mixed.indptr), shape=mixed.shape)
        self._norms = np.log(mu / (counts.lengths + mu))

    def rank(self, queries: np.ndarray, k: int) -> list[list[int]]:
        """See Ranker; a question without any word that the query has, or translations of one, is not ranked."""
        wanted = self._counts.counts[self._counts.rows(queries)]
        lengths = np.asarray(wanted.sum(axis=1))

        def likelihoods(products: np.ndarray, row: int) -> np.ndarray:
            return self._likelihoods(products, lengths[row], self._norms)

        keys, _ = best((queries, wanted), (self._counts.keys, self._weights), k, likelihoods)
        return as_lists(keys)

    def score(self, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        """See Ranker: the geometric mean of both directions' scores; 0 where the two have nothing in common.

        It is no share of a question's score for itself, as it is a mean of the words already; on two real sites it also
        told duplicates from random pairs better than that.
        """
        rows = self._counts.rows(left), self._counts.rows(right)
        return np.sqrt(self._scores(*rows) * self._scores(*rows[::-1]))

    def _scores(self, queries: np.ndarray, others: np.ndarray) -> np.ndarray:
        """The scores of `others` for `queries` (rows)."""
        products = np.asarray(self._counts.counts[queries].multiply(self._weights[others]).sum(axis=1))
        return self._likelihoods(products, self._counts.lengths[queries], self._norms[others])

    @staticmethod
    def _likelihoods(products: np.ndarray, lengths: np.ndarray, norms: np.ndarray) -> np.ndarray:
        """The score of sums of weights for queries of these lengths; 0 where nothing was shared."""
        return np.where(products > 0, np.exp(products / np.maximum(1, lengths) + norms), 0.0)
