"""Reads tables of any origin and with any columns: JSON, JSON Lines and Parquet by DuckDB, CSV and TSV by
`csv_files.py`.

Each row becomes attribute names and texts, like a row of a dump's XML, so that `posts.py` judges all rows alike. An id
that is not a whole number becomes a hash (`id_number`), which stays the same from night to night; the table `ids` has
both. Positions count rows from 1; those of CSV count lines.
"""

import contextlib
import datetime
import itertools
import json
import re
import tempfile
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from html import unescape
from typing import Literal, NamedTuple

import duckdb
import numpy as np
import pyarrow as pa
import xxhash

from dupq.dump import files
from dupq.dump.csv_files import CsvFile, Values
from dupq.dump.files import Columns, Member, Table, column_indices, has_ending, may_have_questions, quoted
from dupq.dump.parsing import NOT_HTTPS, WITHOUT_ID, Format, ParsedRows, read_rows, sort_rows
from dupq.dump.posts import IDS_AND_LINKS, OWN_ID, SCOPE, URL, dump_tags, join_tags, reads_as_time
from dupq.dump.streams import local_copy
from dupq.dump.xml_files import EXCERPT, BrokenRow, Row, excerpt
from dupq.errors import DupqError
from dupq.tables import IDS, REJECTS
from dupq.text.tokens import as_html, is_html

_Origin = Literal["issues", "api", ""]  # GitHub, Stack Exchange's API, or elsewhere


class _OpenTable(NamedTuple):
    """A table that can be read."""

    names: Sequence[str]  # of its columns
    nested: Collection[str]  # those with lists or objects
    read: Callable[[Sequence[int]], Values]  # columns by their indices


_IN_FILE = re.compile(r"""(?: in)? file ["'][^"']*/dupq-[^"']*["']""")  # what DuckDB reads is a copy or a link
_MEMORY = "1GB"  # beyond it DuckDB writes to TMPDIR
NO_TEXT = "neither title nor text"
NO_OBJECT = "no JSON object, or more than one"
REPEATED = "an id that a later row has"
_ROW_NUMBER = "RowNumber"  # an attribute of rows without an id

_SHOWN = 60  # bytes of a file without objects
_ROWS = 2_048  # read at a time
_NUMBERS = (
    *("Id", "PostTypeId", "ParentId", "Score", "ViewCount", "AnswerCount", "AcceptedAnswerId", "OwnerUserId"),
    *("PostId", "RelatedPostId", "LinkTypeId"),
)
_IDS = ("Id", OWN_ID)
_WHOLE_FLOAT = re.compile(r"(-?[0-9]+)\.0+")
_ADDRESS = re.compile(r"https://[^\s\"'<>\\]{1,2000}", re.IGNORECASE)
_NUMBER = re.compile(r"0|[1-9][0-9]{0,13}")
_HASHED = 1 << 47  # the lowest number of a hashed id
_FILE_ROWS = 10**9  # the distance between the row numbers of two files without ids
_WIDE = (b"\xff\xfe", b"\xfe\xff")  # how UTF-16 begins
_ISSUE = {"number", "title", "body"}  # fields of GitHub
_API = {"question_id", "title", "is_answered"}  # of Stack Exchange
_EPOCH = re.compile(r"1[0-9]{9}|1[0-9]{12}")  # seconds or milliseconds since 1970, from 2001 on
_LINES = ", format='newline_delimited', ignore_errors=true"  # how JSON Lines are read
_MISSING = {"csv": r"\N", "json": "NaN"}  # as databases and Python write what they do not have
_VALUES = "json"  # DuckDB's only column if there are no objects
_PAGE = "JSON[]"  # the type of a field that may hold the rows
_FORBIDDEN = re.compile("[\0-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")  # by XML


@contextlib.contextmanager
def database(source: str) -> Iterator[duckdb.DuckDBPyConnection]:
    """Yield a connection with two threads. Converts errors of DuckDB to DupqError with `source`."""
    with tempfile.TemporaryDirectory(prefix="dupq-") as folder:
        options = {"memory_limit": _MEMORY, "threads": "2", "temp_directory": folder, "TimeZone": "UTC"}
        with duckdb.connect(config={**options, "autoinstall_known_extensions": "false"}) as connection:
            try:
                yield connection
            except duckdb.Error as error:
                reason = _IN_FILE.sub("", str(error).strip().split("\n")[0].partition(": ")[2])
                raise DupqError(f"{source}: cannot be read ({reason})") from error


