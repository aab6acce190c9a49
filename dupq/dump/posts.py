"""Rows of Posts.xml: which are questions, and a question's fields."""

import re
from collections.abc import Mapping
from typing import Any, Literal

from dupq.dump.fields import identifier, integer, milliseconds, required

QUESTION = "1"  # PostTypeId
FABRICATED_IDS = (
    "1000000001",
    "1000000010",
)  # an invented question and answer, in every dump since June 2025

_POST_TYPE = re.compile(rb"""PostTypeId=["']([0-9]+)["']""")
_TAG_SEPARATORS = re.compile(r"[<>|]+")


def is_other_post(content: bytes) -> bool:
    """Whether the bytes of a row show, without parsing it, that it is a post of another kind than a question.

    False whenever that is in doubt: several elements or post types, or perhaps a fabricated post.
    """
    post_type = _POST_TYPE.search(content)
    return (
        post_type is not None
        and post_type[1] != QUESTION.encode()
        and content.count(b"<") == 1
        and content.count(b"PostTypeId") == 1
        and b"10000000" not in content
    )


def post(attributes: Mapping[str, str]) -> dict[str, Any] | Literal["other_posts", "fabricated"]:
    """One row of QUESTIONS, times in milliseconds, or what else the post is.

    Raises BadField naming what makes the row unusable.
    """
    post_type = required(attributes, "PostTypeId")
    if attributes.get("Id") in FABRICATED_IDS:
        return "fabricated"
    return _question(attributes) if post_type == QUESTION else "other_posts"


def tags(text: str) -> list[str]:
    """The tags in either spelling of the dumps: `<a><b>` or, in newer ones, `|a|b|`."""
    return [tag for tag in _TAG_SEPARATORS.split(text) if tag]


def _question(attributes: Mapping[str, str]) -> dict[str, Any]:
    return {
        "question_id": identifier(attributes, "Id"),
        "title": attributes.get("Title", ""),
        "body_html": attributes.get("Body", ""),
        "tags": tags(attributes.get("Tags", "")),
        "creation_date": milliseconds(attributes, "CreationDate"),
        "score": integer(attributes, "Score", bits=32),
        "view_count": integer(attributes, "ViewCount", bits=64),
        "answer_count": integer(attributes, "AnswerCount", bits=32),
        "accepted_answer_id": integer(attributes, "AcceptedAnswerId", bits=64),
        "closed_date": milliseconds(attributes, "ClosedDate"),
        "owner": attributes.get("OwnerUserId") or attributes.get("OwnerDisplayName") or None,
        "content_license": attributes.get("ContentLicense") or None,
    }
