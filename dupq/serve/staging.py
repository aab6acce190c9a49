"""The passes over a run's tables and its archive that the index is made of. Each holds one piece of a table.

Beside it, in memory: the keys of the questions in clusters of two and more, 8 bytes each.
"""

import functools
import json
import sqlite3
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from dupq import storage, tables
from dupq.archive import table_files
from dupq.clusters.identity import KINDS
from dupq.errors import DupqError
from dupq.report.explorer import choice
from dupq.report.explorer.data import TAGS, shown_title
from dupq.runs.reader import Run
from dupq.runs.table_view import PIECE
from dupq.shards import site_in
from dupq.text.keys import Sites, places_among

SOURCES = ["exact", "near_duplicate", "encoder", "known_link", "verdict"]  # their places are stored
FIGURES = ["jaccard", "similarity", "title_overlap", "text_overlap", "tag_overlap", "rank_left", "rank_right"]
_STATS = ["cluster_id", "size", "edges", "density", "weakest_link", "bridges", "mean_probability"]


def sites_of(run: Run) -> Sites:
    """All sites of the run."""
    told = run.metrics.get("sites")
    return Sites(list(told) if told else _seen(run))


def _seen(run: Run) -> list[str]:
    return sorted({site for piece in run.clusters.pieces(["site"]) for site in pc.unique(piece["site"]).to_pylist()})


def stage_clusters(database: sqlite3.Connection, run: Run, sites: Sites) -> np.ndarray:
    """The clusters of two and more, what became of them, and their questions; the keys (int64) of these, sorted."""
    for stats in run.cluster_stats.pieces(_STATS, pc.field("size") > 1):
        _insert(database, "stats", (_values(stats[name]) for name in _STATS))
    if choice.is_compared(run):
        for changes in run.changes.pieces(["cluster_id", "kind"], pc.field("cluster_id").is_valid()):
            _insert(database, "change", [changes["cluster_id"].to_pylist(), _bits(changes["kind"], KINDS, "changes")])
    keys = [np.zeros(0, np.int64)]
    columns = [
        "site",
        "question_id",
        "cluster_id",
        "canonical_site",
        "canonical_id",
        "is_canonical",
        "canonical_reason",
    ]
    for piece in run.clusters.pieces(columns, pc.field("cluster_size") > 1):
        own = sites.pack_columns(piece["site"], piece["question_id"], run.clusters.place)
        heads = sites.pack_columns(piece["canonical_site"], piece["canonical_id"], run.clusters.place)
        _insert(database, "member", [own.tolist(), heads.tolist()])
        first = piece.filter(piece["is_canonical"])
        named = [first["cluster_id"].to_pylist(), first["canonical_reason"].to_pylist()]
        _insert(database, "head", [own[piece["is_canonical"].to_numpy()].tolist(), *named])
        keys.append(own)
    return np.sort(np.concatenate(keys))


def stage_pairs(database: sqlite3.Connection, run: Run, sites: Sites) -> None:
    """The pairs that join questions, each with its evidence."""
    ends = ["site_left", "question_id_left", "site_right", "question_id_right"]
    columns = [*ends, "source", "probability", *FIGURES, "known_link", "joined"]
    for piece in run.pairs.pieces(columns, pc.field("joined")):
        left, right = (
            sites.pack_columns(piece[f"site_{side}"], piece[f"question_id_{side}"], run.pairs.place)
            for side in ("left", "right")
        )
        sources = _places(piece["source"], SOURCES, "source", run.pairs.place).tolist()
        figures = [_values(piece[name]) for name in ("probability", *FIGURES)]
        marks = [pc.fill_null(piece["known_link"], False).to_pylist(), choice.is_alike_in_meaning(piece).to_pylist()]
        _insert(database, "pair", [left.tolist(), right.tolist(), sources, *figures, *marks])


