"""The index that `dupq serve` looks things up in: one SQLite file, made in one pass over each table of a run.

It holds the clusters of two and more, their questions without bodies, the pairs that join them, the trigrams of titles,
and where bodies and embeddings are. SQLite is asked to hold little in memory, so that this does not grow with the run.
"""

import hashlib
import itertools
import json
import os
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from importlib import resources

import numpy as np
from typing_extensions import TypedDict

from dupq import storage
from dupq.errors import DupqError, StorageError
from dupq.json_files import checked
from dupq.report.explorer import choice
from dupq.runs import sample
from dupq.runs.reader import Run, ends_of
from dupq.serve import staging

FORMAT = 1
_MARK = 0x64757071  # SQLite's application id of such a file: "dupq"
_CACHE_KB = 32_000  # of the file; each of the sorts, some side by side, takes as much
Told = Callable[[str, int, int], None]  # a step, how much of it is done, and of how much


class Meta(TypedDict):
    """What the file says of itself."""

    of: str  # which run, as it is
    sites: list[str]
    questions: list[str]  # the files of the archive
    embeddings: list[str]
    clusters: int


def build(run: Run, path: str, tell: Told = lambda *_: None) -> None:
    """Make the index of `run` in the file `path`, whole or not at all.

    Raises DupqError for a damaged run, StorageError where the file cannot be written.
    """
    descriptor, part = tempfile.mkstemp(".part", ".index-", os.path.dirname(path) or ".")
    os.close(descriptor)
    try:
        database = sqlite3.connect(part, isolation_level=None)
        try:
            _build(database, run, tell)
        finally:
            database.close()
        os.replace(part, path)
    except (sqlite3.Error, OSError) as error:
        raise StorageError(f"{path}: the index cannot be written ({error}); --index names another file") from error
    finally:
        if os.path.exists(part):
            os.unlink(part)


def _build(database: sqlite3.Connection, run: Run, tell: Told) -> None:
    for pragma in (f"cache_size=-{_CACHE_KB}", "journal_mode=OFF", "synchronous=OFF", f"application_id={_MARK}"):
        database.execute(f"PRAGMA {pragma}")
    check_search(database)
    _run(database, "staged.sql")
    sites = staging.sites_of(run)
    tell("clusters", 0, 6)
    keys = staging.stage_clusters(database, run, sites)
    tell("pairs", 1, 6)
    staging.stage_pairs(database, run, sites)
    tell("questions", 2, 6)
    asked = [side for pair in sample.asked(run) for side in pair[:2]]
    asked += [side for row in choice.worklist(run) for side in ends_of(row)]
    packed = [int(sites.pack(site, np.array([number]), "pairs to judge")[0]) for site, number in asked]
    questions = staging.stage_questions(database, run, sites, np.union1d(keys, np.array(packed, np.int64)))
    tell("embeddings", 3, 6)
    embeddings = staging.stage_embeddings(database, run, sites, keys)
    tell("order", 4, 6)
    staged = _count(database, "stats")
    _run(database, "joined.sql")
    clusters = _count(database, "cluster")
    if clusters != staged:
        raise DupqError(
            f"{run.uri}: cluster_stats/ has {staged:,} clusters, clusters/ {clusters:,} of them; it is damaged"
        )
    tell("titles", 5, 6)
    database.executemany("INSERT INTO search (rowid, titles) VALUES (?, ?)", _titles(database))
    meta = Meta(of=identity(run), sites=sites.names, questions=questions, embeddings=embeddings, clusters=clusters)
    database.execute("CREATE TABLE meta (value TEXT NOT NULL)")
    database.execute("INSERT INTO meta VALUES (?)", [json.dumps(meta)])
    database.execute("COMMIT")


def check_search(database: sqlite3.Connection) -> None:
    """Raise DupqError if this Python's SQLite cannot search titles."""
    try:
        database.execute("CREATE VIRTUAL TABLE temp.probe USING fts5 (titles, tokenize = 'trigram')")
        database.execute("DROP TABLE temp.probe")
    except sqlite3.OperationalError as error:
        found = sqlite3.sqlite_version
        raise DupqError(
            f"SQLite {found} of this Python: {error}; 3.34 or newer with FTS5 is needed to serve"
        ) from error


def _titles(database: sqlite3.Connection) -> Iterator[tuple[int, str]]:
    """The titles of each cluster, a line each, in lower case: no other case is searched for."""
    rows = database.execute(
        "SELECT place, title FROM in_cluster JOIN question USING (key) ORDER BY place, number"  # in the tables' order
    )
    for place, own in itertools.groupby(rows, key=lambda row: int(row[0])):
        yield place, "\n".join(row[1] for row in own).lower()


def identity(run: Run) -> str:
    """What an index of the run as it is now is known by."""
    success = hashlib.sha256(storage.read_bytes(storage.join(run.uri, "_SUCCESS"))).hexdigest()
    return f"{FORMAT} {run.uri} {success}"


def read_meta(path: str, run: Run) -> Meta | None:
    """What the index at `path` says of itself; None if there is none, or it is of another run.

    Raises DupqError for a file that is no index.
    """
    if not os.path.exists(path):
        return None
    try:
        database = connect(path)
        try:
            (mark,) = database.execute("PRAGMA application_id").fetchone()
            (value,) = database.execute("SELECT value FROM meta").fetchone() if mark == _MARK else ("",)
        finally:
            database.close()
    except (sqlite3.Error, OSError, TypeError) as error:
        raise DupqError(f"{path}: no index of dupq serve ({error}); --index names another file") from error
    if not value:
        raise DupqError(f"{path}: no index of dupq serve, so it is not replaced; --index names another file")
    told = checked(json.loads(value), Meta, path, "remove it")
    return told if told["of"] == identity(run) else None


def connect(path: str) -> sqlite3.Connection:
    """A connection that only reads, for one thread."""
    return sqlite3.connect(f"file:{_escaped(path)}?mode=ro", uri=True)


def _escaped(path: str) -> str:
    return path.replace("%", "%25").replace("?", "%3f").replace("#", "%23")


def _count(database: sqlite3.Connection, table: str) -> int:
    return int(database.execute(f"SELECT count(*) FROM {table}").fetchone()[0])


def _run(database: sqlite3.Connection, name: str) -> None:
    """A script of this package; it ends the transaction that is open, and begins one."""
    database.executescript("BEGIN;\n" + (resources.files("dupq.serve") / name).read_text(encoding="utf-8"))
