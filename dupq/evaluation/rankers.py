"""The systems that are compared: an encoder, BM25, and the Jaccard coefficient of shingle sets. A question never ranks
itself.
"""

import itertools
from collections.abc import Iterable

import numpy as np
import pyarrow as pa
from scipy import sparse

from dupq.near_duplicates.shingles import jaccard, shingle_sets
from dupq.neighbours.embeddings import Embeddings, Measure, blocks, gathered
from dupq.neighbours.exact import pair_scores
from dupq.neighbours.tiles import top_k
from dupq.text.keys import are_among, distinct
from dupq.text.languages import is_stop_word, stems
from dupq.text.token_arrays import distinct_words

K1, B = 1.5, 0.75
_QUERIES_AT_ONCE, _PAIRS_AT_ONCE = 16, 20_000


class BM25:
    """A Ranker by BM25 (Robertson and Zaragoza 2009, equation 3.15, with Lucene's weights of terms).

    Memory: 8 bytes per distinct term of a question, four times.
    """

    def __init__(self, texts: Iterable[tuple[np.ndarray, pa.StringArray]], language: str) -> None:
        """Index an archive, given in parts of keys (int64, (n,)) and texts (tokens joined by single spaces)."""
        numbers: dict[str, int] = {}
        keys, parts = [np.zeros(0, np.int64)], [sparse.csr_array((0, 0), dtype=np.float32)]
        for of_part, strings in texts:
            keys.append(of_part)
            parts.append(_counts(strings, numbers, language))
        for part in parts:
            part.resize(part.shape[0], len(numbers))
        all_keys = np.concatenate(keys)
        order = np.argsort(all_keys)
        self._keys, self._counts = all_keys[order], sparse.vstack(parts, format="csr")[order]
        holding = np.bincount(self._counts.indices, minlength=len(numbers))
        rarities = np.log1p((len(all_keys) - holding + 0.5) / (holding + 0.5)).astype(np.float32)
        lengths = self._counts.sum(axis=1, dtype=np.float64)
        mean = float(lengths.sum()) / max(len(all_keys), 1) or 1.0
        dampened = (K1 * (1 - B + B / mean * lengths)).astype(np.float32)
        # what each term of a question adds to the score of a query that has it once
        self._weights = self._counts.copy()
        self._weights.data /= self._counts.data + np.repeat(dampened, np.diff(self._counts.indptr))
        self._weights.data *= rarities[self._counts.indices]

    def rank(self, queries: np.ndarray, k: int) -> list[list[int]]:
        """See Ranker; a question that scores 0 is not ranked."""
        rows, by_term = np.searchsorted(self._keys, queries), self._weights.T.tocsr()
        found = []
        for start in range(0, len(rows), _QUERIES_AT_ONCE):
            some = rows[start : start + _QUERIES_AT_ONCE]
            scores = self._counts[some] @ by_term
            for row, ends in zip(some, itertools.pairwise(scores.indptr), strict=True):
                others, values = scores.indices[slice(*ends)], scores.data[slice(*ends)]
                is_kept = (others != row) & (values > 0)
                others, values = others[is_kept], values[is_kept]
                if len(values) > k:
                    is_kept = values >= np.partition(values, -k)[-k]
                    others, values = others[is_kept], values[is_kept]
                found.append(self._keys[others[np.lexsort((others, -values))[:k]]].tolist())
        return found

    def score(self, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        """See Ranker: the left question's score for the right one as a share of that for itself; 0 if it has no term.

        So one threshold does for long and short questions.
        """
        found = [np.zeros(0)]
        for start in range(0, len(left), _PAIRS_AT_ONCE):
            some = slice(start, start + _PAIRS_AT_ONCE)
            rows, others = (np.searchsorted(self._keys, side[some]) for side in (left, right))
            counts = self._counts[rows]
            scores, itself = (
                counts.multiply(self._weights[side]).sum(axis=1, dtype=np.float64) for side in (others, rows)
            )
            found.append(np.divide(scores, itself, out=np.zeros(len(rows)), where=itself > 0))
        return np.concatenate(found)


def _counts(texts: pa.StringArray, numbers: dict[str, int], language: str) -> sparse.csr_array:
    """Count the stems of each text (float32, (n, stems)); stems that are new go into `numbers`."""
    places, begins, distinct = distinct_words(texts)
    stem = stems(language)
    words = distinct.to_pylist()
    of_words = [-1 if is_stop_word(word, language) else numbers.setdefault(stem(word), len(numbers)) for word in words]
    tokens = np.array(of_words, np.int32)[places]
    ends = np.concatenate([[0], np.cumsum(tokens >= 0)])[begins]
    kept = tokens[tokens >= 0]
    counts = sparse.csr_array((np.ones(len(kept), np.float32), kept, ends), (len(texts), len(numbers)))
    counts.sum_duplicates()
    return counts


SIZES = (1, 2, 3, 4)  # words of a shingle


class ShingleJaccard:
    """A Scorer by the coefficient of the sets of shingles of `size` words."""

    def __init__(self, texts: Iterable[tuple[np.ndarray, pa.StringArray]], size: int) -> None:
        """`texts` are parts of an archive, keys (int64) and texts; they are read again for each call."""
        self._texts = texts
        self._size = size

    def score(self, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        """See Scorer: the coefficient."""
        wanted = distinct(np.concatenate([left, right]))
        keys, strings = [np.zeros(0, np.int64)], [pa.array([], pa.string())]
        for of_part, texts in self._texts:
            kept = are_among(wanted, of_part)
            keys.append(of_part[kept])
            strings.append(texts.filter(pa.array(kept)))
        all_keys = np.concatenate(keys)
        order = np.argsort(all_keys)
        rows = (order[np.searchsorted(all_keys, side, sorter=order)] for side in (left, right))
        return jaccard(shingle_sets(pa.concat_arrays(strings), self._size), *rows)


_TARGET_ROWS = 65_536


class EncoderRanker:
    """The encoder's embeddings of the whole archive, scored by its measure."""

    def __init__(self, parts: Iterable[Embeddings], measure: Measure) -> None:
        """`parts` hold the embedding of every question; they are read again for each call, one part at a time."""
        self._parts = parts
        self._measure = measure

    def rank(self, queries: np.ndarray, k: int) -> list[list[int]]:
        """See Ranker; fewer than k for an empty text."""
        own = self._of(queries)
        found: dict[int, list[int]] = {int(query): [] for query in queries}
        neighbours = top_k(own, (some for part in self._parts for some in blocks(part, _TARGET_ROWS)), k, self._measure)
        for query, neighbour in zip(neighbours.queries.tolist(), neighbours.neighbours.tolist(), strict=True):
            found[query].append(neighbour)
        return [found[int(query)] for query in queries]

    def score(self, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        """See Ranker; 0 for an empty text."""
        sides = [self._of(keys) for keys in (left, right)]
        scores = pair_scores(self._measure, *sides)
        return np.where(sides[0].is_empty | sides[1].is_empty, 0.0, scores)

    def _of(self, keys: np.ndarray) -> Embeddings:
        wanted = distinct(keys)
        found = gathered([part.take(are_among(wanted, part.keys)) for part in self._parts])
        return found.take(np.searchsorted(found.keys, keys))
