"""Ingest again, twice at once, interrupted, on a dump that broke: no good table is lost, nothing is done twice."""

import contextlib
import functools
import itertools
import json
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pytest
from ingest_jobs import tables

from benchmarks import big_archive
from dupq import storage
from dupq.archive import question_shards
from dupq.dump import parsing
from dupq.dump.files import DumpSite
from dupq.dump.reading import Ingest
from dupq.errors import FAULT, DupqError, LeaseError
from dupq.job import cluster
from dupq.job.run import Run
from dupq.pipelines import ingest as job
from dupq.pipelines.ingest import IngestJob, ingest
from dupq.settings.config import Settings


@pytest.fixture
def small(tmp_path: Path) -> Callable[..., dict]:
    """Return a function that ingests `tmp_path`/dumps, which has a site of 300 questions, into `tmp_path`/out."""
    write_site(tmp_path, "a.example.com")

    def run(*assignments: str) -> dict:
        return ingest(IngestJob((str(tmp_path / "dumps"),), str(tmp_path / "out"), assignments=assignments))

    return run


def write_site(folder: Path, site: str, questions: int = 300) -> Path:
    big_archive.write_archive(folder / "dumps", questions=questions, site=site)
    return folder / "dumps" / site / "Posts.xml"


def times(folder: Path) -> dict[str, int]:
    return {str(path): path.stat().st_mtime_ns for path in folder.rglob("*.*") if path.suffix in (".parquet", ".arrow")}


def sites(output: Path) -> dict[str, dict]:
    return json.loads((output / "manifest.json").read_text())["sites"]


def test_tables_that_were_deleted_or_cut_are_made_again_and_replace_those_of_other_shards(
    small: Callable[..., dict], tmp_path: Path
) -> None:
    small("ingest.shard_rows=70")
    small("ingest.shard_rows=100")
    before = tables(tmp_path / "out")
    assert len(list((tmp_path / "out" / "questions" / "site=a.example.com").iterdir())) == 3
    for lost in ("questions", "rejects", "questions/site=a.example.com/part-00001*.parquet", "links/*/*.parquet"):
        (place,) = (tmp_path / "out").glob(lost)
        if place.is_dir():
            shutil.rmtree(place)
        elif lost.startswith("links"):
            place.write_bytes(place.read_bytes()[:-1])
        else:
            place.unlink()
        assert tables(tmp_path / "out") != before
        small("ingest.shard_rows=100")
        assert tables(tmp_path / "out") == before


def test_a_new_dump_that_is_broken_costs_no_tables(small: Callable[..., dict], tmp_path: Path) -> None:
    small()
    before, counted = tables(tmp_path / "out"), sites(tmp_path / "out")
    posts = write_site(tmp_path, "a.example.com", questions=400)
    whole = posts.read_bytes()
    posts.write_bytes(whole[:-30])
    with pytest.raises(DupqError, match="cut short"):
        small()
    assert tables(tmp_path / "out") == before
    assert sites(tmp_path / "out") == counted
    posts.write_bytes(whole)
    assert small()["a.example.com"]["questions"] == 400
    assert ds.dataset(tmp_path / "out" / "questions").count_rows() == 400


def test_the_manifest_has_all_sites_that_are_there_and_those_that_failed(
    small: Callable[..., dict], tmp_path: Path
) -> None:
    small()
    for name in ("b.example.com", "c.example.com"):
        posts = write_site(tmp_path, name)
        posts.write_bytes(posts.read_bytes()[:-30])
    with pytest.raises(DupqError) as error:
        small()
    first, *lines = str(error.value).splitlines()
    assert first == "2 of 3 sites failed:"
    assert [line.split(": ")[0] for line in lines] == ["  b.example.com", "  c.example.com"]
    assert all("Posts.xml: cut short" in line for line in lines)
    assert list(sites(tmp_path / "out")) == ["a.example.com"]
    write_site(tmp_path, "b.example.com")
    ingest(IngestJob((str(tmp_path / "dumps" / "b.example.com"),), str(tmp_path / "out")))
    assert list(sites(tmp_path / "out")) == ["a.example.com", "b.example.com"]


