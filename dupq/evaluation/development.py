"""Measures of a network after each epoch of its training: on development questions, or if there are too few of these
by titles that training does not read and that must find their own bodies.

Both search the same pool: a sample of the archive by a hash of the keys, and all development questions.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from dupq.encoders import saved
from dupq.encoders.encoding import encode
from dupq.encoders.protocol import Encoder
from dupq.evaluation.known_duplicates import RANKED, retrieval
from dupq.evaluation.rankers import EncoderRanker
from dupq.links import KnownDuplicates, Split
from dupq.neighbours.embeddings import Embeddings
from dupq.settings.config import Settings
from dupq.text.keys import sample_by_hash
from dupq.text.questions import TitlesAndBodies
from dupq.text.token_arrays import TokenIds

TITLES_SHARE = 0.05  # of the questions with titles and bodies; at most training.development_pool
_ORDER = 3  # third number of the seed for the order of buckets
FEWEST_QUESTIONS = 10  # of the development part


def has_questions(known: KnownDuplicates) -> bool:
    """Return whether there are enough development questions to compare epochs."""
    return len(known.split.questions_of("development")) >= FEWEST_QUESTIONS


def body_map(network: Encoder, held_out: "HeldOut", settings: Settings) -> float:
    """Return the mean over all titles of 1 / the rank of their own body, which counts 0 beyond rank RANKED."""
    titles, bodies = (encode(network, texts, settings.encode.batch_size) for texts in held_out)
    ranks = saved.ranks_of_bodies(titles, bodies, RANKED, network.measure)
    return float((1 / ranks).sum() / len(held_out.titles))


def development_map(
    network: Encoder, sequences: Mapping[int, np.ndarray], known: KnownDuplicates, settings: Settings
) -> float:
    """Return MAP on development questions, between 0 and 1; `sequences` are token ids by key."""
    split, keys = known.split, np.array(sorted(sequences), np.int64)
    pool = np.union1d(sample_by_hash(keys, settings.training.development_pool), split.questions_of("development"))
    encoded = encode(network, [sequences[int(key)] for key in pool], settings.encode.batch_size)
    ranker = EncoderRanker([Embeddings(pool, *encoded)], network.measure)
    as_test = Split(split.questions, split.sets, np.where(split.parts == "development", "test", "train"))
    measured = retrieval({"encoder": ranker}, as_test, len(pool))
    return measured["retrieval"]["encoder"]["map"]


class HeldOut(NamedTuple):
    """Titles that training does not read, and the bodies among which each must find its own."""

    titles: TokenIds
    bodies: TokenIds  # first the titles' own, in their order


def held_out_keys(keys: np.ndarray, settings: Settings) -> tuple[np.ndarray, np.ndarray]:
    """Return the keys of the questions whose titles are held out, and of those that give more bodies to search.

    Both (int64, sorted) are the same for any shards and workers. TITLES_SHARE of the questions is held out, by a hash
    of the keys. Their titles search the bodies of at most `training.development_pool` questions. Of too few questions
    none is held out.
    """
    most = settings.training.development_pool
    count = min(int(TITLES_SHARE * len(keys)), most)
    if count < saved.FEWEST_TITLES:
        return keys[:0], keys[:0]
    titled = sample_by_hash(keys, count)
    return np.sort(titled), np.setdiff1d(sample_by_hash(keys, most), titled)


def hold_out(buckets: Iterable[TitlesAndBodies], titled: np.ndarray, others: np.ndarray) -> HeldOut:
    """Return the texts of the questions of `held_out_keys`, in the order of the buckets."""
    chosen = [[bucket.take(np.isin(bucket.keys, side)) for side in (titled, others)] for bucket in buckets]
    bodies = TokenIds.of(body for side in zip(*chosen, strict=True) for texts in side for body in texts.bodies)
    return HeldOut(TokenIds.of(title for texts, _ in chosen for title in texts.titles), bodies)


class TitleBuckets:
    """Buckets of titles and bodies, their order, and what is held out of them; the same for all workers."""

    def __init__(
        self, keys: Sequence[np.ndarray], read: Callable[[int], TitlesAndBodies], settings: Settings, is_measured: bool
    ) -> None:
        """Take the keys of each bucket, and how to `read` one by its number.

        If `is_measured` and there are enough, all are read once for what is held out. Memory: a bucket.
        """
        self._read = read
        measured = np.concatenate([np.zeros(0, np.int64), *(keys if is_measured else [])])
        self._left_out, others = held_out_keys(measured, settings)
        every = map(read, range(len(keys)))
        self.held_out = hold_out(every, self._left_out, others) if len(self._left_out) else None
        self._sizes = [len(bucket) - int(np.isin(bucket, self._left_out).sum()) for bucket in keys]

    def order(self, seed: int, epoch: int) -> list[tuple[int, float, float]]:
        """Return the buckets in the order of an epoch, each with the shares of its questions done before and after."""
        order = np.random.default_rng([seed, epoch, _ORDER]).permutation(len(self._sizes))
        shares = np.cumsum([0, *(self._sizes[bucket] for bucket in order)]) / max(1, sum(self._sizes))
        return list(zip(order.tolist(), shares[:-1].tolist(), shares[1:].tolist(), strict=True))

    def read(self, number: int) -> TitlesAndBodies:
        """Return the titles and bodies of a bucket that are not held out."""
        bucket = self._read(number)
        return bucket.take(~np.isin(bucket.keys, self._left_out))
