"""SQL on a run's tables: DuckDB reads of the Parquet files what a query needs, where they are, also on S3."""

import contextlib
import tempfile
import threading
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.dataset as ds

from dupq.errors import DupqError, StorageError
from dupq.runs.reader import Run, TableRow

if TYPE_CHECKING:
    import duckdb

_MEMORY = "1GB"  # what is more goes to the local disk (TMPDIR)
_AT_ONCE = 10_000  # rows of a batch
LINK = r"""CASE WHEN regexp_full_match(site, '[a-z0-9-]+(\.[a-z0-9-]+)+')
    THEN concat('https://', site, '/questions/', question_id) END"""  # as runs/links.py


class Queries:
    """Queries on some tables of a run, one at a time, so that memory does not grow with them. See `queries`."""

    def __init__(self, run: Run, database: "duckdb.DuckDBPyConnection") -> None:
        """`database` has the tables."""
        self._run, self._database, self._lock = run, database, threading.Lock()

    def rows(self, sql: str, *values: object) -> list[TableRow]:
        """The rows of a query that gives few. `values` are those of its question marks."""
        return [row for batch in self.batches(sql, *values) for row in batch.to_pylist()]

    def batches(self, sql: str, *values: object) -> Iterator[pa.RecordBatch]:
        """The rows of a query. Raises DupqError if a table cannot be read, StorageError if the disk is full."""
        with self._lock, self._errors():
            yield from self._database.sql(sql, params=list(values)).to_arrow_reader(_AT_ONCE)

    def schema(self, sql: str) -> pa.Schema:
        """The columns that a query gives."""
        with self._lock, self._errors():
            return self._database.sql(f"SELECT * FROM ({sql}) LIMIT 0").to_arrow_table().schema

    def add(self, name: str, table: pa.Table) -> None:
        """Let queries read a table that is in memory."""
        self._database.register(name, table)

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        import duckdb

        try:
            yield
        except (duckdb.IOException, duckdb.OutOfMemoryException) as error:
            said = f"cannot be written or has no room ({_line(error)}); make room, or set TMPDIR"
            raise StorageError(f"{tempfile.gettempdir()}: {said}") from error
        except (duckdb.Error, pa.ArrowException) as error:
            kind = StorageError if "AWS Error" in str(error) else DupqError  # how Arrow's S3 begins what it says
            raise kind(f"{self._run.uri}: cannot be read ({_line(error)})") from error


@contextlib.contextmanager
def queries(run: Run, tables: Mapping[str, ds.Dataset | pa.Table]) -> Iterator[Queries]:
    """Open queries on tables of `run`, by the names that queries call them.

    Raises StorageError where TMPDIR cannot be written.
    """
    import duckdb

    with contextlib.ExitStack() as stack:
        try:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="dupq-"))
        except OSError as error:
            place = tempfile.gettempdir()
            raise StorageError(f"{place}: cannot be written ({error.strerror}); make room, or set TMPDIR") from error
        database = stack.enter_context(
            duckdb.connect(
                config={"memory_limit": _MEMORY, "temp_directory": folder, "autoinstall_known_extensions": "false"}
            )
        )
        database.execute("SET enable_external_access = false")
        for name, table in tables.items():
            database.register(name, table)
        yield Queries(run, database)


def _line(error: Exception) -> str:
    return " ".join(str(error).split())
