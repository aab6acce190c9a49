import datetime
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from xml.sax.saxutils import quoteattr

import py7zr
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dupq.dump import contents, site
from dupq.dump.archives import find_sites
from dupq.dump.site import SiteTables, check_counts, last_of_each_id, read_site
from dupq.errors import DupqError
from dupq.tables import LINKS, QUESTIONS, REJECTS


def row(**attributes: object) -> str:
    return "  <row" + "".join(f" {name}={quoted(str(value))}" for name, value in attributes.items()) + " />\r\n"


def quoted(text: str) -> str:
    return quoteattr(text, {"\n": "&#xA;", "\r": "&#xD;", "\t": "&#x9;"})


def question(question_id: object, **attributes: object) -> str:
    return row(Id=question_id, PostTypeId=1, **attributes)


def link(question_id: object, related_id: object, link_type: object = 3, **attributes: object) -> str:
    return row(Id=1, PostId=question_id, RelatedPostId=related_id, LinkTypeId=link_type, **attributes)


def document(root: str, rows: str) -> str:
    return f'\ufeff<?xml version="1.0" encoding="utf-8"?>\r\n<{root}>\r\n{rows}</{root}>'


def read(folder: Path, posts: str, links: str | None = None) -> SiteTables:
    """What is read from a plain dump with these rows."""
    (folder / "Posts.xml").write_text(document("posts", posts), newline="")
    if links is not None:
        (folder / "PostLinks.xml").write_text(document("postlinks", links), newline="")
    (dump,) = find_sites(str(folder), site="a.com")
    return read_site(dump)


def column(tables: SiteTables, name: str) -> list[Any]:
    return tables.questions.column(name).to_pylist()


def test_questions_and_links_have_the_schemas_of_the_archive(tmp_path: Path) -> None:
    tables = read(tmp_path, question(1, CreationDate="2012-03-06T19:06:05.667"), link(1, 2))

    assert tables.questions.schema == QUESTIONS
    assert tables.links.schema == LINKS
    assert tables.rejects.schema == REJECTS
    assert column(tables, "creation_date") == [datetime.datetime(2012, 3, 6, 19, 6, 5, 667_000, tzinfo=datetime.UTC)]


def test_questions_are_sorted_by_id(tmp_path: Path) -> None:
    tables = read(tmp_path, question(30) + question(4) + question(100) + question(5))

    assert column(tables, "question_id") == [4, 5, 30, 100]


def test_of_rows_with_the_same_id_the_last_counts(tmp_path: Path) -> None:
    posts = question(7, Title="first") + question(3) + question(7, Title="second") + question(7, Title="last")

    tables = read(tmp_path, posts)

    assert column(tables, "question_id") == [3, 7]
    assert column(tables, "title") == ["", "last"]
    assert tables.counts["duplicate_ids"] == 2


def test_links_are_sorted_and_kept_as_often_as_they_are_there(tmp_path: Path) -> None:
    links = link(9, 2, 3) + link(9, 2, 1) + link(1, 5, 7) + link(9, 1) + link(9, 1)

    tables = read(tmp_path, question(1), links)

    assert [tuple(values.values())[:3] for values in tables.links.to_pylist()] == [
        (1, 5, "type-7"),
        (9, 1, "duplicate"),
        (9, 1, "duplicate"),
        (9, 2, "duplicate"),
        (9, 2, "linked"),
    ]


def test_a_dump_without_links_has_an_empty_table_of_them(tmp_path: Path) -> None:
    tables = read(tmp_path, question(1))

    assert tables.links == LINKS.empty_table()
    assert tables.counts["link_rows"] == 0


