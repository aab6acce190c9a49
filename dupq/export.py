"""Write a finished run for other tools, or as a page to post, into a new folder. DuckDB joins the tables.

The same run and archive give the same files: rows are sorted by the keys of their questions.
"""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import NamedTuple
from xml.sax.saxutils import escape, quoteattr

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import regex
from pyarrow import csv

from dupq import storage, tables
from dupq.encoders.saved import read_measure
from dupq.errors import DupqError, SettingError
from dupq.evaluation.verdicts import FORMULA
from dupq.job.records import check_output
from dupq.report.digest import digest
from dupq.report.explorer import excerpt
from dupq.runs.queries import LINK, Queries, open_queries
from dupq.runs.reader import Run, TableRow, finished_run
from dupq.runs.views import TableView

MAP, GRAPH, DIGEST = "questions.parquet", "clusters.graphml", "digest.md"
# `titled` has the questions' titles, and their ids in the user's own table. If there are none, no column of ids is
# written.
_TITLES = {
    "pairs": """SELECT site_left, question_id_left, one.own_id AS own_id_left, one.title AS title_left,
            site_right, question_id_right, other.own_id AS own_id_right, other.title AS title_right,
            p.* EXCLUDE (site_left, question_id_left, site_right, question_id_right)
        FROM pairs p
        LEFT JOIN titled one ON one.site = site_left AND one.question_id = question_id_left
        LEFT JOIN titled other ON other.site = site_right AND other.question_id = question_id_right
        ORDER BY site_left, question_id_left, site_right, question_id_right, source""",
    "clusters": """SELECT site, question_id, own_id, title, c.* EXCLUDE (site, question_id)
        FROM clusters c LEFT JOIN titled USING (site, question_id) ORDER BY site, question_id""",
}
# One question of each cluster is kept: its canonical one. A question in no cluster is kept too.
_KEPT = {
    "keep": """SELECT site, question_id, own_id, title, cluster_id, cluster_size,
            replace(canonical_reason, 'key', 'smaller id') AS reason
        FROM clusters LEFT JOIN titled USING (site, question_id) WHERE is_canonical ORDER BY site, question_id""",
    "drop": """SELECT c.site, c.question_id, one.own_id, one.title, canonical_site AS kept_site,
            canonical_id AS kept_question_id, kept.own_id AS kept_own_id, kept.title AS kept_title, cluster_id,
            replace(canonical_reason, 'key', 'smaller id') AS reason
        FROM clusters c LEFT JOIN titled one USING (site, question_id)
        LEFT JOIN titled kept ON kept.site = canonical_site AND kept.question_id = canonical_id
        WHERE NOT is_canonical ORDER BY c.site, c.question_id""",
}
_TITLED = "WITH titled AS (SELECT site, question_id, title, own_id FROM questions)"
_GUARDED = {"title", "title_left", "title_right", "kept_title"}  # ids come back as they are
# As text, since 0.85 in a column of float32 is 0.8500000238418579 in Python.
_NODES = f"""SELECT COLUMNS(*)::VARCHAR FROM (
    SELECT concat(site, '/', question_id) AS id, title, {LINK} AS url, site, question_id, cluster_id, cluster_size,
        is_canonical
    FROM clusters LEFT JOIN questions USING (site, question_id) WHERE cluster_size > 1 ORDER BY site, question_id)"""
_EDGES = """SELECT COLUMNS(*)::VARCHAR FROM (
    SELECT concat(site_left, '/', question_id_left) AS one, concat(site_right, '/', question_id_right) AS other,
        source, probability, similarity, jaccard, known_link
    FROM pairs WHERE joined ORDER BY site_left, question_id_left, site_right, question_id_right, source)"""
_KINDS = {"question_id": "long", "cluster_size": "long", "is_canonical": "boolean", "known_link": "boolean"}
_KINDS |= dict.fromkeys(("probability", "similarity", "jaccard"), "double")
_KEYS = {
    "node": ("site", "question_id", "title", "url", "cluster_id", "cluster_size", "is_canonical"),
    "edge": ("source", "probability", "similarity", "jaccard", "known_link"),
}
_NO_XML = regex.compile(r"[^\t\n\r\u0020-\uD7FF\uE000-\uFFFD\U00010000-\U0010FFFF]")  # XML 1.0, production 2
# The lists of neighbours are those of the search; they hold row numbers of the map. DuckDB cannot put lists that it is
# making on the disk, so it makes some at a time.
_PLACED = """CREATE TEMP TABLE placed AS
    SELECT row_number() OVER (ORDER BY site, question_id) - 1 AS row, site, question_id, x, y
    FROM points JOIN (SELECT site, question_id FROM questions) USING (site, question_id)"""
