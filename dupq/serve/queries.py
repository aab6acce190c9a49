"""Queries on an index, from any thread."""

import sqlite3
import threading

from dupq.runs.reader import Key, TableRow
from dupq.serve.index import Meta, connect
from dupq.text.keys import ID_BITS, MAXIMUM_ID, Sites


class Queries:
    """An open index, and what its keys and places mean."""

    def __init__(self, path: str, meta: Meta) -> None:
        """`path` is the index, which says `meta` of itself."""
        self.meta = meta
        self.sites = Sites(meta["sites"])
        self._path = path
        self._local = threading.local()  # a connection belongs to one thread

    def rows(self, sql: str, *values: object) -> list[TableRow]:
        """The rows of a query, by the names of its columns."""
        if not hasattr(self._local, "database"):
            self._local.database = connect(self._path)
            self._local.database.row_factory = sqlite3.Row
        return [dict(row) for row in self._local.database.execute(sql, values)]

    def key_of(self, packed: int) -> Key:
        """A question's key."""
        return self.sites.names[packed >> ID_BITS], packed & MAXIMUM_ID

    def packed(self, key: Key) -> int:
        """A question's key as the index has it."""
        site, number = key
        return self.sites.names.index(site) << ID_BITS | number


def split(packed: int) -> tuple[int, int]:
    """The place of a question's site in the list of these, and its id: what the scripts call it by."""
    return packed >> ID_BITS, packed & MAXIMUM_ID