def test_every_row_is_counted_once(tmp_path: Path) -> None:
    posts = (
        question(1)
        + question(1)
        + question("x")
        + "  <row Id=9 />\r\n"
        + row(Id=2, PostTypeId=2, Body="an answer")
        + row(Id=3, PostTypeId=5)
        + row(Id=4)
        + question(1000000001, Title="invented")
        + row(Id=1000000010, PostTypeId=2)
        + question(8)
    )

    tables = read(tmp_path, posts, link(1, 8) + link(1, "x") + "<row broken />")

    assert tables.counts == {
        "rows": 10,
        "questions": 2,
        "other_posts": 2,
        "rejects": 3,
        "fabricated": 2,
        "duplicate_ids": 1,
        "link_rows": 3,
        "links": 1,
        "link_rejects": 2,
    }


def test_rejects_name_the_file_the_place_the_reason_and_the_row(tmp_path: Path) -> None:
    posts = question(1) + question("x", Title="ü" * 300) + "<row Id=9 />\r\n"

    rejects = read(tmp_path, posts, link(1, "")).rejects.to_pylist()

    content = (tmp_path / "Posts.xml").read_bytes()
    assert [(Path(reject["source"]).name, reject["reason"]) for reject in rejects] == [
        ("Posts.xml", "Id not a number"),
        ("Posts.xml", "not well-formed"),
        ("PostLinks.xml", "no RelatedPostId"),
    ]
    assert rejects[0]["position"] == content.index(b'<row Id="x"')
    assert rejects[0]["excerpt"] == ('<row Id="x" PostTypeId="1" Title="' + "ü" * 300)[:200]
    assert rejects[1]["position"] == content.index(b"<row Id=9")


def test_a_reject_from_an_archive_names_the_member(tmp_path: Path) -> None:
    archive = tmp_path / "a.com.7z"
    with py7zr.SevenZipFile(archive, "w") as packed:
        packed.writestr(document("posts", question(1) + question("x")), "Posts.xml")

    (dump,) = find_sites(str(archive))

    assert read_site(dump).rejects.column("source").to_pylist() == [f"{archive}/Posts.xml"]


@pytest.mark.parametrize(
    ("posts", "instead"),
    [
        ("", "0 other posts and 0 unusable rows"),
        (row(Id=1, PostTypeId=2) + row(Id=2, PostTypeId=4), "2 other posts and 0 unusable rows"),
        (
            question("x") + question("y") + question(""),
            "0 other posts and 3 unusable rows (most often: Id not a number)",
        ),
    ],
)
def test_a_dump_without_questions_is_an_error_that_says_what_it_has(posts: str, instead: str, tmp_path: Path) -> None:
    with pytest.raises(DupqError) as caught:
        read(tmp_path, posts)

    assert str(caught.value) == f"{tmp_path}/Posts.xml: no questions in it, only {instead}"


def test_a_file_that_is_cut_short_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "Posts.xml").write_text("<posts>" + question(1))
    (dump,) = find_sites(str(tmp_path), site="a.com")

    with pytest.raises(DupqError, match=r"Posts\.xml: cut short: it does not end with </posts>; whole rows: 1"):
        read_site(dump)


def test_posts_in_the_place_of_links_are_an_error(tmp_path: Path) -> None:
    (tmp_path / "PostLinks.xml").write_text(document("posts", ""))

    with pytest.raises(DupqError, match=r"PostLinks\.xml: .* expected <postlinks>, found <posts>"):
        read(tmp_path, question(1))


def test_tables_do_not_depend_on_the_size_of_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    posts = "".join(question(number % 17, Title=f"title {number}", Tags="<a>") for number in range(40))
    whole = read(tmp_path, posts, link(1, 2))

    monkeypatch.setattr(contents, "BATCH", 3)
    monkeypatch.setattr(site, "BATCH", 3)
    in_batches = read(tmp_path, posts, link(1, 2))

    assert in_batches.questions.num_rows == 17
    assert in_batches == whole


def test_questions_that_are_in_order_already_are_not_copied(tmp_path: Path) -> None:
    questions = read(tmp_path, question(1) + question(2) + question(30)).questions

    assert last_of_each_id(questions) is questions