_ENTRIES = """CREATE TEMP TABLE entry AS
    WITH near AS (
        SELECT one.row AS one, other.row AS other, rank_left, rank_right, 1 - similarity / $1 AS distance
        FROM pairs JOIN placed one ON one.site = site_left AND one.question_id = question_id_left
        JOIN placed other ON other.site = site_right AND other.question_id = question_id_right
        WHERE similarity IS NOT NULL
    )
    SELECT one AS own, other AS row, rank_left AS rank, distance FROM near WHERE rank_left > 0
    UNION ALL SELECT other, one, rank_right, distance FROM near WHERE rank_right > 0"""
_NO_LISTS = "CREATE TEMP TABLE list (own BIGINT, ids BIGINT[], distances FLOAT[])"
_LISTS = """INSERT INTO list
    SELECT own, list(row ORDER BY rank, row), list(distance::FLOAT ORDER BY rank, row)
    FROM entry WHERE own BETWEEN $1 AND $2 GROUP BY own"""
_LISTS_AT_ONCE = 1_000_000
_MAP = f"""SELECT site, question_id, title, body_html AS text, {LINK} AS url, cluster_id, cluster_size, score,
        creation_date, x, y, struct_pack(ids := coalesce(ids, []), distances := coalesce(distances, [])) AS neighbors
    FROM placed JOIN questions USING (site, question_id) JOIN clusters USING (site, question_id)
    LEFT JOIN list ON own = placed.row ORDER BY placed.row"""
MAP_SCHEMA = pa.schema(
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
        pa.field("neighbors", pa.struct([("ids", pa.list_(pa.int64())), ("distances", pa.list_(pa.float32()))])),
    ]
)


class Written(NamedTuple):
    """A written file, with a note for its reader."""

    uri: str
    rows: int
    note: str = ""


class Format(NamedTuple):
    """A format: the function that writes a run into a folder, and how to open the result."""

    write: Callable[[Run, Queries, str], Iterable[Written]]
    opened_by: str  # with {output} for the folder


def export(run: str, to: str, output: str, since: str | None = None) -> list[Written]:
    """Write the run at the URI `run` in the format `to` (a key of FORMATS) into the new folder `output` (URI).

    A digest may be `since` another run than the one before (URI).

    Each file appears when it is whole; if one cannot be written, the others are removed. Raises DupqError for a run
    that is not finished, a missing table, and an output that exists or is inside the run; StorageError for a file that
    cannot be written.
    """
    if since is not None and to != "digest":
        raise SettingError(f"--since: --to {to} writes the whole run; only --to digest compares it with another")
    opened, folder = finished_run(run), storage.absolute(output)
    write = FORMATS[to].write if since is None else partial(_write_digest, since=finished_run(since))
    if f"{folder}/".startswith(f"{opened.uri}/"):
        raise DupqError(f"{folder}: is inside the run, which must stay as it is; give another --output")
    if storage.exists(folder):
        raise DupqError(f"{folder}: exists already; remove it, or give another --output")
    check_output(folder)
    try:
        views = {name: getattr(opened, name).dataset for name in ("pairs", "clusters", "questions")}
        with open_queries(opened, views) as queries:
            return [*write(opened, queries, folder)]
    except BaseException:
        storage.delete_folder(folder)
        raise


def _titled(selects: dict[str, str], queries: Queries) -> dict[str, str]:
    """Return the queries with the titles of their questions, and with the ids of the user's own table, if any."""
    has_ids = queries.rows("SELECT 1 FROM questions WHERE own_id IS NOT NULL LIMIT 1")
    shown = "true" if has_ids else "NOT contains(name, 'own_id')"
    return {name: f"{_TITLED} SELECT COLUMNS(lambda name: {shown}) FROM ({sql})" for name, sql in selects.items()}


