"""What shows only while a dump is read, and a Ray cluster that is not there; the rest is in bad_inputs/."""

import os
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from dupq.cli import main

ROOT = Path(__file__).parents[2]
ROW = '<row Id="{}" PostTypeId="1" Title="How to bake" Body="&lt;p&gt;Bread&lt;/p&gt;" Tags="|bread|" />\n'


def written(folder: Path, *ids: object) -> str:
    """The dump of a site with these questions."""
    site = folder / "bread.example.com"
    site.mkdir()
    (site / "Posts.xml").write_text(f"<posts>\n{''.join(map(ROW.format, ids))}</posts>\n")
    return str(site)


def test_too_many_broken_rows_fail_the_run_and_say_where_they_are(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="3"):
        main(["ingest", "--dump", written(tmp_path, 1, *["x"] * 11), "--output", f"{tmp_path}/out", "--ray", "none"])
    told = capsys.readouterr().err.splitlines()[-1]
    assert told.startswith("error: 11 of 12 rows are broken")
    assert "rejects/site=bread.example.com" in told
    assert not (tmp_path / "out" / "questions").exists()
    assert len(pq.read_table(tmp_path / "out" / "rejects")) == 11


def test_no_cluster_where_one_is_named(tmp_path: Path) -> None:
    """In another process, since the job does not wait for its threads."""
    environment = {name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"}
    command = [sys.executable, str(ROOT / "jobs" / "ingest.py"), "--dump", written(tmp_path, 1)]
    command += ["--output", f"{tmp_path}/out", "--ray", "127.0.0.1:1"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert (ended.returncode, ended.stderr.count("\n")) == (6, 1), ended.stderr
    assert ended.stderr.startswith("error: ")
    assert "no Ray cluster" in ended.stderr
    assert not (tmp_path / "out").exists()
