"""Texts compared with one another in memory: the nearest of each, and how likely they are duplicates."""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from scipy.special import expit, logit

from dupq.clusters.calibration import Model
from dupq.clusters.evidence import Shared, Words, around, shared, title_cosines
from dupq.clusters.scoring import Scale, arounds, features_in, ranked, scored_table, undirected, unlisted
from dupq.near_duplicates.asking import Asking, Title
from dupq.neighbours.embeddings import Embeddings
from dupq.neighbours.exact import pair_scores
from dupq.neighbours.measure import Measure
from dupq.neighbours.search import all_pairs
from dupq.neighbours.tiles import Search, block
from dupq.tables import COMPARED

# What titles say for certain moves the log-odds by so much, which decides wherever the pair is not far from 0.5, of
# pairs that are not hopeless without it. No bodies can say otherwise.
_CERTAIN, _LEAST = 4.0, 0.02


@dataclass(frozen=True)
class TitlesAlone:
    """What n titles without bodies say."""

    asking: Asking
    titles: list[Title]

    def certain(self, left: int, right: int) -> int:
        """1 where the titles of two rows ask the same, -1 where they do not, 0 where their words leave it open."""
        both = self.titles[left], self.titles[right]
        if self.asking.apart(*both):
            return -1
        return int(all(map(self.asking.said, both)) and self.asking.same(*both))

    def moved(self, left: np.ndarray, right: np.ndarray, probabilities: np.ndarray) -> np.ndarray:
        """The probabilities (float32) of pairs of rows with what is certain.

        So few words leave nothing else that could tell "float to string" from "string to float".
        """
        found = probabilities.copy()
        for pair in np.flatnonzero(probabilities >= np.float32(_LEAST)).tolist():
            certain = self.certain(int(left[pair]), int(right[pair]))
            found[pair] = expit(logit(np.float64(found[pair])) + certain * _CERTAIN)
        return found


class Comparison:
    """Texts compared with one another; their keys are their rows among all."""

    def __init__(
        self,
        embedded: Embeddings,
        words: Words,
        rarity: np.ndarray,
        search: tuple[Measure, int],
        model: Model,
        alone: TitlesAlone | None,
    ) -> None:
        """`embedded` are those that are searched, by a measure for the k nearest.

        `words` has a row for every text, `rarity` one for every term. `alone` is of texts without bodies.
        """
        self._embedded, self._words, self._rarities, self.alone = embedded, words, rarity, alone
        self._measure, k = search
        whole = block(embedded, self._measure)
        nearest = all_pairs([whole], Search(self._measure, k))[0][0]
        directed = ranked(whole.keys, nearest, self._measure)
        queries, others = (directed[name].to_numpy() for name in ("query", "neighbour"))
        cosines = title_cosines(words.titles, queries, others, self._rarities)
        count = len(words.texts.offsets) - 1
        self._around = [np.arange(count), *around(queries, cosines, count)]
        candidates = undirected(directed)
        common = self._common(*(candidates[side].to_numpy() for side in ("left", "right")))
        self._listed = pa.table([*candidates.columns, *map(pa.array, common)], schema=COMPARED)
        best = directed["similarity"].to_numpy()[directed["rank"].to_numpy() == 1]
        self._scale = Scale(model, np.sort(best.astype(np.float64)), k)
        self.table = self._scored(self._listed)  # rows of SCORED

    @property
    def pairs(self) -> np.ndarray:
        """The rows of the texts of each pair (int64, shape (m, 2))."""
        return np.stack([self.table[side].to_numpy() for side in ("left", "right")], axis=1)

    @property
    def probabilities(self) -> np.ndarray:
        """That they are duplicates (float32)."""
        column: np.ndarray = self.table["probability"].to_numpy()
        return column

    @property
    def features(self) -> np.ndarray:
        """What the model reads of them (float64, shape (m, F))."""
        return features_in(self._listed, arounds(self._around, self._listed), self._scale)

    def score(self, pairs: np.ndarray) -> np.ndarray:
        """The probabilities of pairs of which neither lists the other."""
        left, right = (np.searchsorted(self._embedded.keys, pairs[:, side]) for side in (0, 1))
        scores = pair_scores(self._measure, self._embedded.take(left), self._embedded.take(right))
        found = self._scored(unlisted(pairs, scores.astype(np.float32), self._common(*pairs.T)))
        column: np.ndarray = found["probability"].to_numpy()
        return column

    def _common(self, left: np.ndarray, right: np.ndarray) -> Shared:
        return shared(self._words, left, right, self._rarities)

    def _scored(self, compared: pa.Table) -> pa.Table:
        scored = scored_table(compared, arounds(self._around, compared), self._scale)
        if self.alone is None:
            return scored
        left, right, p = (scored[name].to_numpy() for name in ("left", "right", "probability"))
        index = scored.schema.get_field_index("probability")
        return scored.set_column(index, scored.schema.field(index), pa.array(self.alone.moved(left, right, p)))
