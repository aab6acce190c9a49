"""SimBow's soft cosine (Charlet and Damnati, SemEval 2017, task 3): a cosine that knows which words are related.

    cos_M(x, y) = x' M y / (sqrt(x' M x) sqrt(y' M y)),   m_ij = max(0, cos(v_i, v_j))^2,   m_ii = 1

x and y are TF-IDF bags of words. The submitted system is a logistic regression of several of these; here is the one
over word vectors, without supervision.

M is not stored: a query needs the columns of its own words only. gensim's SparseTermSimilarityMatrix, of which this is
the `inner_product` normalised on both sides, keeps a limited number of entries a column, or becomes as large as the
vocabulary squared. A word without a vector is related to itself alone, as there.
"""

import numpy as np
from scipy import sparse

from dupq.settings.sections import TextSettings
from dupq_papers.systems.collection import Collection
from dupq_papers.systems.cosine import rounded, unit_rows
from dupq_papers.systems.sparse_search import first
from dupq_papers.systems.vectors import AS_STORED, WordVectors, bags, tf_idf


class SimBow:
    """See above. A query costs V times its words times d, and a product with the bags of the archive."""

    def __init__(
        self,
        collection: Collection,
        vectors: WordVectors,
        *,
        exponent: float = 2.0,
        reading: TextSettings = AS_STORED,
    ) -> None:
        """Document frequencies are those of the collection; `exponent` is the paper's 2."""
        self._keys = collection.keys
        self._exponent = exponent
        words, counts = bags(collection.texts, reading)
        self._bags = tf_idf(counts)
        self._units = _units(words, vectors)
        self._norms = np.array([self._product(row, row) for row in range(len(self._keys))]) ** 0.5

    def rank(self, queries: np.ndarray, k: int) -> list[list[int]]:
        """See Ranker."""
        return [self._best(row, k) for row in np.searchsorted(self._keys, queries).tolist()]

    def score(self, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        """See Ranker; 0 for a question without a word that tells it from others."""
        rows, others = (np.searchsorted(self._keys, keys) for keys in (left, right))
        pairs = zip(rows.tolist(), others.tolist(), strict=True)
        products = np.array([self._product(row, other) for row, other in pairs])
        return _share(products, self._norms[rows] * self._norms[others])

    def _best(self, row: int, k: int) -> list[int]:
        words, weights = _entries(self._bags, row)
        everything = np.arange(self._bags.shape[1])
        related = self._relation(everything, words) @ weights
        scores = _share(self._bags @ related, self._norms[row] * self._norms)
        scores[row] = 0.0
        found = scores > 0
        return first(self._keys[found], scores[found], k)[0].tolist()

    def _product(self, row: int, other: int) -> float:
        """x' M y of two questions."""
        (words, weights), (other_words, other_weights) = _entries(self._bags, row), _entries(self._bags, other)
        return float(weights @ self._relation(words, other_words) @ other_weights)

    def _relation(self, words: np.ndarray, others: np.ndarray) -> np.ndarray:
        """The rows `words` and columns `others` of M (both ascending)."""
        cosines = np.minimum(self._units[words] @ self._units[others].T, 1.0)
        related: np.ndarray = np.maximum(cosines, 0.0) ** self._exponent
        _, places, other_places = np.intersect1d(words, others, assume_unique=True, return_indices=True)
        related[places, other_places] = 1.0
        return related


def _units(words: tuple[str, ...], vectors: WordVectors) -> np.ndarray:
    """The vectors of `words`, of length 1, zero for those that have none (float64, (V, d))."""
    rows = {word: row for row, word in enumerate(vectors.words)}
    found = np.zeros((len(words), vectors.table.shape[1]))
    for place, word in enumerate(words):
        if word in rows:
            found[place] = vectors.table[rows[word]]
    return unit_rows(found)


def _entries(matrix: sparse.csr_array, row: int) -> tuple[np.ndarray, np.ndarray]:
    """The columns and values of a row."""
    inside = slice(matrix.indptr[row], matrix.indptr[row + 1])
    return matrix.indices[inside], matrix.data[inside]


def _share(products: np.ndarray, norms: np.ndarray) -> np.ndarray:
    return rounded(np.divide(products, norms, out=np.zeros(len(products)), where=norms > 0))
