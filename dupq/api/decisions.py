"""The clusters of a finished run at another threshold (`run.at`), and what became of clusters between two runs
(`Run.changes_since`).
"""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dupq import storage
from dupq.api.inputs import share
from dupq.clusters import identity
from dupq.clusters.components import Constraints, components, constraints, represented, with_represented
from dupq.clusters.decision import (
    SCORED_SIZE,
    decide,
    spread_of,
)
from dupq.errors import DupqError, SettingError
from dupq.evaluation.sampling import read_verdicts
from dupq.evaluation.verdicts import DIFFERENT, SAME, VERDICTS_FILE
from dupq.links import known_duplicates
from dupq.runs.reader import Run
from dupq.runs.scoring import PAIR_COLUMNS, Scorer, ends, pairs_of
from dupq.runs.table_view import TableView, in_memory
from dupq.text.keys import Sites, are_among


def changes_since(run: Run, earlier: Run) -> TableView:
    """See Run.changes_since."""
    if not isinstance(earlier, Run):
        raise DupqError(f"changes_since: {type(earlier).__name__}; a run that dupq.open_run has opened expected")
    sites = Sites([*run.metrics["sites"], *earlier.metrics["sites"]])
    found = identity.changes(own_clusters(run, sites), own_clusters(earlier, sites))
    return in_memory(f"{run.uri} since {earlier.uri}", identity.changes_table(found, sites))


def own_clusters(run: Run, sites: Sites) -> identity.Grouping:
    """The clusters of two and more of the run itself, by id."""
    rows = run.clusters.arrow(["site", "question_id", "cluster_id"], pc.field("cluster_size") > 1)
    named = [text.rpartition("/") for text in rows["cluster_id"].to_pylist()]
    names = pa.chunked_array([[site for site, _, _ in named]], pa.string())
    numbers = pa.chunked_array([[int(number) for _, _, number in named]], pa.int64())
    place = run.clusters.place
    keys = sites.pack_columns(rows["site"], rows["question_id"], place)
    return identity.Grouping(keys, sites.pack_columns(names, numbers, place))


_NEAR = ["exact", "near_duplicate"]
_NO_PAIRS = np.zeros((0, 2), np.int64)


@dataclass(frozen=True)
class Decision:
    """The clusters of a run at another threshold."""

    threshold: float
    pairs: int  # of the encoder, from the threshold on
    expected_precision: float  # of these
    clusters: TableView  # the questions of clusters of two and more: site, question_id, cluster_id, cluster_size
    changes: TableView  # what became of the run's own clusters, as in the run's table `changes`
    is_complete: bool  # False: pairs that no question lists counted as the least likely; see docs/python.md


def decided(run: Run, threshold: float | None, precision: float | None) -> Decision:
    """The decision at a threshold, or at the one for a precision. See Run.at."""
    if (threshold is None) == (precision is None):
        raise SettingError("at: give a threshold or a precision, not both")
    wanted = share(threshold if threshold is not None else precision, "at: ")
    sites = Sites(sorted(run.metrics["sites"]))
    table = run.pairs.arrow(PAIR_COLUMNS)
    near = ends(table.filter(pc.is_in(table["source"], pa.array(_NEAR))), sites)
    members, representatives = components(near)
    pairs = pairs_of(table, sites)
    spread = spread_of(pairs.probabilities)
    chosen = spread.choose(wanted) if threshold is None else spread.above(wanted)
    scorer = Scorer(run, sites, pairs)
    cut = chosen["threshold"]
    held = _constraints(run, sites, members, representatives)
    solved = decide(pairs.keys, pairs.probabilities, held.joined, cut, SCORED_SIZE, scorer.score, held.apart)
    then = own_clusters(run, sites)
    keys, clusters = with_represented((members, representatives), solved)
    ids = identity.cluster_ids(identity.Grouping(keys, clusters), then).of(clusters)
    changed = identity.changes(identity.Grouping(keys, ids), then)
    return Decision(
        cut,
        int(chosen["pairs"]),
        chosen["expected_precision"],
        in_memory(f"{run.uri} at {cut}", _clusters_table(keys, ids, sites)),
        in_memory(f"{run.uri} at {cut}", identity.changes_table(changed, sites)),
        scorer.is_complete,
    )


def _constraints(run: Run, sites: Sites, members: np.ndarray, representatives: np.ndarray) -> Constraints:
    """What the run's verdicts and the known duplicates that it used hold together and apart, of representatives."""
    links, kept = run.manifest["inputs"].get("links"), storage.join(run.uri, VERDICTS_FILE)
    is_used = run.config["clusters"]["known_links"] == "use"
    known = known_duplicates(links, sites) if is_used and links is not None else _NO_PAIRS
    judged = read_verdicts(kept if storage.exists(kept) else None, sites)
    rows = run.clusters.arrow(["site", "question_id"])
    archive = np.sort(sites.pack_columns(rows["site"], rows["question_id"], run.clusters.place))
    same, known, apart = (
        pairs[are_among(archive, pairs).all(axis=1)] for pairs in (judged.pairs(SAME), known, judged.pairs(DIFFERENT))
    )
    return constraints(same, known, apart, lambda keys: represented(keys, members, representatives))


def _clusters_table(keys: np.ndarray, ids: np.ndarray, sites: Sites) -> pa.Table:
    names, numbers = sites.unpack(keys)
    _, places, sizes = np.unique(ids, return_inverse=True, return_counts=True)
    return pa.table(
        {
            "site": pa.array(names, pa.string()),
            "question_id": numbers,
            "cluster_id": pa.array([sites.label(key) for key in ids.tolist()], pa.string()),
            "cluster_size": sizes[places],
        }
    )
