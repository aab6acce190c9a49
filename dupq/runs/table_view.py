"""A lazy view of a table for notebooks, as Arrow, pandas, Polars or DuckDB."""

import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from markupsafe import Markup

from dupq import storage
from dupq.errors import DupqError, StorageError
from dupq.system import require
from dupq.tables import conform

if TYPE_CHECKING:
    import duckdb
    import pandas
    import polars

Filter: TypeAlias = pc.Expression | list[tuple[str, str, Any]]
Rows = TypeVar("Rows")
_ROWS_SHOWN, _SHOWN = 10, 120  # in a notebook: rows, and characters of a value
_ATTEMPTS = 3  # Arrow tries again what a server refuses, but not a stream that it could not end
_UNREADABLE = (pa.ArrowInvalid, pa.ArrowNotImplementedError, OSError)


@dataclass(frozen=True, repr=False)
class TableView:
    """Rows on disk or in memory. They are read lazily, and only the wanted columns and rows.

    `columns` are names, all by default. `filter` is an expression (`pyarrow.compute.field("probability") > 0.9`) or a
    list of conditions that all hold (`[("probability", ">", 0.9)]`); files and row groups that cannot match are not
    read. Wrong names, and files that are missing or damaged, raise DupqError.
    """

    place: str  # for errors
    schema: pa.Schema
    dataset: ds.Dataset

    @property
    def columns(self) -> list[str]:
        """The names of its columns."""
        return list(self.schema.names)

    def __repr__(self) -> str:
        """Return how many rows there are, of which columns."""
        return f"{self._size()}: {', '.join(self.columns)}"

    def _repr_html_(self) -> str:
        """Return the first rows, for a notebook; a question's title is its link."""
        rows = self._read(lambda: self.dataset.head(_ROWS_SHOWN)).to_pylist()
        names = [name for name in self.columns if not name.startswith("link")]
        lines = [Markup("").join(Markup("<th>{}</th>").format(name) for name in names)]
        lines += [
            Markup("").join(_cell(row[name], row.get(name.replace("title", "link"))) for name in names) for row in rows
        ]
        body = Markup("").join(Markup("<tr>{}</tr>").format(line) for line in lines)
        return Markup("<p>{}</p><table style='text-align: left'>{}</table>").format(self._size(), body)

    def _size(self) -> str:
        count = len(self)
        return f"{self.place}, {count:,} {'row' if count == 1 else 'rows'}"

    def __len__(self) -> int:
        """The number of rows; of files only the footers are read."""
        return self._read(lambda: self.dataset.count_rows())

    def arrow(self, columns: list[str] | None = None, filter: Filter | None = None) -> pa.Table:
        """A pyarrow Table, in the order of the files and of their rows."""
        wanted, rows = self._wanted(columns), self._expression(filter)
        table = self._read(lambda: self.dataset.to_table(columns=wanted.names, filter=rows))
        return conform(table, wanted, self.place)

    def pandas(self, columns: list[str] | None = None, filter: Filter | None = None) -> "pandas.DataFrame":
        """A pandas DataFrame."""
        require("pandas", "a DataFrame of pandas")
        return self.arrow(columns, filter).to_pandas()

    def polars(self, columns: list[str] | None = None, filter: Filter | None = None) -> "polars.DataFrame":
        """A Polars DataFrame."""
        require("polars", "a DataFrame of Polars")
        import polars

        return polars.DataFrame(self.arrow(columns, filter))

    def duckdb(
        self,
        columns: list[str] | None = None,
        filter: Filter | None = None,
        connection: "duckdb.DuckDBPyConnection | None" = None,
    ) -> "duckdb.DuckDBPyRelation":
        """A DuckDB relation, of `connection` or else of DuckDB's default one.

        Without columns and filter it is lazy: a query on it reads what it needs. With either, these rows are in memory.
        """
        import duckdb

        is_all = columns is None and filter is None
        return (connection or duckdb).from_arrow(self.dataset if is_all else self.arrow(columns, filter))

    def files(self, columns: list[str] | None = None) -> Iterator[pa.Table]:
        """The same as `arrow`, file by file, so that a reader needs the memory of one."""
        wanted = self._wanted(columns)
        for fragment in self.dataset.get_fragments():
            table = self._read(functools.partial(fragment.to_table, schema=self.schema, columns=wanted.names))
            yield conform(table, wanted, getattr(fragment, "path", self.place))

    def _wanted(self, columns: list[str] | None) -> pa.Schema:
        if columns is None:
            return self.schema
        if isinstance(columns, str):
            raise DupqError(f"{self.place}: columns={columns!r}; a list of names expected, such as [{columns!r}]")
        for name in columns:
            self._check(name)
        return pa.schema([self.schema.field(name) for name in columns])

    def _check(self, name: str) -> None:
        if name not in self.schema.names:
            raise DupqError(f"{self.place}: no column {name!r}; it has {', '.join(self.schema.names)}")

    def _expression(self, filter: Filter | None) -> pc.Expression | None:
        if filter is None or isinstance(filter, pc.Expression):
            return filter
        types = {field.name: field.type for field in self.schema}
        try:
            for name, _, _ in filter:
                self._check(name)
            typed = [  # an empty list of values has no type of its own
                (name, how, pa.array(list(value), types.get(name)) if how in ("in", "not in") else value)
                for name, how, value in filter
            ]
            return pq.filters_to_expression(typed)
        except (TypeError, ValueError, pa.ArrowException) as error:
            example = f'[("{self.columns[0]}", "==", …)]'
            raise DupqError(f"{self.place}: filter={filter!r}; conditions expected, such as {example}") from error

    def _read(self, read: Callable[[], Rows]) -> Rows:
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                return read()
            except _UNREADABLE as error:
                is_of_s3 = "AWS Error" in str(error)  # how Arrow's S3 begins what it says
                if not is_of_s3 or attempt == _ATTEMPTS:
                    kind = StorageError if is_of_s3 else DupqError
                    raise kind(f"{self.place}: cannot be read ({' '.join(str(error).split())})") from error
        raise AssertionError


