"""Rows of tables of any origin: CSV, TSV, JSON, JSON Lines and Parquet, with any columns, by DuckDB and by a CSV
reader of our own.

Each row becomes what a row of a dump's XML is, attribute names and their text, so that `post` and `link` judge all rows
alike. An id that is no whole number becomes one: a hash of it (`number_of`), whichever the other rows are, so that
it stays from night to night; the table `ids` has both. Rows are counted from 1, those of CSV by their lines.
"""

import contextlib
import csv
import itertools
import re
import tempfile
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple, TextIO

import duckdb
import pyarrow as pa
import xxhash

from dupq.dump import files
from dupq.dump.files import Columns, Form, Table, locate
from dupq.dump.parsing import KINDS, Contents, Format, read_rows, sort_rows
from dupq.dump.posts import spelt_tags
from dupq.dump.xml_files import EXCERPT, BrokenRow, Row
from dupq.errors import DupqError
from dupq.tables import IDS, LINKS, REJECTS
from dupq.text.tokens import as_html, is_html

_IN_FILE = re.compile(r"""(?: in)? file ["'][^"']*/dupq-[^"']*["']""")  # what DuckDB reads is a copy or a link
_MEMORY = "1GB"  # beyond it DuckDB writes to TMPDIR


@contextlib.contextmanager
def database(source: str) -> Iterator[duckdb.DuckDBPyConnection]:
    """Yield a connection of two threads. Raises DupqError that begins with `source` for what DuckDB cannot do."""
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
# that is never closed and would take all that follow along. So where a row cannot be read, or has too many or too few
# fields, its first line is read again alone, its quotes as text; if that is no row either, that line is broken.

NOT_UTF8 = "not UTF-8"

_LONGEST = 8 << 20  # characters of a row
_SEPARATORS = ",;\t|"
_WIDE = (b"\xff\xfe", b"\xfe\xff")  # how UTF-16 begins

csv.field_size_limit(_LONGEST)  # of the process


class CsvFile:
    """A CSV file, opened: the names of its columns, and its rows."""

    def __init__(self, file: TextIO, source: str) -> None:
        """Read the header. Raises DupqError naming `source` for an empty file or one that is not UTF-8."""
        self._lines = _Lines(file, source)
        if file.buffer.peek(2).startswith(_WIDE):  # type: ignore[attr-defined]
            raise DupqError(f"{source}: encoded in UTF-16 or UTF-32; save it as UTF-8")
        header = next((line for line in self._lines if line.strip()), "")
        if not header:
            raise DupqError(f"{source}: empty, without a header that names its columns")
        self._lines.give_back([header])
        fields = {separator: len(next(csv.reader([header], delimiter=separator))) for separator in _SEPARATORS}
        self._separator = "\t" if ".tsv" in source.lower() else max(fields, key=lambda mark: fields[mark])
        self.names = [name.strip() for name in self._record() or ()]

    def rows(self) -> Iterator[tuple[int, Sequence[str]] | BrokenRow]:
        """Yield the line that each row begins on, from 1, and its fields, as many as the header has."""
        while (fields := self._record()) is not None:
            line, text = self._lines.first, self._lines.taken[0].rstrip("\r\n") if self._lines.taken else ""
            if len(fields) != len(self.names) and text.strip():
                self._lines.give_back(self._lines.taken[1:])
                fields = text.split(self._separator)
            if not _is_utf8(fields):
                shown = text.encode(errors="surrogateescape").decode(errors="replace")
                yield BrokenRow(line, NOT_UTF8, shown[:EXCERPT])
            elif len(fields) == len(self.names):
                yield line, fields
            elif text.strip():
                reason = f"{len(fields)} fields where the header has {len(self.names)}"
                yield BrokenRow(line, "quotes that do not match" if '"' in text else reason, text[:EXCERPT])

    def _record(self) -> list[str] | None:
        """Return the next row, none of its fields if it cannot be read; None at the end."""
        self._lines.begin()
        try:
            return next(csv.reader(self._lines, delimiter=self._separator, strict=True), None)
        except csv.Error:
            return []


def _is_utf8(fields: Sequence[str]) -> bool:
    try:
        "".join(fields).encode()
    except UnicodeEncodeError:
        return False
    return True


class _Lines:
    """The lines of a file, which can be given back."""

    def __init__(self, file: TextIO, source: str) -> None:
        self._file, self._source = file, source
        self._waiting: deque[str] = deque()
        self._number = 0  # of lines that were taken
        self.begin()

    def begin(self) -> None:
        """Begin a row with the next line."""
        self.first, self.taken, self._size = self._number + 1, list[str](), 0

    def give_back(self, lines: Sequence[str]) -> None:
        """Take some lines back, the last that were given."""
        self._waiting.extendleft(reversed(lines))
        self._number -= len(lines)

    def __iter__(self) -> "_Lines":
        return self

    def __next__(self) -> str:
        line = self._waiting.popleft() if self._waiting else self._file.readline(_LONGEST)
        if not line:
            raise StopIteration
        self._number += 1
        self.taken.append(line)
        self._size += len(line)
        if self._size >= _LONGEST:
            if len(self.taken) == 1:
                raise DupqError(f"{self._source}: line {self._number:,} is longer than {_LONGEST >> 20} MiB")
            raise csv.Error("too long")
        return line


