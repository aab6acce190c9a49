"""Scores of embeddings by an encoder's measure: exact ones of pairs, and quick ones of whole blocks with a known error.

The search orders by `order` values: the score itself, or for a distance alone -distance, because exp(-distance) has
no float32 number for most of the distances over 88.
"""

import abc

import numpy as np
import torch
from scipy import sparse

from dupq.encoders.measure import Kind, Measure
from dupq.neighbours.embeddings import Embeddings

_PAIRS_AT_ONCE = 65_536
_UNIT_ROUNDOFF = 2.0**-24  # of float32


def pair_scores(measure: Measure, left: Embeddings, right: Embeddings) -> np.ndarray:
    """The scores (float64, shape (m,)) of pairs: row i of `left` with row i of `right`."""
    scorer, rows = scorer_for(measure, left), np.arange(len(left.keys))
    return scorer.similarities(scorer.exact(left, rows, right, rows))


class Scorer(abc.ABC):
    """Scores of some questions, the queries."""

    @abc.abstractmethod
    def quick(self, targets: Embeddings) -> torch.Tensor:
        """Order values (float32, shape (queries, targets)), not quite exact."""

    @abc.abstractmethod
    def bound(self, best: torch.Tensor) -> torch.Tensor:
        """The quick values below which nothing is as good as what has the quick values `best`."""

    @abc.abstractmethod
    def exact_piece(self, left: Embeddings, right: Embeddings) -> np.ndarray:
        """The order values (float64) of a few pairs."""

    def exact(self, left: Embeddings, rows: np.ndarray, right: Embeddings, columns: np.ndarray) -> np.ndarray:
        """The order values (float64, shape (m,)) of pairs, given by their places, in pieces that bound memory.

        Sums of products of float16 numbers are exact, or nearly so, in float64: a cosine of zero is zero, and a
        pair has the same value in both directions.
        """
        result = np.empty(len(rows))
        for start in range(0, len(rows), _PAIRS_AT_ONCE):
            piece = slice(start, start + _PAIRS_AT_ONCE)
            result[piece] = self.exact_piece(left.take(rows[piece]), right.take(columns[piece]))
        return result

    def similarities(self, order: np.ndarray) -> np.ndarray:
        """The scores that have these order values."""
        return order


def scorer_for(measure: Measure, queries: Embeddings) -> Scorer:
    """The scorer of a measure."""
    if measure.kind != "cosine" and (measure.dense, measure.lexical) == (1.0, 0.0):
        return DistanceScorer(measure.kind, queries)
    return MixScorer(measure, queries)


class DistanceScorer(Scorer):
    """exp(-distance) alone, ordered by -distance."""

    def __init__(self, kind: Kind, queries: Embeddings) -> None:
        """`kind` is manhattan or euclidean."""
        self._kind = kind
        self._queries = torch.from_numpy(queries.vectors.astype(np.float32))
        # Higham's gamma_n for the sum, and a few roundings
        self._relative_error = (queries.vectors.shape[1] + 4) * _UNIT_ROUNDOFF

    def quick(self, targets: Embeddings) -> torch.Tensor:
        """See Scorer."""
        return -_quick_distances(self._kind, self._queries, targets)

    def bound(self, best: torch.Tensor) -> torch.Tensor:
        """See Scorer; twice what the errors of two distances come to."""
        return best * (1.0 + 4.0 * self._relative_error)

    def exact_piece(self, left: Embeddings, right: Embeddings) -> np.ndarray:
        """See Scorer."""
        return -_distances(self._kind, left.vectors, right.vectors)

    def similarities(self, order: np.ndarray) -> np.ndarray:
        """See Scorer."""
        return np.exp(order.astype(np.float64))


