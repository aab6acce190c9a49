"""The systems that are compared: an encoder, BM25, and the Jaccard coefficient of shingle sets. A question never ranks
itself.
"""

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
_PAIRS_AT_ONCE = 20_000


class BM25:
    """A Ranker by BM25. Memory: some 4 kB a question of 100 words."""

    def __init__(self, texts: Iterable[tuple[np.ndarray, pa.StringArray]], language: str) -> None:
        """Index an archive, given in parts of keys (int64, (n,)) and texts (tokens joined by single spaces)."""
        import bm25s  # some 200 ms, of which a night need not wait

        numbers = {"": 0}  # bm25s wants one term at least
        documents: list[np.ndarray] = []  # the numbers of the stems of each text (int32), with repeats
        keys = [np.zeros(0, np.int64)]
        for of_part, strings in texts:
            keys.append(of_part)
            documents += _documents(strings, numbers, language)
        self._keys, self._documents = np.concatenate(keys), documents
        self._order = np.argsort(self._keys)
        self._index = bm25s.BM25(k1=K1, b=B, method="lucene")
        self._index.scores = self._index.build_index_from_ids(range(len(numbers)), documents, show_progress=False)
        csc = tuple(self._index.scores[name] for name in ("data", "indices", "indptr"))
        self._weights = sparse.csc_array(csc, shape=(len(documents), len(numbers))).tocsr()

    def rank(self, queries: np.ndarray, k: int) -> list[list[int]]:
        """See Ranker; a question that scores 0 is not ranked."""
        found = []
        for row in self._rows(queries):
            scores = self._index.get_scores_from_ids(self._documents[row])
            scores[row] = 0
            if len(scores) > k:
                scores[scores < np.partition(scores, -k)[-k]] = 0
            best = np.flatnonzero(scores)
            found.append(self._keys[best][np.lexsort((self._keys[best], -scores[best]))][:k].tolist())
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
        terms = [self._documents[row] for row in rows]
        ends = np.cumsum([0, *map(len, terms)])
        counts = sparse.csr_array((np.ones(ends[-1]), np.concatenate(terms), ends), (len(rows), self._weights.shape[1]))
        counts.sum_duplicates()
        scores, itself = (counts.multiply(self._weights[side]).sum(axis=1) for side in (others, rows))
        return np.divide(scores, itself, out=np.zeros(len(rows)), where=itself > 0)

    def _rows(self, keys: np.ndarray) -> np.ndarray:
        found: np.ndarray = self._order[np.searchsorted(self._keys, keys, sorter=self._order)]
        return found


def _documents(texts: pa.StringArray, numbers: dict[str, int], language: str) -> list[np.ndarray]:
    """Number the stems of each text; stems that are new go into `numbers`."""
    places, begins, distinct = distinct_words(texts)
    stem = stems(language)
    words = distinct.to_pylist()
    of_words = [-1 if is_stop_word(word, language) else numbers.setdefault(stem(word), len(numbers)) for word in words]
    tokens = np.array(of_words, np.int32)[places]
    ends = np.concatenate([[0], np.cumsum(tokens >= 0)])[begins]
    return np.split(tokens[tokens >= 0], ends[1:-1]) if len(texts) else []


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
