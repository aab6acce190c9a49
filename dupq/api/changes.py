"""What became of clusters between two runs: `Run.changes_since`."""

import pyarrow as pa
import pyarrow.compute as pc

from dupq.clusters import identity
from dupq.errors import DupqError
from dupq.runs.reader import Run
from dupq.runs.table_view import TableView, in_memory
from dupq.tables import CHANGED_CLUSTERS
from dupq.text.keys import Sites


def changes_since(run: Run, earlier: Run) -> TableView:
    """See Run.changes_since."""
    if not isinstance(earlier, Run):
        raise DupqError(f"changes_since: {type(earlier).__name__}; a run that dupq.open_run has opened expected")
    sites = Sites([*run.metrics["sites"], *earlier.metrics["sites"]])
    found = identity.changes(own_clusters(run, sites), own_clusters(earlier, sites))
    return in_memory(f"{run.uri} since {earlier.uri}", changes_table(found, sites))


def own_clusters(run: Run, sites: Sites) -> identity.Grouping:
    """The clusters of two and more of the run itself, by id."""
    rows = run.clusters.arrow(["site", "question_id", "cluster_id"], pc.field("cluster_size") > 1)
    named = [text.rpartition("/") for text in rows["cluster_id"].to_pylist()]
    names = pa.chunked_array([[site for site, _, _ in named]], pa.string())
    numbers = pa.chunked_array([[int(number) for _, _, number in named]], pa.int64())
    place = run.clusters.place
    keys = sites.pack_columns(rows["site"], rows["question_id"], place)
    return identity.Grouping(keys, sites.pack_columns(names, numbers, place))


def changes_table(found: identity.Changes, sites: Sites) -> pa.Table:
    """The rows of `changes`."""
    ids = [
        pa.array([sites.label(key) if key >= 0 else None for key in side.tolist()], pa.string())
        for side in (found.ids_now, found.ids_then)
    ]
    rest = [pa.array(column) for column in (found.sizes_now, found.sizes_then, found.shared)]
    return pa.table([pa.array(found.kinds.tolist(), pa.string()), *ids, *rest], schema=CHANGED_CLUSTERS)
