"""The questions and the pairs of the clusters that the page shows, in one pass over each table.

A pass holds one file and its finds.
"""

from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple

import networkx as nx
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dupq.runs.reader import Key, Run, TableRow, ends_of
from dupq.text.html import LINK_MARK, html_to_text

QUESTIONS = 40  # of a cluster
PAIRS = 120  # of a cluster
EXCERPT = 500  # characters of a body
_ROWS = 100_000  # held before those beyond QUESTIONS are dropped
_HTML = 8_000  # characters of a body that its excerpt is made from


class Text(NamedTuple):
    """What a reader is shown of a question. All of it is its author's: hostile text."""

    title: str
    excerpt: str
    score: int | None
    tags: list[str]


class Members(NamedTuple):
    """The first questions of a cluster, the canonical one before all, and why it is that."""

    keys: list[Key]
    reason: str | None


class Contents(NamedTuple):
    """What the run and its archive say of the clusters and the questions that the page shows."""

    members: dict[str, Members]  # by cluster
    pairs: dict[str, list[TableRow]]  # the rows of `pairs` that join two of these members, by cluster, in any order
    texts: dict[Key, Text]  # of the members and of other questions; those no longer in the archive are left out
    whole: dict[Key, tuple[str, str]]  # titles and bodies (HTML) of questions that are compared, not shown; likewise


def gather(run: Run, cluster_ids: set[str], keys: set[Key], compared: set[Key]) -> Contents:
    """The contents of clusters, the texts of the questions `keys` too, and the whole ones of `compared`."""
    own = members(run, cluster_ids)
    shown = keys.union(*(some.keys for some in own.values()))
    found = Contents(own, _pairs(run, own), {}, {})
    for key, row in run.question_rows(shown | compared, ["title", "body_html", "score", "tags"]):
        if key in shown:
            found.texts[key] = Text(row["title"], excerpt(row["body_html"]), row["score"], row["tags"])
        if key in compared:
            found.whole[key] = row["title"], row["body_html"]
    return found


def clusters_of(run: Run, keys: set[Key]) -> set[str]:
    """The ids of the clusters of questions."""
    ids = pa.array(sorted({number for _, number in keys}), pa.int64())
    found: set[str] = set()
    for table in run.clusters.files(["site", "question_id", "cluster_id"]):
        rows = table.filter(pc.is_in(table["question_id"], ids)).to_pylist()
        found |= {row["cluster_id"] for row in rows if (row["site"], row["question_id"]) in keys}
    return found


def members(run: Run, cluster_ids: Iterable[str]) -> dict[str, Members]:
    """At most QUESTIONS questions of each cluster, by id."""
    wanted = pa.array(sorted(cluster_ids), pa.string())
    kept: list[pa.Table] = []
    most = _ROWS
    for table in run.clusters.files(["site", "question_id", "cluster_id", "is_canonical", "canonical_reason"]):
        kept.append(table.filter(pc.is_in(table["cluster_id"], wanted)))
        if sum(map(len, kept)) > most:
            kept = [_first(pa.concat_tables(kept))]
            most = _ROWS + 2 * len(kept[0])
    found: dict[str, Members] = {}
    for row in _first(pa.concat_tables(kept)).to_pylist() if kept else []:
        own = found.setdefault(row["cluster_id"], Members([], row["canonical_reason"]))
        own.keys.append((row["site"], row["question_id"]))
    return found


def _first(rows: pa.Table) -> pa.Table:
    """The first QUESTIONS rows of each cluster."""
    columns = [("cluster_id", "ascending"), ("is_canonical", "descending")]
    rows = rows.sort_by([*columns, ("site", "ascending"), ("question_id", "ascending")])
    ids = rows["cluster_id"].to_numpy()
    begins = np.flatnonzero(np.r_[True, ids[1:] != ids[:-1]]) if len(ids) else np.zeros(0, np.int64)
    lengths = np.diff(np.r_[begins, len(ids)])
    places = np.arange(len(ids)) - np.repeat(begins, lengths)
    return rows.filter(pa.array(places < QUESTIONS))


def _pairs(run: Run, of_clusters: dict[str, Members]) -> dict[str, list[TableRow]]:
    home = {key: cluster_id for cluster_id, own in of_clusters.items() for key in own.keys}
    ids = pa.array(sorted({number for _, number in home}), pa.int64())
    found: dict[str, list[TableRow]] = defaultdict(list)
    for table in run.pairs.files():
        inside = pc.and_(pc.is_in(table["question_id_left"], ids), pc.is_in(table["question_id_right"], ids))
        for row in table.filter(pc.and_(inside, table["joined"])).to_pylist():
            left, right = ends_of(row)
            if left in home and home[left] == home.get(right):
                found[home[left]].append(row)
    return found


def least_probable(rows: list[TableRow]) -> list[TableRow]:
    """Rows of `pairs`, the least probable first."""
    return sorted(rows, key=lambda row: (row["probability"], *ends_of(row), row["source"]))


def telling(rows: list[TableRow]) -> list[TableRow]:
    """At most PAIRS of the pairs of a cluster, the least probable first.

    Of more pairs those are taken that hold the cluster together at best (a maximum spanning tree), and then the least
    probable.
    """
    rows = least_probable(rows)
    if len(rows) <= PAIRS:
        return rows
    graph = nx.Graph()
    for place, row in enumerate(rows):
        graph.add_edge(*ends_of(row), weight=row["probability"], place=place)
    tree = {data["place"] for _, _, data in nx.maximum_spanning_edges(graph, data=True)}
    least = [place for place in range(len(rows)) if place not in tree][: PAIRS - len(tree)]
    return [rows[place] for place in sorted(tree.union(least))]


def excerpt(body_html: str) -> str:
    """The first EXCERPT characters of a body's text, code and all, with "…" where it goes on."""
    cut = body_html if len(body_html) <= _HTML else _without_unfinished_tag(body_html[:_HTML])
    text = " ".join(html_to_text(cut, "kept").replace(LINK_MARK, " [link] ").split())
    return text if len(text) <= EXCERPT and cut == body_html else text[:EXCERPT] + "…"


def _without_unfinished_tag(html: str) -> str:
    begin = html.rfind("<")
    return html[:begin] if begin > html.rfind(">") else html
