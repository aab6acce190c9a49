"""Quality on known duplicates that the encoder has never seen.

Links are incomplete: an unlinked pair may well be a duplicate, so every figure is a lower bound.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import numpy as np

from dupq.clusters.components import components
from dupq.evaluation.measures import (
    TABLES,
    Known,
    Labelled,
    Ranker,
    Scorer,
    accuracy,
    best_threshold,
    bootstrap_interval,
    retrieval_measures,
    retrieval_values,
)
from dupq.links import Split, parts_of, split_links
from dupq.settings.config import Settings
from dupq.settings.sections import EvaluationSettings
from dupq.text.keys import are_among, hash_limit, key_hashes, pairs_among
from dupq.training.pairs import Pairs, with_random_negatives


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


RANKED = 100  # how far a ranking is read: the cut of MAP, which is over all known duplicates
_NEGATIVES_SEED = 5
_WITH_INTERVALS = ("accuracy_at_1", "accuracy_at_10", "map")
_BOOTSTRAP_SEED, _RESAMPLES = 6, 2_000  # bounds of 1,000 questions vary by some .001 with the draws


@dataclass(frozen=True)
class Seen:
    """The known duplicates that an encoder was trained and tuned on, and its own threshold for pairs if it has one."""

    train: np.ndarray  # keys of questions (int64)
    development: np.ndarray  # likewise
    development_links: np.ndarray  # int64, shape (m, 2)
    pair_threshold: float | None


def measure_known(
    systems: Mapping[str, Scorer],
    keys: np.ndarray,
    links: np.ndarray,
    seen: Seen | None,
    settings: Settings,
    others: np.ndarray | None = None,
    tables: Collection[str] = tuple(TABLES),
) -> Known | None:
    """The measures of `tables` for all systems on duplicate links (int64, shape (m, 2)); None without links.

    `keys` (int64, ascending) are those of the archive that `systems` know; `retrieval` is of those that rank it.
    Measured are the links that the encoder never saw. Without one (`seen` is None) they are the test part of the split
    that one trained with these settings would have. `others` (int64, shape (m, 2)) are pairs that people said to be no
    duplicates, of questions of the archive. What only tables left out need is not computed.
    """
    links = pairs_among(keys, links)
    if not len(links):
        return None
    split = _split(links, seen, settings)
    left_out = {name: len(split.questions_of(name)) for name in ("train", "development")}
    known: Known = {"left_out": left_out}
    if "retrieval" in tables:
        rankers = {name: system for name, system in systems.items() if isinstance(system, Ranker)}
        known |= retrieval(rankers, split, len(keys), settings.evaluation)
    if "pairs" in tables:
        thresholds = _thresholds(systems, keys, links, seen, settings, others is not None)
        known["balanced_pairs"] = balanced_pairs(systems, thresholds, split, links, keys)
        if others is not None:
            pairs = unseen(links, others, split, _questions(seen))
            left_out["labelled_pairs"] = len(links) + len(others) - len(pairs.labels)
            has_both = len(np.unique(pairs.labels)) == 2
            known["labelled_pairs"] = labelled_pairs(systems, thresholds, pairs) if has_both else None
    return known


def unseen_split(links: np.ndarray, trained_on: np.ndarray, tuned_on: np.ndarray) -> Split:
    """The sets of known duplicates, in parts: `test` holds those without a question of the other two.

    A set with a question that the encoder was trained on is `train`, else one that it was tuned on is
    `development`. So links that came after the training are tested too, and a set that has since grown together
    with a training one is not.
    """
    questions, sets = components(links)
    return Split(questions, sets, parts_of(questions, sets, "test", {"development": tuned_on, "train": trained_on}))


def retrieval(
    rankers: Mapping[str, Ranker], split: Split, archive_questions: int, settings: EvaluationSettings
) -> Known:
    """Accuracy, recall and MAP of each system: every test question against the whole archive.

    What counts are the other questions of its set of known duplicates.
    """
    available = split.questions_of("test")
    queries = chosen(available, settings.queries)
    relevant = [_others(split, int(query)) for query in queries]
    asked = rankers if len(queries) else {}
    rankings = {name: ranker.rank(queries, RANKED) for name, ranker in asked.items()}
    return {
        "test_queries": len(queries),
        "test_queries_available": len(available),
        "archive_questions": archive_questions,
        "retrieval": {name: retrieval_measures(ranked, relevant, RANKED) for name, ranked in rankings.items()},
        "intervals": {name: _intervals(ranked, relevant, RANKED) for name, ranked in rankings.items()},
    }


def _intervals(rankings: list[list[int]], relevant: list[set[int]], k: int) -> dict[str, list[float]]:
    """Of 95 per cent, by bootstrap over the queries: low and high."""
    values = retrieval_values(rankings, relevant, k)
    found = {name: bootstrap_interval(values[name], _BOOTSTRAP_SEED, _RESAMPLES) for name in _WITH_INTERVALS}
    return {name: [interval.low, interval.high] for name, interval in found.items()}


def chosen(keys: np.ndarray, most: int) -> np.ndarray:
    """At most `most` of the keys, by a hash of the key, sorted: the same ones whatever else there is."""
    if len(keys) <= most:
        return keys
    if not most:
        return keys[:0]
    return np.sort(keys[key_hashes(keys) <= np.uint64(hash_limit(keys, most))])


def pair_thresholds(
    systems: Mapping[str, Scorer], given: dict[str, float], split: Split, links: np.ndarray, keys: np.ndarray
) -> dict[str, float]:
    """The score from which each system calls a pair duplicates: the `given` one, or the best on development pairs.

    Those are balanced, see `balanced_pairs`. Without any, a system that is given none has none.
    """
    pairs = _balanced(split, "development", links, keys)
    if not len(pairs.labels):
        return given
    left = [name for name in systems if name not in given]
    return given | {name: best_threshold(systems[name].score(pairs.left, pairs.right), pairs.labels) for name in left}


def balanced_pairs(
    systems: Mapping[str, Scorer], thresholds: dict[str, float], split: Split, links: np.ndarray, keys: np.ndarray
) -> dict[str, float]:
    """Accuracy on as many linked test pairs as random ones (Bogdanova et al. 2015, section 5.1).

    A system without a threshold is left out.
    """
    test = _balanced(split, "test", links, keys)
    measured: dict[str, float] = {"pairs": len(test.labels)}
    for name, system in systems.items():
        if name in thresholds and len(test.labels):
            measured[name] = accuracy(system.score(test.left, test.right), test.labels, thresholds[name])
    return measured


def labelled_pairs(systems: Mapping[str, Scorer], thresholds: dict[str, float], pairs: Pairs) -> Labelled:
    """Accuracy, average precision and area under the ROC curve of each system on `pairs` of both labels.

    Negatives that people chose are alike, and harder than the random ones of `balanced_pairs`, which the thresholds
    come from; the last two measures need no threshold, and a system without one has them only.
    """
    from sklearn.metrics import average_precision_score, roc_auc_score  # which `dupq evaluate` alone needs

    duplicates = int(pairs.labels.sum())
    measured: dict[str, dict[str, float]] = {}
    for name, system in systems.items():
        scores = system.score(pairs.left, pairs.right)
        measured[name] = {
            **({"accuracy": accuracy(scores, pairs.labels, thresholds[name])} if name in thresholds else {}),
            "average_precision": float(average_precision_score(pairs.labels, scores)),
            "roc_auc": float(roc_auc_score(pairs.labels, scores)),
        }
    return {"duplicates": duplicates, "others": len(pairs.labels) - duplicates, "systems": measured}


def _thresholds(
    systems: Mapping[str, Scorer],
    keys: np.ndarray,
    links: np.ndarray,
    seen: Seen | None,
    settings: Settings,
    are_labels: bool,
) -> dict[str, float]:
    """See pair_thresholds. Of labels of the user's own few, if any, are of questions that the encoder was tuned on."""
    if seen is None:
        return pair_thresholds(systems, {}, _split(links, seen, settings), links, keys)
    given = {} if seen.pair_threshold is None else {"encoder": seen.pair_threshold}
    tuning = np.concatenate([links, pairs_among(keys, seen.development_links)]) if are_labels else links
    return pair_thresholds(systems, given, _split(tuning, seen, settings), tuning, keys)


def _split(links: np.ndarray, seen: Seen | None, settings: Settings) -> Split:
    if seen is None:
        return split_links(links, settings.training)
    return unseen_split(links, seen.train, seen.development)


def _questions(seen: Seen | None) -> np.ndarray:
    return np.zeros(0, np.int64) if seen is None else np.concatenate([seen.train, seen.development])


def _balanced(split: Split, part: str, links: np.ndarray, keys: np.ndarray) -> Pairs:
    generator = np.random.default_rng(_NEGATIVES_SEED)
    return with_random_negatives(split.links_of(part, links), keys, split, 1, generator)


def _others(split: Split, query: int) -> set[int]:
    own = split.set_of(np.array([query]))[0]
    return set(split.questions[split.sets == own].tolist()) - {query}
