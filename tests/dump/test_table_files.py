"""Tables of questions of any origin: which columns they have, and what becomes of their rows."""

import csv
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dupq.dump import files
from dupq.dump.csv_files import NOT_UTF8
from dupq.dump.files import Columns, DumpSite, Member, column_indices
from dupq.dump.parsing import WITHOUT_ID, ParsedRows
from dupq.dump.posts import dump_tags
from dupq.dump.reading import Ingest, batches, check_columns, file_ranges
from dupq.dump.table_files import NO_OBJECT, NO_TEXT, id_number, repeated_ids
from dupq.errors import DupqError
from dupq.settings.sections import IngestSettings
from dupq.text.tokens import as_html, is_html

JOB = Ingest("", IngestSettings())


def read(path: Path, content: str | bytes | None = None, columns: Columns | None = None) -> ParsedRows:
    """What ingest reads of a table."""
    if content is not None:
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    site = DumpSite("faq", (Member(str(path)),), is_table=True)
    job = JOB if columns is None else Ingest("", IngestSettings(), columns=columns)
    check_columns(site, job.columns)
    found = [batch.read() for file_range in file_ranges(site) for batch in batches(file_range, job)]
    assert len(found) == 1
    counts = dict(found[0].counts)
    assert counts.pop("rows") == sum(
        count for name, count in counts.items() if name not in ("forbidden_characters", WITHOUT_ID)
    )
    return found[0]


def titles(contents: ParsedRows) -> list[str]:
    return contents.tables["questions"]["title"].to_pylist()


def rejects(contents: ParsedRows) -> list[tuple[int, str]]:
    return [(row["position"], row["reason"]) for row in contents.rejects.to_pylist()]


# Columns


@pytest.mark.parametrize(
    ("names", "columns", "found"),
    [
        ("id title text", Columns(), {"Id": 0, "Title": 1, "Body": 2}),
        ("Question Answer created_at labels", Columns(), {"Title": 0, "Body": 1, "CreationDate": 2, "Tags": 3}),
        ("number key subject", Columns(), {"Id": 0, "Title": 2}),
        ("title question answer", Columns(title="question"), {"Title": 1, "Body": 2}),
        ("title body", Columns(title="body"), {"Title": 1}),
    ],
)
def test_columns_are_those_named_or_the_obvious_ones(names: str, columns: Columns, found: dict) -> None:
    assert column_indices(columns, names.split(), "table", "faq.csv") == found


@pytest.mark.parametrize(
    ("names", "columns", "said"),
    [
        ("title_body upvoted", Columns(), "which column is the question? name it with --title COLUMN, and its"),
        ("title question", Columns(), "'title', 'question' may each be the title; say which with --title COLUMN"),
        ("title body text", Columns(), "'text', 'body' may each be the text; say which with --text COLUMN"),
        ("title title", Columns(title="title"), "column 'title' is there 2 times; its columns are 'title', 'title'"),
    ],
)
def test_columns_that_are_not_clear_are_named(names: str, columns: Columns, said: str) -> None:
    with pytest.raises(DupqError) as caught:
        column_indices(columns, names.split(), "table", "faq.csv")
    assert str(caught.value).startswith(f"faq.csv: {said}")


# Plain text and HTML


def test_a_text_is_html_by_its_name_its_closing_tags_or_what_is_said() -> None:
    some = ["<p>one</p>", "two<br>", "", None, "x < y"]
    assert is_html("body", some)
    assert not is_html("body", [*some, "a", "b"])
    assert is_html("body_html", ["a"])
    assert not is_html("body_html", some, "plain")
    assert is_html("text", ["a"], "html")


def test_plain_text_is_escaped_and_its_blank_lines_part_paragraphs(tmp_path: Path) -> None:
    assert as_html("a < b\r\n\r\n \n\nc\nd\n\n") == "<p>a &lt; b</p>\n<p>c\nd</p>"
    for written, html in (("a<b", "<p>a&lt;b</p>"), ("<p>a</p>", "<p>a</p>")):
        found = read(tmp_path / "a.csv", f"title,body\nt,{written}\n").tables["questions"]
        assert found["body_html"].to_pylist() == [html]


