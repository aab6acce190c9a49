"""Tables as people have them: odd ids, marks, fields, dates and archives, each from file to tables."""

import csv
import io
import json
import os
import random
import re
import shutil
import zipfile
from pathlib import Path

import duckdb
import pytest
from dump_files import COMPRESS
from inline import without_ray

from dupq.dump.files import Columns
from dupq.dump.sites import find_sites
from dupq.dump.table_files import id_number
from dupq.errors import DupqError
from dupq.pipelines.ingest import IngestJob, ingest


def questions(
    tmp_path: Path, columns: Columns | None = None, settings: tuple[str, ...] = (), **files: str | bytes
) -> list[tuple]:
    (folder := tmp_path / "in").mkdir(parents=True)
    for name, content in files.items():
        path = folder / name.replace("_", ".")
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    with without_ray():
        ingest(IngestJob((str(folder),), str(tmp_path / "out"), "faq", columns or Columns(), assignments=settings))
    return duckdb.sql(
        f"SELECT question_id, title, id FROM '{tmp_path}/out/questions/*/*.parquet' "
        f"LEFT JOIN '{tmp_path}/out/ids/*/*.parquet' USING (question_id) ORDER BY ALL"
    ).fetchall()


def links(tmp_path: Path) -> list[tuple]:
    """The links that the last `questions` made, by ids."""
    ids = f"'{tmp_path}/out/ids/*/*.parquet'"
    return duckdb.sql(
        f"SELECT a.id, b.id FROM '{tmp_path}/out/links/*/*.parquet' l JOIN {ids} a USING (question_id) "
        f"JOIN {ids} b ON b.question_id = related_id ORDER BY ALL"
    ).fetchall()