def read_table(member: Member, table: Table, columns: Columns) -> Iterator[Row | BrokenRow]:
    """Yield every row of a file in order. Memory: some thousand rows.

    Raises DupqError naming the file if it cannot be read, and for missing columns.
    """
    with local_copy(member) as path, _open_table(path, member, columns) as opened:
        indices, origin = _attribute_indices(opened, member, table, columns)
        has_own_ids = table == "table"
        if origin == "issues" or "PostTypeId" in indices:  # which tell questions from other posts
            table = "posts"
        values = opened.read(list(indices.values()))
        head = list(itertools.islice(values, _ROWS))
        first = [dict(zip(indices, row[1], strict=True)) for row in head if not isinstance(row, BrokenRow)]
        text = [row.get("Body") for row in first]
        dates = [_iso_date(date) for row in first if (date := row.get("CreationDate"))]
        is_dated = table == "posts" or columns.date is not None or 2 * sum(map(reads_as_time, dates)) >= len(dates)
        # pandas writes a column of whole numbers as floats if one is missing; else 2 and 2.0 are two ids
        ids = filter(None, (row.get("Id") for row in first))
        are_floats = table == "posts" or all(map(_WHOLE_FLOAT.fullmatch, ids))
        numbers = _NUMBERS if are_floats else _NUMBERS[1:]
        is_known = origin == "issues" or (columns.markup == "auto" and (table != "table" or origin == "api"))
        body = opened.names[indices["Body"]] if "Body" in indices else ""
        html = is_known or is_html(body, text, columns.markup)
        missing = _MISSING.get(member.form)
        for number, row in enumerate(itertools.chain(head, values), 1):
            if isinstance(row, BrokenRow):
                yield row
                continue
            attributes = {
                name: value for name, value in zip(indices, row[1], strict=True) if value and value != missing
            }
            if origin == "issues":
                attributes = files.issue_attributes(attributes)
            elif "Id" not in indices:
                attributes[_ROW_NUMBER] = str(number)
            if origin == "api" and "Title" in attributes:
                attributes["Title"] = unescape(attributes["Title"])
            if not is_dated:  # its name alone said that it has dates
                attributes.pop("CreationDate", None)
            if has_own_ids and "Id" in attributes:
                attributes[OWN_ID] = attributes["Id"]
            if SCOPE in attributes:  # a text is one value, whatever commas are in it
                is_list = opened.names[indices[SCOPE]] in opened.nested
                attributes[SCOPE] = dump_tags(attributes[SCOPE]) if is_list else join_tags([attributes[SCOPE]])
            yield _row(row[0], attributes, table, html, numbers)


def check_table(member: Member, columns: Columns) -> dict[str, np.ndarray] | None:
    """Raise the errors of `read_table` for a table from elsewhere, except those of its rows.

    Return None if it has ids, else the hashes (uint64) of each column that may have them: whose name ends in "id", and
    where no row lacks a value.
    """
    with local_copy(member) as path, _open_table(path, member, columns) as opened:
        indices, origin = _attribute_indices(opened, member, "table", columns)
        if origin == "issues" or "Id" in indices:
            return None
        free = [index for index in range(len(opened.names)) if index not in indices.values()]
        free = [index for index in free if opened.names[index].lower().endswith("id")]
        if not free or columns.id is not None:
            return {}
        rows = (row[1] for row in opened.read(free) if not isinstance(row, BrokenRow))
        hashes = (xxhash.xxh3_64_intdigest(value.encode()) if value else 0 for row in rows for value in row)
        values = np.fromiter(hashes, np.uint64).reshape(-1, len(free)).T
    return {opened.names[index]: of for index, of in zip(free, values, strict=True) if of.all()}


