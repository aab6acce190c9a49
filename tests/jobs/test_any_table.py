"""Tables of any origin become an archive, and one goes on to clusters by `dupq from-dump`, without Ray."""

import csv
import gzip
import json
import shlex
import zipfile
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from dump_files import write_archive
from inline import without_ray
from xml_contents import document, question

from dupq.cli import main
from dupq.dump.files import Columns
from dupq.errors import RejectsError
from dupq.pipelines.ingest import IngestJob, ingest
from dupq.pipelines.train import FromDumpJob, from_dump

COUNT = 700
POSTS = document(question(1, Title="a") + question(2, Title="b"))
FIELDS = ("key", "question", "answer")


def faq(count: int = COUNT) -> list[dict[str, str]]:
    return [dict(zip(FIELDS, (f"K-{n}", f"Where is part {n}?", f"On shelf {n}."), strict=True)) for n in range(count)]


def write_csv(path: Path, rows: list[dict[str, str]]) -> None:
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, FIELDS)
        writer.writeheader()
        writer.writerows(rows)


def write(folder: Path, form: str) -> Path:
    """Write the FAQ in some form, as a file or as a folder of 20."""
    rows, path = faq(), folder / f"faq.{form}"
    if form == "csv":
        write_csv(path, rows)
    elif form == "jsonl.gz":
        path.write_bytes(gzip.compress("\n".join(map(json.dumps, rows)).encode()))
    elif form == "parquet":
        pq.write_table(pa.Table.from_pylist(rows), path)
    elif form == "zip":
        write_csv(folder / "zipped.csv", rows)
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.write(folder / "zipped.csv", "faq/all.csv")
    else:
        path.mkdir()
        for number in range(20):
            write_csv(path / f"{number:02}.csv", rows[number::20])
    return path


@without_ray()
def test_a_table_of_any_form_gives_the_same_questions_and_their_ids(tmp_path: Path) -> None:
    found = {}
    for form in ("csv", "jsonl.gz", "parquet", "zip", "folder"):
        output = tmp_path / "out" / form
        counts = ingest(IngestJob((str(write(tmp_path, form)),), str(output), "faq", Columns(id="key")))
        assert counts["faq"]["questions"] == counts["faq"]["rows"] == COUNT
        found[form] = ds.dataset(output / "questions", format="parquet").to_table()
        ids = ds.dataset(output / "ids", format="parquet").to_table(["question_id", "id"])
        joined = found[form].select(["question_id", "title"]).join(ids, "question_id")
        assert {(row["id"], row["title"]) for row in joined.to_pylist()} == {
            (row["key"], row["question"]) for row in faq()
        }
    assert all(questions.equals(found["csv"]) for questions in found.values())


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


@without_ray()
def test_doubled_ids_fail_the_table_and_are_told_by_their_first_two_lines(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_csv(tmp_path / "faq.csv", [{**row, "key": "x"} for row in faq(30)])
    job = IngestJob((str(tmp_path / "faq.csv"),), str(tmp_path / "out"), columns=Columns(id="key"))

    with pytest.raises(RejectsError) as caught:
        ingest(job)

    said = str(caught.value)
    assert said.startswith("29 of 30 rows are broken")
    assert (
        f"an id that a later row has (29 rows), first at line 2 of {tmp_path}/faq.csv: 'x is also the id at 3" in said
    )
    write_csv(tmp_path / "faq.csv", [*faq(30), faq(1)[0]])
    counts = ingest(job)["faq"]
    assert (counts["questions"], counts["rejects"], counts["duplicate_ids"]) == (30, 1, 0)
    assert f"first at 2: K-0 is also the id at 32 of {tmp_path}/faq.csv" in capsys.readouterr().out


def test_the_command_line_takes_the_options_of_a_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_csv(tmp_path / "faq.csv", faq(3))
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


@without_ray()
def test_github_issues_become_clusters_in_one_job(tmp_path: Path) -> None:
    things = ["login", "export", "search", "upload", "printer", "calendar", "invoice", "backup", "theme", "keyboard"]
    issues = []
    for number in range(1, 301):
        thing, place = things[number % 10], (number - 1) % 150
        body = f"### Steps\nOpen {thing} number {place} and press save.\n\nIt stops with code {place * 37 + 5}."
        body += f"\n\nDuplicate of #{number - 150}" if number > 150 and number % 3 == 0 else ""
        issues.append(
            {"number": number, "title": f"Crash {place} in {thing}", "body": body, "labels": [{"name": thing}]}
        )
    (tmp_path / "issues.json").write_text(json.dumps(issues))
    settings = ("word_vectors.dimensions=20", "word_vectors.epochs=1")

    run = from_dump(FromDumpJob((str(tmp_path / "issues.json"),), str(tmp_path / "out"), "arora-sif", None, settings))

    clusters = ds.dataset(run.path("clusters"), format="parquet").to_table().to_pylist()
    together = {row["question_id"]: row["cluster_id"] for row in clusters}
    assert len(together) == 300
    assert sum(together[number] == together[number + 150] for number in range(1, 151)) > 140
    assert Path(run.path("report.html")).exists()
