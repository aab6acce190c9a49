"""Rows of PostLinks.xml."""

from collections.abc import Mapping
from typing import Any

from dupq.dump.fields import identifier, milliseconds

_LINK_TYPES = {1: "linked", 3: "duplicate"}


def link(attributes: Mapping[str, str]) -> dict[str, Any]:
    """One row of LINKS, times in milliseconds. Raises BadField naming what makes it unusable."""
    link_type = identifier(attributes, "LinkTypeId")
    return {
        "question_id": identifier(attributes, "PostId"),
        "related_id": identifier(attributes, "RelatedPostId"),
        "link_type": _LINK_TYPES.get(link_type, f"type-{link_type}"),
        "creation_date": milliseconds(attributes, "CreationDate"),
    }
