"""What is known of an archive's pairs, from duplicate links and from labelled pairs together."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from dupq.links.split import Split, split_links
from dupq.settings.training import TrainingSettings
from dupq.text.keys import are_among


class LabelledPairs(NamedTuple):
    """Pairs that people labelled (int64 keys, shape (m, 2), left < right)."""

    duplicates: np.ndarray
    others: np.ndarray


@dataclass(frozen=True)
class Known:
    """The known and labelled pairs of the archive's questions (int64, shape (m, 2), left < right)."""

    links: np.ndarray  # duplicates, by links and by labels
    split: Split
    wrong: np.ndarray  # labelled as no duplicates; without questions of the development and test parts
    counts: dict[str, int]


def known_pairs(linked: np.ndarray, labelled: LabelledPairs, keys: np.ndarray, settings: TrainingSettings) -> Known:
    """The `linked` (int64, shape (m, 2)) and labelled pairs of the questions among `keys` (ascending), and their split.

    A pair labelled 0 whose questions are in one set of duplicates is left out, and counted.
    """
    links = np.unique(_among(keys, np.concatenate([labelled.duplicates, linked])), axis=0)
    split = split_links(links, settings)
    wrong = _among(keys, labelled.others)
    sets = split.set_of(wrong.ravel()).reshape(-1, 2)
    contradicted = (sets[:, 0] == sets[:, 1]) & (sets[:, 0] >= 0)
    of_training = ~np.isin(wrong, split.questions_of("development", "test")).any(axis=1)
    counts = {
        "pairs of files not in the archive": sum(len(pairs) - len(_among(keys, pairs)) for pairs in labelled),
        "pairs of files labelled 0 within a set of duplicates": int(contradicted.sum()),
    }
    return Known(links, split, wrong[~contradicted & of_training], counts)


def _among(keys: np.ndarray, pairs: np.ndarray) -> np.ndarray:
    return pairs[are_among(keys, pairs).all(axis=1)]