def _write_csv(selects: dict[str, str], _: Run, queries: Queries, output: str) -> Iterator[Written]:
    """Write a file for each query, in UTF-8 by RFC 4180."""
    for name, sql in _titled(selects, queries).items():
        uri, rows, guards = storage.join(output, f"{name}.csv"), 0, 0
        schema = queries.table(f"SELECT * FROM ({sql}) LIMIT 0").schema
        options = csv.WriteOptions(eol="\r\n")
        with storage.open_output(uri) as sink, csv.CSVWriter(sink, schema, write_options=options) as writer:
            for batch in queries.batches(sql):
                columns = [
                    guarded(column) if name in _GUARDED else column
                    for name, column in zip(schema.names, batch.columns, strict=True)
                ]
                for column, before in zip(columns, batch.columns, strict=True):
                    guards += pc.sum(pc.not_equal(column, before)).as_py() or 0
                writer.write_batch(pa.record_batch(columns, schema=schema))
                rows += len(batch)
        note = f"{guards:,} texts that a spreadsheet could take for a formula got a '" if guards else ""
        yield Written(uri, rows, note)


def guarded(texts: pa.Array) -> pa.Array:
    """Put an apostrophe in front of texts that a spreadsheet could take for a formula."""
    is_formula = pc.match_substring_regex(texts, FORMULA)
    return pc.if_else(is_formula, pc.binary_join_element_wise("'", texts, ""), texts)


def _write_jsonl(_: Run, queries: Queries, output: str) -> Iterator[Written]:
    for name, sql in _titled(_TITLES, queries).items():
        uri, rows = storage.join(output, f"{name}.jsonl"), 0
        with storage.open_output(uri) as sink:
            for batch in queries.batches(f"SELECT to_json(line)::VARCHAR FROM ({sql}) AS line"):
                sink.write("".join(f"{line}\n" for line in batch[0].to_pylist()).encode())
                rows += len(batch)
        yield Written(uri, rows)


def _write_graphml(_: Run, queries: Queries, output: str) -> Iterator[Written]:
    """Write a node for each question of a cluster of two and more, an edge for each joined pair, and no nulls."""
    uri, counts = storage.join(output, GRAPH), dict.fromkeys(_KEYS, 0)
    with storage.open_output(uri) as sink:
        sink.write(b'<?xml version="1.0" encoding="UTF-8"?>\n<graphml xmlns="http://graphml.graphdrawing.org/xmlns">\n')
        for kind, names in _KEYS.items():
            for name in names:
                of_type = _KINDS.get(name, "string")
                key = f'<key id="{kind}_{name}" for="{kind}" attr.name="{name}" attr.type="{of_type}"/>\n'
                sink.write(key.encode())
        sink.write(b'<graph id="clusters" edgedefault="undirected">\n')
        for kind, sql in (("node", _NODES), ("edge", _EDGES)):
            for batch in queries.batches(sql):
                sink.write("".join(_element(row, kind) for row in batch.to_pylist()).encode())
                counts[kind] += len(batch)
        sink.write(b"</graph>\n</graphml>\n")
    yield Written(uri, sum(counts.values()), f"{counts['node']:,} nodes, {counts['edge']:,} edges")


def _element(row: TableRow, kind: str) -> str:
    ends = {"id": row["id"]} if kind == "node" else {"source": row["one"], "target": row["other"]}
    attributes = "".join(f" {name}={quoteattr(_fit(value))}" for name, value in ends.items())
    data = "".join(
        f'<data key="{kind}_{name}">{escape(_fit(row[name]), {chr(13): "&#13;"})}</data>'
        for name in _KEYS[kind]
        if row[name] is not None
    )
    return f"<{kind}{attributes}>{data}</{kind}>\n"


def _fit(text: str) -> str:
    """Replace characters that XML forbids."""
    return _NO_XML.sub("\ufffd", text)


