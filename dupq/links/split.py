"""Known duplicates: the sets they form, and their split into train, development and test.

Whole sets go to one part, never single links, so that no question of the test part is seen in training.
"""

from dataclasses import dataclass

import numpy as np
import xxhash

from dupq.clusters.components import components
from dupq.encoders.description import PARTS
from dupq.settings.training import TrainingSettings
from dupq.text.keys import are_among, distinct

FEWEST_SETS = 3  # of known duplicates, for one of each part
DEVELOPMENT_SHARE, TEST_SHARE = 0.2, 0.2  # of the sets; as in training, so in every later run on its encoder


@dataclass(frozen=True)
class Split:
    """The questions with known duplicates (sorted keys), the smallest key of each one's set, and its part."""

    questions: np.ndarray  # int64
    sets: np.ndarray  # int64
    parts: np.ndarray  # str

    def questions_of(self, *parts: str) -> np.ndarray:
        """The keys of one part or of several, sorted."""
        return self.questions[np.isin(self.parts, parts)]

    def set_of(self, keys: np.ndarray) -> np.ndarray:
        """The set of each key (int64); -1 for a question without known duplicates."""
        if not len(self.questions):
            return np.full(len(keys), -1)
        indices = np.minimum(np.searchsorted(self.questions, keys), len(self.questions) - 1)
        return np.where(self.questions[indices] == keys, self.sets[indices], -1)

    def links_of(self, part: str, links: np.ndarray) -> np.ndarray:
        """The rows of `links` (int64, shape (m, 2)) whose questions are in one part."""
        return links[are_among(self.questions_of(part), links[:, 0])]


def split_links(links: np.ndarray, settings: TrainingSettings) -> Split:
    """Split duplicate links (int64, shape (m, 2)) by the sets of questions that they connect.

    The order is that of a hash of each set's smallest key: the same links give the same split, whatever their
    order. With fewer than three sets all are development: too few to learn from, but a run can calibrate on them.
    """
    questions, sets = components(links)
    found = distinct(sets)
    if len(found) < FEWEST_SETS:
        return Split(questions, sets, np.full(len(questions), "development"))
    hashes = [xxhash.xxh3_64_intdigest(int(key).to_bytes(8, "little"), seed=settings.seed) for key in found]
    shuffled = found[np.argsort(np.array(hashes, np.uint64), kind="stable")]
    test = _count(TEST_SHARE, len(found))
    development = _count(DEVELOPMENT_SHARE, len(found))
    part_of = np.array(PARTS)[np.repeat([2, 1, 0], [test, development, len(found) - test - development])]
    order = np.argsort(shuffled)
    parts = part_of[order][np.searchsorted(shuffled[order], sets)]
    return Split(questions, sets, parts)


def _count(share: float, total: int) -> int:
    return max(1, round(share * total))
