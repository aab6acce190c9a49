"""Texts of many lengths to batches of few shapes.

Every batch has the same number of rows, and a length that depends on the row's own length only. So a text
meets the same matrix shapes, and gets the same bits, whichever texts it shares a batch with: that is why a
run's answer does not depend on its shards.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from dupq.text.vocabulary import PADDING


class Batch(NamedTuple):
    """Token ids (int64, shape (rows, length)), their lengths, and which texts the first rows are."""

    ids: np.ndarray
    lengths: np.ndarray
    texts: np.ndarray


def padded_length(length: int) -> int:
    """The length that a text of `length` tokens is padded to: steps of about a third, at least 8."""
    step = max(8, 1 << max(0, length.bit_length() - 3))
    return max(8, -(-length // step) * step)


def batches(sequences: list[np.ndarray], rows: int) -> Iterator[Batch]:
    """All `sequences` (ids, int32), grouped by padded length; the last batch of a length has empty rows."""
    lengths = np.array([len(sequence) for sequence in sequences], np.int64)
    padded = np.array([padded_length(length) for length in lengths.tolist()], np.int64)
    for length in np.unique(padded):
        members = np.flatnonzero(padded == length)
        for start in range(0, len(members), rows):
            texts = members[start : start + rows]
            ids = np.full((rows, length), PADDING, np.int64)
            for row, text in enumerate(texts):
                ids[row, : lengths[text]] = sequences[text]
            row_lengths = np.zeros(rows, np.int64)
            row_lengths[: len(texts)] = lengths[texts]
            yield Batch(ids, row_lengths, texts)
