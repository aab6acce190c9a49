"""Dumps whose damage shows only while they are read, and Ray clusters that do not exist; the rest is in bad_inputs/."""

import os
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from trained import TrainedSample

from dupq.cli import main
from dupq.job import cluster

ROOT = Path(__file__).parents[2]
HEAD = '<?xml version="1.0" encoding="utf-8"?>\n'
QUESTION = '  <row Id="{}" PostTypeId="1" Title="How to bake" Body="&lt;p&gt;Bread&lt;/p&gt;" Tags="|bread|" />\n'


def start(*arguments: object) -> tuple[int, str]:
    """Return the exit code and stderr of an ingest, started as a user does."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("RAY_ADDRESS")}
    command = [sys.executable, str(ROOT / "jobs" / "ingest.py"), *map(str, arguments)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    return ended.returncode, ended.stderr


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder for the dump of a site that this process ingests, without Ray."""
    monkeypatch.setattr(cluster, "connect", lambda address: None)
    folder = tmp_path / "bread.example.com"
    folder.mkdir()
    return folder


def ingested(site: Path, posts: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    (site / "Posts.xml").write_text(HEAD + posts)
    with pytest.raises(SystemExit) as ended:
        main(["ingest", "--dump", str(site), "--output", str(site.parent / "out")])
    return int(str(ended.value.code)), capsys.readouterr().err


def assert_one_line(ended: tuple[int, str], code: int, *said: str) -> None:
    assert ended[0] == code, ended[1]
    [line] = [line for line in ended[1].splitlines() if not line.startswith("ingest: ")]  # progress, on slow machines
    assert line.startswith("error: ")
    for words in said:
        assert words in line


def test_an_archive_cut_short(tmp_path: Path, trained_sample: TrainedSample) -> None:
    whole = Path(trained_sample.dump).read_bytes()
    (tmp_path / "a.7z").write_bytes(whole[: len(whole) // 2])
    assert_one_line(start("--dump", tmp_path / "a.7z", "--output", tmp_path / "out"), 1, "a.7z")
    assert not (tmp_path / "out" / "questions").exists()


def test_too_many_broken_rows_fail_the_run_and_say_where_they_are(
    site: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = QUESTION.format(1) + QUESTION.format("x") * 11
    ended = ingested(site, f"<posts>\n{rows}</posts>\n", capsys)
    assert_one_line(ended, 3, "11 of 12 rows are broken", f"rejects/site={site.name}")
    assert not (site.parent / "out" / "questions").exists()
    assert len(pq.read_table(site.parent / "out" / "rejects")) == 11


def test_no_cluster_where_one_is_named(tmp_path: Path) -> None:
    """In another process, since the job does not wait for its threads."""
    (tmp_path / "Posts.xml").write_text(f"{HEAD}<posts>\n{QUESTION.format(1)}</posts>\n")
    ended = start("--dump", tmp_path / "Posts.xml", "--output", tmp_path / "out", "--ray", "127.0.0.1:1")
    assert_one_line(ended, 6, "no Ray cluster")
    assert not (tmp_path / "out").exists()