def _attribute_indices(
    opened: _OpenTable, member: Member, table: Table, columns: Columns
) -> tuple[dict[str, int], _Origin]:
    """Return the column indices of the attributes that are read, and where the rows are from.

    Raises DupqError if they are not known, or hold lists or objects.
    """
    origin: _Origin = ""
    if table == "table" and columns.format != "table":
        if member.form != "csv" and set(opened.names) >= _ISSUE:
            return files.issue_indices(columns, opened.names, member.source), "issues"
        if files.dump_table(opened.names) == "posts":
            table = "posts"
        elif set(opened.names) >= _API:
            origin = "api"
    indices = column_indices(columns, opened.names, table, member.source)
    for attribute, index in indices.items():
        if (name := opened.names[index]) in opened.nested and attribute not in ("Tags", SCOPE):
            remedy = "; pandas writes rows with to_json(orient='records')" if member.form == "json" else ""
            raise DupqError(f"{member.source}: column {name!r} holds lists or objects, not texts{remedy}")
    return indices, origin


def read_numbered(
    rows: Iterable[Row | BrokenRow], file_format: Format, source: str, file: int, above: str | None
) -> ParsedRows:
    """Parse rows from elsewhere, with numbers as ids, and add the table `ids`, with the links of each row.

    Rows without an id are numbered; if the table has several files, whose names begin with `above`, from another number
    in each `file`.
    """
    numbered: list[Row | BrokenRow] = []
    ids, more = list[dict[str, object]](), Counter[str]()
    file_name = None if above is None else source.removeprefix(above)
    for row in rows:
        if isinstance(row, Row) and row.attributes.get("PostTypeId") == "1":
            own_id, row_number = row.attributes.get(OWN_ID, ""), row.attributes.get(_ROW_NUMBER)
            others = row.attributes.get(files.DUPLICATE_OF)
            number, related = id_number(row.attributes.get("Id", "")), others.split() if others else []
            if row_number is not None:
                more[WITHOUT_ID] += 1
                number = file * _FILE_ROWS + int(row_number)
                own_id = row_number if file_name is None else f"{file_name}:{row_number}"
            elif own_id and others is not None and file_name is not None:  # an issue, perhaps without its address
                own_id, *related = (other if "#" in other else f"{file_name}#{other}" for other in [own_id, *related])
                number = id_number(own_id)
            if own_id:
                attributes = {**row.attributes, "Id": str(number), OWN_ID: own_id}
                if not _ADDRESS.fullmatch(attributes.get(URL, "https://_")):
                    more[NOT_HTTPS] += 1
                    del attributes[URL]
                row = row._replace(attributes=attributes)
                values = {"question_id": number, "id": own_id, "source": source, "position": row.position}
                ids.append({**values, "duplicate_of": sorted(set(map(id_number, related)))})
        numbered.append(row)
    parsed = read_rows(numbered, file_format, source)
    rejected = set(parsed.rejects["position"].to_pylist())
    kept = pa.Table.from_pylist([row for row in ids if row["position"] not in rejected], IDS_AND_LINKS)
    tables = {**parsed.tables, "ids": sort_rows("ids", kept)[0]}
    return replace(parsed, tables=tables, counts={**parsed.counts, **more})


def repeated_ids(ids: Iterable[pa.Table]) -> pa.Table:
    """Return the rejects of the rows of IDS whose question_id a later row has."""
    with database("ids") as connection:
        batches = (batch for rows in ids for batch in rows.select(IDS.names).to_batches())
        connection.register("ids", pa.RecordBatchReader.from_batches(IDS, batches))
        rejects = connection.sql(
            f"""
            SELECT source, position, '{REPEATED}' AS reason,
                concat(id, if(next_id = id, ' is also the id at ', ' has the same hash as the id at '), next,
                    ' of ', next_source) AS excerpt
            FROM (
                SELECT *, lead(position) OVER later AS next, lead(source) OVER later AS next_source,
                    lead(id) OVER later AS next_id
                FROM ids WINDOW later AS (PARTITION BY question_id ORDER BY source, position)
            )
            WHERE next IS NOT NULL ORDER BY source, position
            """
        )
        return rejects.to_arrow_table().cast(REJECTS)


def id_number(text: str) -> int:
    """Return the number for an id: its own if it has at most 14 digits, else 47 bits of its hash, above 2**47."""
    if _NUMBER.fullmatch(text):
        return int(text)
    return _HASHED | xxhash.xxh3_64_intdigest(text.encode()) % _HASHED


