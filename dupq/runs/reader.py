"""Reading a finished run: its folder, its tables (views.py), and its archive.

The report opens runs here; `dupq.open_run` adds what notebooks need (dupq/api/runs.py).
"""

import os
import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import pyarrow as pa
import pyarrow.compute as pc

from dupq import storage, tables
from dupq.archive import above_sites, check_files
from dupq.errors import DupqError, SettingError
from dupq.evaluation.verdicts import VERDICTS_FILE
from dupq.job.records import Manifest, Metrics, Pointer, damaged, read_success
from dupq.runs.views import TableView, stored
from dupq.settings.config import Settings, known_in
from dupq.storage import read_as, read_or_none

Key = tuple[str, int]
KEY = ["site", "question_id"]  # its columns
TableRow = dict[str, Any]  # a row of one of the tables, by its columns
_READ_LATER = ("clusters/", "metrics.json", "embeddings/", VERDICTS_FILE)  # by a run with --previous
_REMEDY = "the run is damaged; make it again in another --output"
_SITE = re.compile(r"[a-z0-9-]+(\.[a-z0-9-]+)+")


def run_at(uri: str | os.PathLike[str]) -> str:
    """Return the folder `uri`, or the latest run's folder if `uri` is a folder of runs."""
    folder = storage.absolute(uri)
    pointer = storage.join(folder, "latest.json")
    if not storage.exists(pointer):
        return folder
    return storage.join(folder, read_as(pointer, Pointer, "give the run's own folder")["run_id"])


@dataclass(frozen=True)
class Run:
    """The folder of a run. Everything is read lazily."""

    uri: str

    @cached_property
    def manifest(self) -> Manifest:
        """The inputs of the run, and what each stage cost."""
        return read_as(storage.join(self.uri, "manifest.json"), Manifest, _REMEDY)

    def input(self, name: Literal["questions", "encoder", "links"]) -> str | None:
        """Return the URI of an input, such as `questions`; None if the run had none.

        If it is gone, but is next to the folder of runs, as after the whole output was moved, it is that.
        """
        uri = self.manifest["inputs"].get(name)
        if uri is None or storage.exists(uri):
            return uri
        names, above = uri.split("/"), storage.parent(storage.parent(self.uri))
        moved = [storage.join(above, *names[-count:]) for count in (1, 2)]  # an encoder has a folder of its own
        return next(filter(storage.exists, moved), uri)

    @cached_property
    def encoder_uri(self) -> str:
        """The URI of the encoder of the run. Raises DupqError if the manifest lacks it."""
        uri = self.input("encoder")
        if uri is None:
            raise DupqError(f"{storage.join(self.uri, 'manifest.json')}: 'inputs.encoder' is missing; {_REMEDY}")
        return uri

    @cached_property
    def config(self) -> dict[str, dict[str, Any]]:
        """The settings as plain values: a run of another version may hold unknown ones."""
        return read_as(storage.join(self.uri, "config.json"), dict[str, dict[str, Any]], _REMEDY)

    @cached_property
    def settings(self) -> Settings:
        """The settings that this version knows; a run of another may have more. Raises DupqError for a wrong one."""
        try:
            return known_in(self.config)
        except SettingError as error:
            raise DupqError(f"{storage.join(self.uri, 'config.json')}: {error}; {_REMEDY}") from error

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
        """A row per question of the archive."""
        return stored(storage.join(self.uri, "clusters"), tables.CLUSTERS)

    @cached_property
    def cluster_stats(self) -> TableView:
        """A row per cluster of two or more questions."""
        return stored(storage.join(self.uri, "cluster_stats"), tables.CLUSTER_STATS)

    @cached_property
    def judgements(self) -> TableView:
        """A judge's answers (JUDGEMENTS); a run without a judge has none."""
        return stored(storage.join(self.uri, "judge"), tables.JUDGEMENTS)

    @cached_property
    def worklist(self) -> TableView:
        """The likeliest pairs that are not joined, ranked, with titles, addresses and evidence in words."""
        return stored(storage.join(self.uri, "worklist"), tables.WORKLIST)

    @cached_property
    def changes(self) -> TableView:
        """The changes to the clusters of the earlier run. Raises DupqError if the run was not given one."""
        folder = storage.join(self.uri, "changes")
        if not storage.list_files(folder, ".parquet"):
            raise DupqError(f"{folder}: no changes, because the run was made without --previous")
        return stored(folder, tables.CHANGED_CLUSTERS)

    @cached_property
    def embeddings(self) -> TableView:
        """A vector per question that the encoder read; see tables.embeddings."""
        return stored(storage.join(self.uri, "embeddings"))

    @cached_property
    def archive(self) -> TableView | None:
        """The archive's questions, as they are now; None if they are gone."""
        root, files = above_sites(self.input("questions") or "")
        return stored(root, tables.QUESTIONS, files) if files else None

    @property
    def questions(self) -> TableView:
        """The archive that the run was made from, as it is now. Raises DupqError if it is gone."""
        if self.archive is None:
            raise DupqError(
                f"{self.manifest['inputs']['questions']}: no such table (no .parquet file is there); if the output was "
                "moved, move questions and encoder with the folder of runs"
            )
        return self.archive

    @cached_property
    def links(self) -> TableView:
        """The archive's links, as they are now; links of type duplicate are the known duplicates.

        Raises DupqError if the run was made without --links.
        """
        archive = self.input("links")
        if archive is None:
            raise DupqError(f"{self.uri}: no links, because the run was made without --links")
        root, files = above_sites(archive)
        return stored(root, tables.LINKS, files)

    def pairs_among(self, keys: Collection[Key]) -> pa.Table:
        """Return the rows of `pairs` of which both questions are among `keys`."""
        among = set(keys)
        rows = self.pairs.arrow(filter=may_be(among, "_left") & may_be(among, "_right"))
        is_among = [among.issuperset(ends_of(row)) for row in rows.to_pylist()]
        return rows.filter(pa.array(is_among, pa.bool_()))

    def titles(self, keys: Iterable[Key]) -> dict[Key, str]:
        """Return the titles of the questions of `keys` that are still in the archive. They are their authors' text."""
        return {key: row["title"] for key, row in self.question_rows(keys, ["title"])}

    def question_rows(self, keys: Iterable[Key], columns: list[str]) -> Iterator[tuple[Key, TableRow]]:
        """Yield `columns` of the questions of `keys` that are still in the archive. Memory: one shard."""
        among = set(keys)
        for table in () if self.archive is None else self.archive.files([*KEY, *columns], may_be(among)):
            for row in table.to_pylist():
                key = row["site"], row["question_id"]
                if key in among:
                    yield key, row


