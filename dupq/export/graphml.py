"""The clusters as a graph: their questions, and the pairs that hold them together. For Gephi, networkx, yEd, igraph."""

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc
import regex
from lxml import etree

from dupq import storage
from dupq.export.by_key import by_key, sites_of
from dupq.export.written import Written
from dupq.runs.links import link
from dupq.runs.reader import Run, TableRow

FILE = "clusters.graphml"
_NAMESPACE = "http://graphml.graphdrawing.org/xmlns"
_NODE = {
    "site": "string",
    "question_id": "long",
    "title": "string",
    "url": "string",
    "cluster_id": "string",
    "cluster_size": "long",
    "is_canonical": "boolean",
}
_EDGE = {
    "source": "string",
    "probability": "double",
    "similarity": "double",
    "jaccard": "double",
    "known_link": "boolean",
}
_NO_XML = regex.compile(r"[^\t\n\r\u0020-\uD7FF\uE000-\uFFFD\U00010000-\U0010FFFF]")  # XML 1.0, production 2
_AT_ONCE = 10_000  # rows as Python objects


def write(run: Run, output: str) -> list[Written]:
    """Write clusters.graphml: a node for each question of a cluster of two and more, an edge for each joined pair.

    A node's id is site/question_id. What is null is left out; a character that XML has no room for becomes U+FFFD.
    Memory: one file of a table, and 32 bytes a question of the archive; on S3 also the file that is written. The local
    disk holds all titles meanwhile.
    """
    uri, nodes, edges = storage.join(output, FILE), 0, 0
    with storage.open_output(uri) as sink, etree.xmlfile(sink, encoding="utf-8") as xml:
        xml.write_declaration()
        with xml.element("graphml", xmlns=_NAMESPACE):
            for kind, names in (("node", _NODE), ("edge", _EDGE)):
                for name, of_type in names.items():
                    key = {"id": f"{kind}_{name}", "for": kind, "attr.name": name, "attr.type": of_type}
                    xml.write(etree.Element("key", key))
            with xml.element("graph", id="clusters", edgedefault="undirected"):
                for row in _nodes(run):  # a line each
                    xml.write(_element("node", {"id": _label(row, "")}, row, _NODE))
                    nodes += 1
                for row in _edges(run):
                    ends = {"source": _label(row, "_left"), "target": _label(row, "_right")}
                    xml.write(_element("edge", ends, row, _EDGE))
                    edges += 1
    return [Written(uri, nodes + edges, f"{nodes:,} nodes, {edges:,} edges")]


def _nodes(run: Run) -> Iterator[TableRow]:
    sites = sites_of(run)
    with by_key(run.questions, ["title"], sites) as titles:
        for table in run.clusters.files(["site", "question_id", "cluster_id", "cluster_size", "is_canonical"]):
            rows = table.filter(pc.greater(table["cluster_size"], 1))
            keys = sites.pack_columns(rows["site"], rows["question_id"], run.clusters.place)
            for row in _rows(rows.append_column("title", titles.take(keys)["title"])):
                yield {**row, "url": link((row["site"], row["question_id"]))}


def _edges(run: Run) -> Iterator[TableRow]:
    ends = [f"{name}_{side}" for side in ("left", "right") for name in ("site", "question_id")]
    for table in run.pairs.files([*ends, *_EDGE, "joined"]):
        rows = table.filter(table["joined"])
        for name, of_type in _EDGE.items():
            if of_type == "double":  # as text: 0.85, where the nearest double to the float32 is 0.8500000238418579
                rows = rows.set_column(rows.column_names.index(name), name, rows[name].cast(pa.string()))
        yield from _rows(rows)


def _rows(table: pa.Table) -> Iterator[TableRow]:
    for batch in table.to_batches(_AT_ONCE):
        yield from batch.to_pylist()


def _label(row: TableRow, side: str) -> str:
    return _fit(f"{row[f'site{side}']}/{row[f'question_id{side}']}")


def _element(kind: str, attributes: dict[str, str], row: TableRow, names: dict[str, str]) -> etree._Element:
    element = etree.Element(kind, attributes)
    element.tail = "\n"
    for name in names:
        if row[name] is not None:
            datum = etree.SubElement(element, "data", key=f"{kind}_{name}")
            datum.text = str(row[name]).lower() if isinstance(row[name], bool) else _fit(str(row[name]))
    return element


def _fit(text: str) -> str:
    return _NO_XML.sub("\ufffd", text)
