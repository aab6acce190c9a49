"""The ingest job on unusual dumps: long texts, one damaged archive among others, its own output."""

from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from dump_files import write_archive
from xml_contents import document, question

from dupq.dump import sites
from dupq.pipelines.ingest import IngestJob, ingest

POSTS = document(question(1, Title="a") + question(2, Title="b"))


def ids(output: Path) -> list[int]:
    return sorted(ds.dataset(output / "questions").to_table()["question_id"].to_pylist())


def test_ids_of_fabricated_posts_are_kept_in_tables_from_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("id,title\n1000000001,a\n1000000010,b\n3,c\n")

    counts = ingest(IngestJob((str(tmp_path / "t.csv"),), str(tmp_path / "out"), "quora"))

    assert counts["quora"]["questions"] == 3
    assert ids(tmp_path / "out") == [3, 1_000_000_001, 1_000_000_010]


def test_a_job_that_was_checked_is_not_checked_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_archive(tmp_path / "a.com.7z", {"Posts.xml": POSTS})
    job = IngestJob((str(tmp_path / "a.com.7z"),), str(tmp_path / "out"))
    checked = job.check()
    monkeypatch.setattr(sites, "_archived_tables", lambda uri: pytest.fail(f"{uri} is read again"))

    assert ingest(job, checked)["a.com"]["questions"] == 2


# An output in the folder of the dumps


def test_what_a_job_wrote_is_no_dump_when_it_runs_again(tmp_path: Path) -> None:
    pq.write_table(pa.table({"question_id": [1, 2], "title": ["a", "b"]}), tmp_path / "t.parquet")
    job = IngestJob((str(tmp_path),), str(tmp_path / "out"), "quora")
    ingest(job)

    assert list(ingest(job)["quora"]["files"]) == [str(tmp_path / "t.parquet")]
    assert ids(tmp_path / "out") == [1, 2]


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