def test_counts_that_do_not_add_up_are_an_error() -> None:
    counts = dict.fromkeys(["questions", "other_posts", "rejects", "fabricated", "duplicate_ids"], 1)
    links = {"link_rows": 0, "links": 0, "link_rejects": 0}
    check_counts({**counts, **links, "rows": 5}, "Posts.xml")

    with pytest.raises(DupqError, match=r"Posts\.xml: 6 rows are not the sum of questions 1, other_posts 1"):
        check_counts({**counts, **links, "rows": 6}, "Posts.xml")
    with pytest.raises(DupqError, match="2 link_rows are not the sum of links 0"):
        check_counts({**counts, **links, "rows": 5, "link_rows": 2}, "Posts.xml")


# Whatever a question holds, it is read back

XML_TEXT = st.text(
    st.one_of(
        st.sampled_from("\t\n\r <>&'\"|/=;#"),
        st.characters(exclude_categories=["Cs"], exclude_characters="".join(map(chr, range(0x20))) + "\ufffe\uffff"),
    )
)
TAG = st.text("abcxyz0189+#.-é", min_size=1)
WIDE = st.integers(-(2**63), 2**63 - 1)
NARROW = st.integers(-(2**31), 2**31 - 1)
MOMENT = st.datetimes(datetime.datetime(1970, 1, 1), datetime.datetime(2100, 1, 1)).map(
    lambda moment: moment.replace(microsecond=moment.microsecond // 1000 * 1000, tzinfo=datetime.UTC)
)
QUESTION = st.fixed_dictionaries(
    {
        "question_id": st.integers(0, 2**48 - 1).filter(lambda number: number not in (1000000001, 1000000010)),
        "title": XML_TEXT,
        "body_html": XML_TEXT,
        "tags": st.lists(TAG),
        "creation_date": st.none() | MOMENT,
        "score": st.none() | NARROW,
        "view_count": st.none() | WIDE,
        "answer_count": st.none() | NARROW,
        "accepted_answer_id": st.none() | WIDE,
        "closed_date": st.none() | MOMENT,
        "owner": st.none() | XML_TEXT.filter(bool),
        "content_license": st.none() | st.sampled_from(["CC BY-SA 2.5", "CC BY-SA 4.0"]),
    }
)
ATTRIBUTES = {
    "Id": "question_id",
    "CreationDate": "creation_date",
    "Score": "score",
    "ViewCount": "view_count",
    "Body": "body_html",
    "Title": "title",
    "AnswerCount": "answer_count",
    "AcceptedAnswerId": "accepted_answer_id",
    "ClosedDate": "closed_date",
    "OwnerDisplayName": "owner",
    "ContentLicense": "content_license",
}


def as_row(values: Mapping[str, Any], tags: str) -> str:
    attributes = {name: values[column] for name, column in ATTRIBUTES.items() if values[column] is not None}
    texts = {
        name: value.isoformat().removesuffix("+00:00") if isinstance(value, datetime.datetime) else value
        for name, value in attributes.items()
    }
    return row(PostTypeId=1, Tags=tags, **texts)


@settings(max_examples=60, deadline=None)
@given(
    values=st.lists(QUESTION, min_size=1, unique_by=lambda question: question["question_id"]),
    newer=st.booleans(),
)
def test_any_question_is_read_back_as_it_was_written(
    values: list[dict[str, Any]], newer: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    def spelled(tags: list[str]) -> str:
        return "|" + "".join(f"{tag}|" for tag in tags) if newer else "".join(f"<{tag}>" for tag in tags)

    posts = "".join(as_row(question, spelled(question["tags"])) for question in values)

    tables = read(tmp_path_factory.mktemp("dump"), posts)

    assert tables.questions.to_pylist() == sorted(values, key=lambda question: question["question_id"])
    assert tables.counts["rejects"] == 0
