"""Parsing rows of Posts.xml into questions and answers, by compiled code or one by one."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dupq.dump.fields import TAG_SEPARATORS, identifier, integer, milliseconds, required, text
from dupq.dump.xml.columnar import numbers, texts, times, with_nulls
from dupq.dump.xml.plain_rows import PlainRows
from dupq.dump.xml.row_layout import ALWAYS, DATE, INTEGER, NEVER, STRING, Attribute, Layout, layout
from dupq.tables import QUESTIONS
from dupq.text.keys import MAXIMUM_ID

QUESTION, ANSWER = 1, 2  # PostTypeId
MAXIMUM_TEXT = 1 << 16  # bytes of UTF-8 that an attribute other than Body may have; a row with more is rejected
FABRICATED_IDS = (1_000_000_001, 1_000_000_010)  # an invented question and answer, in every dump since June 2025

_FABRICATED = tuple(map(str, FABRICATED_IDS))
_INT32 = (-(1 << 31), (1 << 31) - 1)
_NO_TAGS = pa.scalar([], pa.list_(pa.string()))


@dataclass(frozen=True)
class PostChoice:
    """Which posts are wanted."""

    answers: bool = False
    maximum_body: int = 1_000_000  # bytes of UTF-8; a row with more is rejected
    keeps_fabricated: bool = False  # tables from elsewhere have no fabricated posts, whatever their ids


# The schema of answers while a site is being read: which are accepted is known at its end.
UNJUDGED_ANSWERS = pa.schema(
    [
        pa.field("answer_id", pa.int64(), nullable=False),
        pa.field("question_id", pa.int64(), nullable=False),
        pa.field("body_html", pa.string(), nullable=False),
        pa.field("score", pa.int32()),
    ]
)


def tags(written: str) -> list[str]:
    """The tags in either spelling of the dumps: `<a><b>` or, in newer ones, `|a|b|`."""
    return [tag for tag in TAG_SEPARATORS.split(written) if tag]


def post(attributes: Mapping[str, str], choice: PostChoice) -> tuple[str, dict[str, object]] | str:
    """A row of the table named, times in milliseconds; or what else the post is, "other_posts" or "fabricated".

    Raises BadField naming what makes the row unusable.
    """
    post_type = required(attributes, "PostTypeId")
    if not choice.keeps_fabricated and attributes.get("Id") in _FABRICATED:
        return "fabricated"
    if post_type == str(QUESTION):
        return "questions", _question(attributes, choice.maximum_body)
    if post_type == str(ANSWER) and choice.answers:
        return "answers", _answer(attributes, choice.maximum_body)
    return "other_posts"


def _question(attributes: Mapping[str, str], maximum_body: int) -> dict[str, object]:
    return {
        "question_id": identifier(attributes, "Id"),
        "title": text(attributes, "Title", MAXIMUM_TEXT),
        "body_html": text(attributes, "Body", maximum_body),
        "tags": tags(text(attributes, "Tags", MAXIMUM_TEXT)),
        "creation_date": milliseconds(attributes, "CreationDate"),
        "score": integer(attributes, "Score", bits=32),
        "view_count": integer(attributes, "ViewCount", bits=64),
        "answer_count": integer(attributes, "AnswerCount", bits=32),
        "accepted_answer_id": integer(attributes, "AcceptedAnswerId", bits=64),
        "closed_date": milliseconds(attributes, "ClosedDate"),
        "owner": _owner(attributes),
        "content_license": text(attributes, "ContentLicense", MAXIMUM_TEXT) or None,
    }


def _owner(attributes: Mapping[str, str]) -> str | None:
    number, name = (text(attributes, attribute, MAXIMUM_TEXT) for attribute in ("OwnerUserId", "OwnerDisplayName"))
    return number or name or None


def _answer(attributes: Mapping[str, str], maximum_body: int) -> dict[str, object]:
    return {
        "answer_id": identifier(attributes, "Id"),
        "question_id": identifier(attributes, "ParentId"),
        "body_html": text(attributes, "Body", maximum_body),
        "score": integer(attributes, "Score", bits=32),
    }


_ATTRIBUTES = (
    Attribute("Id", INTEGER, ALWAYS, lowest=0, highest=MAXIMUM_ID),
    Attribute("PostTypeId", INTEGER, ALWAYS),
    Attribute("CreationDate", DATE),
    Attribute("Score", INTEGER, NEVER, *_INT32),
    Attribute("ViewCount", INTEGER),
    Attribute("AnswerCount", INTEGER, NEVER, *_INT32),
    Attribute("AcceptedAnswerId", INTEGER),
    Attribute("ClosedDate", DATE),
    Attribute("ParentId", INTEGER, ANSWER, lowest=0, highest=MAXIMUM_ID),
    Attribute("Title", STRING, highest=MAXIMUM_TEXT),
    Attribute("Body", STRING),
    Attribute("Tags", STRING, highest=MAXIMUM_TEXT),
    Attribute("OwnerUserId", STRING, highest=MAXIMUM_TEXT),
    Attribute("OwnerDisplayName", STRING, highest=MAXIMUM_TEXT),
    Attribute("ContentLicense", STRING, highest=MAXIMUM_TEXT),
)
_ID, _TYPE, _CREATED, _SCORE, _VIEWS, _ANSWERS, _ACCEPTED, _CLOSED, _PARENT = range(9)  # in PlainRows.numbers
_TITLE, _BODY, _TAGS, _OWNER_ID, _OWNER_NAME, _LICENSE = range(6)  # in PlainRows.texts


def post_layout(choice: PostChoice) -> Layout:
    """What the compiled parser reads of posts."""
    attributes = [
        attribute._replace(highest=choice.maximum_body) if attribute.name == "Body" else attribute
        for attribute in _ATTRIBUTES
    ]
    kept = (QUESTION, ANSWER) if choice.answers else (QUESTION,)
    return layout(tuple(attributes), "PostTypeId", kept, unsure=FABRICATED_IDS)


def question_columns(rows: PlainRows) -> pa.Table:
    """QUESTIONS of plain rows, all of them taken for questions."""
    owner_id, owner_name = (with_nulls(texts(rows, place)) for place in (_OWNER_ID, _OWNER_NAME))
    columns = [
        numbers(rows, _ID),
        texts(rows, _TITLE),
        texts(rows, _BODY),
        _tag_lists(texts(rows, _TAGS)),
        times(rows, _CREATED),
        numbers(rows, _SCORE, pa.int32()),
        numbers(rows, _VIEWS),
        numbers(rows, _ANSWERS, pa.int32()),
        numbers(rows, _ACCEPTED),
        times(rows, _CLOSED),
        pc.coalesce(owner_id, owner_name),
        with_nulls(texts(rows, _LICENSE)),
    ]
    return pa.Table.from_arrays(columns, schema=QUESTIONS)


def answer_columns(rows: PlainRows) -> pa.Table:
    """UNJUDGED_ANSWERS of plain rows, all of them taken for answers."""
    columns = [numbers(rows, _ID), numbers(rows, _PARENT), texts(rows, _BODY), numbers(rows, _SCORE, pa.int32())]
    return pa.Table.from_arrays(columns, schema=UNJUDGED_ANSWERS)


def post_types(rows: PlainRows) -> np.ndarray:
    """The PostTypeId of each row."""
    return rows.numbers[_TYPE]


def _tag_lists(column: pa.StringArray) -> pa.ListArray:
    trimmed = pc.utf8_trim(column, "<>|")
    return pc.if_else(pc.equal(trimmed, ""), _NO_TAGS, pc.split_pattern_regex(trimmed, TAG_SEPARATORS.pattern))
