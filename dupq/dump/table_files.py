"""Reads tables of any origin and with any columns: JSON, JSON Lines and Parquet by DuckDB, CSV and TSV by a reader of
our own.

Each row becomes attribute names and texts, like a row of a dump's XML, so that `posts.py` judges all rows alike. An id
that is not a whole number becomes a hash (`id_number`), which stays the same from night to night; the table `ids` has
both. Positions count rows from 1; those of CSV count lines.
"""

import contextlib
import csv
import itertools
import re
import tempfile
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TextIO

import duckdb
import pyarrow as pa
import xxhash

from dupq import storage
from dupq.dump import files
from dupq.dump.files import BY_NAME, Columns, Form, Member, Table, column_indices, without_compression
from dupq.dump.parsing import NOT_HTTPS, WITHOUT_ID, Format, ParsedRows, read_rows, sort_rows
from dupq.dump.posts import OWN_ID, URL, dump_tags, reads_as_time
from dupq.dump.streams import local_copy
from dupq.dump.xml_files import EXCERPT, BrokenRow, Row
from dupq.errors import DupqError
from dupq.tables import IDS, LINKS, REJECTS
from dupq.text.tokens import as_html, is_html

Values = Iterator[tuple[int, Sequence[str | None]] | BrokenRow]  # of rows, with their positions
_OpenTable = tuple[Sequence[str], Callable[[Sequence[int]], Values]]  # column names; reads columns by their indices

_IN_FILE = re.compile(r"""(?: in)? file ["'][^"']*/dupq-[^"']*["']""")  # what DuckDB reads is a copy or a link
_MEMORY = "1GB"  # beyond it DuckDB writes to TMPDIR
NO_TEXT = "neither title nor text"
REPEATED = "an id that a later row has"
_ROW_NUMBER = "RowNumber"  # an attribute of rows without an id

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


# Rows of CSV and TSV files, each on its own, so that a broken one costs no other.
#
# Quotes are read as in RFC 4180. Tables in the wild also have quotes that quote nothing: `"All lives" or not?`, or one
# that is never closed and would swallow all following rows. So if a row cannot be read, or has too many or too few
# fields, its first line is read again alone with its quotes as text. If that is not a row either, the line is broken.

NOT_UTF8 = "not UTF-8 (save the file as UTF-8; in Excel: CSV UTF-8)"

_LONGEST = 8 << 20  # characters of a row
_SEPARATORS = ",;\t|"
_WIDE = (b"\xff\xfe", b"\xfe\xff")  # how UTF-16 begins
_NOT_UTF8 = re.compile("[\udc80-\udcff]")  # what Python reads in place of other bytes

csv.field_size_limit(_LONGEST)  # for the whole process


class CsvFile:
    """The column names and the rows of an open CSV file."""

    def __init__(self, file: TextIO, source: str) -> None:
        """Read the header. Raises DupqError naming `source` for an empty file."""
        self._file, self._source = file, source
        self._number = 0  # of the last line
        self._row: list[str] = []  # the lines of the last row
        self._again = deque[str]()  # lines that were put back
        header = next((line for line in self._lines() if line.strip() and not line.lower().startswith("sep=")), "")
        if not header:
            raise DupqError(f"{source}: empty, without a header that names its columns")
        self._put_back([header])
        fields = {separator: len(next(csv.reader([header], delimiter=separator))) for separator in _SEPARATORS}
        self._separator = "\t" if _has_ending(source, ".tsv") else max(fields, key=lambda mark: fields[mark])
        self.names = [name.strip() for name in self._record() or ()]

    def rows(self, indices: Sequence[int]) -> Values:
        """Yield the number of each row's first line, from 1, and its fields at the `indices`."""
        while (fields := self._record()) is not None:
            line, text = self._number - len(self._row) + 1, self._row[0].rstrip("\r\n")
            if len(fields) != len(self.names) and text.strip():
                self._put_back(self._row[1:])
                fields = text.split(self._separator)
            if not "".join(fields).isascii() and any(map(_NOT_UTF8.search, fields)):
                shown = text.encode(errors="surrogateescape").decode(errors="replace")
                yield BrokenRow(line, NOT_UTF8, shown[:EXCERPT])
            elif len(fields) == len(self.names):
                yield line, [fields[index] for index in indices]
            elif text.strip():
                reason = f"{len(fields)} fields where the header has {len(self.names)}"
                yield BrokenRow(line, "quotes that do not match" if '"' in text else reason, text[:EXCERPT])

    def _record(self) -> list[str] | None:
        """Return the fields of the next row, empty if it cannot be read; None at the end."""
        self._row = []
        try:
            return next(csv.reader(self._lines(), delimiter=self._separator, strict=True), None)
        except csv.Error:
            return []

    def _lines(self) -> Iterator[str]:
        """Yield the next lines, as lines of one row."""
        size = 0
        while line := self._again.popleft() if self._again else self._file.readline(_LONGEST):
            self._number += 1
            self._row.append(line)
            size += len(line)
            if size >= _LONGEST:
                if len(self._row) == 1:
                    raise DupqError(f"{self._source}: line {self._number:,} is longer than {_LONGEST >> 20} MiB")
                raise csv.Error("too long")
            yield line

    def _put_back(self, lines: Sequence[str]) -> None:
        self._again.extendleft(reversed(lines))
        self._number -= len(lines)


