"""The systems that evaluation compares: an encoder, BM25, and the Jaccard coefficient of shingle sets. A question never
ranks itself.
"""

import itertools
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from scipy import sparse

from dupq.near_duplicates.shingles import jaccard, shingle_sets
from dupq.neighbours.embeddings import Embeddings, Measure, blocks, gathered
from dupq.neighbours.exact import pair_scores
from dupq.neighbours.tiles import top_k
from dupq.text.keys import RowsByKey, are_among, distinct
from dupq.text.languages import is_stop_word, stems
from dupq.text.questions import rarities
from dupq.text.token_arrays import distinct_words

K1, B = 1.5, 0.75
_QUERIES_AT_ONCE, _PAIRS_AT_ONCE = 16, 20_000
SIZES = (1, 2, 3, 4)  # words of a shingle
_TARGET_ROWS = 65_536


class BM25:
    """A Ranker by BM25 (Robertson and Zaragoza 2009, equation 3.15, with Lucene's weights of terms).

    Memory: 32 bytes per distinct term of each question.
    """

    def __init__(self, texts: Iterable[pa.Table], language: str) -> None:
        """Index an archive in batches with the columns `key` and `text` of TEXTS."""
        numbers: dict[str, int] = {}
        keys, counts = [np.zeros(0, np.int64)], [sparse.csr_array((0, 0), dtype=np.float32)]
        for batch in texts:
            keys.append(batch["key"].to_numpy())
            counts.append(_counts(batch["text"].combine_chunks(), numbers, language))
        for matrix in counts:
            matrix.resize(matrix.shape[0], len(numbers))
        all_keys = np.concatenate(keys)
        order = np.argsort(all_keys)
        self._keys, self._counts = all_keys[order], sparse.vstack(counts, format="csr")[order]
        documents = np.bincount(self._counts.indices, minlength=len(numbers))
        lengths = self._counts.sum(axis=1, dtype=np.float64)
        mean = float(lengths.sum()) / max(len(all_keys), 1) or 1.0
        dampened = (K1 * (1 - B + B / mean * lengths)).astype(np.float32)
        # what each term of a question adds to the score of a query that has the term once
        self._weights = self._counts.copy()
        self._weights.data /= self._counts.data + np.repeat(dampened, np.diff(self._counts.indptr))
        self._weights.data *= rarities(documents, len(all_keys))[self._counts.indices]

    def rank(self, queries: np.ndarray, k: int) -> list[list[int]]:
        """Rank as Ranker says. A question that scores 0 is left out."""
        rows, by_term = np.searchsorted(self._keys, queries), self._weights.T.tocsr()
        rankings = []
        for start in range(0, len(rows), _QUERIES_AT_ONCE):
            batch = rows[start : start + _QUERIES_AT_ONCE]
            scores = self._counts[batch] @ by_term
            for row, ends in zip(batch, itertools.pairwise(scores.indptr), strict=True):
                others, values = scores.indices[slice(*ends)], scores.data[slice(*ends)]
                is_kept = (others != row) & (values > 0)
                others, values = others[is_kept], values[is_kept]
                if len(values) > k:
                    is_kept = values >= np.partition(values, -k)[-k]
                    others, values = others[is_kept], values[is_kept]
                rankings.append(self._keys[others[np.lexsort((others, -values))[:k]]].tolist())
        return rankings

    def score(self, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        """Score as Scorer says: the left question's score for the right one as a share of its score for itself.

        So one threshold fits long and short questions. A question without terms scores 0.
        """
        shares = [np.zeros(0)]
        for start in range(0, len(left), _PAIRS_AT_ONCE):
            batch = slice(start, start + _PAIRS_AT_ONCE)
            rows, others = (np.searchsorted(self._keys, side[batch]) for side in (left, right))
            counts = self._counts[rows]
            scores, own_scores = (
                counts.multiply(self._weights[side]).sum(axis=1, dtype=np.float64) for side in (others, rows)
            )
            shares.append(np.divide(scores, own_scores, out=np.zeros(len(rows)), where=own_scores > 0))
        return np.concatenate(shares)


def _counts(texts: pa.StringArray, numbers: dict[str, int], language: str) -> sparse.csr_array:
    """Count the stems of each text (float32, (n, stems)). Add new stems to `numbers`."""
    word_numbers, begins, words = distinct_words(texts)
    stem = stems(language)
    stem_numbers = [
        -1 if is_stop_word(word, language) else numbers.setdefault(stem(word), len(numbers))
        for word in words.to_pylist()
    ]
    tokens = np.array(stem_numbers, np.int32)[word_numbers]
    ends = np.concatenate([[0], np.cumsum(tokens >= 0)])[begins]
    kept = tokens[tokens >= 0]
    counts = sparse.csr_array((np.ones(len(kept), np.float32), kept, ends), (len(texts), len(numbers)))
    counts.sum_duplicates()
    return counts


@dataclass(frozen=True)
class ShingleJaccard:
    """A Scorer by the Jaccard coefficient of the sets of shingles of `size` words."""

    texts: Iterable[pa.Table]  # as BM25 takes them, at least one; each call reads them again
    size: int

    def score(self, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        """Score as Scorer says."""
        scored = distinct(np.concatenate([left, right]))
        own = (batch.filter(pa.array(are_among(scored, batch["key"].to_numpy()))) for batch in self.texts)
        texts = pa.concat_tables(own)
        index = RowsByKey(texts["key"].to_numpy())
        rows = (index.find(side) for side in (left, right))
        return jaccard(shingle_sets(texts["text"].combine_chunks(), self.size), *rows)


@dataclass(frozen=True)
class EncoderRanker:
    """A Ranker by the encoder's embeddings of the whole archive and its measure."""

    batches: Iterable[Embeddings]  # of every question; each call reads them again, one at a time
    measure: Measure

    def rank(self, queries: np.ndarray, k: int) -> list[list[int]]:
        """Rank as Ranker says. An empty text has no neighbours."""
        targets = (block for batch in self.batches for block in blocks(batch, _TARGET_ROWS))
        neighbours = top_k(self._embeddings(queries), targets, k, self.measure)
        rankings: dict[int, list[int]] = {int(query): [] for query in queries}
        for query, neighbour in zip(neighbours.queries.tolist(), neighbours.neighbours.tolist(), strict=True):
            rankings[query].append(neighbour)
        return [rankings[int(query)] for query in queries]

    def score(self, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        """Score as Scorer says; 0 for an empty text."""
        sides = [self._embeddings(keys) for keys in (left, right)]
        scores = pair_scores(self.measure, sides[0], sides[1])
        return np.where(sides[0].is_empty | sides[1].is_empty, 0.0, scores)

    def _embeddings(self, keys: np.ndarray) -> Embeddings:
        needed = distinct(keys)
        embeddings = gathered([batch.take(are_among(needed, batch.keys)) for batch in self.batches])
        return embeddings.take(np.searchsorted(embeddings.keys, keys))
