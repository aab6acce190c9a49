"""pairs.csv and clusters.csv, for spreadsheets and for tools that read nothing better (RFC 4180, UTF-8).

Titles are their authors': one that begins with = + - or @ would be run as a formula by a spreadsheet. It gets an
apostrophe in front, as OWASP recommends ("CSV Injection").
"""

from collections.abc import Iterable

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from dupq import storage, tables
from dupq.export.by_key import ByKey, by_key, sites_of
from dupq.export.written import Written
from dupq.runs.reader import Run
from dupq.text.keys import Sites

# Also what was given an apostrophe already, so that taking one away gives back every text; and the wide characters
# that spreadsheets take for the same; blanks and what is not seen may come first.
_FORMULA = r"^'*[\p{Z}\p{Cc}\p{Cf}]*[=+\-@＝＋－＠]"
_SIDES = ("left", "right")
_TITLES = {f"question_id_{side}": f"title_{side}" for side in _SIDES}


def write(run: Run, output: str) -> list[Written]:
    """Write pairs.csv (every pair, with both titles) and clusters.csv (every question, with its title).

    Memory: one file of a table, and 32 bytes a question of the archive; on S3 also the file that is written. The local
    disk holds all titles meanwhile.
    """
    sites = sites_of(run)
    with by_key(run.questions, ["title"], sites) as titles:
        pairs = (_with_titles(table, _TITLES, titles, sites, run.pairs.place) for table in run.pairs.files())
        own = {"question_id": "title"}
        clusters = (_with_titles(table, own, titles, sites, run.clusters.place) for table in run.clusters.files())
        return [
            _written(storage.join(output, "pairs.csv"), pairs, _schema(tables.PAIRS, _TITLES)),
            _written(storage.join(output, "clusters.csv"), clusters, _schema(tables.CLUSTERS, own)),
        ]


def guarded(texts: pa.ChunkedArray) -> pa.ChunkedArray:
    """Texts with an apostrophe in front of those that a spreadsheet could take for a formula."""
    is_formula = pc.match_substring_regex(texts, _FORMULA)
    return pc.if_else(is_formula, pc.binary_join_element_wise("'", texts, ""), texts)


def _schema(schema: pa.Schema, titles: dict[str, str]) -> pa.Schema:
    """With each title behind its question's id."""
    fields = []
    for field in schema:
        fields.append(field)
        if field.name in titles:
            fields.append(pa.field(titles[field.name], pa.string()))
    return pa.schema([field.with_nullable(True) for field in fields])


def _with_titles(table: pa.Table, titles: dict[str, str], known: ByKey, sites: Sites, place: str) -> pa.Table:
    for ids, title in titles.items():
        keys = sites.pack_columns(table[ids.replace("question_id", "site")], table[ids], place)
        table = table.append_column(title, known.take(keys)["title"].cast(pa.string()))
    return table


def _written(uri: str, found: Iterable[pa.Table], schema: pa.Schema) -> Written:
    rows = guards = 0
    options = csv.WriteOptions(eol="\r\n")
    with storage.open_output(uri) as sink, csv.CSVWriter(sink, schema, write_options=options) as writer:
        for table in found:
            for name in [field.name for field in schema if pa.types.is_string(field.type)]:
                texts = guarded(table[name])
                guards += pc.sum(pc.not_equal(texts, table[name])).as_py() or 0
                table = table.set_column(table.column_names.index(name), name, texts)
            writer.write_table(table.select(schema.names).cast(schema))
            rows += len(table)
    return Written(uri, rows, f"{guards:,} texts that a spreadsheet could take for a formula got a '" if guards else "")