@pytest.mark.parametrize(
    "written",
    ["<a><b c>", "|a|b c|", "['a', 'b c']", '[{"id": 1, "name": "a"}, {"name": null}, "b c"]', "a;b c", "a,b c,"],
)
def test_tags_are_read_as_people_write_them(written: str) -> None:
    assert dump_tags(written).strip("<>|").replace("><", "|") == "a|b c"


# Ids


def test_ids_that_are_no_numbers_get_one_each(tmp_path: Path) -> None:
    found = read(tmp_path / "a.csv", "id,title\nK-1,a\n7,b\n7.0,c\n007,d\n,e\n140737488355328,f\n")
    ids = {row["id"]: row["question_id"] for row in found.tables["ids"].to_pylist()}
    assert ids.keys() == {"K-1", "7", "7.0", "007", "140737488355328"}
    assert ids["7"] == 7
    assert all(1 << 47 <= ids[name] < 1 << 48 for name in ("K-1", "007", "140737488355328"))
    assert rejects(found) == [(6, "no Id")]
    assert id_number("K-1") == ids["K-1"]  # whatever other rows there are


def test_rows_without_an_id_are_numbered_by_file_and_row(tmp_path: Path) -> None:
    files = [tmp_path / year / "a.csv" for year in ("2025", "2026")]
    for file in files:
        file.parent.mkdir()
        file.write_text('title\n"a\nb"\n\nc\n')
    site = DumpSite("faq", tuple(Member(str(file)) for file in files), is_table=True)
    found = [batch.read().tables["ids"] for file_range in file_ranges(site) for batch in batches(file_range, JOB)]
    numbers = [(row["question_id"], row["id"], row["position"]) for row in pa.concat_tables(found).to_pylist()]
    assert numbers[:2] == [(1, "2025/a.csv:1", 2), (2, "2025/a.csv:2", 5)]
    assert numbers[2:] == [(10**9 + 1, "2026/a.csv:1", 2), (10**9 + 2, "2026/a.csv:2", 5)]
    assert read(files[0]).tables["ids"]["id"].to_pylist() == ["1", "2"]


def test_doubled_ids_are_rejected_but_for_the_last(tmp_path: Path) -> None:
    ids = [read(tmp_path / f"{name}.csv", "id,title\nx,a\ny,b\nx,c\n").tables["ids"] for name in ("a", "b")]
    found = [(row["source"][-5:], row["position"], row["excerpt"]) for row in repeated_ids(ids).to_pylist()]
    a, b = (f"{tmp_path}/{name}.csv" for name in ("a", "b"))
    assert found[0] == ("a.csv", 2, f"x is also the id at 4 of {a}")
    assert found[1:3] == [("a.csv", 3, f"y is also the id at 3 of {b}"), ("a.csv", 4, f"x is also the id at 2 of {b}")]
    assert found[3:] == [("b.csv", 2, f"x is also the id at 4 of {b}")]


def test_only_the_name_of_a_file_says_how_it_is_separated(tmp_path: Path) -> None:
    (folder := tmp_path / "x.tsv.d").mkdir()
    assert read(folder / "a.csv", "id,title\nx,a\n").counts["questions"] == 1
    assert read(folder / "a.tsv", "id\ttitle\nx\ta, b, c\n").counts["questions"] == 1
    (folder := tmp_path / "x.jsonl.d").mkdir()
    assert read(folder / "a.json", '[{"id": "x", "title": "a"},\n{"id": "y", "title": "b"}]').counts["questions"] == 2


# Rows


def test_quotes_that_quote_nothing_cost_no_row(tmp_path: Path) -> None:
    lines = ["id,title,text", '1,"a ""b"", c",x', '2,"All lives" or not?,y', '3,"never closed,z']
    lines += [*(f"{number},t,u" for number in range(4, 3000)), '3000,"last",v']
    found = read(tmp_path / "a.csv", "\n".join(lines))
    assert len(found.rejects) == 0
    assert found.tables["questions"]["question_id"].to_pylist() == list(range(1, 3001))
    assert titles(found)[:4] == ['a "b", c', '"All lives" or not?', '"never closed', "t"]


