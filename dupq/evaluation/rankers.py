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

    Memory: 8 bytes per distinct term of a question, and a part of the archive three times.
    """

    def __init__(self, texts: Iterable[tuple[np.ndarray, pa.StringArray]], language: str) -> None:
        """Index an archive, given in parts of keys (int64, (n,)) and texts (tokens joined by single spaces)."""
        numbers: dict[str, int] = {}
        keys, self._parts = [np.zeros(0, np.int64)], []
        for of_part, strings in texts:
            keys.append(of_part)
            self._parts.append(_counts(strings, numbers, language))
        self._keys, self._begins = np.concatenate(keys), np.cumsum([0, *map(len, keys[1:])])
        self._order = np.argsort(self._keys)
        holding, length = np.zeros(len(numbers), np.int64), 0.0
        for counts in self._parts:
            counts.resize(counts.shape[0], len(numbers))
            holding += np.bincount(counts.indices, minlength=len(numbers))
            length += float(counts.data.sum())
        self._rarities = np.log1p((len(self._keys) - holding + 0.5) / (holding + 0.5)).astype(np.float32)
        self._length = length / max(len(self._keys), 1) or 1.0

    def rank(self, queries: np.ndarray, k: int) -> list[list[int]]:
        """See Ranker; a question that scores 0 is not ranked."""
        rows = self._rows(queries)
        best = [[(np.zeros(0, np.int64), np.zeros(0, np.float32))] for _ in rows]
        asked = self._counts_of(rows)
        for begin, counts in zip(self._begins, self._parts, strict=False):
            by_term = self._weighted(counts).T.tocsr()
            for start in range(0, len(rows), _QUERIES_AT_ONCE):
                scores = asked[start : start + _QUERIES_AT_ONCE] @ by_term
                for query, ends in enumerate(itertools.pairwise(scores.indptr), start):
                    others, values = scores.indices[slice(*ends)] + begin, scores.data[slice(*ends)]
                    best[query].append(_highest(others, values, rows[query], k))
        found = []
        for pieces in best:
            others, values = (np.concatenate(column) for column in zip(*pieces, strict=True))
            found.append(self._keys[others][np.lexsort((self._keys[others], -values))][:k].tolist())
        return found

    def score(self, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        """See Ranker: the left question's score for the right one as a share of that for itself; 0 if it has no term.

        So one threshold does for long and short questions.
        """
        rows, others = self._rows(left), self._rows(right)
        steps = range(0, len(rows), _PAIRS_AT_ONCE)
        shares = [self._shares(*(side[step : step + _PAIRS_AT_ONCE] for side in (rows, others))) for step in steps]
        return np.concatenate([np.zeros(0), *shares])

    def _shares(self, rows: np.ndarray, others: np.ndarray) -> np.ndarray:
        counts = self._counts_of(rows)
        weights = (self._weighted(self._counts_of(side)) for side in (others, rows))
        scores, itself = (counts.multiply(side).sum(axis=1, dtype=np.float64) for side in weights)
        return np.divide(scores, itself, out=np.zeros(len(rows)), where=itself > 0)

    def _rows(self, keys: np.ndarray) -> np.ndarray:
        found: np.ndarray = self._order[np.searchsorted(self._keys, keys, sorter=self._order)]
        return found

    def _counts_of(self, rows: np.ndarray) -> sparse.csr_array:
        """Return how often each term is in some questions, in their order."""
        homes = np.searchsorted(self._begins, rows, side="right") - 1
        order = np.argsort(homes, kind="stable")
        parts = [self._parts[home][rows[homes == home] - self._begins[home]] for home in np.unique(homes)]
        return sparse.vstack(parts, format="csr")[np.argsort(order)]

    def _weighted(self, counts: sparse.csr_array) -> sparse.csr_array:
        """Return what each term of a question adds to the score of a query that has it once."""
        dampened = (K1 * (1 - B + B / self._length * counts.sum(axis=1))).astype(np.float32)
        data = counts.data / (counts.data + np.repeat(dampened, np.diff(counts.indptr)))
        return sparse.csr_array((data * self._rarities[counts.indices], counts.indices, counts.indptr), counts.shape)


def _highest(others: np.ndarray, values: np.ndarray, row: int, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the k highest values above 0, and all that tie with the last, but for that of `row`."""
    is_kept = (others != row) & (values > 0)
    others, values = others[is_kept], values[is_kept]
    if len(values) > k:
        is_kept = values >= np.partition(values, -k)[-k]
        others, values = others[is_kept], values[is_kept]
    return others, values


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
