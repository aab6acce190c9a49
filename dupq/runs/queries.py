"""Reading a finished run by SQL, where its files are, also on S3; and its pairs to be judged: the random sample and
the worklist.
"""

import contextlib
import csv
import io
import tempfile
import threading
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa
import pyarrow.dataset as ds

from dupq import storage
from dupq.errors import DupqError, StorageError
from dupq.evaluation import sampling
from dupq.evaluation.sampling import read_verdicts, rows_in
from dupq.evaluation.verdicts import VERDICTS, VERDICTS_FILE, Verdict, add_verdict, last_verdicts
from dupq.runs.reader import Key, Run, TableRow, ends_of
from dupq.tables import REVIEW
from dupq.text.keys import Sites

if TYPE_CHECKING:
    import duckdb

_MEMORY = "1GB"  # what is more goes to the local disk (TMPDIR)
_AT_ONCE = 10_000  # rows of a batch
LINK = r"""CASE WHEN regexp_full_match(site, '[a-z0-9-]+(\.[a-z0-9-]+)+')
    THEN concat('https://', site, '/questions/', question_id) END"""  # as reader.py


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

    def add(self, name: str, table: ds.Dataset | pa.Table) -> None:
        """Let queries read one more table."""
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
def open_queries(run: Run, tables: Mapping[str, ds.Dataset | pa.Table]) -> Iterator[Queries]:
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


_WORDS = {code: word for word, code in VERDICTS.items()}


class Asked(NamedTuple):
    """A pair to be judged; the verdict is empty until it is."""

    left: Key
    right: Key
    verdict: str
    joined: bool
    pairs: float  # candidate pairs of the run that it counts for


def drawn(run: Run) -> tuple[sampling.Rows, Sites] | None:
    """The sample as it was drawn, and the sites of its keys; None if the run drew none."""
    place = storage.join(run.uri, "review.parquet")
    if not storage.exists(place) or not run.metrics.get("sites"):
        return None
    return rows_in(storage.read_table(place, REVIEW)), Sites(sorted(run.metrics["sites"]))


def asked(run: Run) -> list[Asked]:
    """All of the sample; empty if the run drew none. Raises DupqError if review.tsv is damaged."""
    found = drawn(run)
    if found is None:
        return []
    rows, sites = found
    sheet = storage.join(run.uri, "review.tsv")
    given = read_verdicts(sheet if storage.exists(sheet) else None, sites)
    codes, _ = sampling.verdicts_of(rows, given.left, given.right, given.verdicts)
    sides = [sites.unpack(side) for side in (rows.left, rows.right)]
    left, right = (list(zip(names, numbers.tolist(), strict=True)) for names, numbers in sides)
    words = [_WORDS.get(code, "") for code in codes.tolist()]
    joined, pairs = rows.joined.tolist(), (rows.sizes / rows.drawn).tolist()
    order = sampling.asking_order(rows).tolist()
    return [Asked(left[row], right[row], words[row], joined[row], pairs[row]) for row in order]


def verdicts_file(run: Run) -> str:
    """The file that the next run reads verdicts from: one for all runs of a folder."""
    return storage.join(storage.parent(run.uri), VERDICTS_FILE)


def worklist(run: Run) -> list[TableRow]:
    """The rows of the run's `worklist`; none of a run of an older version."""
    is_there = storage.list_files(storage.join(run.uri, "worklist"), ".parquet")
    return run.worklist.arrow().to_pylist() if is_there else []


def unjudged(run: Run) -> list[TableRow]:
    """The rows of the worklist that nobody has judged yet."""
    target = verdicts_file(run)
    known = {verdict[:4] for verdict in last_verdicts([target] if storage.exists(target) else [])[0]}
    return [row for row in worklist(run) if (*ends_of(row)[0], *ends_of(row)[1]) not in known]


def judge(run: Run, titles: Mapping[Key, str | None], word: str) -> None:
    """Write a verdict (same, different or unsure) on the two questions of `titles`, where the next run reads it.

    Raises DupqError for another word, and for one question.
    """
    if word not in VERDICTS or len(titles) != 2:
        raise DupqError(f"two questions and a verdict expected ({', '.join(VERDICTS)}); {word!r} on {[*titles]}")
    (left, title), (right, other) = sorted(titles.items())
    add_verdict(
        verdicts_file(run), Verdict(*left, *right, word), {"title_left": title or "", "title_right": other or ""}
    )


def estimated(uri: str, runs: str) -> dict[str, object] | None:
    """What the verdicts of a file say of the run whose sample they are on; None if no run below `runs` drew them.

    By the keys of that run, which are numbered by its own sites. Raises DupqError if its metrics.json is damaged.
    """
    run_id = _run_of(storage.read_bytes(uri).decode())
    sample = drawn(Run(storage.join(runs, run_id))) if run_id else None
    if sample is None:
        return None
    rows, sites = sample
    judged = read_verdicts(uri, sites)
    codes, elsewhere = sampling.verdicts_of(rows, judged.left, judged.right, judged.verdicts)
    found = sampling.estimate(rows, codes)
    intervals = {
        name: None if getattr(found, name) is None else getattr(found, name)._asdict()
        for name in ("precision", "recall", "duplicates")
    }
    return {"run_id": run_id, **intervals, "judged": found.judged, "unsure": found.unsure, "on_other_pairs": elsewhere}


def _run_of(text: str) -> str | None:
    """The run that a sheet names, if it names one."""
    sheet = csv.DictReader(io.StringIO(text.removeprefix("\ufeff")), delimiter="\t", quoting=csv.QUOTE_NONE)
    name = (next(sheet, {}).get("run_id") or "").strip()
    return name if name.isalnum() else None
