"""Tables on disk or in memory as lazy views: Arrow, pandas, Polars or DuckDB read only the rows and columns wanted."""

import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from markupsafe import Markup

from dupq import objects, storage, tables
from dupq.errors import DupqError, StorageError
from dupq.system import require

if TYPE_CHECKING:
    import duckdb
    import pandas
    import polars
    import pyarrow.dataset as ds

Filter: TypeAlias = pc.Expression | list[tuple[str, str, Any]]
Rows = TypeVar("Rows")
ATTEMPTS = 3  # Arrow retries a refused request, but not a stream that broke off
SITE = pa.field("site", pa.string(), nullable=False)  # the column that `site=NAME` folders become
_ROWS_SHOWN, _SHOWN = 10, 120  # in a notebook: rows, and characters of a value
_UNREADABLE = (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError, OSError)


@dataclass(frozen=True, repr=False)
class TableView:
    """Rows on disk or in memory, read lazily: only the requested columns and rows.

    `columns` are names, all by default. `filter` is an expression (`pyarrow.compute.field("probability") > 0.9`) or a
    list of conditions that all hold (`[("probability", ">", 0.9)]`); files and row groups that cannot match are not
    read. Wrong names, and files that are missing or damaged, raise DupqError.
    """

    source: str  # URI or name, for errors
    schema: pa.Schema
    dataset: "ds.Dataset"

    @property
    def columns(self) -> list[str]:
        """The names of the columns."""
        return list(self.schema.names)

    def __repr__(self) -> str:
        """Return the number of rows and the columns."""
        return f"{self._size()}: {', '.join(self.columns)}"

    def _repr_html_(self) -> str:
        """Return the first rows for a notebook; a question's title is its link."""
        rows = self._read(lambda: self.dataset.head(_ROWS_SHOWN)).to_pylist()
        links = {name: name.replace("title", "link") for name in self.columns if name.startswith("title")}
        names = [name for name in self.columns if name not in links.values()]
        lines = [Markup("").join(Markup("<th>{}</th>").format(name) for name in names)]
        lines += [Markup("").join(_cell(row[name], row.get(links.get(name))) for name in names) for row in rows]
        body = Markup("").join(Markup("<tr>{}</tr>").format(line) for line in lines)
        return Markup("<p>{}</p><table style='text-align: left'>{}</table>").format(self._size(), body)

    def _size(self) -> str:
        count = len(self)
        return f"{self.source}, {count:,} {'row' if count == 1 else 'rows'}"

    def __len__(self) -> int:
        """Return the number of rows; of files only the footers are read."""
        return self._read(lambda: self.dataset.count_rows())

    def arrow(self, columns: list[str] | None = None, filter: Filter | None = None) -> pa.Table:
        """Return a pyarrow Table, in the order of the files and of their rows."""
        selected, rows = self._selected(columns), self._expression(filter)
        table = self._read(lambda: self.dataset.to_table(columns=selected.names, filter=rows))
        return tables.conform(table, selected, self.source)

    def pandas(self, columns: list[str] | None = None, filter: Filter | None = None) -> "pandas.DataFrame":
        """Return a pandas DataFrame."""
        require("pandas", "a DataFrame of pandas")
        return self.arrow(columns, filter).to_pandas()

    def polars(self, columns: list[str] | None = None, filter: Filter | None = None) -> "polars.DataFrame":
        """Return a Polars DataFrame."""
        require("polars", "a DataFrame of Polars")
        import polars

        return polars.DataFrame(self.arrow(columns, filter))

    def duckdb(
        self,
        columns: list[str] | None = None,
        filter: Filter | None = None,
        connection: "duckdb.DuckDBPyConnection | None" = None,
    ) -> "duckdb.DuckDBPyRelation":
        """Return a DuckDB relation of `connection`, by default of DuckDB's own.

        Without columns and filter it is lazy: a query on it reads what it needs. With either, its rows are in memory.
        """
        import duckdb

        is_all = columns is None and filter is None
        return (connection or duckdb).from_arrow(self.dataset if is_all else self.arrow(columns, filter))

    def files(self, columns: list[str] | None = None, filter: Filter | None = None) -> Iterator[pa.Table]:
        """Yield the same rows as `arrow`, file by file, so that a reader needs the memory of one."""
        selected, rows = self._selected(columns), self._expression(filter)
        how = {"schema": self.schema, "columns": selected.names, "filter": rows}
        for fragment in self._read(lambda: list(self.dataset.get_fragments(rows))):
            table = self._read(functools.partial(fragment.to_table, **how))
            yield tables.conform(table, selected, getattr(fragment, "path", self.source))

    def _selected(self, columns: list[str] | None) -> pa.Schema:
        if columns is None:
            return self.schema
        if isinstance(columns, str):
            raise DupqError(f"{self.source}: columns={columns!r}; a list of names expected, such as [{columns!r}]")
        self._check(columns)
        return pa.schema([self.schema.field(name) for name in columns])

    def _check(self, columns: Iterable[str]) -> None:
        for name in columns:
            if name not in self.schema.names:
                raise DupqError(f"{self.source}: no column {name!r}; it has {', '.join(self.schema.names)}")

    def _expression(self, filter: Filter | None) -> pc.Expression | None:
        if filter is None or isinstance(filter, pc.Expression):
            return filter
        try:
            self._check(name for name, _, _ in filter)
            typed = [  # an empty list of values has no type of its own
                (name, how, pa.array(list(value), self.schema.field(name).type) if how in ("in", "not in") else value)
                for name, how, value in filter
            ]
            return pq.filters_to_expression(typed)
        except (TypeError, ValueError, pa.ArrowException) as error:
            example = f'[("{self.columns[0]}", "==", …)]'
            raise DupqError(f"{self.source}: filter={filter!r}; conditions expected, such as {example}") from error

    def _read(self, read: Callable[[], Rows], attempts: int = ATTEMPTS) -> Rows:
        try:
            return read()
        except _UNREADABLE as error:
            is_of_server = objects.is_of_server(error)
            if is_of_server and attempts > 1:
                return self._read(read, attempts - 1)
            kind = StorageError if is_of_server else DupqError
            raise kind(f"{self.source}: cannot be read ({' '.join(str(error).split())})") from error


