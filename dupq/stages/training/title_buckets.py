"""Titles and bodies as an epoch reads them: bucket after bucket, one in memory, in an order drawn anew each epoch."""

import functools
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from dupq.runs.training_layout import TrainingFiles
from dupq.settings.config import Settings
from dupq.stages.training.development import TitlesApart, keys_apart, set_apart
from dupq.stages.training.token_files import buckets_of, read_bucket, read_bucket_keys

if TYPE_CHECKING:
    from dupq.training.title_body import TitlesAndBodies

_ORDER = 3  # the third number of the seed of the order of buckets


class TitleBuckets:
    """The titles and bodies that are trained on: the same for all workers. Memory: a bucket, kept while it is alone."""

    def __init__(self, files: TrainingFiles, settings: Settings, is_measured: bool) -> None:
        """`is_measured`: some are set apart to measure epochs by, if there are enough."""
        self._files, self._count = files, buckets_of(files)
        keys = [read_bucket_keys(files, bucket) for bucket in range(self._count)]
        apart = keys_apart(np.concatenate([np.zeros(0, np.int64), *keys]), settings) if is_measured else None
        self._left_out = np.zeros(0, np.int64) if apart is None else apart.own
        self._sizes = [len(own) - int(np.isin(own, self._left_out).sum()) for own in keys]
        self.apart: TitlesApart | None = None if apart is None else set_apart(self._all(), apart)

    def _all(self) -> Iterator["TitlesAndBodies"]:
        return (read_bucket(self._files, bucket) for bucket in range(self._count))

    @property
    def questions(self) -> int:
        """How many there are."""
        return sum(self._sizes)

    def order(self, seed: int, epoch: int) -> list[tuple[int, float, float]]:
        """The buckets of an epoch in their order, and which share of its questions comes before and until the end."""
        order = np.random.default_rng([seed, epoch, _ORDER]).permutation(self._count)
        shares = np.cumsum([0, *(self._sizes[bucket] for bucket in order)]) / max(1, self.questions)
        return list(zip(order.tolist(), shares[:-1].tolist(), shares[1:].tolist(), strict=True))

    def read(self, bucket: int) -> "TitlesAndBodies":
        """What is trained on of a bucket."""
        if self._count == 1:
            return self._only
        return self._trained_on(bucket)

    @functools.cached_property
    def _only(self) -> "TitlesAndBodies":
        return self._trained_on(0)

    def _trained_on(self, bucket: int) -> "TitlesAndBodies":
        found = read_bucket(self._files, bucket)
        return found.take(np.flatnonzero(~np.isin(found.keys, self._left_out))) if len(self._left_out) else found
