"""Night after night on an archive that grows, loses and edits questions, each night building on the one before.

Each is disturbed once and run again, and then old runs are removed. The last one has the tables of a run from nothing.
Five nights, or thirty with `make chaos`.
"""

import dataclasses
import functools
import json
import random
import shutil
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from disturbed import FAULTS, KILLED, Moment, attempt, latest, tables_of
from moments import Moments
from small_archive import Small, undisturbed

from dupq.pipelines.dedup import DedupJob, dedup
from dupq.runs.pruning import prune
from dupq.runs.retention import Keep

_KEPT = 3  # runs
_SHARDS = 3


class Archive:
    """The questions of a small archive, of which most are there on the first night."""

    def __init__(self, folder: Path, questions: pa.Table, dice: random.Random) -> None:
        self._folder, self._dice = folder, dice
        self._others = questions.to_pylist()
        self._schema = questions.schema
        dice.shuffle(self._others)
        self._there = [self._others.pop() for _ in range(len(self._others) * 2 // 3)]
        self._write()

    def change(self) -> None:
        """A night's: some questions come, two are edited, one goes."""
        self._there += [self._others.pop() for _ in range(min(6, len(self._others)))]
        gone = self._dice.randrange(len(self._there))
        self._others.insert(0, self._there.pop(gone))
        for row in self._dice.sample(self._there, 2):
            row["title"] += " again"
            row["body_html"] += "<p>Edited.</p>"
        self._write()

    def _write(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)
        place = self._folder / "site=bread.example.com"
        place.mkdir(parents=True)
        table = pa.Table.from_pylist(self._there, self._schema).sort_by("question_id")
        size = -(-len(table) // _SHARDS)
        for number in range(_SHARDS):
            pq.write_table(table.slice(number * size, size), place / f"part-{number}.parquet")


def test_thirty_nights(small: Small, dice: random.Random, moments: Moments, tmp_path: Path) -> None:
    tables = [pq.ParquetFile(file).read() for file in sorted((small.folder / "inputs/questions").rglob("*.parquet"))]
    archive = Archive(tmp_path / "questions", pa.concat_tables(tables), dice)
    first = dataclasses.replace(small.job(tmp_path / "runs"), questions=str(tmp_path / "questions"))
    undisturbed(functools.partial(dedup, first), tmp_path)
    sizes, ids = [], []
    for night in range(5 if moments.few else 30):
        archive.change()
        job = dataclasses.replace(first, previous=latest(first.output))
        then = clusters_of(latest(first.output))
        fault, number = dice.choice(FAULTS), dice.choice(small.course.moments("disk full"))
        ended = attempt(functools.partial(dedup, job), Moment(job.output, number, fault), tmp_path)
        assert ended.code in (0, 5, KILLED), (night, ended.said)
        again(job, tmp_path)
        now = clusters_of(latest(first.output))
        ids.append(all(now[name] == members for name, members in then.items() if members in now.values()))
        tidy(job)
        sizes.append(sum(file.stat().st_size for file in Path(job.output).rglob("*") if file.is_file()))
    assert all(ids)
    assert len(list(Path(first.output).glob("*/_SUCCESS"))) == _KEPT
    assert sizes[-1] < 1.2 * sizes[_KEPT - 1]
    whole = dataclasses.replace(first, output=str(tmp_path / "whole"))
    undisturbed(functools.partial(dedup, whole), tmp_path)
    compare(latest(first.output), latest(whole.output))


def again(job: DedupJob, folder: Path) -> None:
    ended = attempt(functools.partial(dedup, job), Moment(job.output, 0, "none"), folder)
    assert ended.code == 0, ended.said


def tidy(job: DedupJob) -> None:
    tomorrow = datetime.now(UTC) + timedelta(days=2)  # what was cut off is removed when it is a day old
    assert list(prune(job.output, [], Keep(newest=_KEPT, monthly=0), tomorrow, is_dry=False))


def compare(found: str, expected: str) -> None:
    """Whether two runs have the same tables, but for what tells of the night before: ids of clusters, and drift."""
    mine, theirs = (without_ids(tables_of(run)) for run in (found, expected))
    assert mine.keys() == theirs.keys()
    assert [name for name, content in theirs.items() if mine[name] != content] == []
    assert sorted(map(sorted, clusters_of(found).values())) == sorted(map(sorted, clusters_of(expected).values()))


def without_ids(tables: dict[str, bytes]) -> dict[str, object]:
    kept: dict[str, object] = {
        name: content for name, content in tables.items() if not name.startswith(("cluster", "changes", "review"))
    }
    metrics = json.loads(tables["metrics.json"])
    metrics.pop("drift", None)
    return kept | {"metrics.json": metrics}


def clusters_of(run: str) -> dict[str, frozenset[int]]:
    """The questions of each cluster of several."""
    found: dict[str, set[int]] = {}
    for row in rows_of(Path(run, "clusters").rglob("*.parquet")):
        if row["cluster_size"] > 1:
            found.setdefault(row["cluster_id"], set()).add(row["question_id"])
    return {name: frozenset(members) for name, members in found.items()}


def rows_of(files: Iterable[Path]) -> list[dict]:
    columns = ["question_id", "cluster_id", "cluster_size"]
    return [row for file in sorted(files) for row in pq.ParquetFile(file).read(columns).to_pylist()]
