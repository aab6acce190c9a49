"""The result of `dupq.find_duplicates`: its tables, and the texts to keep and to drop."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from markupsafe import Markup

from dupq.api.encoders import TextEncoder
from dupq.api.inputs import Texts
from dupq.report.summary import counted
from dupq.runs.views import TableView

Name = int | str  # a text's id or row
Encode = Callable[[list[str]], Any]  # texts to an array of floats, (n, d), compared by their cosines
_PAIRS_SHOWN = 10
_MAY_BE_NULL = ("jaccard", "similarity", "reranker")


@dataclass(frozen=True, repr=False)
class Duplicates:
    """The duplicates among n texts. Texts are named by their ids, or without ids by their rows, from 0."""

    pairs: TableView  # candidate pairs, the most probable first
    clusters: TableView  # a row per text
    threshold: float  # the probability from which a pair may join
    expected_precision: float  # of the encoder's pairs at or above the threshold
    encoder: "TextEncoder | Encode | np.ndarray"  # the encoder that was used
    read: tuple[str, ...] = ()  # columns of the table
    not_read: tuple[str, ...] = ()  # other columns that hold text
    reranker: str | None = None  # the model that read likely pairs

    def groups(self) -> list[list[Name]]:
        """Return the clusters of two and more texts, as ids or rows, the largest first."""
        table = self.clusters.arrow(["id", "cluster"], [("cluster_size", ">", 1)])
        groups = table.group_by("cluster", use_threads=False).aggregate([("id", "list")])["id_list"].to_pylist()
        return sorted(groups, key=len, reverse=True)

    def keep(self) -> list[Name]:
        """Return the texts without their duplicates: the first text of each cluster, in their order."""
        return list(self.clusters.arrow(["id"], pc.field("id") == pc.field("cluster"))["id"].to_pylist())

    def drop(self) -> list[Name]:
        """Return the other texts: each is a duplicate of one that `keep` returns."""
        return list(self.clusters.arrow(["id"], pc.field("id") != pc.field("cluster"))["id"].to_pylist())

    def __len__(self) -> int:
        """Return the number of groups."""
        return len(self.groups())

    def __repr__(self) -> str:
        """Return the counts and the likeliest pairs."""
        rows = self.pairs.arrow(["title_left", "title_right", "probability"]).slice(0, _PAIRS_SHOWN).to_pylist()
        lines = [f"  {row['probability']:.3f}  {row['title_left']}  =  {row['title_right']}" for row in rows]
        return "\n".join([self._headline(), *lines])

    def _repr_html_(self) -> str:
        return Markup("<p>{}</p>").format(self._headline()) + self.pairs._repr_html_()

    def _headline(self) -> str:
        groups, texts = counted(len(self), "group"), counted(len(self.clusters), "text")
        read = f"; read {', '.join(self.read)}" if self.read else ""
        not_read = f"; not read {', '.join(self.not_read)}" if self.not_read else ""
        reranker = f"; likely pairs read by {self.reranker}" if self.reranker else "; no reranker has read likely pairs"
        return f"{groups} of duplicates among {texts}: {len(self.keep()):,} to keep{read}{not_read}{reranker}"


def pairs_table(near: pa.Table, scored: pa.Table, labels: np.ndarray, texts: Texts) -> pa.Table:
    """Return the table of pairs, of near duplicates (VERIFIED) and of the encoder (SCORED), the most probable first."""
    near = near.append_column("probability", near["jaccard"])
    scored = scored.append_column("source", pa.array(["encoder"] * len(scored), pa.string()))
    order = [("probability", "descending"), ("left", "ascending"), ("right", "ascending")]
    pairs = pa.concat_tables([near, scored], promote_options="default").sort_by(order)
    left, right, titles = pairs["left"], pairs["right"], pa.array(texts.titles, pa.string())
    columns = {
        "left": texts.ids.take(left),  # the text's id or row
        "right": texts.ids.take(right),
        "title_left": titles.take(left),
        "title_right": titles.take(right),
        "source": pairs["source"],  # exact, near_duplicate or encoder
        "jaccard": pairs["jaccard"],  # of the shingle sets; null for source encoder
        "similarity": pairs["similarity"],  # score by the encoder; null unless source is encoder
        "probability": pairs["probability"],
        "joined": labels[left.to_numpy()] == labels[right.to_numpy()],  # whether both are in one cluster
        "reranker": pairs["reranker"],  # its cosine; null for pairs that it has not read, and for near pairs
    }
    return _required(pa.table(columns))


def clusters_table(labels: np.ndarray, texts: Texts) -> pa.Table:
    """Return the table of clusters: each text with the first text of its cluster, the row in `labels`."""
    columns = {
        "row": np.arange(len(labels)),
        "id": texts.ids,  # as `left` and `right` of pairs
        "title": pa.array(texts.titles, pa.string()),
        "cluster": texts.ids.take(pa.array(labels)),  # the id of the cluster's first text
        "cluster_size": np.bincount(labels)[labels],
    }
    return _required(pa.table(columns))


def _required(table: pa.Table) -> pa.Table:
    """Return the table with its columns declared as required, except _MAY_BE_NULL."""
    return table.cast(pa.schema([field.with_nullable(field.name in _MAY_BE_NULL) for field in table.schema]))
