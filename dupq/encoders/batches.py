"""Batching texts of many lengths into few shapes.

Every batch has the same number of rows, and a text is padded to a length that depends on its own length only. So it
is in matrices of the same shape, and gets the same bits, whichever texts it shares a batch with: that is why a run's
answer does not depend on its shards. On a GPU bits depend on the other texts in any case, so batches may be
larger there.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from dupq.text.token_ids import TokenIds
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


def batches(texts: TokenIds, rows: int, ids: int = 0) -> Iterator[Batch]:
    """All `texts`, grouped by padded length; the last batch of a length has empty rows.

    With `ids` a batch has at most so many, unless a single text has more, and no empty rows.
    """
    lengths = texts.lengths
    steps = np.array([padded_length(length) for length in range(int(lengths.max(initial=0)) + 1)], np.int64)
    found = steps[lengths]
    for length in np.unique(found).tolist():
        members = np.flatnonzero(found == length)
        most = min(rows, max(1, ids // length)) if ids else rows
        for start in range(0, len(members), most):
            some = members[start : start + most]
            count = len(some) if ids else rows
            row_lengths = np.zeros(count, np.int64)
            row_lengths[: len(some)] = lengths[some]
            yield Batch(padded(texts, some, count, length), row_lengths, some)


def padded(texts: TokenIds, some: np.ndarray, rows: int, length: int) -> np.ndarray:
    """The ids (int64, shape (rows, length)) of some texts, padded at the end."""
    ids = np.full((rows, length), PADDING, np.int64)
    is_token = np.arange(length) < texts.lengths[some][:, None]
    places = (texts.offsets[some][:, None] + np.arange(length))[is_token]
    ids[: len(some)][is_token] = texts.ids[places]
    return ids
