"""The encoder as one of the compared systems; a question never ranks itself."""

from collections.abc import Iterable

import numpy as np

from dupq.neighbours.embeddings import Embeddings, blocks, gathered
from dupq.neighbours.exact import pair_scores
from dupq.neighbours.measure import Measure
from dupq.neighbours.search import top_k
from dupq.text.keys import are_among, distinct

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