def _cell(value: object, link: object) -> Markup:
    """Return a value as a cell: what is long is cut."""
    shown = f"{value:.3f}" if isinstance(value, float) else "" if value is None else str(value)
    shown = shown if len(shown) <= _SHOWN else f"{shown[:_SHOWN]}…"
    if isinstance(link, str) and link != value and link.startswith("https://"):
        return Markup('<td><a href="{}">{}</a></td>').format(link, shown)
    return Markup("<td>{}</td>").format(shown)


def stored(uri: str, schema: pa.Schema | None = None, files: Sequence[storage.File] | None = None) -> TableView:
    """The Parquet files below the folder `uri`, all or only `files`; `site=NAME` folders become a column.

    Raises DupqError if there are none. Without a schema it is that of the first file. A column that is not required
    may be missing in a file: it is null.
    """
    found = storage.list_files(uri, ".parquet") if files is None else files
    if not found:
        raise DupqError(f"{uri}: no such table (no .parquet file is there)")
    filesystem, base = storage.filesystem(uri)
    own = storage.read_schema(found[0].uri).remove_metadata() if schema is None else schema
    is_by_site = all("/site=" in f"/{file.relative}" for file in found)
    site = pa.schema([pa.field("site", pa.string(), nullable=False)])
    whole = pa.schema([*site, *own]) if is_by_site else own
    dataset = ds.dataset(
        [f"{base}/{file.relative}" for file in found],
        schema=whole,
        format="parquet",
        filesystem=filesystem,
        partitioning=ds.HivePartitioning(site, segment_encoding="none") if is_by_site else None,
        partition_base_dir=base,
    )
    return TableView(uri, whole, dataset)


def in_memory(place: str, table: pa.Table) -> TableView:
    """The view of a table that is there already; `place` is what errors call it."""
    return TableView(place, table.schema, ds.dataset(table))
