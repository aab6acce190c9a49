"""Tables as people have them: odd ids, marks, fields, dates and archives, each from file to tables."""

import json
import shutil
import zipfile
from pathlib import Path

import duckdb
import pytest
from inline import without_ray

from dupq.dump.files import Columns, column_indices
from dupq.dump.posts import dump_tags
from dupq.errors import DupqError
from dupq.pipelines.ingest import IngestJob, ingest


def questions(tmp_path: Path, columns: Columns | None = None, **files: str | bytes) -> list[tuple]:
    (folder := tmp_path / "in").mkdir()
    for name, content in files.items():
        path = folder / name.replace("_", ".")
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    with without_ray():
        ingest(IngestJob((str(folder),), str(tmp_path / "out"), "faq", columns or Columns()))
    return duckdb.sql(
        f"SELECT question_id, title, id FROM '{tmp_path}/out/questions/*/*.parquet' "
        f"LEFT JOIN '{tmp_path}/out/ids/*/*.parquet' USING (question_id) ORDER BY ALL"
    ).fetchall()


@pytest.mark.parametrize("header", ["Nr;Titel;Text", "Nr;Frage;Text;Datum"])
def test_a_text_without_a_title_must_be_asked_for_where_another_column_may_have_it(header: str) -> None:
    with pytest.raises(DupqError, match="which column is the question"):
        column_indices(Columns(), header.split(";"), "table", "a.csv")


def test_a_table_of_ids_and_texts_alone_is_one_of_texts() -> None:
    assert column_indices(Columns(), ["id", "text"], "table", "a.csv") == {"Body": 1, "Id": 0}
    assert column_indices(Columns(text="Text"), ["Nr", "Titel", "Text"], "table", "a.csv") == {"Body": 2}


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


def test_the_line_with_which_excel_names_its_separator_is_no_header(tmp_path: Path) -> None:
    assert questions(tmp_path, a_csv="sep=;\r\nid;title\r\n1;a\r\n") == [(1, "a", "1")]


def test_a_forbidden_character_changes_no_row_number(tmp_path: Path) -> None:
    rows = questions(tmp_path, a_csv="title\na1\na2\n", b_csv="title\nb1\nb\x0b2\n")
    assert [row[2] for row in rows] == ["a.csv:1", "a.csv:2", "b.csv:1", "b.csv:2"]


def test_an_id_may_begin_with_a_zero_byte(tmp_path: Path) -> None:
    assert len(questions(tmp_path, a_csv="id,title\n\0abc,x\n2,y\n")) == 2


def test_a_repeated_id_is_in_the_ids_once(tmp_path: Path) -> None:
    assert [row[1:] for row in questions(tmp_path, a_csv="id,title\nK,x\nK,y\n")] == [("y", "K")]


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


@pytest.mark.parametrize(("content", "said"), [(b"[]", "a list of objects"), ("[{}]".encode("utf-16"), "UTF-16")])
def test_json_that_is_no_table_is_told_so(content: bytes, said: str, tmp_path: Path) -> None:
    with pytest.raises(DupqError, match=said):
        questions(tmp_path, a_json=content)


def test_labels_are_tags_whatever_columns_are_named(tmp_path: Path) -> None:
    assert dump_tags('[{"id": "L_1", "name": "bug"}, {"name": null}, "a\\"b", 2020]') == '<bug><a"b><2020>'


def test_only_what_says_so_is_a_duplicate(tmp_path: Path) -> None:
    said = ["This is not a duplicate of #1", "> Duplicate of #1", "I don't think that it's a duplicate of #1."]
    said += ["Duplicate of #1, I think", "Not nice. Closing as a duplicate of #1."]
    said[0] += " no duplicate of #1" * 5_000  # hostile: at once, too
    issues = [{"number": n, "title": "t", "body": body} for n, body in enumerate(said, 2)]
    issues += [{"number": 1, "title": "t", "body": "b", "url": "https://github.com/wei/pull/issues/1"}]
    assert len(questions(tmp_path, a_json=json.dumps(issues))) == 6
    assert duckdb.sql(f"SELECT question_id FROM '{tmp_path}/out/links/*/*.parquet' ORDER BY 1").fetchall() == [
        (5,),
        (6,),
    ]


def test_a_table_with_the_dumps_columns_is_a_dump_in_any_form(tmp_path: Path) -> None:
    content = "Id,PostTypeId,Title,Body,CreationDate\n1,1,How?,x,2020-01-01\n2,2,,y,2020-01-01\n3,,No type,z,\n"
    assert questions(tmp_path, q_csv=content) == [(1, "How?", "1")]


@pytest.mark.parametrize("columns", [Columns(), Columns(date="")])
def test_a_date_column_that_has_other_dates_is_left_out(columns: Columns, tmp_path: Path) -> None:
    content = "id,title,date\n" + "".join(f"{n},t,3/14/2020\n" for n in range(20))
    assert len(questions(tmp_path, columns, a_csv=content)) == 20


def test_a_date_column_that_is_named_must_have_dates(tmp_path: Path) -> None:
    content = "id,title,date\n" + "".join(f"{n},t,3/14/2020\n" for n in range(20))
    with pytest.raises(DupqError, match="CreationDate not a date"):
        questions(tmp_path, Columns(date="date"), a_csv=content)


@without_ray()
def test_what_a_zip_keeps_packed_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with zipfile.ZipFile(tmp_path / "z.zip", "w") as archive:
        archive.writestr("a.csv", "title\na\n")
        archive.writestr("b.csv.gz", "")
    ingest(IngestJob((str(tmp_path / "z.zip"),), str(tmp_path / "out")))
    assert "z.zip/b.csv.gz (is packed itself" in capsys.readouterr().out
