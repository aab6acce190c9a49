"""Rows of Posts.xml as questions and answers, all at once or one by one."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from dupq.dump.fields import TAG_SEPARATORS, identifier, integer, milliseconds, required, text
from dupq.dump.xml.columnar import Columns
from dupq.tables import QUESTIONS

QUESTION, ANSWER = "1", "2"  # PostTypeId
MAXIMUM_TEXT = 1 << 16  # bytes of UTF-8 that an attribute other than Body may have; a row with more is rejected
FABRICATED_IDS = (1_000_000_001, 1_000_000_010)  # an invented question and answer, in every dump since June 2025

FABRICATED = tuple(map(str, FABRICATED_IDS))
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
    if not choice.keeps_fabricated and attributes.get("Id") in FABRICATED:
        return "fabricated"
    if post_type == QUESTION:
        return "questions", _question(attributes, choice.maximum_body)
    if post_type == ANSWER and choice.answers:
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


def question_columns(rows: Sequence[Mapping[str, str]], choice: PostChoice) -> tuple[pa.Table, pa.Array]:
    """QUESTIONS of those of `rows`, all of them questions, that are in the usual form, and which these are."""
    columns = Columns(rows)
    table = pa.table(
        [
            columns.identifier("Id"),
            pc.fill_null(columns.text("Title", MAXIMUM_TEXT), ""),
            pc.fill_null(columns.text("Body", choice.maximum_body), ""),
            _tag_lists(columns.text("Tags", MAXIMUM_TEXT)),
            columns.time("CreationDate"),
            columns.number("Score", pa.int32()),
            columns.number("ViewCount", pa.int64()),
            columns.number("AnswerCount", pa.int32()),
            columns.number("AcceptedAnswerId", pa.int64()),
            columns.time("ClosedDate"),
            pc.coalesce(columns.text("OwnerUserId", MAXIMUM_TEXT), columns.text("OwnerDisplayName", MAXIMUM_TEXT)),
            columns.text("ContentLicense", MAXIMUM_TEXT),
        ],
        schema=QUESTIONS,
    )
    return table.filter(columns.is_usual), columns.is_usual


def answer_columns(rows: Sequence[Mapping[str, str]], choice: PostChoice) -> tuple[pa.Table, pa.Array]:
    """UNJUDGED_ANSWERS of those of `rows`, all of them answers, that are in the usual form, and which these are."""
    columns = Columns(rows)
    bodies = pc.fill_null(columns.text("Body", choice.maximum_body), "")
    found = [columns.identifier("Id"), columns.identifier("ParentId"), bodies, columns.number("Score", pa.int32())]
    return pa.table(found, schema=UNJUDGED_ANSWERS).filter(columns.is_usual), columns.is_usual


def _tag_lists(column: pa.StringArray) -> pa.ListArray:
    trimmed = pc.fill_null(pc.utf8_trim(column, "<>|"), "")
    return pc.if_else(pc.equal(trimmed, ""), _NO_TAGS, pc.split_pattern_regex(trimmed, TAG_SEPARATORS.pattern))
