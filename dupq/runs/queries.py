"""Query a finished run by SQL, local or on S3. Read its pairs to judge, the sample and the worklist; write verdicts."""

import contextlib
import tempfile
import threading
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dupq import objects, storage
from dupq.clusters.identity import changes, read_clusters
from dupq.errors import DupqError, StorageError
from dupq.evaluation import sampling
from dupq.evaluation.sampling import read_verdicts
from dupq.evaluation.verdicts import (
    COLUMNS,
    UNDONE,
    VERDICTS,
    VERDICTS_FILE,
    Verdict,
    add_verdict,
    last_verdicts,
    sheet_rows,
)
from dupq.judging.prompt import in_words
from dupq.runs.reader import Key, Run, TableRow, ends_of, link
from dupq.runs.views import ATTEMPTS
from dupq.tables import PAIRS, REVIEW
from dupq.text.keys import Sites, pairs_in

if TYPE_CHECKING:
    import duckdb
    import pyarrow.dataset as ds

_MEMORY = "1GB"  # DuckDB spills to the local disk (TMPDIR) beyond this
_THREADS = 2  # share it: of four, each kept too much for the map of 2.5 million questions
_BATCH_ROWS = 10_000
LINK = r"""CASE WHEN url IS NOT NULL THEN url WHEN regexp_full_match(site, '[a-z0-9-]+(\.[a-z0-9-]+)+')
    THEN concat('https://', site, '/questions/', question_id) END"""  # as reader.py
SAMPLED = pa.schema(  # a pair of the sample to judge
    [
        *(PAIRS.field(name) for name in (*COLUMNS[:4], "joined")),
        pa.field("pairs", pa.float64(), nullable=False),  # candidate pairs of the run that this one represents
        pa.field("verdict", pa.string()),  # same, different or unsure, as in review.tsv; null: not judged yet
    ]
)


class Queries:
    """Queries on tables of a run, one at a time, so that their memory does not add up. See `open_queries`."""

    def __init__(self, run: Run, database: "duckdb.DuckDBPyConnection") -> None:
        """Take a database that has the tables."""
        self._run, self._database, self._lock = run, database, threading.Lock()

    def rows(self, sql: str, *values: object) -> list[TableRow]:
        """Return all rows of a query; `values` replace its question marks. Raises as `batches`."""
        return self.table(sql, *values).to_pylist()

    def table(self, sql: str, *values: object, attempts: int = ATTEMPTS) -> pa.Table:
        """Return the same as a table. Asks again if a stream from an object store breaks off, as `TableView` does."""
        try:
            with self._lock, self._errors():
                return self._database.sql(sql, params=list(values)).to_arrow_table()
        except StorageError:
            if attempts == 1:
                raise
        return self.table(sql, *values, attempts=attempts - 1)

    def batches(self, sql: str, *values: object) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a query.

        Raises DupqError if a table cannot be read or memory is too little, StorageError if the disk is full.
        """
        with self._lock, self._errors():
            yield from self._database.sql(sql, params=list(values)).to_arrow_reader(_BATCH_ROWS)

    def add(self, name: str, table: "ds.Dataset | pa.Table") -> None:
        """Make one more table available to queries."""
        self._database.register(name, table)

    def make(self, sql: str, *values: object) -> None:
        """Run a statement that makes a temporary table. Raises as `batches`."""
        with self._lock, self._errors():
            self._database.execute(sql, list(values))

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        import duckdb

        try:
            yield
        except (duckdb.IOException, duckdb.OutOfMemoryException) as error:
            if isinstance(error, duckdb.OutOfMemoryException) and "max_temp_directory_size" not in str(error):
                line = f"{self._run.uri}: {_MEMORY} of memory is too little ({str(error).partition(chr(10))[0]})"
                raise DupqError(f"{line}; query its tables with a tool of your own") from error
            message = f"cannot be written or has no room ({' '.join(str(error).split())}); make room, or set TMPDIR"
            raise StorageError(f"{tempfile.gettempdir()}: {message}") from error
        except (duckdb.Error, pa.ArrowException) as error:
            kind = StorageError if objects.is_of_server(error) else DupqError
            raise kind(f"{self._run.uri}: cannot be read ({' '.join(str(error).split())})") from error


@contextlib.contextmanager
def open_queries(run: Run, tables: "Mapping[str, ds.Dataset | pa.Table]") -> Iterator[Queries]:
    """Open queries on tables of `run`, which have these names. Raises StorageError if TMPDIR cannot be written."""
    import duckdb

    with contextlib.ExitStack() as stack:
        try:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="dupq-"))
        except OSError as error:
            message = f"cannot be written ({error.strerror}); make room, or set TMPDIR"
            raise StorageError(f"{tempfile.gettempdir()}: {message}") from error
        limits = {"memory_limit": _MEMORY, "threads": str(_THREADS), "temp_directory": folder}
        database = duckdb.connect(config={**limits, "autoinstall_known_extensions": "false"})
        stack.enter_context(database)
        database.execute("SET enable_external_access = false")
        for name, table in tables.items():
            database.register(name, table)
        yield Queries(run, database)


def drawn_sample(run: Run) -> tuple[pa.Table, Sites] | None:
    """Return the sample as it was drawn (REVIEW), and the sites of its keys; None if the run drew none."""
    uri = storage.join(run.uri, "review.parquet")
    if not storage.exists(uri):
        return None
    return storage.read_table(uri, REVIEW), Sites(sorted(run.metrics["sites"]))


def sampled_pairs(run: Run) -> pa.Table:
    """Return the sample with its verdicts (SAMPLED), in the order of review.tsv; empty if the run drew no sample.

    Raises DupqError if review.tsv is damaged.
    """
    sample = drawn_sample(run)
    if sample is None:
        return SAMPLED.empty_table()
    rows, sites = sample
    sheet = storage.join(run.uri, "review.tsv")
    people = read_verdicts(sheet if storage.exists(sheet) else None, sites)
    word_of = {code: word for word, code in VERDICTS.items()}
    words = [word_of.get(code) for code in sampling.verdicts_of(rows, people)[0].tolist()]
    left, right = (sites.columns(side) for side in pairs_in(rows).T)
    pairs = pc.divide(rows["pairs"].cast(pa.float64()), rows["drawn"])
    table = pa.table([*left, *right, rows["joined"], pairs, words], schema=SAMPLED)
    return table.take(pa.array(sampling.asking_order(rows)))


def verdicts_file(run: Run) -> str:
    """Return the file that the next run reads verdicts from: one for all runs of a folder."""
    return storage.join(storage.parent(run.uri), VERDICTS_FILE)


def known_verdicts(run: Run, also_later: bool = True) -> dict[tuple[Key, Key], str]:
    """Return the verdicts that a run knew, with `also_later` and those given since, on pairs of its sites."""
    uris = [storage.join(run.uri, VERDICTS_FILE), *[verdicts_file(run)] * also_later]
    found, sites = last_verdicts(filter(storage.exists, uris))[0], run.metrics["sites"]
    return {(one[:2], one[2:4]): one.verdict for one in found if one.site_left in sites and one.site_right in sites}


def unjudged(run: Run) -> list[TableRow]:
    """Return the rows of the worklist without a verdict."""
    judged = known_verdicts(run)
    return [row for row in run.worklist.arrow().to_pylist() if ends_of(row) not in judged]


def disputed(run: Run, most: int) -> list[TableRow]:
    """Return the pairs without a verdict on which judge and run differ most, as rows of the worklist, at most `most`.

    Raises DupqError if no judge has read pairs in the run.
    """
    if not storage.exists(storage.join(run.uri, "judge", "part-00000.parquet")):
        raise DupqError(f"{run.uri}: no judge has read pairs in this run; dupq judge --run {run.uri} asks one")
    answers = usable_answers(run)
    answers = answers.filter(pc.invert(answers["odd"]))
    differ = np.abs(answers["same"].to_numpy() / 100 - answers["probability_before"].to_numpy())
    rows = answers.take(pa.array(np.argsort(-differ, kind="stable"))).to_pylist()
    judged = known_verdicts(run)
    rows = [row for row in rows if ends_of(row) not in judged][:most]
    keys = {key for row in rows for key in ends_of(row)}
    questions = dict(run.question_rows(keys, ["title", "own_id", "url"]))
    for row in rows:
        for side, key in zip(("left", "right"), ends_of(row), strict=True):
            one = questions.get(key, {})
            row |= {f"title_{side}": one.get("title"), f"own_id_{side}": one.get("own_id")}
            row[f"link_{side}"] = link(key, one.get("url"))
        row["evidence"] = f"{in_words(row)}; before it was asked the probability was {row['probability_before']:.2f}"
    return rows


def usable_answers(run: Run) -> pa.Table:
    """Return a judge's usable answers about pairs that may be duplicates (JUDGEMENTS)."""
    return run.judgements.arrow(filter=pc.field("same").is_valid() & pc.field("kind").isin(["likely", "verdict"]))


