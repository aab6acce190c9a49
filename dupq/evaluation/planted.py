"""Measures on the planted duplicates of a made-up archive, which are exact, as its truth is known."""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from dupq.evaluation.known_duplicates import chosen
from dupq.evaluation.protocol import Ranker
from dupq.text.keys import are_among, distinct

_TOP = 10


class Planted(NamedTuple):
    """Planted pairs of one kind: the later question, its original (int64 keys), and whether training saw them."""

    questions: np.ndarray
    originals: np.ndarray
    trained_on: np.ndarray


def same_cluster(planted: Planted, keys: np.ndarray, clusters: np.ndarray) -> float:
    """The share of pairs that ended in one cluster; `clusters` are those of the sorted `keys`."""
    sides = [clusters[np.searchsorted(keys, side)] for side in (planted.questions, planted.originals)]
    return float(np.mean(sides[0] == sides[1]))


def found_at_10(planted: Planted, rankers: Mapping[str, Ranker], most: int) -> dict[str, float]:
    """For each system the share of pairs whose original is among the ten best for the later question.

    Of at most `most` questions, chosen by a hash of their keys: over all their pairs, and over those that no training
    saw.
    """
    some = are_among(chosen(distinct(planted.questions), most), planted.questions)
    questions, originals, unseen = planted.questions[some], planted.originals[some], ~planted.trained_on[some]
    measured: dict[str, float] = {"pairs_ranked": int(some.sum()), "pairs_never_trained_on": int(unseen.sum())}
    for name, ranker in rankers.items():
        ranked = ranker.rank(questions, _TOP)
        hits = np.array([original in found for original, found in zip(originals.tolist(), ranked, strict=True)])
        measured[f"{name}_at_10"] = float(hits.mean())
        if unseen.any():
            measured[f"{name}_at_10_never_trained_on"] = float(hits[unseen].mean())
    return measured
