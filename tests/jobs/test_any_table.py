"""Tables of any origin become an archive, and one goes on to clusters by `dupq from-dump`, without Ray."""

import shlex
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from dump_files import write_archive
from xml_contents import document, question

from dupq.cli import main
from dupq.dump.files import Columns
from dupq.pipelines.ingest import IngestJob, ingest

POSTS = document(question(1, Title="a") + question(2, Title="b"))


def test_what_a_job_wrote_is_no_dump_when_it_runs_again(tmp_path: Path) -> None:
    pq.write_table(pa.table({"question_id": [1, 2], "title": ["a", "b"]}), tmp_path / "t.parquet")
    job = IngestJob((str(tmp_path),), str(tmp_path / "out"), "quora")
    ingest(job)
    again = ingest(job)["quora"]
    assert (list(again["files"]), again["questions"]) == ([str(tmp_path / "t.parquet")], 2)


@pytest.mark.parametrize("dump", ["", "dump", "questions"])
def test_a_dump_in_the_output_is_one(dump: str, tmp_path: Path) -> None:
    (tmp_path / dump).mkdir(exist_ok=True)
    (tmp_path / dump / "t.csv").write_text("question_id,title\n1,a\n2,b\n")
    job = IngestJob((str(tmp_path / dump),), str(tmp_path), "quora")
    ingest(job)
    assert list(ingest(job)["quora"]["files"]) == [str(tmp_path / dump / "t.csv")]


def test_an_output_whose_name_only_begins_alike_is_another(tmp_path: Path) -> None:
    write_archive(tmp_path / "output" / "a.com.7z", {"Posts.xml": POSTS})
    write_archive(tmp_path / "out" / "b.com.7z", {"Posts.xml": POSTS})
    found, _ = IngestJob((str(tmp_path),), str(tmp_path / "out")).check()
    assert [site.site for site in found.sites] == ["a.com"]


def test_the_command_line_takes_the_options_of_a_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "faq.csv").write_text("key,question,answer\nK-1,Where is it?,There.\n")
    given = []
    monkeypatch.setattr("dupq.job.cluster.connect", lambda address: None)
    monkeypatch.setattr("dupq.pipelines.ingest.ingest", lambda job, checked: given.append(job))

    columns = ["--title=question", "--text=answer", "--id=key", "--tags=key", "--date=key", "--format=html"]
    with pytest.raises(SystemExit, match="0"):
        main(["ingest", f"--dump={tmp_path}/faq.csv", f"--output={tmp_path}/out", "--site=mine", *columns])

    assert given[0].columns == Columns("question", "answer", "key", "key", "key", "html")
    assert given[0].site == "mine"


def test_what_is_not_clear_is_told_with_the_whole_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "my faq.csv").write_text("a_id,b_id,title\n1,1,t\n")
    words = ["ingest", f"{tmp_path}/my faq.csv", f"--output={tmp_path}/out"]
    with pytest.raises(SystemExit):
        main(words)
    said = capsys.readouterr().err
    assert f"--id COLUMN, that is: {shlex.join(['dupq', *words])} --id COLUMN" in said
