"""Quality on known duplicates that the encoder has never seen.

Links are incomplete: a pair that nobody linked may well be a duplicate, so every figure is a lower bound.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import xxhash

from dupq.clusters.components import components
from dupq.config import EvaluationSettings
from dupq.evaluation.measures import accuracy, best_threshold, pair_average_precision, retrieval_measures, roc_auc
from dupq.evaluation.protocol import Ranker
from dupq.links.split import Split
from dupq.training.pairs import Pairs, with_random_negatives

_NEGATIVES_SEED = 5


def unseen_split(links: np.ndarray, trained_on: np.ndarray, tuned_on: np.ndarray) -> Split:
    """The sets of known duplicates, in parts: `test` holds those without a question of the other two.

    A set with a question that the encoder was trained on is `train`, else one that it was tuned on is
    `development`. So links that came after the training are tested too, and a set that has since grown together
    with a training one is not.
    """
    questions, sets = components(links)
    seen = np.isin(sets, sets[np.isin(questions, trained_on)])
    tuned = np.isin(sets, sets[np.isin(questions, tuned_on)])
    parts = np.where(seen, "train", np.where(tuned, "development", "test"))
    return Split(questions, sets, parts)


def retrieval(
    rankers: Mapping[str, Ranker], split: Split, archive_questions: int, settings: EvaluationSettings
) -> dict[str, Any]:
    """Accuracy, recall and MAP of each system: every test question against the whole archive.

    What counts are the other questions of its set of known duplicates.
    """
    available = split.questions_of("test")
    queries = chosen(available, settings.queries)
    relevant = [_others(split, int(query)) for query in queries]
    return {
        "test_queries": len(queries),
        "test_queries_available": len(available),
        "archive_questions": archive_questions,
        "retrieval": {
            name: retrieval_measures(ranker.rank(queries, settings.k), relevant, settings.k)
            for name, ranker in rankers.items()
            if len(queries)
        },
    }


def chosen(keys: np.ndarray, most: int) -> np.ndarray:
    """At most `most` of the keys, by a hash of the key, sorted: the same ones whatever else there is."""
    if len(keys) <= most:
        return keys
    hashes = [xxhash.xxh3_64_intdigest(int(key).to_bytes(8, "little")) for key in keys]
    return np.sort(keys[np.argsort(np.array(hashes, np.uint64), kind="stable")[:most]])


def pair_thresholds(
    rankers: Mapping[str, Ranker], given: dict[str, float], split: Split, links: np.ndarray, keys: np.ndarray
) -> dict[str, float]:
    """The score from which each system calls a pair duplicates: the `given` one, or the best on development pairs.

    Those are balanced, see `balanced_pairs`. Without any, a system that is given none has none.
    """
    pairs = _balanced(split, "development", links, keys)
    if not len(pairs.labels):
        return given
    left = [name for name in rankers if name not in given]
    return given | {name: best_threshold(rankers[name].score(pairs.left, pairs.right), pairs.labels) for name in left}


def balanced_pairs(
    rankers: Mapping[str, Ranker], thresholds: dict[str, float], split: Split, links: np.ndarray, keys: np.ndarray
) -> dict[str, Any]:
    """Accuracy on as many linked test pairs as random ones (Bogdanova et al. 2015, section 5.1).

    A system without a threshold is left out.
    """
    test = _balanced(split, "test", links, keys)
    measured: dict[str, Any] = {"pairs": len(test.labels)}
    for name, ranker in rankers.items():
        if name in thresholds and len(test.labels):
            measured[name] = accuracy(ranker.score(test.left, test.right), test.labels, thresholds[name])
    return measured


def labelled_pairs(rankers: Mapping[str, Ranker], thresholds: dict[str, float], pairs: Pairs) -> dict[str, Any]:
    """Accuracy, average precision and area under the ROC curve of each system on `pairs` of both labels.

    Negatives that people chose are alike, and harder than the random ones of `balanced_pairs`, which the thresholds
    come from; the last two measures need no threshold, and a system without one has them only.
    """
    duplicates = int(pairs.labels.sum())
    systems: dict[str, Any] = {}
    for name, ranker in rankers.items():
        scores = ranker.score(pairs.left, pairs.right)
        systems[name] = {
            **({"accuracy": accuracy(scores, pairs.labels, thresholds[name])} if name in thresholds else {}),
            "average_precision": pair_average_precision(scores, pairs.labels),
            "roc_auc": roc_auc(scores, pairs.labels),
        }
    return {"duplicates": duplicates, "others": len(pairs.labels) - duplicates, "systems": systems}


def _balanced(split: Split, part: str, links: np.ndarray, keys: np.ndarray) -> Pairs:
    generator = np.random.default_rng(_NEGATIVES_SEED)
    return with_random_negatives(split.links_of(part, links), keys, split, 1, generator)


def _others(split: Split, query: int) -> set[int]:
    own = split.set_of(np.array([query]))[0]
    return set(split.questions[split.sets == own].tolist()) - {query}