def _cell(value: object, link: object) -> Markup:
    """Return a value as a table cell; a long one is truncated."""
    shown = f"{value:.3f}" if isinstance(value, float) else "" if value is None else str(value)
    shown = shown if len(shown) <= _SHOWN else f"{shown[:_SHOWN]}…"
    if isinstance(link, str) and link.startswith("https://"):
        return Markup('<td><a href="{}">{}</a></td>').format(link, shown)
    return Markup("<td>{}</td>").format(shown)


def stored(uri: str, schema: pa.Schema | None = None, files: Sequence[storage.File] | None = None) -> TableView:
    """Return the Parquet files below the folder `uri`, all or only `files`; `site=NAME` folders become a column.

    Raises DupqError if there are none. The schema is by default that of the first file. A column that is not required
    may be missing in a file: it is null.
    """
    files = storage.list_files(uri, ".parquet") if files is None else files
    if not files:
        raise DupqError(f"{uri}: no such table (no .parquet file is there)")
    import pyarrow.dataset as ds  # which imports pandas, and most processes never need it

    filesystem, base = storage.filesystem(uri)
    own = storage.read_schema(files[0].uri).remove_metadata() if schema is None else schema
    is_by_site = all("/site=" in f"/{file.relative}" for file in files)
    whole = pa.schema([SITE, *own]) if is_by_site else own
    dataset = ds.dataset(
        [f"{base}/{file.relative}" for file in files],
        schema=whole,
        format="parquet",
        filesystem=filesystem,
        partitioning=ds.HivePartitioning(pa.schema([SITE]), segment_encoding="none") if is_by_site else None,
        partition_base_dir=base,
    )
    return TableView(uri, whole, dataset)


def in_memory(source: str, table: pa.Table) -> TableView:
    """Return the view of a table in memory; `source` is its name in errors."""
    import pyarrow.dataset as ds

    return TableView(source, table.schema, ds.dataset(table))
