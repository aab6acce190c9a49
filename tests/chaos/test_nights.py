"""Night after night on an archive that grows, loses and edits questions, each night building on the one before.

Each is disturbed once and run again, and then old runs are removed. The last one has the tables of a run from nothing.
Two nights, or thirty with `make chaos`.
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
from disturbed import FAULTS, Moment, attempt, differing, latest, searched_again, tables_of
from moments import Moments
from small_archive import Small, undisturbed

from dupq.pipelines.dedup import DedupJob, dedup
from dupq.runs.inventory import Keep, prune

_KEPT = 3  # runs
_BYTES = 2_500  # a question of a run; here it takes 2,000
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

    @property
    def size(self) -> int:
        """Questions that are there."""
        return len(self._there)

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
    lived, earlier = 0, 0
    for night in range(2 if moments.few else 30):
        archive.change()
        job = dataclasses.replace(first, previous=latest(first.output))
        then = clusters_of(latest(first.output))
        twin = dataclasses.replace(job, output=str(tmp_path / "twin"))
        course = undisturbed(functools.partial(dedup, twin), tmp_path, Path(twin.output))
        fault = dice.choice(FAULTS)
        number = dice.choice(course.moments(fault))
        ended = attempt(functools.partial(dedup, job), Moment(job.output, number, fault), tmp_path)
        ended.check_disturbed(fault)
        again(job, tmp_path)
        assert Path(latest(job.output)).name == Path(latest(twin.output)).name, night
        assert differing(tables_of(latest(job.output)), tables_of(latest(twin.output))) == [], (night, fault, number)
        assert searched_again(latest(job.output)), night
        shutil.rmtree(twin.output)
        now = clusters_of(latest(first.output))
        same = {name: members for name, members in then.items() if members in now.values()}
        assert all(now[name] == members for name, members in same.items()), night
        lived, earlier = lived + len(same), earlier + len(then)
        tidy(job)
        # the report has a bound of its own (dupq/report/explorer.py), which small runs do not reach
        files = [file for file in Path(job.output).rglob("*") if file.is_file() and file.name != "report.html"]
        runs = {file.relative_to(job.output).parts[0] for file in files if file.parent != Path(job.output)}
        assert len(runs) == min(night + 2, _KEPT), night
        taken = sum(file.stat().st_size for file in files) / (archive.size * len(runs))
        assert taken < _BYTES, night
    assert lived > 0.8 * earlier > 0
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
    mine, theirs = (without_names(run) for run in (found, expected))
    assert mine.keys() == theirs.keys()
    assert [name for name, content in theirs.items() if mine[name] != content] == []


def without_names(run: str) -> dict[str, object]:
    """The tables of a run, in which neither clusters nor the run have a name."""
    tables = tables_of(run)
    kept: dict[str, object] = {
        name: content for name, content in tables.items() if not name.startswith(("cluster", "changes"))
    }
    kept["review.tsv"] = tables["review.tsv"].replace(Path(run).name.encode(), b"")
    kept["metrics.json"] = {
        name: value for name, value in json.loads(tables["metrics.json"]).items() if name != "drift"
    }
    for name in ("clusters", "cluster_stats"):
        rows = rows_of(Path(run, name).rglob("*.parquet"))
        kept[name] = sorted(str([value for column, value in row.items() if column != "cluster_id"]) for row in rows)
    kept["groups"] = sorted(map(sorted, clusters_of(run).values()))
    return kept


def clusters_of(run: str) -> dict[str, frozenset[int]]:
    """The questions of each cluster of several."""
    found: dict[str, set[int]] = {}
    for row in rows_of(Path(run, "clusters").rglob("*.parquet")):
        if row["cluster_size"] > 1:
            found.setdefault(row["cluster_id"], set()).add(row["question_id"])
    return {name: frozenset(members) for name, members in found.items()}


def rows_of(files: Iterable[Path]) -> list[dict]:
    return [row for file in sorted(files) for row in pq.ParquetFile(file).read().to_pylist()]