def may_be(keys: Collection[Key], end: str = "") -> pc.Expression:
    """Return a condition that the questions `keys` meet, and others with the site of one and the id of another.

    The columns are `site` and `question_id`, with the ending `end`.
    """
    sites, ids = ({key[part] for key in keys} for part in (0, 1))
    is_of_site = pc.field(f"site{end}").isin(pa.array(sorted(sites), pa.string()))
    return is_of_site & pc.field(f"question_id{end}").isin(pa.array(sorted(ids), pa.int64()))


def row_of(table: TableView, key: Key, columns: list[str]) -> TableRow:
    """Return the row of a question. Raises DupqError if the table has none."""
    rows: list[TableRow] = table.arrow(columns, may_be([key])).to_pylist()
    if not rows:
        raise DupqError(f"{key[0]}/{key[1]}: no such question in {table.source}")
    return rows[0]


def ends_of(row: TableRow) -> tuple[Key, Key]:
    """Return the keys of the two questions of a row of `pairs`."""
    return (row["site_left"], row["question_id_left"]), (row["site_right"], row["question_id_right"])


def read_metrics(run: str) -> Metrics:
    """Return the metrics.json of the run at `run`. Raises DupqError if it is missing or damaged."""
    return read_as(storage.join(run, "metrics.json"), Metrics, _REMEDY)


def check_earlier(run: str) -> None:
    """Raise DupqError for an earlier run that clusters cannot be compared with. Only footers of tables are read."""
    read_metrics(run)
    folder = storage.join(run, "clusters")
    files = [file.uri for file in storage.list_files(folder, ".parquet")]
    if not files:
        raise DupqError(f"{folder}: no such table (no .parquet file is there); {_REMEDY}")
    check_files(files, tables.CLUSTERS, ["site", "question_id", "cluster_id", "cluster_size"])


def previous_run(uri: str | None) -> str | None:
    """Return the run at `uri`, or the latest of the runs there; None without a `uri`. Raises DupqError if there is
    none.
    """
    if uri is None:
        return None
    run = run_at(uri)
    success = read_success(run)
    if success is None:
        raise DupqError(f"--previous {run}: no finished run, and no folder of runs with a latest.json")
    tables = {path: output for path, output in success["outputs"].items() if path.startswith(_READ_LATER)}
    lost = damaged(run, tables)
    if lost:
        raise DupqError(
            f"--previous {run}: {next(iter(lost))} is damaged or gone since that run succeeded; run its job again, "
            "or give another earlier run"
        )
    return run


def built_on(run: str) -> str | None:
    """Return the earlier run that a finished run builds on, if any."""
    manifest = read_or_none(storage.join(run, "manifest.json"), Manifest)
    return manifest["inputs"].get("previous") if manifest else None


def open_run(uri: str | os.PathLike[str]) -> Run:
    """Return the run at `uri`, or the last one that succeeded if `uri` is a folder of runs.

    Raises DupqError if there is neither.
    """
    folder = run_at(uri)
    # an archive has a manifest.json too, but neither of the others
    is_run = storage.exists(storage.join(folder, "manifest.json")) and any(
        storage.exists(storage.join(folder, name)) for name in ("_SUCCESS", "config.json")
    )
    if not is_run:
        runs = storage.join(folder, "runs")
        has_runs = storage.exists(storage.join(runs, "latest.json"))
        remedy = f"give {runs}" if has_runs else "give a run's folder, or a folder of runs with its latest.json"
        raise DupqError(f"{folder}: no run is here; {remedy}")
    return Run(folder)


def finished_run(uri: str) -> Run:
    """Return the same as `open_run`. Raises DupqError for a run that has not ended or that a gate has refused."""
    run = open_run(uri)
    if not storage.exists(storage.join(run.uri, "_SUCCESS")):
        raise DupqError(f"{run.uri}: not finished (it has no _SUCCESS); run its job again, which says why")
    return run


def link(key: Key, url: str | None = None) -> str | None:
    """Return the address of a question on the web: its `url`, or by its site; None if that is not a host name."""
    site, question_id = key
    return url or (f"https://{site}/questions/{question_id}" if _SITE.fullmatch(site) else None)