def stage_questions(database: sqlite3.Connection, run: Run, sites: Sites, keys: np.ndarray) -> list[str]:
    """What is shown of the questions of `keys` (sorted) without reading their bodies, and where these are.

    The files of the archive, whose places in this list are stored; what is gone from it is left out.
    """
    files = [file.uri for file in table_files(run.manifest["inputs"]["questions"]) if site_in(file.uri) in sites.names]
    wanted = ["question_id", "title", "score", "tags"]
    for number, uri in enumerate(files):
        of_site = functools.partial(sites.pack, site_in(uri) or "", place=uri)
        start = 0
        for piece in _pieces(uri, tables.QUESTIONS, wanted):
            found, rows = _among(keys, of_site(piece["question_id"].to_numpy()), start)
            start += len(piece)
            some = piece.take(pa.array(rows - (start - len(piece))))
            titles = [shown_title(title) for title in some["title"].to_pylist()]
            tags = [json.dumps((tags or [])[:TAGS], ensure_ascii=False) for tags in some["tags"].to_pylist()]
            shown = [titles, some["score"].to_pylist(), tags]
            _insert(database, "question", [found.tolist(), *shown, [number] * len(rows), rows.tolist()], "OR REPLACE")
    return files


def stage_embeddings(database: sqlite3.Connection, run: Run, sites: Sites, keys: np.ndarray) -> list[str]:
    """Where the embeddings of the questions of `keys` (sorted) are; the files, whose places in this list are stored."""
    files = [file.uri for file in storage.list_files(storage.join(run.uri, "embeddings"), ".parquet")]
    schema = pa.schema([pa.field("site", pa.string()), pa.field("question_id", pa.int64())])
    for number, uri in enumerate(files):
        start = 0
        for piece in _pieces(uri, schema, schema.names):
            found, rows = _among(keys, sites.pack_columns(piece["site"], piece["question_id"], uri), start)
            start += len(piece)
            _insert(database, "embedded", [found.tolist(), [number] * len(rows), rows.tolist()], "OR REPLACE")
    return files


def _pieces(uri: str, schema: pa.Schema, columns: list[str]) -> Iterator[pa.Table]:
    """Columns of a file of which some may be missing: these are null."""
    there = storage.read_schema(uri).names
    with storage.open_input(uri) as stream, storage.readable(uri, "Parquet"):
        file = pq.ParquetFile(stream, buffer_size=1 << 20, pre_buffer=False)
        for batch in file.iter_batches(PIECE, columns=[name for name in columns if name in there], use_threads=False):
            read = pa.table(batch)
            missing = [schema.field(name) for name in columns if name not in there]
            for field in missing:
                read = read.append_column(field, pa.nulls(len(read), field.type))
            yield tables.conform(read, pa.schema([schema.field(name) for name in columns]), uri)


def _among(keys: np.ndarray, own: np.ndarray, start: int) -> tuple[np.ndarray, np.ndarray]:
    """Those of `own` that are among `keys`, and their rows, of which the first is `start`."""
    _, is_there = places_among(keys, own)
    return own[is_there], np.flatnonzero(is_there) + start


def _values(column: pa.ChunkedArray) -> list[object]:
    """The values, fractions rounded as they are shown."""
    is_fraction = pa.types.is_floating(column.type)
    rounded: list[object] = (pc.round(column.cast(pa.float64()), 4) if is_fraction else column).to_pylist()
    return rounded


def _places(column: pa.ChunkedArray, names: list[str], what: str, place: str) -> np.ndarray:
    found = pc.index_in(column, pa.array(names))
    if found.null_count:
        unknown = column.filter(pc.is_null(found))[0].as_py()
        raise DupqError(
            f"{place}: {what} {str(unknown)[:50]!r} is not known to this version of dupq; install a newer one"
        )
    places: np.ndarray = found.to_numpy()
    return places


def _bits(column: pa.ChunkedArray, names: Iterable[str], place: str) -> list[int]:
    bits: list[int] = (1 << _places(column, list(names), "kind", place).astype(np.int64)).tolist()
    return bits


def _insert(database: sqlite3.Connection, table: str, columns: Iterable[Sequence[object]], how: str = "") -> None:
    values = list(columns)
    marks = ", ".join("?" * len(values))
    database.executemany(f"INSERT {how} INTO {table} VALUES ({marks})", zip(*values, strict=True))
