"""Reading a finished run: where it is, its tables, the archive that it was made from, and where its questions are on
the web.

The report opens runs here; `dupq.open_run` adds what notebooks need (dupq/api/runs.py).
"""

import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field
from typing_extensions import TypedDict

from dupq import storage, tables
from dupq.archive import above_sites, check_files, site_in, table_files
from dupq.errors import DupqError
from dupq.evaluation.verdicts import VERDICTS_FILE
from dupq.runs.records import Config, Manifest, Metrics, damaged, read_success
from dupq.runs.table_view import TableView, stored
from dupq.storage import checked, read_as, read_whole


class _Pointer(TypedDict):
    """latest.json."""

    run_id: Annotated[str, Field(pattern=r"^[^/\s]+$")]  # the name of a folder beside it


def latest_run(runs: str) -> str | None:
    """The run that latest.json in a folder of runs names; None if there is no such file, or no whole one."""
    pointer = read_whole(storage.join(runs, "latest.json"), _Pointer)
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
            f"--previous {place}: {lost[0]} is damaged or gone since that run succeeded; run its job again, or give "
            "another earlier run"
        )
    return place


def built_on(run: str) -> str | None:
    """The earlier run that a finished run builds on; None if it builds on none."""
    manifest = read_whole(storage.join(run, "manifest.json"), Manifest)
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