def test_broken_rows_are_told_with_their_lines(tmp_path: Path) -> None:
    rows = [b"1,a", b"2", b'"3","a","b"', b"4,caf\xe9", b'5,"x"y,z', b"6,", b"", b'7,"two\nlines"', b"8,\0\x0eb"]
    found = read(tmp_path / "a.csv", b"\n".join([b"\xef\xbb\xbfid,title", *rows]))
    reasons = ["1 fields where the header has 2", "3 fields where the header has 2", NOT_UTF8]
    reasons += ["quotes that do not match", "neither title nor text"]
    assert rejects(found) == list(enumerate(reasons, 3))
    assert titles(found) == ["a", "two\nlines", "b"]
    assert found.counts["forbidden_characters"] == 2


def test_all_forms_give_the_same_rows(tmp_path: Path) -> None:
    texts = ["plain", 'a "b", c', "two\nlines\n\nmore", "é😀\u2028\x85", "\t", "a\0b\x0e", "'", "{}", "1", "null", ""]
    written = [{"title": f"{number} {text}", "text": text} for number, text in enumerate(texts)]
    pq.write_table(pa.Table.from_pylist(written), tmp_path / "a.parquet")
    with (tmp_path / "a.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, ["title", "text"])
        writer.writeheader()
        writer.writerows(written)

    found = [
        read(tmp_path / "a.json", json.dumps(written)),
        read(tmp_path / "a.jsonl", "\n".join(map(json.dumps, written))),
        read(tmp_path / "a.parquet"),
        read(tmp_path / "a.csv"),
    ]

    assert all(one.tables["questions"].equals(found[0].tables["questions"]) for one in found)
    assert len(found[0].tables["questions"]) == len(texts)


def test_values_of_any_type_are_read(tmp_path: Path) -> None:
    columns = {
        "id": pa.array([1.0, None]),
        "title": pa.array([b"a", b"b"]).dictionary_encode(),
        "tags": pa.array([["x, y", "z"], None]),
        "date": pa.array([1_600_000_000_123, None], pa.timestamp("ms", tz="Europe/Berlin")),
    }
    pq.write_table(pa.table(columns), tmp_path / "a.parquet")
    found = read(tmp_path / "a.parquet")
    (row,) = found.tables["questions"].to_pylist()
    assert (row["question_id"], row["title"], row["tags"]) == (1, "a", ["x, y", "z"])
    assert row["creation_date"].timestamp() == 1_600_000_000.123
    assert rejects(found) == [(2, "no Id")]


def test_tags_lose_what_a_json_list_spells_and_no_text_may_have(tmp_path: Path) -> None:
    written = json.dumps(["py\0thon", "\ud800x"]).replace('"', '""')
    (tags,) = read(tmp_path / "a.csv", f'title,tags\na,"{written}"').tables["questions"]["tags"].to_pylist()
    assert tags == ["python", "x"]


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("a.csv", b"", "empty, without a header that names its columns"),
        ("a.csv", "id,title\n1,a".encode("utf-16"), "encoded in UTF-16 or UTF-32; save it as UTF-8"),
        ("a.json", b"[]", "a list of objects, or one object per line, expected"),
        ("a.csv", b"PK\3\4\x14\0\6\0", "a .zip or a workbook of Excel; rename it to end in .zip, or save it as CSV"),
        ("a.ndjson", b'{"title": "a"},\n{"title": "b"},\n', "a list of objects, or one object per line, expected; it"),
        ("a.csv", b"title\n" + b"x" * (9 << 20), "line 2 is longer than 8 MiB"),
        ("a.parquet", b"PAR1", "cannot be read ("),
        ("a.json", b'{"title": {"0": "a", "1": "b"}, "id": {"0": 5, "1": 6}}', "column 'title' holds lists or objects"),
        ("a.json", b'{"data": {"issues": {"nodes": [{"title": "a"}]}}}', "one object, not a list of them; take the li"),
    ],
)
def test_a_table_that_cannot_be_read_is_named_in_one_line(name: str, content: bytes, said: str, tmp_path: Path) -> None:
    with pytest.raises(DupqError) as caught:
        read(tmp_path / name, content)
    assert str(caught.value).startswith(f"{tmp_path / name}: {said}")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "content",
    [
        '[{"id": 1, "title": "a"}, {"id": 2, "title": "b"}, {"id": 3, "title": "c"}]',
        '[[{"id": 1, "title": "a"}, {"id": 2, "title": "b"}], [{"id": 3, "title": "c"}]]',  # gh api --slurp
        '[{"id": 1, "title": "a"}, {"id": 2, "title": "b"}][{"id": 3, "title": "c"}]',  # gh api --paginate
        '{"items": [{"id": 1, "title": "a"}, {"id": 2, "title": "b"}, {"id": 3, "title": "c"}], "has_more": false}',
        '{"items": [{"id": 1, "title": "a"}, {"id": 2, "title": "b"}]}{"items": []}'
        '{"items": [{"id": 3, "title": "c"}]}',
    ],
)
def test_pages_of_rows_are_read_as_rows(content: str, tmp_path: Path) -> None:
    found = read(tmp_path / "a.json", content)
    assert titles(found) == ["a", "b", "c"]
    assert found.tables["ids"]["id"].to_pylist() == ["1", "2", "3"]
    lines = content.replace("][", "]\n[").replace("}{", "}\n{")
    assert titles(read(tmp_path / "a.jsonl", lines)) == ["a", "b", "c"]


