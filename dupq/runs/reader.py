"""Reading a finished run: where it is, its tables as lazy views (Arrow, pandas, Polars or DuckDB), the archive that it
was made from, and where its questions are on the web.

The report opens runs here; `dupq.open_run` adds what notebooks need (dupq/api/runs.py).
"""

import functools
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, TypeAlias, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from markupsafe import Markup
from pydantic import Field
from typing_extensions import TypedDict

from dupq import storage, tables
from dupq.archive import above_sites, check_files, site_in, table_files
from dupq.errors import DupqError, StorageError
from dupq.evaluation.verdicts import VERDICTS_FILE
from dupq.runs.records import Config, Manifest, Metrics, damaged, read_success
from dupq.storage import checked, read_as, read_or_none
from dupq.system import require

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
        return tables.conform(table, wanted, self.place)

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
            yield tables.conform(table, wanted, getattr(fragment, "path", self.place))

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

    def _read(self, read: Callable[[], Rows], attempts: int = _ATTEMPTS) -> Rows:
        try:
            return read()
        except _UNREADABLE as error:
            is_of_s3 = "AWS Error" in str(error)  # how Arrow's S3 begins what it says
            if is_of_s3 and attempts > 1:
                return self._read(read, attempts - 1)
            kind = StorageError if is_of_s3 else DupqError
            raise kind(f"{self.place}: cannot be read ({' '.join(str(error).split())})") from error


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


class _Pointer(TypedDict):
    """latest.json."""

    run_id: Annotated[str, Field(pattern=r"^[^/\s]+$")]  # the name of a folder beside it


def latest_run(runs: str) -> str | None:
    """The run that latest.json in a folder of runs names; None if there is no such file, or no whole one."""
    pointer = read_or_none(storage.join(runs, "latest.json"), _Pointer)
    return storage.join(runs, pointer["run_id"]) if pointer else None


def run_at(uri: str | os.PathLike[str]) -> str:
    """The folder `uri`, or that of the latest run if `uri` is a folder of runs."""
    place = storage.absolute(uri)
    pointer = storage.join(place, "latest.json")
    if not storage.exists(pointer):
        return place
    return storage.join(place, read_as(pointer, _Pointer, "give the run's own folder")["run_id"])


Key = tuple[str, int]
TableRow = dict[str, Any]  # a row of one of the tables, by its columns
_SIDES = ("left", "right")
_READ_LATER = ("clusters/", "metrics.json", "embeddings/", VERDICTS_FILE)  # by a run that this one is the earlier of
_REMEDY = "the run is damaged; make it again in another --output"


class Question(NamedTuple):
    """What a reader is shown of a question; the text is its author's, so escape it."""

    title: str
    score: int | None


@dataclass(frozen=True)
class Run:
    """One run's folder. Everything is read lazily."""

    uri: str

    @cached_property
    def manifest(self) -> Manifest:
        """What was run on which inputs, and what each stage cost."""
        return read_as(storage.join(self.uri, "manifest.json"), Manifest, _REMEDY)

    @property
    def encoder_uri(self) -> str:
        """Where the encoder is that the run was made with. Raises DupqError if its manifest does not say so."""
        uri = self.manifest["inputs"].get("encoder")
        if uri is None:
            raise DupqError(f"{storage.join(self.uri, 'manifest.json')}: 'inputs.encoder' is missing; {_REMEDY}")
        return uri

    @cached_property
    def config(self) -> dict[str, dict[str, Any]]:
        """The settings, as plain values: a run of another version may hold ones that are unknown here."""
        place = storage.join(self.uri, "config.json")
        values = read_as(place, dict[str, dict[str, Any]], _REMEDY)
        checked(values, Config, place, _REMEDY)
        return values

    @cached_property
    def metrics(self) -> Metrics:
        """The counts and the measures of quality."""
        return read_metrics(self.uri)

    @cached_property
    def pairs(self) -> TableView:
        """Every candidate pair, near duplicate and used link."""
        return stored(storage.join(self.uri, "pairs"), tables.PAIRS)

    @cached_property
    def clusters(self) -> TableView:
        """A row for every question of the archive."""
        return stored(storage.join(self.uri, "clusters"), tables.CLUSTERS)

    @cached_property
    def cluster_stats(self) -> TableView:
        """A row for each cluster of two and more."""
        return stored(storage.join(self.uri, "cluster_stats"), tables.CLUSTER_STATS)

    @cached_property
    def worklist(self) -> TableView:
        """The likeliest pairs that are not joined, ranked, with titles, addresses and evidence in words."""
        return stored(storage.join(self.uri, "worklist"), tables.WORKLIST)

    @cached_property
    def changes(self) -> TableView:
        """What became of the clusters of the earlier run. Raises DupqError if the run was not given one."""
        place = storage.join(self.uri, "changes")
        if not storage.list_files(place, ".parquet"):
            raise DupqError(f"{place}: no changes, because the run was made without --previous")
        return stored(place, tables.CHANGED_CLUSTERS)

    @cached_property
    def embeddings(self) -> TableView:
        """A vector for each question that the encoder saw; see tables.embeddings."""
        return stored(storage.join(self.uri, "embeddings"))

    @cached_property
    def questions(self) -> TableView:
        """The archive that the run was made from, as it is now. Raises DupqError if it is gone."""
        place = self.manifest["inputs"]["questions"]
        root, files = above_sites(place, table_files(place))
        return stored(root, tables.QUESTIONS, files)

    @cached_property
    def links(self) -> TableView:
        """The archive's links, as they are now; those of type duplicate are the known duplicates.

        Raises DupqError if the run was made without --links.
        """
        place = self.manifest["inputs"].get("links")
        if place is None:
            raise DupqError(f"{self.uri}: no links, because the run was made without --links")
        root, files = above_sites(place, table_files(place))
        return stored(root, tables.LINKS, files)

    def pairs_among(self, keys: Iterable[Key]) -> pa.Table:
        """The rows of `pairs` of which both questions are among `keys`."""
        wanted = set(keys)
        ids = pa.array(sorted({question_id for _, question_id in wanted}), pa.int64())
        sides = [pc.field(f"question_id_{side}").isin(ids) for side in _SIDES]
        rows = self.pairs.arrow(filter=sides[0] & sides[1])
        is_among = [wanted.issuperset(ends_of(row)) for row in rows.to_pylist()]
        return rows.filter(pa.array(is_among, pa.bool_()))

    def titles(self, keys: Iterable[Key]) -> dict[Key, Question]:
        """The questions of `keys` from the archive that the run read; ones no longer there are left out."""
        rows = self.question_rows(keys, ["title", "score"])
        return {key: Question(row["title"], row["score"]) for key, row in rows}

    def question_rows(self, keys: Iterable[Key], columns: list[str]) -> Iterator[tuple[Key, TableRow]]:
        """`columns` of `keys` in the archive, as far as they are still there; one shard is in memory."""
        wanted: dict[str, set[int]] = {}
        for site, question_id in keys:
            wanted.setdefault(site, set()).add(question_id)
        for file in table_files(self.manifest["inputs"]["questions"]):
            its_site = site_in(file.uri)
            if its_site is not None and its_site in wanted:
                for row in _rows_of(file.uri, wanted[its_site], columns):
                    yield (its_site, row["question_id"]), row


