"""What is trained on: linked duplicates, and random questions that are not."""

from typing import NamedTuple

import numpy as np

from dupq.training.split import Split


class Pairs(NamedTuple):
    """Question pairs (int64 keys) and their labels (float32): 1 duplicate, 0 not."""

    left: np.ndarray
    right: np.ndarray
    labels: np.ndarray


class Rankings(NamedTuple):
    """Known duplicates, and for each pair random questions that duplicate neither (int64 keys)."""

    left: np.ndarray  # (n,)
    right: np.ndarray  # (n,)
    strangers: np.ndarray  # (n, m)


def with_random_negatives(
    links: np.ndarray, pool: np.ndarray, split: Split, negatives: int, generator: np.random.Generator
) -> Pairs:
    """Every link as a positive pair, and `negatives` times as many pairs of a linked and a random question.

    A negative is never one question with itself or with one of its known duplicates (Bogdanova et al. 2015,
    section 5.1: balanced sets have one negative a positive). Rows are shuffled.
    """
    left = np.tile(links.ravel(), -(-negatives // 2))[: len(links) * negatives] if negatives > 1 else links[:, 0]
    right = _random_strangers(left, pool, split, generator)
    pairs = Pairs(
        np.concatenate([links[:, 0], left]),
        np.concatenate([links[:, 1], right]),
        np.concatenate([np.ones(len(links), np.float32), np.zeros(len(left), np.float32)]),
    )
    order = generator.permutation(len(pairs.labels))
    return Pairs(*(column[order] for column in pairs))


def with_strangers(
    links: np.ndarray, pool: np.ndarray, split: Split, strangers: int, generator: np.random.Generator
) -> Rankings:
    """Every link with `strangers` random questions (dos Santos et al. 2015, section 2.5). Rows are shuffled."""
    order = generator.permutation(len(links))
    left, right = links[order].T
    drawn = _random_strangers(np.repeat(left, strangers), pool, split, generator)
    return Rankings(left, right, drawn.reshape(len(links), strangers))


def _random_strangers(
    questions: np.ndarray, pool: np.ndarray, split: Split, generator: np.random.Generator
) -> np.ndarray:
    """A random question of `pool` for each of `questions` that is neither it nor a known duplicate of it."""
    own = split.set_of(questions)
    strangers = generator.choice(pool, len(questions))
    for _ in range(100):
        drawn = split.set_of(strangers)
        wrong = (strangers == questions) | ((drawn == own) & (own >= 0))
        if not wrong.any():
            break
        strangers[wrong] = generator.choice(pool, int(wrong.sum()))
    return strangers