NO_TEXT = "neither title nor text"
DOUBLED = "an id that a later row has"
_ROW_NUMBER = "\0"  # begins the id of a row that has none

_ROWS = 2_048  # read at a time
_NUMBERS = (
    *("Id", "PostTypeId", "ParentId", "Score", "ViewCount", "AnswerCount", "AcceptedAnswerId", "OwnerUserId"),
    *("PostId", "RelatedPostId", "LinkTypeId"),
)
_WHOLE_FLOAT = re.compile(r"(-?[0-9]+)\.0+")  # as numbers are written where one of their column is missing
_NUMBER = re.compile(r"0|[1-9][0-9]{0,13}")
_HASHED = 1 << 47  # from here on the numbers of ids that are none
_FILE_ROWS = 10**9  # between the row numbers of two files whose rows have no ids
_FORBIDDEN = re.compile("[\0-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]")  # by XML


Values = Iterator[tuple[int, Sequence[str | None]] | BrokenRow]  # of rows, with their positions


class _Opened(NamedTuple):
    """A table that can be read."""

    names: Sequence[str]
    read: Callable[[Sequence[int]], Values]  # of the columns at these indices


def read_table(path: str, source: str, form: Form, table: Table, columns: Columns) -> Iterator[Row | BrokenRow]:
    """Yield every row of the local file `path`, in its order.

    Memory: some thousand rows. Raises DupqError naming `source` for a file that cannot be read, and for columns that
    are not there.
    """
    with _opened(path, source, form) as opened:
        indices, is_github = _located(opened.names, source, form, table, columns)
        values = opened.read(list(indices.values()))
        head = list(itertools.islice(values, _ROWS))
        text = [dict(zip(indices, row[1], strict=True)).get("Body") for row in head if not isinstance(row, BrokenRow)]
        html = table != "table" or ("Body" in indices and is_html(opened.names[indices["Body"]], text, columns.format))
        for number, row in enumerate(itertools.chain(head, values), 1):
            if isinstance(row, BrokenRow):
                yield row
                continue
            attributes = {name: value for name, value in zip(indices, row[1], strict=True) if value}
            if is_github:
                attributes = files.attributes(attributes)
            elif "Id" not in indices:
                attributes["Id"] = f"{_ROW_NUMBER}{number}"
            yield _row(row[0], attributes, "posts" if is_github else table, html or is_github)


def check_table(path: str, source: str, form: Form, columns: Columns) -> None:
    """Raise what `read_table` raises for a table from elsewhere, but for what is wrong with its rows."""
    with _opened(path, source, form) as opened:
        _located(opened.names, source, form, "table", columns)


def _located(
    names: Sequence[str], source: str, form: Form, table: Table, columns: Columns
) -> tuple[dict[str, int], bool]:
    """Return the indices of the attributes that are read, and whether these are GitHub's fields."""
    if form == "json" and table == "table" and files.is_export(names, columns):
        return {name: index for index, name in enumerate(names) if name in files.FIELDS}, True
    return locate(columns, names, table, source), False


def read_numbered(
    rows: Iterable[Row | BrokenRow], file_format: Format, source: str, file: int, has_several: bool
) -> Contents:
    """Return the contents of rows from elsewhere, their ids as numbers, with the tables `ids` and `links`.

    Rows without an id are numbered; those of another `file` of `has_several` get numbers of their own.
    """
    numbered: list[Row | BrokenRow] = []
    ids: list[tuple[dict[str, object], str]] = []
    links: list[dict[str, object]] = []
    for row in rows:
        if isinstance(row, Row) and "Id" in row.attributes and row.attributes["PostTypeId"] == "1":
            written = row.attributes["Id"]
            if written.startswith(_ROW_NUMBER):
                written = written.removeprefix(_ROW_NUMBER)
                number = file * _FILE_ROWS + int(written)
                written = f"{source.rpartition('/')[2]}:{written}" if has_several else written
            else:
                number = number_of(written)
            row = row._replace(attributes={**row.attributes, "Id": str(number)})
            named = {"question_id": number, "id": written, "source": source, "position": row.position}
            ids.append((named, row.excerpt))
            others = row.attributes.get(files.DUPLICATE_OF, "").split()
            links += [{"question_id": number, "related_id": int(other), "link_type": "duplicate"} for other in others]
        numbered.append(row)
    contents = read_rows(numbered, file_format, source)
    rejected = {(row["position"], row["excerpt"]) for row in contents.rejects.to_pylist()}
    kept = [row for row, excerpt in ids if (row["position"], excerpt) not in rejected]
    tables = {"links": pa.Table.from_pylist(links, LINKS), "ids": pa.Table.from_pylist(kept, IDS)}
    tables = {name: sort_rows(KINDS[name], table)[0] for name, table in tables.items()}
    return replace(contents, tables=contents.tables | tables)