def read_table(member: Member, table: Table, columns: Columns) -> Iterator[Row | BrokenRow]:
    """Yield every row of a file in order. Memory: some thousand rows.

    Raises DupqError naming the file if it cannot be read, and for missing columns.
    """
    with local_copy(member) as path, _open_table(path, member.source, member.form) as (names, read):
        indices, is_github = _attribute_indices(names, member, table, columns)
        has_own_ids = table == "table"
        if is_github or "PostTypeId" in indices:  # which tell questions from other posts
            table = "posts"
        values = read(list(indices.values()))
        head = list(itertools.islice(values, _ROWS))
        first = [dict(zip(indices, row[1], strict=True)) for row in head if not isinstance(row, BrokenRow)]
        text = [row.get("Body") for row in first]
        dates = [date for row in first if (date := row.get("CreationDate"))]
        is_dated = table == "posts" or columns.date is not None or 2 * sum(map(reads_as_time, dates)) >= len(dates)
        # pandas writes a column of whole numbers as floats if one is missing; else 2 and 2.0 are two ids
        ids = filter(None, (row.get("Id") for row in first))
        are_floats = table == "posts" or all(map(_WHOLE_FLOAT.fullmatch, ids))
        numbers = _NUMBERS if are_floats else _NUMBERS[1:]
        html = table != "table" or ("Body" in indices and is_html(names[indices["Body"]], text, columns.format))
        for number, row in enumerate(itertools.chain(head, values), 1):
            if isinstance(row, BrokenRow):
                yield row
                continue
            attributes = {name: value for name, value in zip(indices, row[1], strict=True) if value}
            if not is_dated:  # its name alone said that it has dates
                attributes.pop("CreationDate", None)
            if is_github:
                attributes = files.issue_attributes(attributes)
            elif "Id" not in indices:
                attributes[_ROW_NUMBER] = str(number)
            if has_own_ids and "Id" in attributes:
                attributes[OWN_ID] = attributes["Id"]
            yield _row(row[0], attributes, table, html, numbers)


def check_table(member: Member, columns: Columns) -> bool:
    """Raise the errors of `read_table` for a table from elsewhere, except those of its rows. Tell if it has ids."""
    with local_copy(member) as path, _open_table(path, member.source, member.form) as (names, _):
        indices, is_github = _attribute_indices(names, member, "table", columns)
    return is_github or "Id" in indices


def _attribute_indices(
    names: Sequence[str], member: Member, table: Table, columns: Columns
) -> tuple[dict[str, int], bool]:
    """Return the column indices of the attributes that are read, and whether these are GitHub's fields."""
    if table == "table" and columns == BY_NAME:
        if member.form == "json" and {"number", "title", "body"} <= set(names):
            return {name: index for index, name in enumerate(names) if name in files.FIELDS}, True
        if files.dump_table(names) == "posts":
            table = "posts"
    return column_indices(columns, names, table, member.source), False


