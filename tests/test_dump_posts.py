import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dupq.dump.fields import BadField
from dupq.dump.links import link
from dupq.dump.posts import is_other_post, post, tags

QUESTION = {"Id": "7", "PostTypeId": "1"}
EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


def reason(parse, attributes: dict[str, str]) -> str:
    with pytest.raises(BadField) as caught:
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

    assert post(attributes) == {
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
    }


def test_a_question_with_nothing_but_its_id() -> None:
    assert post(QUESTION) == {
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
    }


def test_empty_attributes_are_absent_ones() -> None:
    empty = dict.fromkeys(["Title", "Tags", "Score", "CreationDate", "OwnerUserId", "ContentLicense"], "")

    assert post({**QUESTION, **empty}) == post(QUESTION)


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
    assert tags(text) == expected


def test_a_deleted_author_is_named_by_the_display_name() -> None:
    assert post({**QUESTION, "OwnerDisplayName": "user123"})["owner"] == "user123"
    assert post({**QUESTION, "OwnerUserId": "-1", "OwnerDisplayName": "user123"})["owner"] == "-1"


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

    read = post({**QUESTION, "CreationDate": text})["creation_date"]

    assert datetime.timedelta(milliseconds=read) == moment - EPOCH


@given(st.datetimes(datetime.datetime(1, 1, 3), datetime.datetime(9999, 12, 29), timezones=st.timezones()))
def test_dates_of_any_time_zone_are_cut_to_milliseconds(moment: datetime.datetime) -> None:
    read = post({**QUESTION, "CreationDate": moment.isoformat()})["creation_date"]

    cut_off = moment - EPOCH - datetime.timedelta(milliseconds=read)
    assert datetime.timedelta(0) <= cut_off < datetime.timedelta(milliseconds=1)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"PostTypeId": ""}, "no PostTypeId"),
        ({"Id": ""}, "no Id"),
        ({"Id": "x7"}, "Id not a number"),
        ({"Id": "7.0"}, "Id not a number"),
        ({"Id": "1_000"}, "Id not a number"),
        ({"Id": " 7"}, "Id not a number"),
        ({"Id": "٧"}, "Id not a number"),
        ({"Id": "-7"}, "Id not a number"),
        ({"Id": str(2**48)}, "Id not a number"),
        ({"Id": "9" * 5000}, "Id not a number"),
        ({"CreationDate": "yesterday"}, "CreationDate not a date"),
        ({"CreationDate": "2012-02-30T00:00:00"}, "CreationDate not a date"),
        ({"ClosedDate": "0"}, "ClosedDate not a date"),
        ({"Score": "many"}, "Score not a number"),
        ({"Score": "1.5"}, "Score not a number"),
        ({"Score": str(2**31)}, "Score not a number"),
        ({"ViewCount": str(2**63)}, "ViewCount not a number"),
        ({"AnswerCount": "two"}, "AnswerCount not a number"),
        ({"AcceptedAnswerId": "none"}, "AcceptedAnswerId not a number"),
    ],
)
def test_a_question_is_rejected_with_the_attribute_that_is_wrong(changes: dict[str, str], expected: str) -> None:
    assert reason(post, {**QUESTION, **changes}) == expected


def test_a_row_without_type_or_id_is_rejected() -> None:
    assert reason(post, {"Id": "7"}) == "no PostTypeId"
    assert reason(post, {"PostTypeId": "1"}) == "no Id"


def test_the_limits_of_numbers_are_accepted() -> None:
    read = post({"Id": str(2**48 - 1), "PostTypeId": "1", "Score": str(-(2**31)), "ViewCount": str(2**63 - 1)})

    assert (read["question_id"], read["score"], read["view_count"]) == (2**48 - 1, -(2**31), 2**63 - 1)


def test_posts_that_are_no_questions_are_told_apart() -> None:
    assert post({"Id": "8", "PostTypeId": "2"}) == "other_posts"
    assert post({"Id": "1000000001", "PostTypeId": "1"}) == "fabricated"
    assert post({"Id": "1000000010", "PostTypeId": "2"}) == "fabricated"


@pytest.mark.parametrize(
    "row",
    [
        b'<row Id="2" PostTypeId="2" Body="x" />',
        b"<row Id='2' PostTypeId='5' />\r\n  ",
        b'<row Id="2" PostTypeId="17" />',
    ],
)
def test_posts_of_other_kinds_are_known_by_their_bytes(row: bytes) -> None:
    assert is_other_post(row)


@pytest.mark.parametrize(
    "row",
    [
        b'<row Id="2" PostTypeId="1" />',
        b"<row Id='2' PostTypeId='1' />",
        b'<row Id="2" PostTypeId = "1" />',
        b'<row Id="2" PostTypeId="&#49;" />',
        b'<row Id="2" />',
        b"""<row Id="2" Body='PostTypeId="2"' PostTypeId = "1" />""",
        b'<row Id="2" PostTypeId="2" />\n<rw Id="3" />',
        b'<row Id="1000000010" PostTypeId="2" />',
    ],
)
def test_a_row_that_may_be_a_question_is_never_skipped(row: bytes) -> None:
    assert not is_other_post(row)


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
