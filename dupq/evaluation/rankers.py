"""The systems that are compared: each ranks an archive for a question, and scores pairs.

An archive is its keys (int64, sorted) and texts (tokens joined by spaces). A question is never ranked for itself.
"""

import bm25s
import numpy as np
import pyarrow as pa
import Stemmer

from dupq.near_duplicates.shingles import shingle_sets
from dupq.near_duplicates.verification import incidence_matrix, jaccard
from dupq.neighbours.embeddings import Embeddings, blocks
from dupq.neighbours.exact import pair_scores
from dupq.neighbours.measure import Measure
from dupq.neighbours.search import top_k

_QUERIES_AT_ONCE = 256
_TARGET_ROWS = 65_536


class EncoderRanker:
    """The encoder's embeddings of the whole archive, scored by its measure."""

    def __init__(self, embeddings: Embeddings, measure: Measure) -> None:
        """`embeddings` of every question, sorted by key."""
        self._embeddings = embeddings
        self._measure = measure

    def rank(self, queries: np.ndarray, k: int) -> list[list[int]]:
        """See Ranker; fewer than k for an empty text."""
        asked = self._of(queries)
        found: dict[int, list[int]] = {int(query): [] for query in queries}
        neighbours = top_k(asked, blocks(self._embeddings, _TARGET_ROWS), k, self._measure)
        for query, neighbour in zip(neighbours.queries.tolist(), neighbours.neighbours.tolist(), strict=True):
            found[query].append(neighbour)
        return [found[int(query)] for query in queries]

    def score(self, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        """See Ranker; 0 for an empty text."""
        sides = [self._of(keys) for keys in (left, right)]
        scores = pair_scores(self._measure, *sides)
        return np.where(sides[0].is_empty | sides[1].is_empty, 0.0, scores)

    def _of(self, keys: np.ndarray) -> Embeddings:
        return self._embeddings.take(np.searchsorted(self._embeddings.keys, keys))


class BM25Ranker:
    """BM25 (bm25s; Porter stems, English stop words): the index in memory, 4 kB a question of cs."""

    def __init__(self, keys: np.ndarray, texts: list[str]) -> None:
        """Index an archive."""
        self._keys = keys
        self._tokens = bm25s.tokenize(
            texts, stopwords="en", stemmer=Stemmer.Stemmer("english"), return_ids=False, show_progress=False
        )
        self._index = bm25s.BM25()
        self._index.index(self._tokens, show_progress=False)

    def rank(self, queries: np.ndarray, k: int) -> list[list[int]]:
        """See Ranker; ties in the order of the keys."""
        ranked = []
        for query in queries:
            scores = self._scores(int(query))
            scores[np.searchsorted(self._keys, query)] = -np.inf
            best = np.argsort(-scores, kind="stable")[:k]
            ranked.append(self._keys[best[np.isfinite(scores[best])]].tolist())
        return ranked

    def score(self, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        """See Ranker: the left question's score for the right one, as a share of its score for itself."""
        result = np.zeros(len(left))
        for pair, (query, target) in enumerate(zip(left, right, strict=True)):
            scores = self._scores(int(query))
            itself = scores[np.searchsorted(self._keys, query)]
            result[pair] = scores[np.searchsorted(self._keys, target)] / itself if itself > 0 else 0.0
        return result

    def _scores(self, query: int) -> np.ndarray:
        tokens = self._tokens[int(np.searchsorted(self._keys, query))]
        if not tokens:
            return np.zeros(len(self._keys))
        return np.array(self._index.get_scores(tokens), np.float64)


class ShingleRanker:
    """The Jaccard coefficient of shingle sets (Bogdanova et al. 2015, section 5.2); the archive in memory."""

    def __init__(self, keys: np.ndarray, texts: pa.StringArray, size: int) -> None:
        """`size` is the shingle's number of words."""
        self._keys = keys
        self._sets = shingle_sets(texts, size)

    def rank(self, queries: np.ndarray, k: int) -> list[list[int]]:
        """See Ranker; ties in the order of the keys."""
        incidence = incidence_matrix(self._sets)
        sizes = np.diff(self._sets.offsets)
        ranked = []
        for start in range(0, len(queries), _QUERIES_AT_ONCE):
            rows = np.searchsorted(self._keys, queries[start : start + _QUERIES_AT_ONCE])
            shared = (incidence[rows] @ incidence.T).toarray()
            union = sizes[rows][:, None] + sizes[None, :] - shared
            coefficients = np.divide(shared, union, out=np.zeros_like(shared), where=union > 0)
            coefficients[np.arange(len(rows)), rows] = -1.0
            best = np.argsort(-coefficients, axis=1, kind="stable")[:, : min(k, len(self._keys) - 1)]
            ranked += self._keys[best].tolist()
        return ranked

    def score(self, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        """See Ranker: the coefficient."""
        return jaccard(self._sets, np.searchsorted(self._keys, left), np.searchsorted(self._keys, right))