def read_numbered(
    rows: Iterable[Row | BrokenRow], file_format: Format, source: str, file: int, above: str | None
) -> ParsedRows:
    """Parse rows from elsewhere, with numbers as ids, and add the tables `ids` and `links`.

    Rows without an id are numbered; if the table has several files, whose names begin with `above`, from another number
    in each `file`.
    """
    numbered: list[Row | BrokenRow] = []
    ids, links, more = list[dict[str, object]](), list[dict[str, object]](), Counter[str]()
    for row in rows:
        if isinstance(row, Row) and row.attributes.get("PostTypeId") == "1":
            own_id, row_number = row.attributes.get(OWN_ID, ""), row.attributes.get(_ROW_NUMBER)
            number = id_number(row.attributes.get("Id", ""))
            if row_number is not None:
                more[WITHOUT_ID] += 1
                number = file * _FILE_ROWS + int(row_number)
                own_id = row_number if above is None else f"{source.removeprefix(above)}:{row_number}"
            if own_id:
                attributes = {**row.attributes, "Id": str(number), OWN_ID: own_id}
                if not _ADDRESS.fullmatch(attributes.get(URL, "https://_")):
                    more[NOT_HTTPS] += 1
                    del attributes[URL]
                row = row._replace(attributes=attributes)
                ids.append({"question_id": number, "id": own_id, "source": source, "position": row.position})
                for other in row.attributes.get(files.DUPLICATE_OF, "").split():
                    links.append({"question_id": number, "related_id": int(other), "link_type": "duplicate"})
        numbered.append(row)
    parsed = read_rows(numbered, file_format, source)
    rejected = set(parsed.rejects["position"].to_pylist())
    kept = [row for row in ids if row["position"] not in rejected]
    tables = {"links": pa.Table.from_pylist(links, LINKS), "ids": pa.Table.from_pylist(kept, IDS)}
    tables = {name: sort_rows(name, table)[0] for name, table in tables.items()}
    return replace(parsed, tables=parsed.tables | tables, counts={**parsed.counts, **more})


def repeated_ids(ids: Iterable[pa.Table]) -> pa.Table:
    """Return the rejects of the rows of IDS whose question_id a later row has."""
    with database("ids") as connection:
        batches = (batch for rows in ids for batch in rows.to_batches())
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


@contextlib.contextmanager
def _open_table(path: str, source: str, form: Form) -> Iterator[_OpenTable]:
    """Open a table. DuckDB reads all but CSV, where it would lose the rows after a quote that is never closed."""
    with open(path, "rb") as content:
        if form != "parquet" and content.read(2).startswith(_WIDE):
            raise DupqError(f"{source}: encoded in UTF-16 or UTF-32; save it as UTF-8")
    if form == "csv":
        with open(path, encoding="utf-8-sig", errors="surrogateescape", newline="") as text:
            file = CsvFile(text, source)
            yield file.names, file.rows
        return
    is_lines = _has_ending(source, ".jsonl", ".ndjson")
    lines = ", format='newline_delimited', ignore_errors=true" if is_lines else ""
    table = "read_parquet(?, binary_as_string=true)"
    if form == "json":  # rare fields are columns too
        table = f"read_json(?, maximum_depth=1, sample_size=-1, map_inference_threshold=-1{lines})"
    with database(source) as connection:
        described = connection.execute(f"DESCRIBE SELECT * FROM {table}", [path]).fetchall()
        names = [name for name, *_ in described]
        quoted = ['"{}"'.format(name.replace('"', '""')) for name in names]
        columns = [
            f"to_json({column})::VARCHAR" if type_name.endswith("]") else f"{column}::VARCHAR"
            for column, (_, type_name, *_) in zip(quoted, described, strict=True)
        ]
        if form == "json":
            if names == ["json"]:  # DuckDB's name for values that are no objects
                expected = "a list of objects, or one object per line, expected"
                raise DupqError(f"{source}: {expected}; it has none, or others")
            types, columns = ", ".join(f"{column}: 'VARCHAR'" for column in quoted), quoted
            table = f"read_json(?, columns={{{types}}}{lines})"

        def read(indices: Sequence[int]) -> Values:
            query = f"SELECT {', '.join(columns[index] for index in indices)} FROM {table}"
            batches = connection.sql(query, params=[path]).to_arrow_reader(_ROWS)
            rows = (zip(*(column.to_pylist() for column in batch.columns), strict=True) for batch in batches)
            return enumerate(itertools.chain.from_iterable(rows), 1)

        yield names, read


def _has_ending(source: str, *endings: str) -> bool:
    """Return whether a file, which may be compressed or in an archive, has one of these endings."""
    return without_compression(storage.name(source)).lower().endswith(endings)
