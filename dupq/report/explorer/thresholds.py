"""What a run would give at other thresholds, for the report's slider.

Pairs are counted. Clusters and questions are those of connected components: a run then takes apart the components
whose pairs disagree (dupq/clusters/partition.py), so it has at most as many questions in clusters as are said here.
"""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from scipy import sparse
from scipy.sparse.csgraph import connected_components

from dupq.runs.reader import Run
from dupq.text.keys import Sites

STEPS = 100  # of the probability
LOWEST = 10  # step: below it, components of pairs that are hardly any duplicates join nearly everything
PAIRS = 4_000_000  # of the encoder that are held at once: the most probable

_COLUMNS = ["site_left", "question_id_left", "site_right", "question_id_right", "source", "probability", "joined"]


def steps_of(probabilities: np.ndarray) -> np.ndarray:
    """The step (int64, 0 to STEPS - 1) of each probability (float32): at a threshold of s / STEPS it is above from s.

    Compared as the run does, in float32.
    """
    edges = (np.arange(STEPS) / STEPS).astype(np.float32)
    return np.searchsorted(edges, probabilities, "right") - 1


def at_thresholds(run: Run) -> dict[str, list[float]] | None:
    """Columns with a row for each step, from the lowest one that is held to the highest: what joins from there on.

    `threshold`, `pairs` of the encoder, `expected` (their mean probability), `known` (of them are known links),
    `clusters` and `questions` in them, `largest`. None if the run has no counts of its sites, or no candidate pair.
    """
    if not run.metrics.get("sites"):
        return None
    counts, sums, known = _histogram(run)
    above = np.cumsum(counts[::-1])[::-1]
    if not above[0]:
        return None
    first = int(np.flatnonzero(above <= PAIRS)[0]) if (above <= PAIRS).any() else STEPS - 1
    first = max(first, LOWEST)
    rows = _components(run, first)
    totals = [np.cumsum(column[::-1])[::-1][first:] for column in (counts, sums, known)]
    expected = np.divide(totals[1], totals[0], out=np.ones(len(totals[0])), where=totals[0] > 0)
    return {
        "threshold": [step / STEPS for step in range(first, STEPS)],
        "pairs": totals[0].tolist(),
        "expected": np.round(expected, 4).tolist(),
        "known": totals[2].tolist(),
        **rows,
    }


def _histogram(run: Run) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Of the encoder's pairs in each step: how many, the sum of their probabilities, how many are known links."""
    counts, sums, known = np.zeros(STEPS, np.int64), np.zeros(STEPS), np.zeros(STEPS, np.int64)
    for table in run.pairs.files(["source", "probability", "known_link"]):
        mine = table.filter(pc.equal(table["source"], "encoder"))
        probabilities = mine["probability"].to_numpy()
        steps = steps_of(probabilities)
        counts += np.bincount(steps, minlength=STEPS)
        sums += np.bincount(steps, probabilities.astype(np.float64), minlength=STEPS)
        known += np.bincount(steps[pc.fill_null(mine["known_link"], False).to_numpy()], minlength=STEPS)
    return counts, sums, known


def _components(run: Run, first: int) -> dict[str, list[int]]:
    """`clusters`, `questions` and `largest` from step `first` on."""
    ends, steps = _pairs(run, first)
    nodes, places = np.unique(ends, return_inverse=True)
    places = places.reshape(ends.shape)
    labels = np.arange(len(nodes))
    found: dict[str, list[int]] = {"clusters": [], "questions": [], "largest": []}
    for step in range(STEPS, first - 1, -1):  # step STEPS: what joins at any threshold
        labels = _joined(labels, places[steps == step])
        if step < STEPS:
            sizes = np.bincount(labels)
            several = sizes[sizes > 1]
            values = (len(several), int(several.sum()), int(several.max(initial=0)))
            for name, value in zip(found, values, strict=True):
                found[name].append(value)
    return {name: column[::-1] for name, column in found.items()}


def _joined(labels: np.ndarray, pairs: np.ndarray) -> np.ndarray:
    """`labels` (int64, 0 to n - 1 without gaps) after the groups of both ends of `pairs` are joined."""
    if not len(pairs):
        return labels
    groups = int(labels.max()) + 1
    left, right = labels[pairs[:, 0]], labels[pairs[:, 1]]
    graph = sparse.coo_array((np.ones(len(left), np.int8), (left, right)), shape=(groups, groups))
    return connected_components(graph.tocsr(), directed=False)[1].astype(np.int64)[labels]


def _pairs(run: Run, first: int) -> tuple[np.ndarray, np.ndarray]:
    """Keys (int64, (m, 2)) of the pairs from step `first` on, and their steps; STEPS for those that always join."""
    sites = Sites(sorted(run.metrics["sites"]))
    ends, steps = [np.zeros((0, 2), np.int64)], [np.zeros(0, np.int64)]
    for table in run.pairs.files(_COLUMNS):
        is_encoders = pc.equal(table["source"], "encoder").to_numpy()
        own = np.where(is_encoders, steps_of(table["probability"].to_numpy()), STEPS)
        kept = np.where(is_encoders, own >= first, table["joined"].to_numpy())
        some, place = table.filter(pa.array(kept)), run.pairs.place
        sides = [
            sites.pack_columns(some[f"site_{side}"], some[f"question_id_{side}"], place) for side in ("left", "right")
        ]
        ends.append(np.stack(sides, axis=1).reshape(-1, 2))
        steps.append(own[kept])
    return np.concatenate(ends), np.concatenate(steps)
