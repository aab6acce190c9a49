"""Whether a run's probabilities hold, on a made archive whose duplicates are all known.

    python benchmarks/calibration.py --run out/made/runs --truth made/truth.tsv [--output FILE]

`truth.tsv` is what benchmarks/big_archive.py writes: planted questions and their originals, of one site. Questions that
share an original are duplicates of one another. Of the encoder's pairs it counts, by probability and above each of the
run's thresholds, the share that is right; of the clusters, the share of their pairs that is right and, by kind, the
planted pairs inside one.
"""

import argparse
import csv
import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.compute as pc

from dupq.clusters.components import components, represented
from dupq.runs.reader import Run, open_run

_EDGES = (0.2, 0.4, 0.6, 0.8, 1.0)


class Truth:
    """The planted pairs by kind, and the original of each question."""

    def __init__(self, path: Path) -> None:
        planted: dict[str, list[tuple[int, int]]] = {}
        with path.open(encoding="utf-8") as lines:
            for row in csv.DictReader(lines, delimiter="\t"):
                planted.setdefault(row["kind"], []).append((int(row["question_id"]), int(row["related_id"])))
        self.planted = {kind: np.array(pairs) for kind, pairs in planted.items()}
        self._members, self._originals = components(np.concatenate(list(self.planted.values())))

    def originals(self, questions: np.ndarray) -> np.ndarray:
        """The smallest id among the duplicates of each question: its own where it has none."""
        places = np.minimum(np.searchsorted(self._members, questions), len(self._members) - 1)
        return np.where(self._members[places] == questions, self._originals[places], questions)


def measure_pairs(run: Run, truth: Truth) -> dict[str, Any]:
    """The share of the encoder's pairs that is right, by probability and above each threshold."""
    table = run.pairs.arrow(["question_id_left", "question_id_right", "source", "probability"])
    table = table.filter(pc.field("source") == "encoder")
    left, right, p = (table[name].to_numpy() for name in ("question_id_left", "question_id_right", "probability"))
    is_right = truth.originals(left) == truth.originals(right)
    bins = [
        {"from": low, "to": high, **_right(is_right, p, (p >= low) & (p < high + (high == 1)))}
        for low, high in itertools.pairwise(_EDGES)
    ]
    above = [
        {"wanted": row["precision"], "threshold": row["threshold"], **_right(is_right, p, p >= row["threshold"])}
        for row in run.metrics["thresholds"][1:]  # the first is the run's own, which is among the others or beside them
    ]
    return {"probability": bins, "thresholds": above}


def _right(is_right: np.ndarray, p: np.ndarray, chosen: np.ndarray) -> dict[str, Any]:
    if not chosen.any():
        return {"pairs": 0, "mean_probability": None, "right": None}
    mean, right = float(np.mean(p[chosen])), float(np.mean(is_right[chosen]))
    return {"pairs": int(chosen.sum()), "mean_probability": round(mean, 4), "right": round(right, 4)}


def joined_pairs(sizes: np.ndarray) -> int:
    """How many pairs of questions share a cluster, by the sizes of clusters."""
    return int(np.sum(sizes * (sizes - 1) // 2))


def measure_clusters(run: Run, truth: Truth) -> dict[str, Any]:
    """The share of pairs in clusters that is right, and of each kind of planted pairs the share in one cluster."""
    table = run.clusters.arrow(["question_id", "cluster_id"]).sort_by("question_id")
    questions = table["question_id"].to_numpy()
    clusters = pc.dictionary_encode(table["cluster_id"]).unify_dictionaries().combine_chunks().indices.to_numpy()
    both = np.stack([clusters, truth.originals(questions)], axis=1)
    _, firsts, sizes = np.unique(clusters, return_index=True, return_counts=True)
    first_of_cluster = questions[firsts][clusters]
    right = joined_pairs(np.unique(both, axis=0, return_counts=True)[1])
    ends = {kind: represented(pairs, questions, first_of_cluster).T for kind, pairs in truth.planted.items()}
    return {
        "clusters": int(np.sum(sizes > 1)),
        "largest": int(sizes.max()),
        "pairs": joined_pairs(sizes),
        "right": round(right / max(1, joined_pairs(sizes)), 4),
        "planted_in_one_cluster": {kind: round(float(np.equal(*sides).mean()), 4) for kind, sides in ends.items()},
    }


def main() -> None:
    """Read a run and its truth, print what holds, write it."""
    parser = argparse.ArgumentParser(description="Whether a run's probabilities hold on a made archive.")
    parser.add_argument("--run", required=True, metavar="URI")
    parser.add_argument("--truth", required=True, type=Path, metavar="FILE")
    parser.add_argument("--output", type=Path, metavar="FILE")
    arguments = parser.parse_args()
    run, truth = open_run(arguments.run), Truth(arguments.truth)
    measured = {"questions": run.metrics["questions"], **measure_pairs(run, truth), **measure_clusters(run, truth)}
    text = json.dumps(measured, indent=1)
    print(text)
    if arguments.output:
        arguments.output.write_text(text + "\n")


if __name__ == "__main__":
    main()