def test_lists_in_a_row_make_no_page_of_it(tmp_path: Path) -> None:
    row = {"title": "a", "answers": [{"title": "x"}], "tags": ["b", "c"]}
    (question,) = read(tmp_path / "a.json", json.dumps(row)).tables["questions"].to_pylist()
    assert (question["title"], question["tags"]) == ("a", ["b", "c"])


def test_pandas_tables_are_read_or_refused(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    table = pandas.DataFrame(
        {"id": [7, 8], "title": ["a", "b"], "date": pandas.to_datetime(["2024-01-02T03:04:05"] * 2)}, index=["x", "y"]
    )
    for orient, lines in (("records", False), ("records", True), ("table", False)):
        table.to_json(tmp_path / "a.json", orient=orient, lines=lines)
        found = read(tmp_path / "a.json").tables["questions"]
        assert found["question_id"].to_pylist() == [7, 8]
        assert {date.isoformat() for date in found["creation_date"].to_pylist()} == {"2024-01-02T03:04:05+00:00"}
    for orient in ("columns", "index", "split", "values"):
        table.to_json(tmp_path / "a.json", orient=orient)
        with pytest.raises(DupqError, match=r"records|a list of objects"):
            read(tmp_path / "a.json")


def test_the_apis_texts_and_dates_are_read_as_it_writes_them(tmp_path: Path) -> None:
    item = {"question_id": 5, "title": "What&#39;s &quot;x&quot; &amp; y?", "is_answered": True, "body": "a &lt; b"}
    item |= {"creation_date": 1_700_000_000, "tags": ["c++"]}
    path = tmp_path / "a.json"
    path.write_text(json.dumps({"items": [item], "has_more": True, "quota_max": 300}))
    (row,) = read(path).tables["questions"].to_pylist()
    assert (row["question_id"], row["title"], row["tags"]) == (5, 'What\'s "x" & y?', ["c++"])
    assert (row["body_html"], row["creation_date"].timestamp()) == ("a &lt; b", 1_700_000_000)
    assert titles(read(path, columns=Columns(format="table"))) == [item["title"]]


def test_lines_that_are_no_json_are_told_as_such(tmp_path: Path) -> None:
    lines = ['{"title": "a"}', "", '{"title": "b"}TRAIL', '{"title": "\\ud83d"}', '{"note": 1}', '{"title": "c']
    found = read(tmp_path / "a.jsonl", "\r\n".join(lines))
    assert titles(found) == ["a"]
    assert rejects(found) == [(2, NO_OBJECT), (3, NO_OBJECT), (4, NO_TEXT), (5, NO_OBJECT)]
    assert found.rejects["excerpt"].to_pylist()[0] == '{"title": "b"}TRAIL'


# Options on tables that are known


ISSUES = [
    {"number": 7, "title": "t", "body": "Duplicate of #8", "labels": ["x"], "createdAt": "2024-01-02"},
    {"number": 8, "title": "u", "body": "b"},
    {"number": 9, "title": "v", "body": "b", "url": "https://github.com/o/r/pull/9"},
]


@pytest.mark.parametrize(
    "columns", [Columns(title="title"), Columns(text="body", id="number"), Columns(format="plain"), Columns(tags="")]
)
def test_options_do_not_change_what_an_issue_is(columns: Columns, tmp_path: Path) -> None:
    found = read(tmp_path / "a.json", json.dumps(ISSUES), columns)
    assert found.tables["ids"]["duplicate_of"].to_pylist() == [[8], []]
    assert found.tables["questions"]["tags"].to_pylist() == [[] if columns.tags == "" else ["x"], []]
    assert found.counts["other_posts"] == 1


@pytest.mark.parametrize("columns", [Columns(id=""), Columns(title="body"), Columns(format="html"), Columns(text="")])
def test_options_that_no_issue_fits_are_refused_and_a_table_can_be_had(columns: Columns, tmp_path: Path) -> None:
    with pytest.raises(DupqError, match=r"GitHub issues, which --.* does not fit; .* --format table"):
        read(tmp_path / "a.json", json.dumps(ISSUES), columns)
    assert len(titles(read(tmp_path / "a.json", columns=Columns(format="table")))) == 3


def test_issues_in_parquet_are_issues(tmp_path: Path) -> None:
    rows = [{**row, "pull_request": None, "user": {"login": "ann"}} for row in ISSUES[:2]]
    rows += [{"number": 9, "title": "v", "body": "b", "pull_request": {"url": "x"}}]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "a.parquet")
    found = read(tmp_path / "a.parquet")
    assert found.tables["questions"]["owner"].to_pylist() == ["ann", "ann"]
    assert found.counts["other_posts"] == 1


