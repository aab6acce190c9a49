"""DuckDB for reading and sorting: a connection of bounded memory that takes nothing from the network."""

import contextlib
import re
import tempfile
from collections.abc import Iterator

import duckdb

from dupq.errors import DupqError

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
                said = _IN_FILE.sub("", str(error).strip().split("\n")[0].partition(": ")[2])
                raise DupqError(f"{source}: cannot be read ({said})") from error
