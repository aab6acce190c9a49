import datetime
from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dupq.dump import posts
from dupq.dump.parsing import Format, read_rows
from dupq.dump.posts import split_tags
from dupq.dump.xml_files import Row

QUESTION = {"Id": "7", "PostTypeId": "1"}
EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


class Rejected(Exception):  # noqa: N818
    """Why a row was."""


def read(attributes: Mapping[str, str], form: Format) -> tuple[str, dict[str, Any]] | str:
    """The table and the row that attributes become, times in milliseconds, or what else they count as."""
    contents = read_rows([Row(0, attributes, b"")], form, "Posts.xml")
    for reject in contents.rejects.to_pylist():
        raise Rejected(reject["reason"])
    for name, table in contents.tables.items():
        schema = pa.schema(
            [pa.field(f.name, pa.int64() if pa.types.is_timestamp(f.type) else f.type) for f in table.schema]
        )
        for row in table.cast(schema).to_pylist():
            return name, row
    (other,) = (name for name, count in contents.counts.items() if count and name != "rows")
    return other


def post(attributes: Mapping[str, str], answers: bool = False) -> tuple[str, dict[str, Any]] | str:
    return read(attributes, Format("posts", answers))


OF_OTHER_TABLES = {"own_id": None, "url": None}


def question(attributes: Mapping[str, str]) -> dict[str, Any]:
    """The row that a question becomes."""
    table, row = post(attributes)
    assert table == "questions"
    return row


def link(attributes: Mapping[str, str]) -> dict[str, Any]:
    return read(attributes, Format("links"))[1]


def reason(parse: Callable[[dict[str, str]], Any], attributes: dict[str, str]) -> str:
    with pytest.raises(Rejected) as caught:
        parse(attributes)
    return str(caught.value)


def test_a_question_with_all_its_attributes() -> None:
    attributes = {
        "Id": "7",
        "PostTypeId": "1",
        "AcceptedAnswerId": "9",
        "CreationDate": "2012-03-06T19:06:05.667",
        "Score": "-3",
        "ViewCount": "319",
        "Body": "<p>Why?</p>",
        "OwnerUserId": "5",
        "OwnerDisplayName": "ann",
        "Title": "Why is it so?",
        "Tags": "<graph-theory><c++>",
        "AnswerCount": "2",
        "CommentCount": "1",
        "ClosedDate": "2012-03-07T00:00:00",
        "ContentLicense": "CC BY-SA 3.0",
    }

    assert question(attributes) == {
        "question_id": 7,
        "title": "Why is it so?",
        "body_html": "<p>Why?</p>",
        "tags": ["graph-theory", "c++"],
        "creation_date": 1331060765667,
        "score": -3,
        "view_count": 319,
        "answer_count": 2,
        "accepted_answer_id": 9,
        "closed_date": 1331078400000,
        "owner": "5",
        "content_license": "CC BY-SA 3.0",
        **OF_OTHER_TABLES,
    }


def test_a_question_with_nothing_but_its_id() -> None:
    assert question(QUESTION) == {
        "question_id": 7,
        "title": "",
        "body_html": "",
        "tags": [],
        "creation_date": None,
        "score": None,
        "view_count": None,
        "answer_count": None,
        "accepted_answer_id": None,
        "closed_date": None,
        "owner": None,
        "content_license": None,
        **OF_OTHER_TABLES,
    }


def test_empty_attributes_are_absent_ones() -> None:
    empty = dict.fromkeys(["Title", "Tags", "Score", "CreationDate", "OwnerUserId", "ContentLicense"], "")

    assert question({**QUESTION, **empty}) == question(QUESTION)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("<a><b-c>", ["a", "b-c"]),
        ("|a|b-c|", ["a", "b-c"]),
        ("<.net>", [".net"]),
        ("|c#|", ["c#"]),
        ("", []),
        ("||", []),
        ("<>", []),
    ],
)
def test_tags_are_read_in_both_spellings(text: str, expected: list[str]) -> None:
    assert split_tags(text) == expected


