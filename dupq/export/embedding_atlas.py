"""A map of the questions for Embedding Atlas (https://apple.github.io/embedding-atlas): one Parquet file.

Its `neighbors` are as the tool reads them (`embedding-atlas --help`, 0.26): a struct of `ids`, zero-based numbers of
rows, and `distances`. `x` and `y` spare it to make embeddings of its own.
"""

import tempfile
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from dupq import storage, tables
from dupq.encoders.description import read_measure
from dupq.errors import DupqError
from dupq.export.by_key import ByKey, by_key, found, of_sites, sites_of
from dupq.export.neighbour_lists import COLUMNS, KIND, Rows, lists, spill
from dupq.export.projection import principal_axes
from dupq.export.written import Written
from dupq.neighbours.embeddings import Embeddings
from dupq.report.explorer.contents import excerpt
from dupq.runs.embeddings import embeddings_of
from dupq.runs.links import link
from dupq.runs.reader import Key, Run
from dupq.runs.table_view import TableView
from dupq.text.keys import Sites

FILE = "questions.parquet"
_QUESTION = ["site", "question_id", "title", "body_html", "score", "creation_date"]
_AT_ONCE = 10_000  # texts as Python objects
_SCHEMA = pa.schema(
    [
        pa.field("site", pa.string(), nullable=False),
        pa.field("question_id", pa.int64(), nullable=False),
        pa.field("title", pa.string(), nullable=False),
        pa.field("text", pa.string(), nullable=False),  # the title and the beginning of the body
        pa.field("url", pa.string()),  # null: the site is no host name
        pa.field("cluster_id", pa.string()),
        pa.field("cluster_size", pa.int64()),
        tables.QUESTIONS.field("score"),
        tables.QUESTIONS.field("creation_date"),
        pa.field("x", pa.float32(), nullable=False),
        pa.field("y", pa.float32(), nullable=False),
        pa.field("neighbors", KIND, nullable=False),
    ]
)


class _Map(NamedTuple):
    """Where each embedded question is: sorted keys (int64, shape (n,)) and points (float32, shape (n, 2))."""

    keys: np.ndarray
    points: np.ndarray


def write(run: Run, output: str) -> list[Written]:
    """Write questions.parquet: a row for each question that has an embedding and is in the archive still.

    Copies and near copies have none: the question that represents them has. Neighbours are those that the run's search
    listed, so at most `neighbours.k`. Memory: 64 bytes a question, one file of a table, and the square of the
    embedding's dimensions; on S3 also the file that is written. The local disk holds 24 bytes a neighbour and the ids
    of clusters meanwhile. Raises DupqError for a run without embeddings, and for one whose encoder is gone.
    """
    if not storage.list_files(storage.join(run.uri, "embeddings"), ".parquet"):
        raise DupqError(
            f"{run.uri}: has no embeddings, which the map is made of; make the run again in another --output of dedup, "
            "or export it --to graphml, huggingface or csv"
        )
    sites, highest = sites_of(run), read_measure(run.encoder_uri).highest
    places = _placed(run.embeddings, sites)
    rows = Rows([keys[found(places.keys, keys)[1]] for keys in _keys(run.questions, sites)])
    uri = storage.join(output, FILE)
    with (
        tempfile.TemporaryDirectory(prefix="dupq-export-") as folder,
        by_key(run.clusters, ["cluster_id", "cluster_size"], sites) as clusters,
    ):
        spill(run.pairs.files(COLUMNS), rows, sites, highest, folder)
        groups = _groups(run.questions, sites, places, clusters)
        storage.write_row_groups(uri, _listing(groups, rows, folder, run.questions.place), _SCHEMA)
    left_out = len(run.clusters) - int(rows.starts[-1])
    note = f"{left_out:,} questions have no point: others represent them, or they are gone" if left_out else ""
    return [Written(uri, int(rows.starts[-1]), note)]


def _placed(embeddings: TableView, sites: Sites) -> _Map:
    """Two passes over the embeddings: for the axes, and for the points."""

    def pieces() -> Iterator[Embeddings]:
        for table in embeddings.files(["site", "question_id", "embedding"]):
            yield embeddings_of(table, sites, embeddings.place)

    dimensions = embeddings.schema.field("embedding").type.list_size
    mean, axes = principal_axes((piece.vectors for piece in pieces()), dimensions)
    keys, points = [np.zeros(0, np.int64)], [np.zeros((0, 2), np.float32)]
    for piece in pieces():
        keys.append(piece.keys)
        points.append(((piece.vectors - mean) @ axes).astype(np.float32))
    all_keys = np.concatenate(keys)
    order = np.argsort(all_keys, kind="stable")
    return _Map(all_keys[order], np.concatenate(points)[order])


def _keys(questions: TableView, sites: Sites) -> Iterator[np.ndarray]:
    """The keys of each file of the archive."""
    for table in questions.files(["site", "question_id"]):
        known = of_sites(table, sites)
        yield sites.pack_columns(known["site"], known["question_id"], questions.place)


def _groups(questions: TableView, sites: Sites, places: _Map, clusters: ByKey) -> Iterator[pa.Table]:
    """The rows of each file of the archive, without their neighbours."""
    for table in questions.files(_QUESTION):
        known = of_sites(table, sites)
        keys = sites.pack_columns(known["site"], known["question_id"], questions.place)
        at, has_point = found(places.keys, keys)
        rows, points = known.filter(pa.array(has_point)), places.points[at[has_point]]
        own = clusters.take(keys[has_point])
        columns = {name: rows[name] for name in ("site", "question_id", "title", "score", "creation_date")}
        yield pa.table(
            {
                **columns,
                **own,
                "text": pa.array(_texts(rows), pa.string()),
                "url": pa.array(map(link, _named(rows)), pa.string()),
                "x": pa.array(np.ascontiguousarray(points[:, 0])),
                "y": pa.array(np.ascontiguousarray(points[:, 1])),
            }
        )


def _listing(groups: Iterator[pa.Table], rows: Rows, folder: str, place: str) -> Iterator[pa.Table]:
    """The groups with their neighbours."""
    for number, table in enumerate(groups):
        neighbours = lists(rows, number, folder)
        if len(neighbours) != len(table):
            raise DupqError(f"{place}: has changed while it was read; export again")
        yield table.append_column("neighbors", neighbours)


def _texts(rows: pa.Table) -> Iterator[str]:
    for batch in rows.select(["title", "body_html"]).to_batches(_AT_ONCE):
        for title, body in zip(batch["title"].to_pylist(), batch["body_html"].to_pylist(), strict=True):
            yield "\n".join(part for part in (title, excerpt(body)) if part)


def _named(rows: pa.Table) -> Iterator[Key]:
    return zip(rows["site"].to_pylist(), rows["question_id"].to_pylist(), strict=True)
