"""Measures systems on known duplicates that the encoder has never seen.

Links are incomplete: an unlinked pair may well be a duplicate, so every figure is a lower bound.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import numpy as np

from dupq.clusters.components import components
from dupq.evaluation import measures
from dupq.evaluation.measures import TABLES, Labelled, LinkMetrics, Ranker, Scorer
from dupq.links import Split, split_by_seen, split_links
from dupq.settings.config import Settings
from dupq.text.keys import are_among, pairs_among, sample_by_hash
from dupq.training.pairs import Pairs, with_random_negatives

RANKED = 100  # length of rankings, and the cut of MAP, which is over all known duplicates
QUERIES = 2_000  # test questions, at most, chosen by a hash of their key: a share is known to 2 points or better
_NEGATIVES_SEED = 5
_WITH_INTERVALS = ("accuracy_at_1", "accuracy_at_10", "map")
_BOOTSTRAP_SEED, _RESAMPLES = 6, 2_000  # other draws move the bounds for 1,000 questions by some .001


@dataclass(frozen=True)
class Labels:
    """Distinct labelled pairs (int64, shape (m, 2), left < right, sorted) whose questions are in the archive."""

    duplicates: np.ndarray
    others: np.ndarray  # pairs that are not duplicates, none within a set that the duplicates connect
    counts: dict[str, int]  # of lines: all, and those left out by reason


def usable(pairs: np.ndarray, is_duplicate: np.ndarray, keys: np.ndarray) -> Labels:
    """Select the labelled `pairs` (int64, shape (m, 2), left < right) that an archive of `keys` (ascending) can use.

    A pair labelled 0 whose questions are connected by pairs labelled 1 is left out, as in training.
    """
    in_archive = are_among(keys, pairs).all(axis=1)
    duplicates, others = (np.unique(pairs[in_archive & (is_duplicate == label)], axis=0) for label in (True, False))
    questions, sets = components(duplicates)
    split = Split(questions, sets, np.full(len(questions), ""))
    contradicts = split.in_one_set(*others.T)
    counts = {
        "lines": len(pairs),
        "not_in_archive": int((~in_archive).sum()),
        "repeated": int(in_archive.sum()) - len(duplicates) - len(others),
        "contradictory": int(contradicts.sum()),
    }
    return Labels(duplicates, others[~contradicts], counts)


def unseen(links: np.ndarray, others: np.ndarray, split: Split, seen: np.ndarray) -> Pairs:
    """Return the test links of `split` as duplicates, and the pairs of `others` without a question that training saw.

    Training saw the questions of the split's other parts, and `seen` (int64).
    """
    known = np.concatenate([split.questions[split.parts != "test"], seen])
    unknown = others[~np.isin(others, known).any(axis=1)]
    test_links = split.links_of("test", links)
    labels = np.concatenate([np.ones(len(test_links), np.float32), np.zeros(len(unknown), np.float32)])
    left, right = np.concatenate([test_links, unknown]).T
    return Pairs(left, right, labels)


@dataclass(frozen=True)
class Seen:
    """The known duplicates that an encoder was trained and tuned on, and its own threshold for pairs, if any."""

    train: np.ndarray  # keys of questions (int64)
    development: np.ndarray  # keys of questions
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
) -> LinkMetrics | None:
    """Measure all systems on duplicate links (int64, shape (m, 2)) for `tables`. Return None without links.

    `keys` (int64, ascending) are the archive's; systems that rank it are measured on `retrieval` too. The links are
    those that the encoder never saw; without an encoder (`seen` is None) the test part of the split that one trained
    with these settings would have. `others` (int64, shape (m, 2)) are pairs of the archive that people labelled 0.
    """
    links = pairs_among(keys, links)
    if not len(links):
        return None
    split = split_by_use(links, seen, settings)
    seen_questions = np.zeros(0, np.int64) if seen is None else np.concatenate([seen.train, seen.development])
    left_out = {name: len(split.questions_of(name)) for name in ("train", "development")}
    known: LinkMetrics = {"left_out": left_out}
    if "retrieval" in tables:
        rankers = {name: system for name, system in systems.items() if isinstance(system, Ranker)}
        known |= retrieval(rankers, split, len(keys))
    if "pairs" in tables:
        own, tuning = {}, links
        if seen is not None and seen.pair_threshold is not None:
            own = {"encoder": seen.pair_threshold}
        if seen is not None and others is not None:  # few of the user's labels are of questions that it was tuned on
            tuning = np.concatenate([links, pairs_among(keys, seen.development_links)])
        thresholds = pair_thresholds(systems, own, split_by_use(tuning, seen, settings), tuning, keys)
        known["balanced_pairs"] = balanced_pairs(systems, thresholds, split, links, keys)
        if others is not None:
            pairs = unseen(links, others, split, seen_questions)
            left_out["labelled_pairs"] = len(links) + len(others) - len(pairs.labels)
            has_both = len(np.unique(pairs.labels)) == 2
            known["labelled_pairs"] = labelled_pairs(systems, thresholds, pairs) if has_both else None
    return known


def split_by_use(links: np.ndarray, seen: Seen | None, settings: Settings) -> Split:
    """Split the sets of known duplicates (int64 links, shape (m, 2)) by what the encoder saw, if there is one.

    A set with a question that it was trained on is `train`; else, with one that it was tuned on, `development`; else
    `test`. So links that are newer than the training are tested, and a set that has merged with a training set is not.
    Without an encoder it is the split that one trained with these settings would have.
    """
    if seen is None:
        return split_links(links, settings.training)
    return split_by_seen(*components(links), "test", {"development": seen.development, "train": seen.train})


def retrieval(rankers: Mapping[str, Ranker], split: Split, archive_questions: int) -> LinkMetrics:
    """Return accuracy, recall and MAP of each system, for test questions against the whole archive.

    There are QUERIES of them at most; the metrics say how many of how many. Relevant are the other questions of its set
    of known duplicates.
    """
    available = split.questions_of("test")
    queries = sample_by_hash(available, QUERIES)
    sets = zip(queries.tolist(), split.set_of(queries), strict=True)
    relevant = [set(split.questions[split.sets == own].tolist()) - {query} for query, own in sets]
    rankings = {name: ranker.rank(queries, RANKED) for name, ranker in rankers.items() if len(queries)}
    values = {name: measures.retrieval_values(ranked, relevant, RANKED) for name, ranked in rankings.items()}
    return {
        "test_queries": len(queries),
        "test_queries_available": len(available),
        "archive_questions": archive_questions,
        "retrieval": {name: measures.retrieval_measures(ranked, relevant, RANKED) for name, ranked in rankings.items()},
        "intervals": {
            name: {of: measures.bootstrap_interval(own[of], _BOOTSTRAP_SEED, _RESAMPLES) for of in _WITH_INTERVALS}
            for name, own in values.items()
        },
    }


def pair_thresholds(
    systems: Mapping[str, Scorer], own: dict[str, float], split: Split, links: np.ndarray, keys: np.ndarray
) -> dict[str, float]:
    """Return the score from which each system calls a pair duplicates: its `own`, or the best on development pairs.

    Those are balanced, see `balanced_pairs`. Without any, only the `own` thresholds are returned.
    """
    pairs = _balanced(split, "development", links, keys)
    if not len(pairs.labels):
        return own
    scores = {name: system.score(pairs.left, pairs.right) for name, system in systems.items() if name not in own}
    return own | {name: measures.best_threshold(of_pairs, pairs.labels) for name, of_pairs in scores.items()}


def balanced_pairs(
    systems: Mapping[str, Scorer], thresholds: dict[str, float], split: Split, links: np.ndarray, keys: np.ndarray
) -> dict[str, float]:
    """Return the accuracy on linked test pairs and as many random ones (Bogdanova et al. 2015, section 5.1).

    A system without a threshold is left out.
    """
    test = _balanced(split, "test", links, keys)
    measured: dict[str, float] = {"pairs": len(test.labels)}
    for name, system in systems.items():
        if name in thresholds and len(test.labels):
            measured[name] = measures.accuracy(system.score(test.left, test.right), test.labels, thresholds[name])
    return measured


def labelled_pairs(systems: Mapping[str, Scorer], thresholds: dict[str, float], pairs: Pairs) -> Labelled:
    """Return accuracy, average precision and area under the ROC curve of each system on `pairs` of both labels.

    Negatives that people chose are harder than the random ones of `balanced_pairs`, from which the thresholds come. The
    last two measures need no threshold; a system without one has no accuracy.
    """
    from sklearn.metrics import average_precision_score, roc_auc_score  # which only `dupq evaluate` needs

    duplicates = int(pairs.labels.sum())
    measured: dict[str, dict[str, float]] = {}
    for name, system in systems.items():
        scores = system.score(pairs.left, pairs.right)
        measured[name] = {
            **({"accuracy": measures.accuracy(scores, pairs.labels, thresholds[name])} if name in thresholds else {}),
            "average_precision": float(average_precision_score(pairs.labels, scores)),
            "roc_auc": float(roc_auc_score(pairs.labels, scores)),
        }
    return {"duplicates": duplicates, "others": len(pairs.labels) - duplicates, "systems": measured}


def _balanced(split: Split, part: str, links: np.ndarray, keys: np.ndarray) -> Pairs:
    return with_random_negatives(split.links_of(part, links), keys, split, 1, np.random.default_rng(_NEGATIVES_SEED))
