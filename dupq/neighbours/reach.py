"""How far an approximate search reaches: the lists that are probed, and the words whose questions are compared."""

import math
from typing import NamedTuple

import numpy as np

from dupq.neighbours.word_lists import NO_WORD

# What a question of a word's list costs, in scores of a probed list: 40 to 60 ns (measured once, on one core); a score
# of the exact search of a million took 7.8 (benchmarks/results/scale-2026-11-25.json)
_WALKED = 8.0


class Reach(NamedTuple):
    """Each question probes so many lists, and is compared with those that share a word that `most` questions have, or
    fewer. `share` is the work of it, over the exact search's.
    """

    probes: int
    most: int
    share: float


class Sampled(NamedTuple):
    """Neighbours of some questions: how many lists come before the one that finds each, and how many questions have the
    rarest word that both have (NO_WORD: none); both int64.
    """

    ranks: np.ndarray
    rarest: np.ndarray


class Archive(NamedTuple):
    """How many questions and lists there are, and how many questions have each word."""

    questions: int
    lists: int
    counts: np.ndarray


def cheapest(sampled: Sampled, recall: float, archive: Archive) -> Reach:
    """The reach of the least work that finds the share `recall` of the neighbours: all lists, if none tell."""
    if not len(sampled.ranks):
        return reach(archive.lists, 0, archive)
    probes = np.unique(np.concatenate([sampled.ranks + 1, [1, archive.lists]]))
    tried = [(int(number), _needed(sampled, recall, number)) for number in probes]
    reaches = [reach(number, most, archive) for number, most in tried if most < NO_WORD]  # all lists need no word
    return min(reaches, key=lambda one: one.share)


def reach(probes: int, most: int, archive: Archive) -> Reach:
    """The reach of so many lists and words. The exact search scores each pair once, a list each question that asks."""
    probes = min(probes, archive.lists)
    counts = archive.counts[archive.counts <= most].astype(np.float64)
    scores = probes * archive.questions**2 / archive.lists + _WALKED * (counts * counts).sum() / 2
    return Reach(probes, most, scores / max(1.0, archive.questions**2 / 2))


def _needed(sampled: Sampled, recall: float, probes: int) -> int:
    """The least `most` with which so many probes find the share `recall`: 0 if none is needed, NO_WORD if none does."""
    left = sampled.rarest[sampled.ranks >= probes]
    wanted = math.ceil(recall * len(sampled.ranks)) - (len(sampled.ranks) - len(left))
    return int(np.partition(left, wanted - 1)[wanted - 1]) if wanted > 0 else 0