def test_options_keep_posts_that_are_no_questions_out_of_a_dumps_own_table(tmp_path: Path) -> None:
    content = "Id,PostTypeId,Title,Body,Tags\n1,1,How?,<b>,|x|\n2,2,,y,\n"
    found = read(tmp_path / "a.csv", content, Columns(format="plain", tags=""))
    (row,) = found.tables["questions"].to_pylist()
    assert (row["body_html"], row["tags"], found.counts["other_posts"]) == ("<p>&lt;b&gt;</p>", [], 1)


# Quotes of CSV


@pytest.mark.parametrize(
    ("lines", "found"),
    [
        (["title", "Why, oh why?", '"a, b"', '"Who" said, why?'], ["Why, oh why?", "a, b", '"Who" said, why?']),
        (["sep=;", "id;title", "1;a"], ["a"]),
        (["id,title,text", '1, "bread, fast?", "x"'], ["bread, fast?"]),
        (["id,title,text", '1, "two', 'lines", x', '2, "All" of it?, x'], ["two\nlines", ' "All" of it?']),
        (["id,title", r'1,"She said \"hi, you\""', r'2,"C:\"'], ['She said "hi, you"', "C:\\"]),
        (["id,title", r'1,"one \"x\"', r'more, \"y\""', "2,b"], ['one "x"\nmore, "y"', "b"]),
    ],
)
def test_quotes_are_read_as_they_are_meant(lines: list[str], found: list[str], tmp_path: Path) -> None:
    contents = read(tmp_path / "a.csv", "\n".join(lines))
    assert titles(contents) == found
    assert rejects(contents) == []


def test_what_databases_write_for_a_missing_value_is_none(tmp_path: Path) -> None:
    (row,) = read(tmp_path / "a.csv", 'id,title,date,tags\n1,t,\\N,"{c++,""a, b""}"\n').tables["questions"].to_pylist()
    assert (row["creation_date"], row["tags"]) == (None, ["c++", "a, b"])
    assert rejects(read(tmp_path / "a.json", '[{"title": "a"}, {"title": NaN}]')) == [(2, NO_TEXT)]


def test_a_name_that_looks_like_a_pattern_is_none(tmp_path: Path) -> None:
    (tmp_path / "a1.json").write_text('[{"title": "other"}]')
    assert titles(read(tmp_path / "a[1].json", '[{"title": "x"}]')) == ["x"]


