"""What a student learns from a teacher: its embeddings of some questions, and in which order they are met."""

from typing import NamedTuple

import numpy as np

from dupq.settings.training import TeacherSettings
from dupq.text.keys import ID_BITS
from dupq.training.site_batches import site_batches


class DistillationTargets(NamedTuple):
    """The targets of distillation: questions, and the teacher's embeddings of them."""

    left: np.ndarray  # (n,), int64 keys
    vectors: np.ndarray  # (n, any), float32, of length 1


def targets(keys: np.ndarray, embeddings: np.ndarray) -> DistillationTargets:
    """The embeddings (float32, one row a key) less the mean of their site, and of length 1: what a site has in common
    tells no question of it from another."""
    found, sites = embeddings.copy(), keys >> ID_BITS
    for site in np.unique(sites):
        found[sites == site] -= found[sites == site].mean(axis=0)
    return DistillationTargets(keys, found / np.maximum(np.linalg.norm(found, axis=1, keepdims=True), 1e-9))


def targets_in_order(
    taught: DistillationTargets, settings: TeacherSettings, seed: int, epoch: int
) -> DistillationTargets:
    """The order of an epoch, in batches of one site; with `alike_batches`, in every second epoch of questions alike.

    A batch of random questions teaches which are far from each other; one of similar questions, which is the nearest.
    Similar ones have the same signs of some random projections of the teacher's vectors (Charikar 2002, section 3), of
    as many as make groups of about a batch.
    """
    generator = np.random.default_rng([seed, epoch])
    groups = len(taught.left) // settings.batch_size
    if not settings.alike_batches or epoch % 2 or groups < 2:
        batches = site_batches(taught.left >> ID_BITS, settings.batch_size, generator)
        order = np.concatenate([np.zeros(0, np.int64), *batches])
    else:
        order = _alike(taught.vectors, groups, generator)
    return DistillationTargets(*(column[order] for column in taught))


def _alike(vectors: np.ndarray, groups: int, generator: np.random.Generator) -> np.ndarray:
    """Rows in about so many groups of alike vectors."""
    order = generator.permutation(len(vectors))
    bits = int(np.log2(groups))
    projections = generator.standard_normal((vectors.shape[1], bits)).astype(np.float32)
    group = (vectors[order] @ projections > 0) @ (1 << np.arange(bits))
    return order[np.argsort(generator.permutation(1 << bits)[group], kind="stable")]