def test_a_deleted_author_is_named_by_the_display_name() -> None:
    assert question({**QUESTION, "OwnerDisplayName": "user123"})["owner"] == "user123"
    assert question({**QUESTION, "OwnerUserId": "-1", "OwnerDisplayName": "user123"})["owner"] == "-1"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2012-03-06T19:06:05", (2012, 3, 6, 19, 6, 5, 0)),
        ("2012-03-06T19:06:05.6", (2012, 3, 6, 19, 6, 5, 600)),
        ("2012-03-06T19:06:05.667", (2012, 3, 6, 19, 6, 5, 667)),
        ("2012-03-06T19:06:05.6679999", (2012, 3, 6, 19, 6, 5, 667)),
        ("2012-03-06T19:06:05Z", (2012, 3, 6, 19, 6, 5, 0)),
        ("2012-03-06T19:06:05.667+02:00", (2012, 3, 6, 17, 6, 5, 667)),
        ("1969-12-31T23:59:59.999", (1969, 12, 31, 23, 59, 59, 999)),
    ],
)
def test_dates_are_utc_with_or_without_fractions(text: str, expected: tuple[int, ...]) -> None:
    *seconds, milliseconds = expected
    moment = datetime.datetime(*seconds, milliseconds * 1000, tzinfo=datetime.UTC)

    read = question({**QUESTION, "CreationDate": text})["creation_date"]

    assert datetime.timedelta(milliseconds=read) == moment - EPOCH


@given(st.datetimes(datetime.datetime(1, 1, 3), datetime.datetime(9999, 12, 29), timezones=st.timezones()))
def test_dates_of_any_time_zone_are_cut_to_milliseconds(moment: datetime.datetime) -> None:
    read = question({**QUESTION, "CreationDate": moment.isoformat()})["creation_date"]

    cut_off = moment - EPOCH - datetime.timedelta(milliseconds=read)
    assert datetime.timedelta(0) <= cut_off < datetime.timedelta(milliseconds=1)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"PostTypeId": ""}, "no PostTypeId"),
        ({"Id": ""}, "no Id"),
        ({"Id": "x7"}, "Id not a number"),
        ({"Id": "7.0"}, "Id not a number"),
        ({"Id": "7\0"}, "Id not a number"),
        ({"Id": "1_000"}, "Id not a number"),
        ({"Id": " 7"}, "Id not a number"),
        ({"Id": "٧"}, "Id not a number"),
        ({"Id": "-7"}, "Id not a number"),
        ({"Id": str(2**48)}, "Id not a number"),
        ({"Id": "9" * 5000}, "Id not a number"),
        ({"CreationDate": "yesterday"}, "CreationDate not a date"),
        ({"CreationDate": "0001-01-01T00:00:00+01:00"}, "CreationDate not a date"),
        ({"CreationDate": "9999-12-31T23:59:59-01:00"}, "CreationDate not a date"),
        ({"CreationDate": "2012-02-30T00:00:00"}, "CreationDate not a date"),
        ({"ClosedDate": "0"}, "ClosedDate not a date"),
        ({"ClosedDate": "1" * 41}, "ClosedDate not a date"),
        ({"ClosedDate": "2012-03-06T19:06:05." + "6" * 70_000}, "ClosedDate not a date"),
        ({"Title": "x" * 65_537}, "Title of more than 65,536 bytes"),
        ({"Tags": "<é>" * 16_385}, "Tags of more than 65,536 bytes"),
        ({"OwnerUserId": "5", "OwnerDisplayName": "x" * 65_537}, "OwnerDisplayName of more than 65,536 bytes"),
        ({"Score": "many"}, "Score not a number"),
        ({"Score": "1.5"}, "Score not a number"),
        ({"Score": str(2**31)}, "Score not a number"),
        ({"ViewCount": str(2**63)}, "ViewCount not a number"),
        ({"AnswerCount": "two"}, "AnswerCount not a number"),
        ({"AcceptedAnswerId": "none"}, "AcceptedAnswerId not a number"),
    ],
)
def test_a_question_is_rejected_with_the_attribute_that_is_wrong(changes: dict[str, str], expected: str) -> None:
    assert reason(question, {**QUESTION, **changes}) == expected


def test_a_row_without_type_or_id_is_rejected() -> None:
    assert reason(question, {"Id": "7"}) == "no PostTypeId"
    assert reason(question, {"PostTypeId": "1"}) == "no Id"