def test_an_error_that_is_none_of_ours_fails_its_site_only(
    small: Callable[..., dict], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_site(tmp_path, "b.example.com")
    ingest_site = job._ingest_site

    def wrong(site: DumpSite, *arguments: Any) -> float:
        if site.site == "a.example.com":
            raise ValueError("a bug")
        return ingest_site(site, *arguments)

    monkeypatch.setattr(job, "_ingest_site", wrong)
    with pytest.raises(DupqError, match=r"1 of 2 sites failed:\n  a\.example\.com: ValueError: a bug") as error:
        small()
    assert error.value.exit_code == FAULT
    assert "Traceback" in capsys.readouterr().err
    assert list(sites(tmp_path / "out")) == ["b.example.com"]


def test_what_only_decides_on_failing_reads_nothing_again(
    small: Callable[..., dict], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    posts = tmp_path / "dumps" / "a.example.com" / "Posts.xml"
    content = posts.read_bytes()
    row = content.index(b"<row ")
    posts.write_bytes(content[:row] + b'<row Id="1" PostTypeId="1" Body="& no XML" />\r\n  ' + content[row:])
    monkeypatch.setattr(parsing, "REJECTS_ALLOWED", 0)
    with pytest.raises(DupqError, match=r"1 of [0-9,]+ rows are broken"):
        small("ingest.maximum_reject_share=0")
    parts = {path: time for path, time in times(tmp_path / "out" / "_parts").items() if path.endswith(".arrow")}
    assert parts
    with pytest.raises(DupqError, match=r"1 of [0-9,]+ rows are broken"):
        small("ingest.maximum_reject_share=0.0000001", "ingest.shard_rows=100")
    assert parts.items() <= times(tmp_path / "out" / "_parts").items()
    small("ingest.maximum_reject_share=0.1")
    made = times(tmp_path / "out")
    small("ingest.maximum_reject_share=0.2")
    assert times(tmp_path / "out") == made
    with pytest.raises(DupqError, match=r"1 of [0-9,]+ rows are broken"):
        small("ingest.maximum_reject_share=0")
    assert times(tmp_path / "out") == made


def test_a_cluster_without_a_cpu_yet_is_given_several_sites_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    together = threading.Barrier(3, timeout=10)  # raises if the others do not begin before one ends
    monkeypatch.setattr(cluster, "may_grow", lambda: True)
    monkeypatch.setattr(cluster, "cpus", lambda: 1)
    monkeypatch.setattr(job, "_ingest_site", lambda *_: float(together.wait() >= 0))
    sites = [DumpSite(name, (), ()) for name in "abc"]
    assert job.ingest_sites(sites, Ingest(str(tmp_path), Settings().ingest, False)) == 1.0


def test_killed_while_it_is_published_a_site_is_the_old_or_the_new_one(
    small: Callable[..., dict], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At each change of the archive while a later dump replaces an earlier one."""
    changes = ("move", "delete", "delete_folder", "write_json")
    place, out = f"{tmp_path}/out", tmp_path / "out"
    write_site(tmp_path, "a.example.com", questions=60)
    small("ingest.shard_rows=60")
    old, kept, seen = read_questions(place), tmp_path / "kept", set()
    shutil.copytree(out, kept)
    for number in itertools.count(1):
        shutil.rmtree(out)
        shutil.copytree(kept, out)
        left = [number]

        def cut(change: Callable, left: list[int], *arguments: object) -> object:
            if threading.current_thread() is not threading.main_thread():  # not the job's own manifest
                left[0] -= 1
                if left[0] == 0:
                    raise DupqError("cut off")
            return change(*arguments)

        with monkeypatch.context() as patch:
            for name in changes:
                patch.setattr(storage, name, functools.partial(cut, getattr(storage, name), left))
            with contextlib.suppress(DupqError):
                small("ingest.shard_rows=30")
        found = read_questions(place)
        seen.add(len(question_shards(f"{place}/questions")[0]))
        assert found == old
        small("ingest.shard_rows=30")
        assert len(list((out / "questions" / "site=a.example.com").iterdir())) == 2
        if left[0] > 0:
            break
    assert seen == {1, 2}


def read_questions(archive: str) -> list[dict]:
    """Return the rows that a job reads."""
    shards, _ = question_shards(f"{archive}/questions")
    return [row for shard in shards for row in storage.read_table(shard.uri).to_pylist()]


def test_what_a_kill_left_half_written_is_removed(small: Callable[..., dict], tmp_path: Path) -> None:
    half = [
        tmp_path / "out" / table / "site=a.example.com" / ".part-00000.parquet.0af.tmp"
        for table in ("questions", "rejects")
    ]
    for path in half:
        path.parent.mkdir(parents=True)
        path.write_bytes(b"PAR1")
    small()
    assert not any(path.exists() for path in half)


def test_what_was_finished_is_kept_and_a_job_on_another_site_leaves_it(
    small: Callable[..., dict], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first job fails when its shards are written and not yet in their place; the other one is done meanwhile."""
    write_site(tmp_path / "more", "b.example.com")
    make_shards = job.make_shards

    def fails(*arguments: Any) -> None:
        make_shards(*arguments)
        with monkeypatch.context() as patch:
            patch.setattr(job, "make_shards", make_shards)
            ingest(IngestJob((str(tmp_path / "more" / "dumps"),), str(tmp_path / "out")))
        raise DupqError("no disk")

    with monkeypatch.context() as patch:
        patch.setattr(job, "make_shards", fails)
        with pytest.raises(DupqError, match="no disk"):
            small()
    kept = {path.stat().st_mtime_ns for path in (tmp_path / "out" / "_parts").rglob("shards-*/*/part-*.parquet")}
    assert kept
    small()
    assert kept <= {path.stat().st_mtime_ns for path in (tmp_path / "out").glob("*/site=a.example.com/*.parquet")}
    assert sorted(sites(tmp_path / "out")) == ["a.example.com", "b.example.com"]
    assert not (tmp_path / "out" / "_parts").exists()


def test_a_job_whose_site_another_one_took_over_replaces_no_table(
    tmp_path: Path, small: Callable[..., dict], monkeypatch: pytest.MonkeyPatch
) -> None:
    small()
    old = tables(tmp_path / "out")
    write_site(tmp_path, "a.example.com", questions=310)
    (leases,) = (tmp_path / "out" / "ingest" / "_at_work").rglob("leases")

    def taken_over(run: Run, made_by: object) -> None:
        storage.write_json(f"{leases}/999999.json", {})

    monkeypatch.setattr(Run, "discard_stale", taken_over)
    with pytest.raises(LeaseError, match="took this one for dead"):
        small()
    assert tables(tmp_path / "out") == old