def _row(position: int, values: dict[str, str], table: Table, html: bool, numbers: Collection[str]) -> Row | BrokenRow:
    """Return the row with the attributes `values`, without the characters that XML forbids, except in ids.

    Of `numbers` one such as 2.0 is 2.
    """
    content = " ".join(values.values())[:EXCERPT].encode()
    attributes, forbidden = values, 0
    if any(map(_FORBIDDEN.search, (value for name, value in values.items() if name not in _IDS))):
        cleaned = {name: (value, 0) if name in _IDS else _FORBIDDEN.subn("", value) for name, value in values.items()}
        attributes = {name: value for name, (value, _) in cleaned.items() if value}
        forbidden = sum(count for _, count in cleaned.values())
    if "CreationDate" in attributes:
        attributes["CreationDate"] = _iso_date(attributes["CreationDate"])
    for name in attributes.keys() & set(numbers):
        whole = _WHOLE_FLOAT.fullmatch(attributes[name])
        attributes[name] = whole[1] if whole else attributes[name]
    if "Tags" in attributes:
        attributes["Tags"] = _FORBIDDEN.sub("", dump_tags(attributes["Tags"]))  # which a JSON list may spell
    if table == "table":
        if not (attributes.get("Title", "") + attributes.get("Body", "")).strip():
            return BrokenRow(position, NO_TEXT, content.decode())
        attributes["PostTypeId"] = "1"
    if not html and "Body" in attributes:
        attributes["Body"] = as_html(attributes["Body"])
    return Row(position, attributes, content, forbidden)


def _iso_date(text: str) -> str:
    """Return a date as ISO 8601 has it, if it is in seconds or milliseconds since 1970."""
    if not _EPOCH.fullmatch(text):
        return text
    return datetime.datetime.fromtimestamp(int(f"{text:0<13}") / 1000, datetime.UTC).isoformat()


@contextlib.contextmanager
def _open_table(path: str, member: Member, columns: Columns) -> Iterator[_OpenTable]:
    """Open a table. DuckDB reads all but CSV, where it would lose the rows after a quote that is never closed."""
    source = member.source
    with open(path, "rb") as content:
        head = content.read(4)
        if member.form != "parquet" and (head.startswith(_WIDE) or b"\0" in head):
            raise DupqError(f"{source}: encoded in UTF-16 or UTF-32; save it as UTF-8")
    if member.form == "csv":
        with open(path, encoding="utf-8-sig", errors="surrogateescape", newline="") as text:
            file = CsvFile(text, source)
            yield _OpenTable(file.names, (), file.rows)
        return
    with database(source) as connection:
        yield _parquet(connection, path) if member.form == "parquet" else _json(connection, path, source, columns)


def _parquet(connection: duckdb.DuckDBPyConnection, path: str) -> _OpenTable:
    table = "read_parquet(?, binary_as_string=true)"
    types = _types(connection, table, path)
    nested = {name for name, type_name in types.items() if _is_nested(type_name)}

    def read(indices: Sequence[int]) -> Values:
        names = [list(types)[index] for index in indices]
        columns = [f"to_json({_sql(name)})" if name in nested else _sql(name) for name in names]
        return _rows(connection, [f"{column}::VARCHAR" for column in columns], table, path)

    return _OpenTable(list(types), nested, read)


def _json(connection: duckdb.DuckDBPyConnection, path: str, source: str, columns: Columns) -> _OpenTable:
    """Open objects in a list, or each in a line of its own. Pages of objects are written so before.

    Raises DupqError if there are no objects, or only one without a question.
    """
    how = _LINES if has_ending(source, ".jsonl", ".ndjson") else ""
    types = _json_types(connection, path, how)
    if list(types) == [_VALUES] or (_PAGE in types.values() and not may_have_questions(columns, types)):
        path, how = _without_pages(connection, path, how, columns), _LINES
        types = _json_types(connection, path, how)
    names, is_one = list(types), len(list(itertools.islice(_json_values(connection, path, how), 2))) == 1
    if names == [_VALUES]:
        with open(path, "rb") as content:
            begin = excerpt(content.read(_SHOWN).strip())
        expected = "a list of objects, or one object per line, expected"
        raise DupqError(f"{source}: {expected}; it has none, or others; it begins {begin!r}")
    if is_one and not may_have_questions(columns, names):
        raise DupqError(
            f"{source}: one object, not a list of them; take the list out of it (jq '.FIELD' FILE > ROWS.json), or "
            f"write rows (pandas: to_json(orient='records')); its fields are {quoted(names)}"
        )

    def read(indices: Sequence[int]) -> Values:
        fields = ", ".join(f"{_sql(name)}: 'VARCHAR'" for name in names)
        rows = _rows(
            connection, [_sql(names[index]) for index in indices], f"read_json(?, columns={{{fields}}}{how})", path
        )
        return _with_broken_lines(rows, path) if how else rows

    return _OpenTable(names, {name for name, type_name in types.items() if _is_nested(type_name)}, read)


