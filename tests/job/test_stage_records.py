"""A finished stage is believed only while all that it wrote is there; what is not is made again, and nothing else."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from dupq import storage
from dupq.archive import content_of, question_shards
from dupq.errors import DupqError, LeaseError
from dupq.job import lease, progress, records
from dupq.job.run import Run
from dupq.runs.reader import previous_run
from dupq.settings.config import Settings

FILES = {"first": ("work/a", "work/b"), "second": ("work/drop/c", "table/d"), "third": ("work/e", "metrics.json")}


class Job:
    """Three stages of two files each; the third drops a folder that the second hands on."""

    def __init__(self, output: Path) -> None:
        self.output = str(output)
        self.done: list[str] = []

    def run(self, stages: int = 3, content: str = "x") -> Run:
        run = Run.open(self.output, {}, {}, Settings(), dict.fromkeys(FILES, 1))
        if run.finished:
            records.point_latest(run.uri)
            return run
        for name in [*FILES][:stages]:
            run.finish(name, name, lambda name=name: self._make(run, name), "work/drop" if name == "third" else None)
        if stages == 3:
            run.describe()
            run.mark()
            records.point_latest(run.uri)
        return run

    def _make(self, run: Run, name: str) -> None:
        self.done.append(name)
        for path in FILES[name]:
            storage.write_json(run.path(path), path)
        run.report.rows_in, run.report.rows_out = 1, 2

    def again(self, stages: int = 3) -> list[str]:
        self.done.clear()
        self.run(stages)
        return self.done


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return Job(tmp_path / "runs")


def cut(path: str) -> None:
    Path(path).write_bytes(Path(path).read_bytes()[:-3])


def flip(path: str) -> None:
    content = Path(path).read_bytes()
    Path(path).write_bytes(bytes([content[0] ^ 1]) + content[1:])


HARMS = [os.unlink, cut, flip]


@pytest.mark.parametrize("harm", HARMS)
@pytest.mark.parametrize(
    ("path", "made"),
    [
        ("work/b", ["first", "second"]),
        ("work/drop/c", ["second"]),
        ("table/d", ["second"]),
        ("stages/first.json", ["first", "second"]),
    ],
)
def test_what_an_unfinished_run_lost_is_made_again(
    job: Job, path: str, made: list[str], harm: Callable[[str], None]
) -> None:
    run = job.run(stages=2)
    harm(run.path(path))
    assert job.again() == [*made, "third"]
    assert json.loads(Path(run.path("metrics.json")).read_text()) == "metrics.json"


def test_a_folder_that_was_dropped_is_not_missed_until_the_stage_that_dropped_it_is_lost(job: Job) -> None:
    run = job.run(stages=3)
    os.unlink(run.path("_SUCCESS"))
    assert not Path(run.path("work/drop")).exists()
    assert job.again() == []
    os.unlink(run.path("_SUCCESS"))
    os.unlink(run.path("work/e"))
    assert job.again() == ["second", "third"]


@pytest.mark.parametrize("harm", HARMS)
@pytest.mark.parametrize("path", ["table/d", "manifest.json", "config.json"])
def test_a_run_that_succeeded_and_lost_a_file_is_repaired(job: Job, path: str, harm: Callable[[str], None]) -> None:
    run = job.run()
    whole = Path(run.path(path)).read_bytes()
    harm(run.path(path))
    job.again()
    assert path.endswith(("manifest.json", "config.json")) == (not job.done)
    if path != "manifest.json":  # which holds seconds
        assert Path(run.path(path)).read_bytes() == whole
    assert job.again() == []


def test_a_finished_run_is_mended_only_by_the_job_that_has_its_lease(job: Job) -> None:
    run, path = job.run(), "table/d"
    with lease.held(run.uri):
        assert job.again() == []  # nothing is written
    Path(run.path(path)).unlink()
    there = {file.relative for file in storage.list_files(run.uri)}
    with lease.held(run.uri):
        with pytest.raises(LeaseError):
            job.again()
        assert {file.relative for file in storage.list_files(run.uri)} - there == {"leases/000002.json"}
        assert Path(run.path("_SUCCESS")).exists()
    job.again()
    assert Path(run.path(path)).exists()


def test_a_damaged_success_is_written_again_and_work_may_be_gone(job: Job) -> None:
    run = job.run()
    marker = Path(run.path("_SUCCESS"))
    for content in (None, b"", b"{}", b"[]"):
        os.unlink(marker) if content is None else marker.write_bytes(content)
        assert job.again() == []
        assert json.loads(marker.read_text())["outputs"].keys() >= {"table/d", "manifest.json"}
    storage.delete_folder(run.path("work"))
    assert job.again() == []


def test_the_latest_run_is_named_again_where_a_kill_left_it_unnamed(job: Job) -> None:
    run = job.run()
    latest = Path(job.output) / "latest.json"
    named = latest.read_bytes()
    for content in (None, named.replace(run.run_id.encode(), b"0" * 16)):
        os.unlink(latest) if content is None else latest.write_bytes(content)
        assert job.again() == []
        assert latest.read_bytes() == named


@pytest.mark.parametrize("harm", HARMS)
def test_a_run_that_succeeded_later_stays_the_latest_while_it_is_whole(job: Job, harm: Callable[[str], None]) -> None:
    older, other = job.run(), another(job)
    job.again()
    assert named(job) == other.run_id
    harm(other.path("_SUCCESS"))
    assert job.again() == []
    assert named(job) == older.run_id
    newest = another(job, 2)
    assert named(job) == newest.run_id
    shutil.rmtree(newest.uri)
    assert job.again() == []
    assert named(job) == older.run_id


def another(job: Job, number: int = 1) -> Run:
    """A later run beside the job's."""
    run = Run.open(job.output, {}, {"other": number}, Settings(), {})
    run.finish("first", "first", lambda: None, None)
    progress.end(run.uri, "finished")
    run.describe()
    run.mark()
    records.point_latest(run.uri)
    return run


