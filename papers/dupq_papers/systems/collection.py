"""What the systems of the papers are given: questions in memory, and the known pairs that they may learn from."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from dupq.training.pairs import Pairs


@dataclass(frozen=True)
class Collection:
    """The questions that systems are compared on. Row i of each column is the question with key i.

    Texts, titles and bodies are tokens joined by single spaces, and "" where there are none. Every system reads
    `texts`; titles and bodies are for those that learn from the two apart.
    """

    keys: np.ndarray  # int64, ascending, (n,)
    texts: pa.StringArray
    titles: pa.StringArray
    bodies: pa.StringArray
    tags: tuple[tuple[str, ...], ...]  # of each question; () where it has none
    language: str  # of stop words and stems, as in `dupq.settings.sections`

    def rows(self, keys: np.ndarray) -> np.ndarray:
        """The row of each of `keys`, all of which are there (int64)."""
        return np.searchsorted(self.keys, keys)


@dataclass(frozen=True)
class Examples:
    """The known pairs that a system may learn from and be tuned on; none of them are in the test part."""

    training: Pairs
    development: Pairs
    development_queries: Mapping[int, set[int]]  # a question and its known duplicates (keys)