def test_the_limits_of_numbers_are_accepted() -> None:
    read = question({"Id": str(2**48 - 1), "PostTypeId": "1", "Score": str(-(2**31)), "ViewCount": str(2**63 - 1)})

    assert (read["question_id"], read["score"], read["view_count"]) == (2**48 - 1, -(2**31), 2**63 - 1)


ANSWER = {"Id": "8", "PostTypeId": "2", "ParentId": "7"}


def test_an_answer_with_all_its_attributes() -> None:
    attributes = {**ANSWER, "Body": "<p>So.</p>", "Score": "-1", "Title": "none", "CreationDate": "not read"}

    assert post(attributes, answers=True) == (
        "answers",
        {"answer_id": 8, "question_id": 7, "body_html": "<p>So.</p>", "score": -1},
    )


def test_an_answer_with_nothing_but_its_ids() -> None:
    assert post(ANSWER, answers=True) == (
        "answers",
        {"answer_id": 8, "question_id": 7, "body_html": "", "score": None},
    )


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"Id": ""}, "no Id"),
        ({"Id": "x"}, "Id not a number"),
        ({"ParentId": ""}, "no ParentId"),
        ({"ParentId": "x"}, "ParentId not a number"),
        ({"ParentId": str(2**48)}, "ParentId not a number"),
        ({"Score": "1.5"}, "Score not a number"),
        ({"Body": "x" * 1_000_001}, "Body of more than 1,000,000 bytes"),
    ],
)
def test_an_answer_is_rejected_with_the_attribute_that_is_wrong(changes: dict[str, str], expected: str) -> None:
    assert reason(lambda attributes: post(attributes, answers=True), {**ANSWER, **changes}) == expected
    assert post({**ANSWER, **changes}) == "other_posts"


@pytest.mark.parametrize("answers", [False, True])
def test_posts_that_are_neither_questions_nor_wanted_answers_are_told_apart(answers: bool) -> None:
    assert post({"Id": "8", "PostTypeId": "5"}, answers) == "other_posts"
    assert post({"Id": "8", "PostTypeId": "02"}, answers) == "other_posts"
    assert post({"Id": "1000000001", "PostTypeId": "1"}, answers) == "fabricated"
    assert post({"Id": "1000000010", "PostTypeId": "2"}, answers) == "fabricated"
    assert post({"Id": "1000000010", "PostTypeId": "1"}, answers) == "fabricated"


@pytest.mark.parametrize(
    ("text", "is_kept"), [("x" * 12, True), ("x" * 13, False), ("é" * 6, True), ("é" * 7, False), ("😀" * 4, False)]
)
def test_a_body_is_measured_in_bytes_of_utf_8(text: str, is_kept: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(posts, "MAXIMUM_BODY", 12)

    if is_kept:
        assert question({**QUESTION, "Body": text})["body_html"] == text
    else:
        assert reason(question, {**QUESTION, "Body": text}) == "Body of more than 12 bytes"


LINK = {
    "Id": "1",
    "CreationDate": "2013-02-18T03:03:35.137",
    "PostId": "8",
    "RelatedPostId": "7",
    "LinkTypeId": "3",
}


@pytest.mark.parametrize(
    ("type_id", "link_type"), [("1", "linked"), ("3", "duplicate"), ("2", "type-2"), ("9", "type-9")]
)
def test_links_are_named_by_their_type(type_id: str, link_type: str) -> None:
    assert link({**LINK, "LinkTypeId": type_id}) == {
        "question_id": 8,
        "related_id": 7,
        "link_type": link_type,
        "creation_date": 1361156615137,
    }


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"PostId": ""}, "no PostId"),
        ({"PostId": "x"}, "PostId not a number"),
        ({"RelatedPostId": ""}, "no RelatedPostId"),
        ({"RelatedPostId": "-1"}, "RelatedPostId not a number"),
        ({"LinkTypeId": ""}, "no LinkTypeId"),
        ({"LinkTypeId": "duplicate"}, "LinkTypeId not a number"),
        ({"CreationDate": "soon"}, "CreationDate not a date"),
    ],
)
def test_a_link_is_rejected_with_the_attribute_that_is_wrong(changes: dict[str, str], expected: str) -> None:
    assert reason(link, {**LINK, **changes}) == expected
