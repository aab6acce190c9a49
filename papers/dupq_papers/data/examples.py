"""The protocol of the papers' tables: what a system learns from, is tuned on and is measured on, the same for all.

Whole sets of duplicates go to one part, as in dupq's own training (`split_links`, with the same seed the same parts).
No question of a test pair, or of a test query's set, is in a training or development pair.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import xxhash

from dupq.encoders.saved import PARTS
from dupq.links import DEVELOPMENT_SHARE, TEST_SHARE, Split, split_links
from dupq.settings.sections import TrainingSettings
from dupq.text.keys import sample_by_hash
from dupq.training.pairs import Pairs, chosen_pairs, positives, with_random_negatives
from dupq_papers.data.pair_sets import PairSet
from dupq_papers.data.semeval_scores import Candidates
from dupq_papers.systems.collection import Examples

_TRAIN, _DEVELOPMENT, _TEST = PARTS
Queries = Mapping[int, set[int]]


@dataclass(frozen=True)
class ExampleSettings:
    """How the known pairs of a set become examples."""

    closed: bool = False  # every pair of a set of duplicates is a positive, not only the linked and labelled ones
    training_pairs: int = 1_000_000  # positives at most, chosen by a hash of their keys; others likewise
    measured_pairs: int = 10_000  # of the development part, and of the test part; likewise
    queries: int = 2_000  # of the development part, and of the test part, at most
    seed: int = TrainingSettings().seed


@dataclass(frozen=True)
class Experiment:
    """The examples, and the test part, which no system sees before it is measured."""

    examples: Examples
    test: Pairs
    test_queries: Queries  # a question and its known duplicates (keys)
    counts: dict[str, int]  # what the protocol and its limits left out


def experiment(known: PairSet, settings: ExampleSettings) -> Experiment:
    """The examples of a set of questions and known pairs; the same for the same set and settings.

    Positives are the duplicates that are linked or labelled. Negatives are the pairs labelled 0 where there are any,
    else as many random ones as positives, drawn once for each part: both questions are random ones of that part
    (Bogdanova et al. 2015, section 5.1: "randomly generated from the corpus"). A question without known duplicates is
    of a part by a hash of its key. A query is a question with known duplicates, and these are all others of its set.
    Raises DupqError where a part has questions only that duplicate one another, so that there are no negatives.
    """
    training = TrainingSettings(seed=settings.seed)
    labels = known.labels
    split = split_links(labels.duplicates, training)
    parts = parts_of(known.collection.keys, split, training)
    others, counts = _others_of(labels.others, split, training)
    pairs = {}
    for number, part in enumerate(PARTS):
        most = settings.training_pairs if part == _TRAIN else settings.measured_pairs
        found, over_sets = _positives(labels.duplicates, split, part, settings)
        duplicates, wrong = (chosen_pairs(all_, most, settings.seed) for all_ in (found, others[part]))
        if len(labels.others):
            pairs[part] = _labelled(duplicates, wrong)
        else:
            generator, pool = np.random.default_rng([settings.seed, number]), known.collection.keys[parts == part]
            left = generator.choice(pool, len(duplicates))
            pairs[part] = with_random_negatives(duplicates, pool, split, 1, generator, left=left)
        counts[f"{part}: pairs over the limit"] = len(found) - len(duplicates) + len(others[part]) - len(wrong)
        counts[f"{part}: pairs of large sets"] = over_sets
    queries = {part: _queries(split, part, settings.queries) for part in (_DEVELOPMENT, _TEST)}
    for part, asked in queries.items():
        counts[f"{part}: queries over the limit"] = len(split.questions_of(part)) - len(asked)
    examples = Examples(pairs[_TRAIN], pairs[_DEVELOPMENT], queries[_DEVELOPMENT])
    return Experiment(examples, pairs[_TEST], queries[_TEST], counts)


def official_experiment(
    training: Sequence[Candidates], development: Sequence[Candidates], test: Sequence[Candidates]
) -> Experiment:
    """The examples where the parts are given, as for SemEval: the pairs of each question and its candidates.

    A query is a question with a relevant candidate. Nothing is left out.
    """
    parts = [_pairs_of(part) for part in (training, development, test)]
    queries = [
        {query: set(keys[relevant].tolist()) for query, keys, relevant in part if relevant.any()}
        for part in (development, test)
    ]
    return Experiment(Examples(parts[0], parts[1], queries[0]), parts[2], queries[1], {})


def parts_of(keys: np.ndarray, split: Split, settings: TrainingSettings) -> np.ndarray:
    """The part (str, (n,)) of each question: that of its set of duplicates, or else one by a hash of its key."""
    hashes = np.array([xxhash.xxh3_64_intdigest(int(key).to_bytes(8, "little"), settings.seed) for key in keys])
    place = hashes.astype(np.float64) / 2**64
    bounds = np.cumsum([TEST_SHARE, DEVELOPMENT_SHARE])
    found = np.array([_TEST, _DEVELOPMENT, _TRAIN])[np.searchsorted(bounds, place, side="right")]
    for part in PARTS:
        found[np.isin(keys, split.questions_of(part))] = part
    return found


def _positives(links: np.ndarray, split: Split, part: str, settings: ExampleSettings) -> tuple[np.ndarray, int]:
    """The positives of a part (int64, (m, 2)), and how many pairs of large sets were not drawn."""
    as_training = Split(split.questions, split.sets, np.where(split.parts == part, _TRAIN, ""))
    training = TrainingSettings(seed=settings.seed, positives="closed" if settings.closed else "links")
    return positives(links, as_training, training)


def _others_of(
    others: np.ndarray, split: Split, settings: TrainingSettings
) -> tuple[dict[str, np.ndarray], dict[str, int]]:
    """The pairs labelled 0 (int64, (m, 2)) of each part, and how many are of none.

    A pair is of the part of its questions that have duplicates, or of one by the hash of its left key. It is left out
    if these are of two parts, or if a question of it is in a pair of a later part: development or test.
    """
    ends = np.stack([parts_of(side, split, settings) for side in others.T], axis=1).reshape(-1, 2)
    is_linked = split.set_of(others.ravel()).reshape(-1, 2) >= 0
    own = np.where(is_linked[:, 0] | ~is_linked[:, 1], ends[:, 0], ends[:, 1])
    own[is_linked.all(axis=1) & (ends[:, 0] != ends[:, 1])] = ""
    found, taken = {}, np.zeros(0, np.int64)
    for part in (_TEST, _DEVELOPMENT, _TRAIN):
        found[part] = others[(own == part) & ~np.isin(others, taken).any(axis=1)]
        taken = np.union1d(taken, found[part])
    return found, {"pairs labelled 0 across parts": len(others) - sum(map(len, found.values()))}


def _labelled(positives: np.ndarray, others: np.ndarray) -> Pairs:
    left, right = np.concatenate([positives, others]).T
    return Pairs(left, right, np.repeat(np.array([1, 0], np.float32), [len(positives), len(others)]))


def _queries(split: Split, part: str, most: int) -> Queries:
    """At most so many questions of a part, chosen by a hash of their keys, with the others of their sets."""
    members: dict[int, set[int]] = {}
    for key, own in zip(split.questions.tolist(), split.sets.tolist(), strict=True):
        members.setdefault(own, set()).add(key)
    asked = sample_by_hash(split.questions_of(part), most)
    return {key: members[own] - {key} for key, own in zip(asked.tolist(), split.set_of(asked).tolist(), strict=True)}


def _pairs_of(questions: Sequence[Candidates]) -> Pairs:
    return Pairs(
        np.concatenate([np.full(len(keys), query) for query, keys, _ in questions]),
        np.concatenate([keys for _, keys, _ in questions]),
        np.concatenate([relevant for _, _, relevant in questions]).astype(np.float32),
    )
