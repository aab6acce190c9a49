"""What evidence and partition each bring: known duplicates found against the number of joined pairs.

    python benchmarks/decisions.py --run out/travel/runs [--pairs 50 100 200 500 1000] [--output FILE]

The run was made with `--set run.keep_work=true`. Of its candidate pairs (`work/pairs/scored`) clusters are made four
times: by the encoder's score alone or by the probability, and as whatever is connected (components) or as the best
partition. "score, components" is what dupq did before it weighed evidence. For each wanted number the threshold is the
lowest at which at most so many pairs of questions share a cluster.

Test links are the pairs of known duplicates of the test part, which neither the encoder nor the calibration has seen.
Questions of the training part are left out altogether: their pairs would be found by heart.
Precision is a lower bound: a joined pair counts as right if it is a known duplicate of any part, and links are
incomplete. Pairs that are no candidates count here as the least likely one; a run scores those of small components.
"""

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.special import logit

from dupq import storage
from dupq.clusters.components import components, represented
from dupq.clusters.partition import partition
from dupq.runs.reader import open_run
from dupq.tables import KNOWN_SETS, SCORED

_STEPS = 18  # of the search for a threshold
_LEAST_PROBABILITY = 1e-3
_COLUMNS = ["left", "right", "similarity", "probability"]


class Pairs(NamedTuple):
    """The candidate pairs of a run."""

    keys: np.ndarray  # int64, sorted
    ends: np.ndarray  # int64, (m, 2), places of `keys`
    orders: dict[str, np.ndarray]  # weights by which pairs are joined


class Known(NamedTuple):
    """Questions with known duplicates, the set of each, and the links of the test part."""

    keys: np.ndarray
    sets: np.ndarray
    is_test: np.ndarray
    links: np.ndarray
    trained: np.ndarray  # the keys of the training part


def read_pairs(run: str, known: Known) -> Pairs:
    """Candidate pairs with their score and log-odds, without questions whose duplicates the encoder learned from."""
    files = storage.list_files(storage.join(run, "work", "pairs", "scored"), ".parquet")
    tables = [storage.read_table(file.uri, SCORED, _COLUMNS) for file in files]
    left, right, score, p = (np.concatenate([table[name].to_numpy() for table in tables]) for name in _COLUMNS)
    fresh = ~np.isin(np.stack([left, right]), known.trained).any(axis=0)
    left, right, score, p = (column[fresh] for column in (left, right, score, p))
    keys, places = np.unique(np.concatenate([left, right]), return_inverse=True)
    odds = logit(np.clip(p.astype(np.float64), _LEAST_PROBABILITY, 1 - 1e-6))
    return Pairs(keys, places.reshape(2, -1).T, {"score": score.astype(np.float64), "probability": odds})


def read_known(run: str) -> Known:
    """The known duplicates among the questions that were searched."""
    table = storage.read_table(storage.join(run, "work", "calibration", "known_sets", "part-00000.parquet"), KNOWN_SETS)
    keys, sets = table["key"].to_numpy(), table["duplicates"].to_numpy()
    parts = np.array(table["part"].to_pylist(), str)
    is_test, trained = parts == "test", keys[parts == "train"]
    links = []
    for label in np.unique(sets[is_test]):
        one, other = np.triu_indices(int((sets == label).sum()), 1)
        members = keys[sets == label]
        links.append(np.stack([members[one], members[other]], axis=1))
    return Known(keys, sets, is_test, np.concatenate([np.zeros((0, 2), np.int64), *links]), trained)


def clustered(pairs: Pairs, order: str, parted: bool, threshold: float) -> np.ndarray:
    """The cluster of each key."""
    weights = pairs.orders[order] - threshold
    if parted:
        return partition(len(pairs.keys), pairs.ends, weights, min(0.0, float(weights.min())))
    labels = np.arange(len(pairs.keys))
    members, smallest = components(pairs.ends[weights > 0])
    labels[members] = smallest
    return labels


def measured(pairs: Pairs, known: Known, labels: np.ndarray) -> dict[str, Any]:
    """What a clustering is worth."""
    sizes = np.bincount(labels)
    count = joined_pairs(sizes[sizes > 1])
    cluster_of = np.full(len(known.keys), -1)
    places = np.minimum(np.searchsorted(pairs.keys, known.keys), len(pairs.keys) - 1)
    there = pairs.keys[places] == known.keys
    cluster_of[there] = labels[places[there]]
    together = np.unique(np.stack([cluster_of, known.sets], axis=1)[there], axis=0, return_counts=True)[1]
    right = joined_pairs(together[together > 1])
    return {
        "joined pairs": count,
        "largest": int(sizes.max(initial=0)),
        "test links": len(known.links),
        "test links in one cluster": float(are_together(known, pairs, labels).mean()),
        "the same, each set alike": sets_recall(known, pairs, labels),
        "precision, lower bound": right / max(1, count),
    }


def joined_pairs(sizes: np.ndarray) -> int:
    """How many pairs of questions share a cluster, by the sizes of clusters."""
    return int(np.sum(sizes * (sizes - 1) // 2))


def are_together(known: Known, pairs: Pairs, labels: np.ndarray) -> np.ndarray:
    """Which links have both questions in one cluster (bool)."""
    return np.equal(*represented(known.links, pairs.keys, pairs.keys[labels]).T)


def sets_recall(known: Known, pairs: Pairs, labels: np.ndarray) -> float:
    """The mean over the sets of the test part of the share of their links that are in one cluster."""
    owners = known.sets[np.searchsorted(known.keys, known.links[:, 0])]
    _, sets, counts = np.unique(owners, return_inverse=True, return_counts=True)
    return float(np.mean(np.bincount(sets, are_together(known, pairs, labels)) / counts))


def at_most(pairs: Pairs, order: str, parted: bool, wanted: int) -> np.ndarray:
    """The clusters at the lowest threshold with at most `wanted` pairs in clusters."""
    values = np.sort(pairs.orders[order])
    low, high = max(0, len(values) - 4 * wanted - 1), len(values) - 1
    best = clustered(pairs, order, parted, values[high])
    for _ in range(_STEPS):
        middle = (low + high) // 2
        labels = clustered(pairs, order, parted, values[middle])
        if joined_pairs(np.bincount(labels)) <= wanted:
            best, high = labels, middle
        else:
            low = middle + 1
        if low >= high:
            break
    return best


def rows_of(run: str, wanted: list[int]) -> Iterator[dict[str, Any]]:
    """A row for each way to decide and each number of pairs."""
    known = read_known(run)
    pairs = read_pairs(run, known)
    for order in pairs.orders:
        for parted in (False, True):
            for count in wanted:
                labels = at_most(pairs, order, parted, count)
                way = f"{order}, {'partition' if parted else 'components'}"
                yield {"decided by": way, "wanted pairs": count, **measured(pairs, known, labels)}


def main() -> None:
    """Read a run, print a row a decision, write them."""
    parser = argparse.ArgumentParser(description="What evidence and partition each bring.")
    parser.add_argument("--run", required=True, metavar="URI")
    parser.add_argument("--pairs", type=int, nargs="+", default=[50, 100, 200, 500, 1000])
    parser.add_argument("--output", metavar="FILE")
    arguments = parser.parse_args()
    rows = []
    for row in rows_of(open_run(arguments.run).uri, arguments.pairs):
        rows.append(row)
        print(json.dumps(row), flush=True)
    if arguments.output:
        Path(arguments.output).write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