# GitHub issues


def test_github_issues_lose_their_template_and_keep_labels_and_duplicates(tmp_path: Path) -> None:
    body = "<!-- Fill in\nall. -->\n### What happened\n\nIt broke < 5.\n- [x] I searched\n_No response_\n\nDupe of #3"
    both = {"title": "Crash", "body": body, "labels": [{"name": "bug"}, {"name": "a|b"}]}
    gh = {"number": 7, **both, "createdAt": "2024-01-02T03:04:05Z", "author": {"login": "ann"}}
    gh |= {"url": "https://github.com/o/r/issues/7", "comments": [{"body": "duplicate of #5, I think"}, {"body": None}]}
    api = {"number": 8, **both, "created_at": "2024-01-02T03:04:05Z", "user": {"login": "ann"}, "comments": 2}
    requests = [{**gh, "number": 9, "url": "https://github.com/o/r/pull/9"}, {**api, "number": 10, "pull_request": {}}]
    empty = {**gh, "number": 11, "body": None, "url": "https://github.com/o/r/issues/11"}

    found = read(tmp_path / "issues.json", json.dumps([gh, api, *requests, empty]))

    names = {row["question_id"]: row["id"] for row in found.tables["ids"].to_pylist()}
    rows = sorted(found.tables["questions"].to_pylist(), key=lambda row: names[row["question_id"]])
    assert [names[row["question_id"]] for row in rows] == ["8", "o/r#11", "o/r#7"]
    assert [row["body_html"] for row in rows] == ["<p>It broke &lt; 5.</p>", "", "<p>It broke &lt; 5.</p>"]
    assert {(*row["tags"], row["owner"], row["creation_date"].isoformat()) for row in rows} == {
        ("bug", "a b", "ann", "2024-01-02T03:04:05+00:00")
    }
    assert {row["id"]: row["duplicate_of"] for row in found.tables["ids"].to_pylist()} == {
        "o/r#7": sorted(map(id_number, ("o/r#3", "o/r#5"))),
        "8": [3],
        "o/r#11": [id_number("o/r#5")],
    }
    assert found.counts["other_posts"] == 2


def duplicates_in(text: str) -> set[str]:
    """The ids that an issue of o/r with this text names."""
    issue = {"number": "1", "title": "t", "body": text, "url": "https://github.com/o/r/issues/1"}
    return set(files.issue_attributes(issue)[files.DUPLICATE_OF].split())


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("Closing as a duplicate of #2.", "o/r#2"),
        ("_Duplicate of **#16**_", "o/r#16"),
        ("Duplicate of #2, #5 and #9", "o/r#2 o/r#5 o/r#9"),
        ("Duplicate of https://github.com/o/r/issues/8", "o/r#8"),
        ("Duplicate of other/my_repo.js#2", "other/my_repo.js#2"),
        ("Duplicate of [#2](https://github.com/o/r/issues/2)", "o/r#2"),
        ("```\nsome code\n```\nDuplicate of #2", "o/r#2"),
        ("Duplicate of #1, myself", ""),
    ],
)
def test_a_remark_names_all_that_an_issue_duplicates(text: str, named: str) -> None:
    assert duplicates_in(text) == set(named.split())


@pytest.mark.parametrize(
    "text",
    [
        "Is this a duplicate of #9?",
        "Possible duplicate of #9",
        "Duplicate of #8 or #9",
        "I don't think that it is a\nduplicate of #9",
        "> Duplicate of #9",
        "`Duplicate of #9`",
        "    Duplicate of #9",
        "<pre>Duplicate of #9</pre>",
        "- [ ] Duplicate of #9",
    ],
)
def test_a_guess_a_question_and_code_are_no_remark(text: str) -> None:
    assert duplicates_in(text) == set()


@pytest.mark.parametrize(
    "text", ["duplicate of #1 ", "no duplicate of #1 ", "`", "<pre", "```\n", "dup of a/", "#1,a."]
)
def test_a_hostile_text_takes_no_quadratic_time(text: str) -> None:
    duplicates_in("dup of " + text * 20_000)
