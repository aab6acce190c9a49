"""Pairs that people labelled, without those that cannot be measured on."""

from dataclasses import dataclass

import numpy as np

from dupq.clusters.components import components
from dupq.links.split import Split
from dupq.text.keys import are_among
from dupq.training.pairs import Pairs


@dataclass(frozen=True)
class Labels:
    """Labelled pairs (int64, shape (m, 2), left < right, sorted, each once) whose questions are in the archive."""

    duplicates: np.ndarray
    others: np.ndarray  # no duplicates; none within a set that the duplicates connect
    counts: dict[str, int]  # of lines: all, and those left out by their reason


def usable(pairs: np.ndarray, is_duplicate: np.ndarray, keys: np.ndarray) -> Labels:
    """What is left of labelled `pairs` (int64, shape (m, 2), left < right) in an archive of `keys` (ascending).

    A pair counts once however often it is repeated. A pair labelled 0 whose questions are connected by pairs
    labelled 1 contradicts them; they outweigh it, as in training.
    """
    is_there = are_among(keys, pairs).all(axis=1)
    duplicates, others = (np.unique(pairs[is_there & (is_duplicate == label)], axis=0) for label in (True, False))
    questions, sets = components(duplicates)
    split = Split(questions, sets, np.full(len(questions), ""))
    left, right = split.set_of(others[:, 0]), split.set_of(others[:, 1])
    contradicts = (left == right) & (left >= 0)
    counts = {
        "lines": len(pairs),
        "not_in_archive": int((~is_there).sum()),
        "repeated": int(is_there.sum()) - len(duplicates) - len(others),
        "contradictory": int(contradicts.sum()),
    }
    return Labels(duplicates, others[~contradicts], counts)


def unseen(links: np.ndarray, others: np.ndarray, split: Split, seen: np.ndarray) -> Pairs:
    """The links of the test part of `split`, and those of `others` without a question that training saw.

    Seen are the questions of the other parts, and `seen` (int64).
    """
    taken = np.concatenate([split.questions[split.parts != "test"], seen])
    kept = others[~np.isin(others, taken).any(axis=1)]
    own = split.links_of("test", links)
    labels = np.concatenate([np.ones(len(own), np.float32), np.zeros(len(kept), np.float32)])
    left, right = np.concatenate([own, kept]).T
    return Pairs(left, right, labels)