def named(job: Job) -> str:
    return str(storage.read_json(f"{job.output}/latest.json")["run_id"])


def test_the_line_of_a_stage_tells_its_counts_and_not_each_of_its_files(job: Job) -> None:
    run = job.run()
    progress.end(run.uri, "finished")
    lines = [json.loads(line) for line in Path(run.path("run.log")).read_text().splitlines()]
    assert [(line["name"], line["rows_in"], line["rows_out"]) for line in lines] == [(name, 1, 2) for name in FILES]
    assert not any({"outputs", "dropped"} & line.keys() for line in lines)


def test_shards_are_identified_by_their_paths_and_checksums(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = {f"site={site}/part-{number}.parquet": b"%d" % number for site in "ab" for number in (0, 1)}
    for path, content in files.items():
        storage.write_bytes(f"{tmp_path}/questions/{path}", content)
    expected = [[path, storage.checksum(f"{tmp_path}/questions/{path}")] for path in files]
    monkeypatch.chdir(tmp_path)
    for uri in ("questions", f"file://{tmp_path}/questions/", f"{tmp_path}/questions"):
        shards, _ = question_shards(uri)
        assert content_of(uri, shards) == expected
        assert content_of(uri, shards[1:]) == expected[1:]


def test_what_people_fill_in_does_not_damage_a_run(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(FILES, "second", ("review.tsv", "table/d"))
    run = job.run()
    Path(run.path("review.tsv")).write_text("filled in")
    assert job.again() == []
    assert Path(run.path("review.tsv")).read_text() == "filled in"


def test_the_files_of_an_earlier_run_are_read_once_in_each_version(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(FILES, "second", ("clusters/d", "embeddings/e"))
    run, read, checksum = job.run(), [], storage.checksum
    monkeypatch.setattr(storage, "checksum", lambda uri: (read.append(uri), checksum(uri))[1])
    for _ in range(2):
        assert previous_run(job.output) == run.uri
        assert records.is_intact(run.uri, run.records[1], ("embeddings",))
    assert sorted(read) == [run.path(path) for path in ("clusters/d", "embeddings/e", "metrics.json")]
    content = Path(run.path("embeddings/e")).read_bytes()
    for other in (content.swapcase(), content):
        storage.write_bytes(run.path("embeddings/e"), other)
        assert records.is_intact(run.uri, run.records[1], ("embeddings",)) == (other == content)
        assert read.pop() == run.path("embeddings/e")


def test_an_earlier_run_that_lost_a_table_is_refused(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(FILES, "second", ("clusters/d", "pairs/p"))
    run = job.run()
    assert previous_run(job.output) == run.uri
    cut(run.path("clusters/d"))
    with pytest.raises(DupqError, match=r"--previous .*: clusters/d is damaged or gone"):
        previous_run(job.output)
