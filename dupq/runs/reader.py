"""A finished run as its readers see it. The report and the notebooks open runs here.

Tables come one file at a time, so that a reader needs the memory of one file, however large the archive.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from dupq import storage, tables
from dupq.errors import DupqError

Key = tuple[str, int]


class Question(NamedTuple):
    """What a reader is shown of a question; the text is its author's, so escape it."""

    title: str
    score: int | None


@dataclass(frozen=True)
class Run:
    """One run's folder. Nothing is read before it is asked for."""

    uri: str

    @cached_property
    def manifest(self) -> dict[str, Any]:
        """What was run on which inputs, and what each stage cost."""
        return storage.read_json(storage.join(self.uri, "manifest.json"))

    @cached_property
    def config(self) -> dict[str, Any]:
        """The settings, as plain values: a run of another version may hold ones that are unknown here."""
        return storage.read_json(storage.join(self.uri, "config.json"))

    @cached_property
    def metrics(self) -> dict[str, Any]:
        """The counts and the measures of quality."""
        return storage.read_json(storage.join(self.uri, "metrics.json"))

    def pairs(self, columns: list[str] | None = None) -> Iterator[pa.Table]:
        """The `pairs` table, file by file."""
        return self._files("pairs", tables.PAIRS, columns)

    def clusters(self, columns: list[str] | None = None) -> Iterator[pa.Table]:
        """The `clusters` table, file by file; it has a row for every question of the archive."""
        return self._files("clusters", tables.CLUSTERS, columns)

    def cluster_stats(self, columns: list[str] | None = None) -> Iterator[pa.Table]:
        """The `cluster_stats` table, file by file."""
        return self._files("cluster_stats", tables.CLUSTER_STATS, columns)

    def titles(self, keys: Iterable[Key]) -> dict[Key, Question]:
        """The questions of `keys` from the archive that the run read; ones no longer there are left out."""
        wanted: dict[str, set[int]] = {}
        for site, question_id in keys:
            wanted.setdefault(site, set()).add(question_id)
        found: dict[Key, Question] = {}
        for site, uri in self._question_files():
            if site in wanted:
                found.update(_questions(site, uri, wanted[site]))
        return found

    def _files(self, name: str, schema: pa.Schema, columns: list[str] | None) -> Iterator[pa.Table]:
        for file in storage.list_files(storage.join(self.uri, name), ".parquet"):
            yield storage.read_table(file.uri, schema, columns)

    def _question_files(self) -> Iterator[tuple[str, str]]:
        for file in storage.list_files(self.manifest["inputs"]["questions"], ".parquet"):
            folder, _, _ = file.relative.rpartition("/")
            yield folder.removeprefix("site="), file.uri


def open_run(uri: str) -> Run:
    """The run at `uri`, or the last one that succeeded if `uri` is a folder of runs.

    Raises DupqError if there is neither.
    """
    place = storage.absolute(uri)
    latest = storage.join(place, "latest.json")
    if storage.exists(latest):
        place = storage.join(place, storage.read_json(latest)["run_id"])
    if not storage.exists(storage.join(place, "manifest.json")):
        raise DupqError(f"{place}: no run is here; give a run's folder, or a folder of runs with its latest.json")
    return Run(place)


def _questions(site: str, uri: str, question_ids: set[int]) -> dict[Key, Question]:
    wanted = pa.array(sorted(question_ids), pa.int64())
    ids = storage.read_table(uri, tables.QUESTIONS, ["question_id"])
    if not pc.any(pc.is_in(ids["question_id"], wanted)).as_py():
        return {}
    shard = storage.read_table(uri, tables.QUESTIONS, ["question_id", "title", "score"])
    rows = shard.filter(pc.is_in(shard["question_id"], wanted)).to_pylist()
    return {(site, row["question_id"]): Question(row["title"], row["score"]) for row in rows}
