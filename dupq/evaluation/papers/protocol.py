"""What systems learn from and are measured on: a split by sets of duplicates, and the pairs and queries of its parts.

All of it is drawn by a fixed seed from the data set alone, so that every system and every table has the same.
"""

from dataclasses import dataclass

import numpy as np

from dupq.evaluation.known_duplicates import chosen
from dupq.evaluation.papers.data_sets import NO_PAIRS, DataSet
from dupq.evaluation.systems.collection import Examples
from dupq.links.split import Split, split_links
from dupq.settings.training import TrainingSettings
from dupq.training.pairs import Pairs, chosen_pairs, with_random_negatives

_SEED = 11
_PARTS = ("train", "development", "test")


@dataclass(frozen=True)
class Limits:
    """How much of a data set is used at most."""

    training: int  # positive pairs; 0: all
    development: int  # positive pairs
    test: int  # positive pairs
    queries: int  # of a part


@dataclass(frozen=True)
class Protocol:
    """A data set's parts."""

    split: Split
    examples: Examples
    positives: np.ndarray  # (m, 2), those of the training pairs
    wrong: np.ndarray  # (m, 2), pairs of the training part that are labelled as no duplicates
    test: Pairs
    test_queries: dict[int, set[int]]  # and their known duplicates

    @property
    def sizes(self) -> dict[str, int]:
        """How much of each there is."""
        return {
            "training_pairs": len(self.examples.training.labels),
            "development_pairs": len(self.examples.development.labels),
            "test_pairs": len(self.test.labels),
            "test_queries": len(self.test_queries),
        }


def protocol_of(data: DataSet, limits: Limits) -> Protocol:
    """The parts of a data set; a smaller limit gives a subset of what a larger one gives."""
    split = _split(data)
    positives = chosen_pairs(split.links_of("train", data.links), limits.training or len(data.links), _SEED)
    wrong = _labelled(data.wrong, split, "train")
    training = _balanced(data, split, positives, wrong, "train")
    parts = {}
    for part, most in (("development", limits.development), ("test", limits.test)):
        links = chosen_pairs(split.links_of(part, data.links), most, _SEED)
        parts[part] = _balanced(data, split, links, _labelled(data.wrong, split, part), part)
    queries = {part: _queries(split, part, limits.queries) for part in _PARTS[1:]}
    examples = Examples(training, parts["development"], queries["development"])
    return Protocol(split, examples, positives, wrong, parts["test"], queries["test"])


def _split(data: DataSet) -> Split:
    """By sets of duplicates; where the data set has a test part of its own, its sets with a question of that."""
    settings = TrainingSettings() if data.tested is None else TrainingSettings(test_share=0.0)
    split = split_links(data.links, settings)
    if data.tested is None:
        return split
    of_test = np.isin(split.sets, split.sets[np.isin(split.questions, data.tested)])
    return Split(split.questions, split.sets, np.where(of_test, "test", split.parts))


def _labelled(wrong: np.ndarray, split: Split, part: str) -> np.ndarray:
    """The pairs labelled as no duplicates whose questions with known duplicates are all of one part.

    Those of questions without any are training pairs.
    """
    if not len(wrong):
        return NO_PAIRS
    inside = np.stack([np.isin(wrong, split.questions_of(name)).any(axis=1) for name in _PARTS])
    alone = inside.sum(axis=0)
    belongs = inside[_PARTS.index(part)] & (alone == 1)
    sets = split.set_of(wrong.ravel()).reshape(-1, 2)
    contradicted = (sets[:, 0] == sets[:, 1]) & (sets[:, 0] >= 0)
    return wrong[(belongs | (alone == 0) if part == "train" else belongs) & ~contradicted]


def _balanced(data: DataSet, split: Split, links: np.ndarray, wrong: np.ndarray, part: str) -> Pairs:
    """As many negatives as `links`: labelled ones as far as there are, then random pairs of the same part or of none.

    Random ones are drawn for all links, so that labels or no labels change none of them.
    """
    others = np.setdiff1d(data.keys, split.questions_of(*(name for name in _PARTS if name != part)))
    generator = np.random.default_rng([_SEED, _PARTS.index(part)])
    drawn = with_random_negatives(links, others, split, 1, generator)
    labelled = chosen_pairs(wrong, len(links), _SEED)
    random = np.stack([drawn.left, drawn.right], axis=1)[len(links) :][: len(links) - len(labelled)]
    pairs = np.concatenate([links, labelled, random])
    labels = np.repeat(np.array([1, 0], np.float32), [len(links), len(labelled) + len(random)])
    return Pairs(pairs[:, 0], pairs[:, 1], labels)


def _queries(split: Split, part: str, most: int) -> dict[int, set[int]]:
    queries = chosen(split.questions_of(part), most)
    sets = split.set_of(queries)
    members = {
        int(one): set(split.questions[split.sets == one].tolist()) for one in np.unique(sets)
    }
    return {int(query): members[int(one)] - {int(query)} for query, one in zip(queries, sets, strict=True)}