def doubled(ids: Iterable[pa.Table]) -> pa.Table:
    """Return the rejects of the rows in IDS whose question_id a later row has."""
    with database("ids") as connection:
        connection.execute("CREATE TABLE ids (question_id BIGINT, id VARCHAR, source VARCHAR, position BIGINT)")
        for rows in ids:
            connection.from_arrow(rows).insert_into("ids")
        found = connection.sql(
            f"""
            SELECT source, position, '{DOUBLED}' AS reason,
                concat(id, ' is also the id at ', next, ' of ', next_source) AS excerpt
            FROM (
                SELECT *, lead(position) OVER later AS next, lead(source) OVER later AS next_source
                FROM ids WINDOW later AS (PARTITION BY question_id ORDER BY source, position)
            )
            WHERE next IS NOT NULL ORDER BY source, position
            """
        )
        return found.to_arrow_table().cast(REJECTS)


def number_of(written: str) -> int:
    """Return the number of an id: itself if it is one of at most 14 digits, else 47 bits of its hash above 2**47."""
    if _NUMBER.fullmatch(written):
        return int(written)
    return _HASHED | xxhash.xxh3_64_intdigest(written.encode()) % _HASHED


def _row(position: int, values: dict[str, str], table: Table, html: bool) -> Row | BrokenRow:
    """Return the row of the attributes `values`, without the characters that XML forbids."""
    content = " ".join(values.values())[:EXCERPT].encode()
    attributes, forbidden = values, 0
    if any(map(_FORBIDDEN.search, (value for name, value in values.items() if name != "Id"))):
        cleaned = {name: _FORBIDDEN.subn("", value) for name, value in values.items()}
        attributes = {name: value for name, (value, _) in cleaned.items() if value}
        forbidden = sum(count for _, count in cleaned.values())
    for name in attributes.keys() & _NUMBERS:
        whole = _WHOLE_FLOAT.fullmatch(attributes[name])
        attributes[name] = whole[1] if whole else attributes[name]
    if "Tags" in attributes:
        attributes["Tags"] = spelt_tags(attributes["Tags"])
    if table == "table":
        if not (attributes.get("Title", "") + attributes.get("Body", "")).strip():
            return BrokenRow(position, NO_TEXT, content.decode())
        attributes["PostTypeId"] = "1"
    if not html and "Body" in attributes:
        attributes["Body"] = as_html(attributes["Body"])
    return Row(position, attributes, content, forbidden)


@contextlib.contextmanager
def _opened(path: str, source: str, form: Form) -> Iterator[_Opened]:
    """Open a table; DuckDB reads all but CSV, of which it loses rows behind a quote that is never closed."""
    if form == "csv":
        with open(path, encoding="utf-8-sig", errors="surrogateescape", newline="") as text:
            file = CsvFile(text, source)
            yield _Opened(file.names, lambda indices: _chosen(file.rows(), indices))
        return
    with database(source) as connection:
        if form == "json":
            is_lines = re.search(r"\.(jsonl|ndjson)", source.lower())
            lines = ", format='newline_delimited', ignore_errors=true" if is_lines else ""
            names, _ = _described(connection, f"read_json(?, maximum_depth=1, sample_size=-1{lines})", path)
            types = ", ".join(f"{_quoted(name)}: 'VARCHAR'" for name in names)
            table, columns = f"read_json(?, columns={{{types}}}{lines})", list(map(_quoted, names))
        else:
            table = "read_parquet(?, binary_as_string=true)"
            names, kinds = _described(connection, table, path)
            columns = [_as_text(_quoted(name), kind) for name, kind in zip(names, kinds, strict=True)]
        yield _Opened(names, lambda indices: _selected(connection, [columns[index] for index in indices], table, path))


def _chosen(rows: Iterable[tuple[int, Sequence[str]] | BrokenRow], indices: Sequence[int]) -> Values:
    for row in rows:
        yield row if isinstance(row, BrokenRow) else (row[0], [row[1][index] for index in indices])


def _described(connection: duckdb.DuckDBPyConnection, table: str, path: str) -> tuple[list[str], list[str]]:
    """Return the names of a table's columns, and their types."""
    described = connection.execute(f"DESCRIBE SELECT * FROM {table}", [path]).fetchall()
    return [name for name, *_ in described], [kind for _, kind, *_ in described]


def _selected(connection: duckdb.DuckDBPyConnection, columns: Sequence[str], table: str, path: str) -> Values:
    found = connection.sql(f"SELECT {', '.join(columns)} FROM {table}", params=[path])
    position = 0
    for batch in found.to_arrow_reader(_ROWS):
        for values in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            position += 1
            yield position, values


def _as_text(column: str, kind: str) -> str:
    return f"to_json({column})::VARCHAR" if kind.endswith("]") else f"{column}::VARCHAR"


def _quoted(name: str) -> str:
    escaped = name.replace('"', '""')
    return f'"{escaped}"'