def judge(run: Run, titles: Mapping[Key, str | None], word: str) -> None:
    """Write a verdict on the two questions of `titles` into `verdicts_file`: same, different or unsure; or UNDONE.

    Raises DupqError for another word, and unless there are two questions.
    """
    if word not in (*VERDICTS, UNDONE) or len(titles) != 2:
        raise DupqError(f"two questions and a verdict expected ({', '.join(VERDICTS)}); {word!r} on {[*titles]}")
    (left, title), (right, other) = sorted(titles.items())
    shown = {"title_left": title or "", "title_right": other or ""}
    add_verdict(verdicts_file(run), Verdict(*left, *right, word), shown)


def estimated(uri: str, runs: str) -> dict[str, object] | None:
    """Return what a file of verdicts estimates of the run that drew the sample; None if no run below `runs` drew it.

    Keys are numbered by that run's own sites. Raises DupqError if its metrics.json is damaged.
    """
    _, [run_id] = next(sheet_rows(storage.read_bytes(uri), (), uri, "run_id"), ("", [""]))
    sample = drawn_sample(Run(storage.join(runs, run_id))) if run_id.isalnum() else None
    if sample is None:
        return None
    rows, sites = sample
    people = read_verdicts(uri, sites)
    codes, elsewhere = sampling.verdicts_of(rows, people)
    estimate = sampling.estimate(rows, codes)
    values = {name: getattr(estimate, name) for name in ("precision", "recall", "duplicates")}
    counts = {"judged": estimate.judged, "unsure": estimate.unsure, "on_other_pairs": elsewhere}
    return {"run_id": run_id, **{name: value and value._asdict() for name, value in values.items()}, **counts}


def changes_between(run: Run, earlier: Run) -> pa.Table:
    """Return what became of the clusters of an earlier run: CHANGED_CLUSTERS. Memory: the clusters of both runs."""
    sites = Sites([*run.metrics["sites"], *earlier.metrics["sites"]])
    now, before = (read_clusters(one.clusters.source, sites) for one in (run, earlier))
    return changes(now, before, sites)