def _json_types(connection: duckdb.DuckDBPyConnection, path: str, how: str) -> dict[str, str]:
    """Return the fields of all objects, also rare ones, and their types."""
    return _types(connection, f"read_json(?, maximum_depth=2, sample_size=-1, map_inference_threshold=-1{how})", path)


def _json_values(connection: duckdb.DuckDBPyConnection, path: str, how: str) -> Iterator[str | None]:
    """Yield the JSON of each value in a list, or in a line; None for one that cannot be read."""
    rows = connection.cursor().execute(f"FROM read_json(?, records=false, columns={{json: 'JSON'}}{how})", [path])
    while row := rows.fetchone():  # which reads on only now
        yield row[0]


def _without_pages(connection: duckdb.DuckDBPyConnection, path: str, how: str, columns: Columns) -> str:
    """Write the rows of pages as JSON Lines, and return the path: of lists in lists, or of a list in an object."""
    with open(f"{path}.jsonl", "w", encoding="utf-8") as lines:
        for value in _json_values(connection, path, how):
            rows = _rows_of(json.loads(value, parse_float=str), columns) if value else [value]
            lines.writelines(f"{json.dumps(row)}\n" for row in rows)
    return lines.name


def _rows_of(value: object, columns: Columns) -> Iterator[object]:
    """Yield the values in a list, also one in a list, and those in the only list of objects in a page."""
    if isinstance(value, list):
        for item in value:
            yield from _rows_of(item, columns)
        return
    if isinstance(value, dict) and not may_have_questions(columns, value):
        lists = [of for of in value.values() if isinstance(of, list) and all(isinstance(item, dict) for item in of)]
        if len(lists) == 1:
            yield from lists[0]
            return
    yield value


def _with_broken_lines(rows: Values, path: str) -> Values:
    """Yield rows of JSON Lines. One that DuckDB read no value of may be none, or of other fields."""
    with open(path, "rb") as file:
        lines = enumerate(filter(bytes.strip, file), 1)
        for row in rows:
            if not isinstance(row, BrokenRow) and not any(row[1]):
                line = next((line for number, line in lines if number == row[0]), b"")
                if not _is_object(line):
                    row = BrokenRow(row[0], NO_OBJECT, excerpt(line.strip()))
            yield row


def _is_object(line: bytes) -> bool:
    try:
        value = json.loads(line)
        json.dumps(value, ensure_ascii=False).encode()  # fails for half a character
    except (ValueError, RecursionError):
        return False
    return isinstance(value, dict)


def _types(connection: duckdb.DuckDBPyConnection, table: str, path: str) -> dict[str, str]:
    """Return the names and the types of the columns of a table."""
    return {name: kind for name, kind, *_ in connection.execute(f"DESCRIBE FROM {table}", [path]).fetchall()}


def _is_nested(kind: str) -> bool:
    return kind.endswith("]") or kind.startswith(("STRUCT(", "MAP(", "UNION("))


def _rows(connection: duckdb.DuckDBPyConnection, columns: Sequence[str], table: str, path: str) -> Values:
    """Yield the rows of a table with their numbers from 1."""
    batches = connection.sql(f"SELECT {', '.join(columns)} FROM {table}", params=[path]).to_arrow_reader(_ROWS)
    rows = (zip(*(column.to_pylist() for column in batch.columns), strict=True) for batch in batches)
    return enumerate(itertools.chain.from_iterable(rows), 1)


def _sql(name: str) -> str:
    return '"{}"'.format(name.replace('"', '""'))
