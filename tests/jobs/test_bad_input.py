"""Dumps whose damage is found while they are read, and clusters that are not there; all else is in bad_inputs/."""

import os
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
from trained import TrainedSample

ROOT = Path(__file__).parents[2]
HEAD = '<?xml version="1.0" encoding="utf-8"?>\n'
QUESTION = '  <row Id="{}" PostTypeId="1" Title="How to bake" Body="&lt;p&gt;Bread&lt;/p&gt;" Tags="|bread|" />\n'


INLINE = """
from inline import without_ray
from dupq.cli.main import main
from dupq.execution import cluster

cluster.connect = lambda address: None
with without_ray():
    main()
"""


def start(job: str, *arguments: object) -> subprocess.CompletedProcess:
    return _ended([str(ROOT / "jobs" / f"{job}.py"), *map(str, arguments)])


def start_inline(job: str, *arguments: object) -> subprocess.CompletedProcess:
    """Without Ray, whose start takes longest."""
    return _ended(["-c", INLINE, job, *map(str, arguments)])


def _ended(arguments: list[str]) -> subprocess.CompletedProcess:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("RAY_ADDRESS")}
    environment["PYTHONPATH"] = os.pathsep.join(sys.path)
    command = [sys.executable, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment, cwd=ROOT)


def assert_one_line(ended: subprocess.CompletedProcess, code: int, *said: str) -> None:
    assert ended.returncode == code, ended.stderr
    lines = [
        line for line in ended.stderr.splitlines() if not line.startswith("ingest: ")
    ]  # progress, on slow machines
    assert len(lines) == 1, ended.stderr
    assert lines[0].startswith("error: ")
    assert "Traceback" not in ended.stdout + ended.stderr
    for words in said:
        assert words in lines[0]


def test_an_archive_cut_short(tmp_path: Path, trained_sample: TrainedSample) -> None:
    whole = Path(trained_sample.dump).read_bytes()
    (tmp_path / "a.7z").write_bytes(whole[: len(whole) // 2])
    assert_one_line(start("ingest", "--dump", tmp_path / "a.7z", "--output", tmp_path / "out"), 1, "a.7z")
    assert not (tmp_path / "out" / "questions").exists()


def test_an_xml_file_that_is_no_dump(tmp_path: Path) -> None:
    (tmp_path / "Posts.xml").write_text(HEAD + "<html></html>\n")
    ended = start("ingest", "--dump", tmp_path / "Posts.xml", "--output", tmp_path / "out")
    assert_one_line(ended, 1, "Posts.xml", "<posts>")


def test_a_dump_without_questions(tmp_path: Path) -> None:
    (tmp_path / "Posts.xml").write_text(HEAD + '<posts>\n  <row Id="1" PostTypeId="2" Body="x" />\n</posts>\n')
    ended = start_inline("ingest", "--dump", tmp_path / "Posts.xml", "--output", tmp_path / "out")
    assert_one_line(ended, 1, "Posts.xml", "no questions")


def test_broken_rows_go_to_rejects_and_their_neighbours_arrive(tmp_path: Path) -> None:
    folder = tmp_path / "bread.example.com"
    folder.mkdir()
    broken = '  <row Id="x7" PostTypeId="1" Title="t" Body="b" />\n  <row Id="8" PostTypeId="1" Title="a < b" />\n'
    rows = "".join(QUESTION.format(number) for number in (1, 2))
    (folder / "Posts.xml").write_text(HEAD + f"<posts>\n{rows}{broken}{QUESTION.format(9)}</posts>\n")
    ended = start_inline("ingest", "--dump", folder, "--output", tmp_path / "out")
    assert ended.returncode == 0, ended.stderr
    site = "site=bread.example.com"
    assert pq.read_table(tmp_path / "out" / "questions" / site)["question_id"].to_pylist() == [1, 2, 9]
    assert pq.read_table(tmp_path / "out" / "rejects")["reason"].to_pylist() == [
        "Id not a number",
        "not well-formed",
    ]


def test_too_many_broken_rows_fail_the_run_and_say_where_they_are(tmp_path: Path) -> None:
    folder = tmp_path / "bread.example.com"
    folder.mkdir()
    rows = QUESTION.format(1) + QUESTION.format("x") * 11
    (folder / "Posts.xml").write_text(f"{HEAD}<posts>\n{rows}</posts>\n")
    ended = start("ingest", "--dump", folder, "--output", tmp_path / "out")
    assert_one_line(ended, 3, "11 of 12 rows are broken", "rejects/site=bread.example.com")
    assert not (tmp_path / "out" / "questions").exists()
    assert len(pq.read_table(tmp_path / "out" / "rejects")) == 11


def test_no_cluster_where_one_is_named(tmp_path: Path, trained_sample: TrainedSample) -> None:
    ended = start(
        *("dedup", "--questions", trained_sample.questions, "--encoder", trained_sample.encoder),
        *("--output", tmp_path / "runs", "--ray", "127.0.0.1:1"),
    )
    assert_one_line(ended, 6, "no Ray cluster")
    assert not (tmp_path / "runs").exists()
