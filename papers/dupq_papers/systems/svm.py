"""The SVM baseline of Bogdanova et al. 2015, section 5.2: n-grams of both questions, an RBF kernel, LibSVM.

For each n-gram of up to four words that occurs five times or more in the questions of the training pairs, a pair has
three features: whether the first question has it, whether the second has it, and its occurrences in both, divided by
the number of n-grams of both. "+ shingles" adds the Jaccard coefficients of shingles of one to four words.

As in the paper C and gamma are chosen by a grid search for the accuracy on the validation (here: development) pairs.
The default grid is that of LibSVM's grid.py, on which are all values of the paper's table 2. The threshold of five was
chosen by cross-validation there and is given here. The paper does not say how counts are normalised, whether
frequencies are of the whole site, or whether features are scaled (they are not here).

Nor does it say what the order of a pair means. Duplicates have none, but the order may tell the labels, where positives
are sorted by age and negatives are not. So each training pair is learned from in both orders. Then the dual variables
of the two are equal, as the problem is convex and has that symmetry, and the decision is that of the pairs in one order
under the kernel k(x, z) + k(x, z'), z' being z with its questions swapped, and the same C. So it costs no more than one
order, and a score does not depend on it. `both_orders=False` learns and scores pairs in the order given.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from scipy import sparse
from sklearn.svm import SVC

from dupq.evaluation.rankers import SIZES, ShingleJaccard
from dupq.training.pairs import Pairs
from dupq_papers.systems.collection import Collection, Examples
from dupq_papers.systems.ngrams import frequent_ngrams, pair_features

COSTS = tuple(2.0**power for power in range(-5, 16, 2))
GAMMAS = tuple(2.0**power for power in range(-15, 4, 2))
_ROWS = 512  # of a kernel at once
_CACHE_MB = 400  # of LibSVM

Distances = list[np.ndarray]  # squared, of pairs to the training pairs, and to those with their questions swapped


class Chosen(NamedTuple):
    """A point of the grid, and the accuracy on the development pairs there."""

    cost: float
    gamma: float
    accuracy: float


class Svm:
    """A classifier of pairs: `score` only, with 0 as its own threshold.

    It learns from 4,000 pairs, as many as in the paper's table 2, of questions of 140 words in a minute on one core and
    1.3 GB, the whole grid included; both grow with the square of their number.
    """

    threshold = 0.0

    def __init__(
        self,
        collection: Collection,
        examples: Examples,
        *,
        shingles: bool,
        least: int = 5,
        both_orders: bool = True,
        costs: Sequence[float] = COSTS,
        gammas: Sequence[float] = GAMMAS,
    ) -> None:
        """`least` is the frequency threshold. The training pairs, and the development pairs, have both labels.

        Of equally accurate points of the grid the one with the least C, then the least gamma, is chosen.
        """
        self._collection = collection
        self._shingles = shingles
        training = examples.training
        questions = np.unique(np.concatenate([training.left, training.right]))
        self._ngrams = frequent_ngrams(collection.texts, collection.rows(questions), least)
        one = self._features(training.left, training.right)
        self._known = [one, self._features(training.right, training.left)] if both_orders else [one]
        self.chosen, self._machine = _search(
            (self._distances(training), training.labels > 0),
            (self._distances(examples.development), examples.development.labels > 0),
            [(cost, gamma) for gamma in gammas for cost in costs],
        )

    def score(self, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        """The decision function (float64, (m,)) of pairs of keys: above 0 for duplicates."""
        scores = [np.zeros(0)]
        for start in range(0, len(left), _ROWS):
            some = Pairs(left[start : start + _ROWS], right[start : start + _ROWS], np.zeros(0))
            scores.append(self._machine.decision_function(_kernel(self._distances(some), self.chosen.gamma)))
        return np.concatenate(scores)

    def _features(self, left: np.ndarray, right: np.ndarray) -> sparse.csr_array:
        rows, others = self._collection.rows(left), self._collection.rows(right)
        features = pair_features(self._ngrams, rows, others)
        if not self._shingles:
            return features
        texts = [pa.table({"key": self._collection.keys, "text": self._collection.texts})]
        shared = [ShingleJaccard(texts, size).score(left, right) for size in SIZES]
        return sparse.hstack([features, sparse.csr_array(np.stack(shared, axis=1))], format="csr")

    def _distances(self, pairs: Pairs) -> Distances:
        features = self._features(pairs.left, pairs.right)
        return [squared_distances(features, known) for known in self._known]


def squared_distances(rows: sparse.csr_array, others: sparse.csr_array) -> np.ndarray:
    """|x - z|^2 of all rows x of one matrix and z of another (float64, (m, n))."""
    norms, other_norms = (matrix.multiply(matrix).sum(axis=1) for matrix in (rows, others))
    transposed = others.T.tocsr()
    found = np.empty((rows.shape[0], others.shape[0]))
    for start in range(0, len(found), _ROWS):
        some = slice(start, start + _ROWS)
        found[some] = norms[some, None] + other_norms - 2 * (rows[some] @ transposed).toarray()
    return np.maximum(found, 0.0, out=found)


def _kernel(distances: Distances, gamma: float) -> np.ndarray:
    kernel = np.exp(-gamma * distances[0])
    for swapped in distances[1:]:
        kernel += np.exp(-gamma * swapped)
    return kernel


def _search(
    training: tuple[Distances, np.ndarray],
    development: tuple[Distances, np.ndarray],
    grid: Sequence[tuple[float, float]],
) -> tuple[Chosen, SVC]:
    """The best point (cost, gamma) of the grid, and the machine there. Distances come with which are duplicates."""
    best: tuple[Chosen, SVC] | None = None
    kernel_of, kernels = None, (np.zeros(0), np.zeros(0))
    for cost, gamma in grid:
        if gamma != kernel_of:
            kernel_of, kernels = gamma, (_kernel(training[0], gamma), _kernel(development[0], gamma))
        machine = SVC(C=cost, kernel="precomputed", cache_size=_CACHE_MB).fit(kernels[0], training[1])
        decided = machine.decision_function(kernels[1]) > 0
        found = Chosen(cost, gamma, float(np.mean(decided == development[1])))
        if best is None or (-found.accuracy, cost, gamma) < (-best[0].accuracy, *best[0][:2]):
            best = found, machine
    assert best is not None
    return best
