"""The list of clusters, page by page, as the explorer's filters ask for it."""

from functools import lru_cache
from typing import Any

from dupq.clusters.identity import KINDS
from dupq.runs.reader import TableRow
from dupq.serve.asked import Condition, condition_of, joined, order_of, start_of
from dupq.serve.queries import Queries
from dupq.serve.staging import SOURCES

PAGE = 100  # clusters; as SHOWN in static/list.js


class Clusters:
    """All clusters of two and more."""

    def __init__(self, index: Queries) -> None:
        """Counts are remembered, as each page of a list tells the same one."""
        self._index = index
        self._counted = lru_cache(64)(self._count)

    def page(self, asked: dict[str, str]) -> dict[str, Any]:
        """The clusters from `from` on, how many there are, and whether the one that is open is among them."""
        wanted, order = condition_of(asked), order_of(asked)
        rows = self._index.rows(
            # first their places, so that of the others nothing more is read
            "SELECT cluster.*, title FROM cluster LEFT JOIN question ON question.key = head WHERE place IN "
            f"(SELECT place FROM cluster WHERE {wanted.sql} ORDER BY {order} LIMIT ? OFFSET ?) ORDER BY {order}",
            *(*wanted.values, PAGE, start_of(asked)),
        )
        is_found = bool(asked.get("open")) and self._has(wanted, asked["open"])
        return {"total": self._counted(wanted), "entries": [_entry(row) for row in rows], "isOpenFound": is_found}

    def _count(self, wanted: Condition) -> int:
        (row,) = self._index.rows(f"SELECT count(*) AS found FROM cluster WHERE {wanted.sql}", *wanted.values)
        return int(row["found"])

    def _has(self, wanted: Condition, cluster_id: str) -> bool:
        both = joined([Condition("cluster_id = ?", (cluster_id,)), wanted])
        return bool(self._index.rows(f"SELECT 1 FROM cluster WHERE {both.sql}", *both.values))


def _entry(row: TableRow) -> dict[str, Any]:
    """What the list shows of a cluster: as in static/local.js."""
    title = "No longer in the archive" if row["title"] is None else row["title"] or "Untitled"
    cluster = {"id": row["cluster_id"], "size": row["size"], "weakest_link": row["weakest_link"]}
    return {
        "cluster": {**cluster, "changes": changes_of(row)},
        "title": title,
        "sources": _named(row["sources"], SOURCES),
        "meaning": bool(row["meaning"]),
    }


def changes_of(row: TableRow) -> list[str]:
    """What became of a cluster since the earlier run."""
    return _named(row["changes"], list(KINDS))


def _named(bits: int, names: list[str]) -> list[str]:
    return sorted(name for bit, name in enumerate(names) if bits >> bit & 1)