class MixScorer(Scorer):
    """The cosine, or any weighted sum of a dense and a lexical score, ordered by itself."""

    def __init__(self, measure: Measure, queries: Embeddings) -> None:
        """Without words among `queries` the lexical score is none."""
        self._measure = measure
        vectors = queries.vectors.astype(np.float32) if measure.kind != "cosine" else _units(queries.vectors)
        self._queries = torch.from_numpy(vectors)
        self._bags = Bags(queries.words) if measure.lexical and queries.words is not None else None
        words = self._bags.longest if self._bags is not None else 0
        # Higham's gamma_n for both sums, twice for the rounding of what is summed, and a few roundings
        dense = abs(measure.dense) * 2 * (queries.vectors.shape[1] + 8)
        self._error = (dense + abs(measure.lexical) * 2 * (words + 8)) * _UNIT_ROUNDOFF

    def quick(self, targets: Embeddings) -> torch.Tensor:
        """See Scorer."""
        if self._measure.kind == "cosine":
            scores = self._queries @ torch.from_numpy(_units(targets.vectors)).T
        else:
            scores = torch.exp(-_quick_distances(self._measure.kind, self._queries, targets))
        scores *= self._measure.dense
        if self._bags is not None and targets.words is not None:
            scores += self._measure.lexical * torch.from_numpy(self._bags.cosines(targets.words))
        return scores

    def bound(self, best: torch.Tensor) -> torch.Tensor:
        """See Scorer; twice what the errors of two scores come to."""
        return best - 4.0 * self._error

    def exact_piece(self, left: Embeddings, right: Embeddings) -> np.ndarray:
        """See Scorer."""
        if self._measure.kind == "cosine":
            dense = _cosines(left.vectors, right.vectors)
        else:
            dense = np.exp(-_distances(self._measure.kind, left.vectors, right.vectors))
        if self._bags is None or left.words is None or right.words is None:
            return self._measure.dense * dense
        return self._measure.dense * dense + self._measure.lexical * _bag_cosines(left.words, right.words)


class Bags:
    """The bags of words of some queries, ready to be multiplied with those of targets."""

    def __init__(self, bags: sparse.csr_array) -> None:
        """Only words of a query can be shared, so other columns are left out."""
        self.longest = int(np.diff(bags.indptr).max(initial=0))
        self._words, places = np.unique(bags.indices, return_inverse=True)
        self._queries = self._matrix(bags, places)

    def cosines(self, bags: sparse.csr_array) -> np.ndarray:
        """The cosines (float32, shape (queries, targets)) with each row of `bags`; 0 for an empty bag."""
        if not len(self._words):
            return np.zeros((self._queries.shape[0], bags.shape[0]), np.float32)
        places = np.minimum(np.searchsorted(self._words, bags.indices), len(self._words) - 1)
        shared = self._words[places] == bags.indices
        return (self._queries @ self._matrix(bags, places, shared).T).toarray()

    def _matrix(self, bags: sparse.csr_array, places: np.ndarray, kept: np.ndarray | None = None) -> sparse.csr_array:
        lengths = np.repeat(_lengths(bags), np.diff(bags.indptr))
        values = (bags.data / lengths).astype(np.float32)
        values = values if kept is None else np.where(kept, values, np.float32(0))
        shape = (bags.shape[0], max(1, len(self._words)))
        return sparse.csr_array((values, places, bags.indptr), shape=shape)


def _lengths(bags: sparse.csr_array) -> np.ndarray:
    """The length of each row (float64); 1 for an empty one."""
    rows = np.repeat(np.arange(bags.shape[0]), np.diff(bags.indptr))
    squares = np.bincount(rows, bags.data.astype(np.float64) ** 2, minlength=bags.shape[0])
    return np.sqrt(np.where(squares > 0, squares, 1.0))


def _bag_cosines(left: sparse.csr_array, right: sparse.csr_array) -> np.ndarray:
    columns = max(left.shape[1], right.shape[1])
    sides = [
        sparse.csr_array((side.data.astype(np.float64), side.indices, side.indptr), shape=(side.shape[0], columns))
        for side in (left, right)
    ]
    return (sides[0] * sides[1]).sum(axis=1) / (_lengths(left) * _lengths(right))


def _cosines(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """0 where a row is zero."""
    sides = [side.astype(np.float64) for side in (left, right)]
    squares = [np.einsum("ij,ij->i", side, side) for side in sides]
    lengths = np.sqrt(squares[0] * squares[1])
    return np.einsum("ij,ij->i", *sides) / np.where(lengths > 0, lengths, 1.0)


def _units(vectors: np.ndarray) -> np.ndarray:
    """Rows of length 1 (float32); zero ones stay zero."""
    exact = vectors.astype(np.float64)
    lengths = np.sqrt(np.einsum("ij,ij->i", exact, exact))
    return (exact / np.where(lengths > 0, lengths, 1.0)[:, None]).astype(np.float32)


def _distances(kind: Kind, left: np.ndarray, right: np.ndarray) -> np.ndarray:
    differences = left.astype(np.float64) - right.astype(np.float64)
    if kind == "manhattan":
        return np.abs(differences).sum(axis=1)
    return np.sqrt(np.einsum("ij,ij->i", differences, differences))


def _quick_distances(kind: Kind, queries: torch.Tensor, targets: Embeddings) -> torch.Tensor:
    """By differences: a matrix product would lose small distances of long vectors."""
    vectors = torch.from_numpy(targets.vectors.astype(np.float32))
    if kind == "manhattan":
        return torch.cdist(queries, vectors, p=1.0)
    return torch.cdist(queries, vectors, p=2.0, compute_mode="donot_use_mm_for_euclid_dist")