def test_rows_without_ids_and_rejected_ones_are_warned_of(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    questions(tmp_path, a_csv=b"Nr,title\r\n7,x\r\n8,\xfc\r\n")
    lines = capsys.readouterr().out.splitlines()
    assert any("warning: faq: no column of ids, so ids are row numbers" in line for line in lines)
    [rejected] = [line for line in lines if "rejected rows are left out" in line]
    assert "not UTF-8 (save the file as UTF-8; in Excel: CSV UTF-8) (1 rows), first at line 3" in rejected


def test_files_that_each_count_from_one_are_told_how_to_go_on(tmp_path: Path) -> None:
    rows = "id,title\n" + "".join(f"{number},t{number}\n" for number in range(20))
    with pytest.raises(DupqError, match=r'if each file counts from 1, add --id ""'):
        questions(tmp_path, a_csv=rows, b_csv=rows)
    shutil.rmtree(tmp_path / "in")
    assert len(questions(tmp_path, Columns(id=""), a_csv=rows, b_csv=rows)) == 40


def test_a_lone_column_named_like_ids_has_them_if_none_repeats(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows, named = "faqID,title,user_id\n007,a,7\nK-2,b,7\n", [("007", "a"), ("K-2", "b")]
    assert questions(tmp_path / "one", a_csv=rows) == sorted((id_number(id_), title, id_) for id_, title in named)
    assert "ids are those of the column faqID\n" in capsys.readouterr().out
    repeated = questions(tmp_path / "again", a_csv=rows, b_csv=rows)  # in another file
    assert {row[2] for row in repeated} == {f"{name}.csv:{row}" for name in "ab" for row in (1, 2)}
    lacking = questions(tmp_path / "lacking", a_csv="faqID,title\n007,a\n,b\n")
    assert [row[2] for row in lacking] == ["1", "2"]
    with pytest.raises(DupqError, match=r"a\.csv: 'faqID', 'user_id' may each be the id; say which with --id COLUMN$"):
        questions(tmp_path / "two", a_csv=rows.replace("b,7", "b,8"))
    assert questions(tmp_path / "none", Columns(id=""), a_csv=rows.replace("b,7", "b,8"))[0][2] == "1"


def test_a_forbidden_character_changes_no_row_number(tmp_path: Path) -> None:
    rows = questions(tmp_path, a_csv="title\na1\na2\n", b_csv="title\nb1\nb\x0b2\n")
    assert [row[2] for row in rows] == ["a.csv:1", "a.csv:2", "b.csv:1", "b.csv:2"]
    shutil.rmtree(tmp_path / "in")
    assert len(questions(tmp_path, a_csv="id,title\n\0abc,x\n2,y\n")) == 2  # nor an id that begins with one


def test_tables_with_and_without_ids_are_not_mixed(tmp_path: Path) -> None:
    with pytest.raises(DupqError, match=r"a\.csv: no column of ids"):
        questions(tmp_path, a_csv="title\na\n", b_csv="id,title\n1,b\n")


def test_json_with_a_byte_order_mark_loses_no_row(tmp_path: Path) -> None:
    rows = [{"id": number, "title": "t"} for number in range(3)]
    marked = b"\xef\xbb\xbf" + "\n".join(map(json.dumps, rows)).encode()
    assert [row[0] for row in questions(tmp_path, a_jsonl=marked)] == [0, 1, 2]


def test_rows_may_have_many_rare_fields(tmp_path: Path) -> None:
    lines = [json.dumps({"id": n, "title": "t", f"field_{n % 50}": 1}) for n in range(1000)]
    assert len(questions(tmp_path, a_jsonl="\n".join(lines))) == 1000


def issue(number: int, body: str, repository: str = "") -> dict:
    row = {"number": number, "title": f"t {number}", "body": body}
    return row | ({"url": f"https://github.com/{repository}/issues/{number}"} if repository else {})


def test_the_links_of_a_row_go_with_it(tmp_path: Path) -> None:
    """An issue in two exports is a repeated id: the last row counts, with what it names."""
    bodies = ["Duplicate of #2", "b", "b", "Dupe of #2"]
    before = [issue(number, body, "o/r") for number, body in enumerate(bodies, 1)]
    dated = {**issue(4, "Dupe of #3", "o/r"), "createdAt": "some day"}  # a row that is rejected, and so not the last
    after = [issue(1, "Duplicate of #3", "o/r"), dated]
    questions(tmp_path, Columns(), a_json=json.dumps(before), b_json=json.dumps(after))
    assert links(tmp_path) == [("o/r#1", "o/r#3"), ("o/r#4", "o/r#2")]


def odd_row(drawn: random.Random, form: str) -> dict:
    """A row of a table, or an issue, which may be right, repeated, wrong or none of the questions."""
    name, date = ("number", "createdAt") if form == "issues" else ("id", "date")
    row = {name: drawn.choice([*range(20), None]), "title": drawn.choice(["How?", "Why?", "\0", ""])}
    row["body"] = drawn.choice(["b", "Duplicate of #3", "No. Dupe of #4 and #5", "Possible duplicate of #6", ""])
    row[date] = drawn.choice(["2024-01-02T03:04:05Z"] * 5 + ["some day"])
    if form == "issues" and (address := drawn.choice(["o/r/issues", "o/s/issues", "o/r/pull", ""])):
        row["url"] = f"https://github.com/{address}/{row['number'] or 0}"
    return row | ({"PostTypeId": drawn.choice(["1", "1", "2", ""])} if form == "posts" else {})


def written(form: str, rows: list[dict]) -> str:
    if form in ("csv", "posts"):
        (writer := csv.DictWriter(text := io.StringIO(), list(rows[0]))).writeheader()
        writer.writerows(rows)
        return text.getvalue()
    if form == "jsonl":
        return "".join(f"{json.dumps(row)}{'} ' * (row['title'] == 'Why?')}\n" for row in rows)
    return json.dumps([rows[:9], rows[9:]] if form == "pages" else rows)


@pytest.mark.parametrize("form", ["csv", "posts", "json", "jsonl", "pages", "issues"])
def test_all_rows_are_somewhere_and_take_with_them_what_was_made_from_them(form: str, tmp_path: Path) -> None:
    drawn = random.Random(f"{form} {os.environ.get('DUPQ_TEST_SEED', 0)}")
    rows = {name: [odd_row(drawn, form) for _ in range(40)] for name in "ab"}
    suffix = {"csv": "csv", "posts": "csv", "jsonl": "jsonl"}.get(form, "json")
    files = {f"{name}_{suffix}": written(form, of_file) for name, of_file in rows.items()}
    questions(tmp_path, None, ("ingest.maximum_reject_share=1",), **files)

    counts = json.loads((tmp_path / "out" / "manifest.json").read_text())["sites"]["faq"]
    tables = {name: f"'{tmp_path}/out/{name}/*/*.parquet'" for name in ("questions", "rejects", "ids", "links")}
    numbers = {name: duckdb.sql(f"SELECT #1 FROM {table}").fetchall() for name, table in tables.items()}
    assert counts["rows"] == 80 == len(numbers["questions"]) + len(numbers["rejects"]) + counts["other_posts"]
    assert sorted(numbers["questions"]) == sorted(numbers["ids"])
    assert set(numbers["links"]) <= set(numbers["ids"])
    places = dict(
        duckdb.sql(f"SELECT question_id, (source[-len('.{suffix}') - 1], position) FROM {tables['ids']}").fetchall()
    )
    for number, related in duckdb.sql(f"SELECT question_id, related_id FROM {tables['links']}").fetchall():
        name, position = places[number]
        body = rows[name][position - 1]["body"]
        url = rows[name][position - 1].get("url")
        home = "/".join(url.split("/")[3:5]) if url else f"{name}.{suffix}"
        assert related in {id_number(f"{home}#{other}") for other in re.findall(r"(?:Dup\w+ of|and) #(\d)", body)}
    assert (len(numbers["links"]) > 0) == (form == "issues")


@pytest.mark.parametrize("columns", [Columns(), Columns(date="")])
def test_a_date_column_that_has_other_dates_is_left_out_unless_it_is_named(columns: Columns, tmp_path: Path) -> None:
    content = "id,title,date\n" + "".join(f"{n},t,3/14/2020\n" for n in range(20))
    assert len(questions(tmp_path, columns, a_csv=content)) == 20
    shutil.rmtree(tmp_path / "in")
    with pytest.raises(DupqError, match="CreationDate not a date"):
        questions(tmp_path, Columns(date="date"), a_csv=content)


@without_ray()
def test_what_a_zip_keeps_packed_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with zipfile.ZipFile(tmp_path / "z.zip", "w") as archive:
        archive.writestr("a.csv", "title\na\n")
        archive.writestr("b.csv.gz", "")
    ingest(IngestJob((str(tmp_path / "z.zip"),), str(tmp_path / "out")))
    assert "z.zip/b.csv.gz (is packed itself" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("mark", "said"),
    [
        ("_delta_log/00000000000000000000.json", "a table of Delta, .*delta_scan"),
        ("metadata/00001-ab.metadata.json", "a table of Iceberg, .*iceberg_scan"),
        (".hoodie/hoodie.properties", "a table of Hudi, .*Spark"),
    ],
)
@pytest.mark.parametrize("above", [0, 1])
def test_the_files_of_a_table_format_are_not_read_one_by_one(mark: str, said: str, above: int, tmp_path: Path) -> None:
    (data := tmp_path / "lake" / "faq" / "data" / "day=1").mkdir(parents=True)
    duckdb.sql(f"COPY (SELECT 1 AS id, 'deleted' AS title) TO '{data}/a.parquet'")
    (marked := tmp_path / "lake" / "faq" / mark).parent.mkdir()
    marked.write_text("{}")
    with pytest.raises(DupqError, match=rf"lake/faq: {said}"):
        find_sites([str(tmp_path / "lake") if above else str(tmp_path / "lake" / "faq")])


def test_a_pipe_is_told(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.csv")
    for uri in (str(tmp_path / "pipe.csv"), "-"):
        with pytest.raises(DupqError, match="a pipe, which can be read once only"):
            find_sites([uri])


def test_how_a_file_is_packed_is_told_if_its_name_says_otherwise(tmp_path: Path) -> None:
    for suffix, pack in COMPRESS.items():
        with pytest.raises(DupqError, match=rf"a\.csv: packed by .*; rename it to end in \{suffix}"):
            questions(tmp_path / suffix[1:], a_csv=pack(b"title\na\n"))
        with pytest.raises(DupqError, match=r"not packed by .*, as its name says"):
            questions(tmp_path / f"not {suffix[1:]}", **{f"a_csv_{suffix[1:]}": b"title\na\n"})
