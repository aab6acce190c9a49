"""What a student learns from its teachers: their embeddings of some questions, and in which order they are met."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from dupq.text.keys import ID_BITS
from dupq.training.site_batches import site_batches

if TYPE_CHECKING:
    from dupq.training.teacher_loss import TeacherLoss

BATCH_SIZE = 768  # questions; the more, the more others each is compared with
_COMPARED = 16_384  # pairs at a time


class DistillationTargets(NamedTuple):
    """The targets of distillation: questions, and the embeddings that the teachers have of them."""

    left: np.ndarray  # (n,), int64 keys
    vectors: np.ndarray  # (n, any), float32, of length 1


class Distillation(NamedTuple):
    """An epoch of distillation: targets in their order, and how far from them a student is."""

    left: np.ndarray
    vectors: np.ndarray
    loss: "TeacherLoss"


def targets(keys: np.ndarray, embeddings: Sequence[np.ndarray]) -> DistillationTargets:
    """The embeddings of each teacher (float32, one row a key), less the mean of their site and of length 1, as one.

    What a site has in common tells no question of it from another. The cosine of two questions is the mean of the
    teachers' cosines.
    """
    units = [_centred(keys, each) for each in embeddings]
    return DistillationTargets(keys, np.concatenate(units, axis=1) / np.float32(np.sqrt(len(units))))


def _centred(keys: np.ndarray, embeddings: np.ndarray) -> np.ndarray:
    found, sites = embeddings.copy(), keys >> ID_BITS
    for site in np.unique(sites):
        found[sites == site] -= found[sites == site].mean(axis=0)
    return found / np.maximum(np.linalg.norm(found, axis=1, keepdims=True), 1e-9)


def cosines(taught: DistillationTargets, left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """The teachers' cosine (float32) of each pair of questions (keys); NaN where they have not read both.

    The keys of `taught` are ascending.
    """
    found = np.full(len(left), np.nan, np.float32)
    if not len(taught.left):
        return found
    places = [np.searchsorted(taught.left, side).clip(max=len(taught.left) - 1) for side in (left, right)]
    is_read = (taught.left[places[0]] == left) & (taught.left[places[1]] == right)
    pairs = np.flatnonzero(is_read)
    for start in range(0, len(pairs), _COMPARED):
        some = pairs[start : start + _COMPARED]
        one, other = (taught.vectors[place[some]] for place in places)
        found[some] = (one * other).sum(axis=1)
    return found


def targets_in_order(
    taught: DistillationTargets, seed: int, epoch: int, batch_size: int = BATCH_SIZE
) -> DistillationTargets:
    """Return the targets in the order of an epoch, in batches of one site."""
    batches = site_batches(taught.left >> ID_BITS, batch_size, np.random.default_rng([seed, epoch]))
    order = np.concatenate([np.zeros(0, np.int64), *batches])
    return DistillationTargets(*(column[order] for column in taught))