def ends_of(row: TableRow) -> tuple[Key, Key]:
    """The two questions of a row of `pairs`."""
    left, right = ((row[f"site_{side}"], row[f"question_id_{side}"]) for side in _SIDES)
    return left, right


def read_metrics(run: str) -> Metrics:
    """The metrics.json of the run at `run`; raises DupqError if it is missing or damaged."""
    return read_as(storage.join(run, "metrics.json"), Metrics, _REMEDY)


def check_earlier(run: str) -> None:
    """Raise DupqError for an earlier run that clusters cannot be compared with; of tables only footers are read."""
    read_metrics(run)
    place = storage.join(run, "clusters")
    files = [file.uri for file in storage.list_files(place, ".parquet")]
    if not files:
        raise DupqError(f"{place}: no such table (no .parquet file is there); {_REMEDY}")
    check_files(files, tables.CLUSTERS, ["site", "question_id", "cluster_id", "cluster_size"])


def previous_run(uri: str | None) -> str | None:
    """The run at `uri`, or the latest of the runs there; None without a `uri`. Raises DupqError if there is none."""
    if uri is None:
        return None
    place = run_at(uri)
    success = read_success(place)
    if success is None:
        raise DupqError(f"--previous {place}: no finished run, and no folder of runs with a latest.json")
    tables = {path: output for path, output in success["outputs"].items() if path.startswith(_READ_LATER)}
    lost = damaged(place, tables)
    if lost:
        raise DupqError(
            f"--previous {place}: {next(iter(lost))} is damaged or gone since that run succeeded; run its job again, "
            "or give another earlier run"
        )
    return place


def built_on(run: str) -> str | None:
    """The earlier run that a finished run builds on; None if it builds on none."""
    manifest = read_or_none(storage.join(run, "manifest.json"), Manifest)
    return manifest["inputs"].get("previous") if manifest else None


def open_run(uri: str) -> Run:
    """The run at `uri`, or the last one that succeeded if `uri` is a folder of runs.

    Raises DupqError if there is neither.
    """
    return Run(place_of(uri))


def finished_run(uri: str) -> Run:
    """As `open_run`; raises DupqError for a run that has not ended, or that a gate has refused."""
    run = open_run(uri)
    if not storage.exists(storage.join(run.uri, "_SUCCESS")):
        raise DupqError(f"{run.uri}: not finished (it has no _SUCCESS); run its job again, which says why")
    return run


def place_of(uri: str | os.PathLike[str]) -> str:
    """The folder of the run that `open_run` opens."""
    place = run_at(uri)
    # an archive has a manifest.json too, but neither of the others
    is_run = storage.exists(storage.join(place, "manifest.json")) and any(
        storage.exists(storage.join(place, name)) for name in ("_SUCCESS", "config.json")
    )
    if not is_run:
        runs = storage.join(place, "runs")
        has_runs = storage.exists(storage.join(runs, "latest.json"))
        remedy = f"give {runs}" if has_runs else "give a run's folder, or a folder of runs with its latest.json"
        raise DupqError(f"{place}: no run is here; {remedy}")
    return place


def _rows_of(uri: str, question_ids: set[int], columns: list[str]) -> list[TableRow]:
    wanted = pa.array(sorted(question_ids), pa.int64())
    ids = storage.read_table(uri, tables.QUESTIONS, ["question_id"])
    if not pc.any(pc.is_in(ids["question_id"], wanted)).as_py():
        return []
    shard = storage.read_table(uri, tables.QUESTIONS, ["question_id", *columns])
    return shard.filter(pc.is_in(shard["question_id"], wanted)).to_pylist()


_SITE = re.compile(r"[a-z0-9-]+(\.[a-z0-9-]+)+")


def link(key: Key) -> str | None:
    """Where a question is on the web, or None if its site is no plain host name."""
    site, question_id = key
    return f"https://{site}/questions/{question_id}" if _SITE.fullmatch(site) else None