def _write_atlas(run: Run, queries: Queries, output: str) -> Iterator[Written]:
    """Write a row for each question of the archive that has an embedding: of near copies, the one for all of them."""
    if not storage.list_files(storage.join(run.uri, "embeddings"), ".parquet"):
        raise DupqError(
            f"{run.uri}: has no embeddings, which the map is made of; make the run again in another --output of dedup, "
            "or export it --to graphml, jsonl or csv"
        )
    points = points_of(run.embeddings)
    queries.add("points", points)
    queries.make(_PLACED)
    queries.make(_ENTRIES, read_measure(run.encoder_uri).highest)
    queries.make(_NO_LISTS)
    for start in range(0, len(points), _LISTS_AT_ONCE):
        queries.make(_LISTS, start, start + _LISTS_AT_ONCE - 1)
    uri, rows = storage.join(output, MAP), 0

    def row_groups() -> Iterator[pa.Table]:
        nonlocal rows
        for batch in queries.batches(_MAP):
            rows += len(batch)
            texts = zip(batch["title"].to_pylist(), map(excerpt, batch["text"].to_pylist()), strict=True)
            text = pa.array(["\n".join(filter(None, both)) for both in texts], pa.string())
            yield pa.Table.from_batches([batch.set_column(batch.schema.get_field_index("text"), "text", text)])

    storage.write_row_groups(uri, row_groups(), MAP_SCHEMA)
    left_out = len(run.clusters) - rows
    note = f"{left_out:,} questions have no point: others represent them, or they are gone" if left_out else ""
    yield Written(uri, rows, note)


def points_of(embeddings: TableView) -> pa.Table:
    """Return each question on the two principal axes of the embeddings: site, question_id, x, y (float32).

    The axes are eigenvectors of the covariance matrix, which does not depend on the files. An axis is turned so that
    its largest component, the first of equal ones, is positive. With one dimension y is zero. Memory: 24 bytes per
    question.
    """
    dimensions = embeddings.schema.field("embedding").type.list_size
    count, total, products = 0, np.zeros(dimensions), np.zeros((dimensions, dimensions))
    for _, vectors in _vectors(embeddings):
        count += len(vectors)
        total += vectors.sum(axis=0)
        products += vectors.T @ vectors
    mean = total / max(1, count)
    _, eigenvectors = np.linalg.eigh(products / max(1, count) - np.outer(mean, mean))
    axes = np.zeros((dimensions, 2))
    axes[:, : min(2, dimensions)] = eigenvectors[:, ::-1][:, :2]
    largest = np.abs(axes).argmax(axis=0)
    axes = np.where(axes[largest, [0, 1]] < 0, -axes, axes)
    points = []
    for keys, vectors in _vectors(embeddings):
        xy = ((vectors - mean) @ axes).astype(np.float32)
        points.append(keys.append_column("x", [xy[:, 0].copy()]).append_column("y", [xy[:, 1].copy()]))
    return pa.concat_tables(points)


def _vectors(embeddings: TableView) -> Iterator[tuple[pa.Table, np.ndarray]]:
    """Yield the keys of each file, and its vectors (float64, shape (n, d))."""
    for table in embeddings.files(["site", "question_id", "embedding"]):
        values = pc.list_flatten(table["embedding"]).to_numpy().astype(np.float64)
        yield table.select(["site", "question_id"]), values.reshape(len(table), table["embedding"].type.list_size)


def _write_digest(run: Run, queries: Queries, output: str, since: Run | None = None) -> Iterator[Written]:
    uri = storage.join(output, DIGEST)
    storage.write_bytes(uri, digest(run, queries, since).encode())
    yield Written(uri, 0)


FORMATS = {
    "csv": Format(partial(_write_csv, _TITLES), "a spreadsheet that is told: UTF-8, separated by commas"),
    "jsonl": Format(_write_jsonl, "duckdb.sql(\"FROM '{output}/pairs.jsonl'\")"),
    "keep-drop": Format(
        partial(_write_csv, _KEPT), "a spreadsheet, or any reader of CSV; drop.csv names what is kept instead"
    ),
    "graphml": Format(_write_graphml, f"networkx.read_graphml('{{output}}/{GRAPH}'), or Gephi"),
    "embedding-atlas": Format(
        _write_atlas, f"embedding-atlas {{output}}/{MAP} --text text --x x --y y --neighbors neighbors"
    ),
    "digest": Format(_write_digest, f"an editor; {{output}}/{DIGEST} is Markdown, to post where you work"),
}
